// What anybody commits reaches the open page: events "committed" (detail: commits, or null for "look at everything") and
// "waiting" (detail: how many proposals wait). One visible tab of a browser reads the stream and tells the others, for a
// browser opens few connections to one server; a hidden tab reads nothing, and asks what it missed when it is seen again.

import { changesAnswered, follow, isOwn, key, space } from './api.js';
import { about } from './state.js';

const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 30_000;
const FOR_GOOD = [403, 404]; // an older server, or one that lets nobody follow
let latest = null; // the commit that the page has shown, or asked about
let review = 0;
let reading = null;

/** How many proposals wait for their owner, as far as is known. */
export const waiting = () => review;

/** Begin, from what the first view was told of; to be called once. */
export async function startLive() {
  latest = (await about()).latest ?? null;
  const turn = () => (document.hidden ? stop() : start());
  document.addEventListener('visibilitychange', turn);
  window.addEventListener('key', turn);
  turn();
}

function stop() {
  reading?.abort();
  reading = null;
}

function start() {
  stop();
  reading = new AbortController();
  const { signal } = reading;
  const name = `runebook.live ${key() ?? ''} ${space() ?? ''}`; // tabs that see the same; no other origin can see it
  const tabs = new BroadcastChannel(name);
  tabs.addEventListener('message', ({ data }) => take(data));
  signal.addEventListener('abort', () => tabs.close());
  const read = () => keepReading(signal, (facts) => {
    take(facts);
    if (!signal.aborted) tabs.postMessage(facts);
  });
  // Locks are there where the page is served by this machine or over TLS; elsewhere each tab reads for itself.
  (navigator.locks ? navigator.locks.request(name, { signal }, read) : read()).catch(() => {});
}

async function keepReading(signal, tell) {
  let pause = FIRST_PAUSE_MS;
  while (!signal.aborted) {
    try {
      await follow('/changes', { params: { since: latest }, signal, listen: (_id, facts) => {
        pause = FIRST_PAUSE_MS;
        tell(facts);
      } });
    } catch (error) {
      if (signal.aborted || FOR_GOOD.includes(error.status)) return;
      pause = Math.min(LONGEST_PAUSE_MS, pause * 2);
    }
    await new Promise((resolve) => { setTimeout(resolve, pause); });
  }
}

async function take(facts) {
  const moved = facts.latest !== latest;
  latest = facts.latest;
  if (review !== facts.review) {
    review = facts.review;
    window.dispatchEvent(new CustomEvent('waiting', { detail: review }));
  }
  if (!moved) return;
  await changesAnswered(); // only then it is known which commits are this tab's own
  const known = facts.commits.length > 0 && !facts.more;
  const others = facts.commits.filter((commit) => !isOwn(commit.commit_id));
  if (!known || others.length) window.dispatchEvent(new CustomEvent('committed', { detail: known ? others : null }));
}

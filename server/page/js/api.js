// The HTTP API as the page calls it: JSON, the key of this tab, and errors with their next step.
// The key came in the address (`#key=…`, see `takeKey`), from another tab of this page, or was typed in; it lives in the sessionStorage
// of its tabs and nowhere else.

import { t } from './i18n.js';

const STORED = 'runebook.key';
const PLACE = 'runebook.place';
const SESSION = 'rs_';
const LOOPBACK = ['127.0.0.1', 'localhost', '[::1]'];
const ROOT = '/api/memory';
const SPACE = 'runebook.space';
const OTHER = 'runebook.other';
const LENT_MS = 200;
const OWN_MOST = 200;
/** What conversations are called, by their ids, as far as answers said it. */
export const titles = new Map();
let askForKey = null;
let leave = null;
let user = null;
let over = false;
let asking = null;
let offersLogin = false;

export class ApiError extends Error {
  constructor(status, message, hint = '', data = {}) {
    super(message);
    this.name = 'ApiError';
    this.status = status;
    this.hint = hint;
    this.data = data;
  }
}

/**
 * Use the key in the address, which it leaves at once, so that it is neither shown, bookmarked nor copied along.
 * Anybody can make such a link: unless signing in began in this tab, or a page of this machine has no key yet, `ask() → Promise<boolean>` decides.
 */
export async function takeKey(ask) {
  const place = sessionStorage.getItem(PLACE);
  sessionStorage.removeItem(PLACE);
  const found = /^#key=([^&]+)$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, '', `${location.pathname}${place ?? '#/'}`);
  const given = decodeURIComponent(found[1]);
  const expected = key() === null ? LOOPBACK.includes(location.hostname) : key() === given;
  if (expected || (place !== null && given.startsWith(SESSION)) || await ask()) sessionStorage.setItem(STORED, given);
}

export const key = () => sessionStorage.getItem(STORED);

/** Use this key from now on, or none; event "key". */
function setKey(value) {
  if (value) sessionStorage.setItem(STORED, value);
  else sessionStorage.removeItem(STORED);
  window.dispatchEvent(new Event('key'));
}

/** Whether the server refused with an offer to sign in, at `/login`; it leads back with a key. */
export const canSignIn = () => offersLogin;

/** Come back to the place at hand after signing in. */
export function notePlace() {
  sessionStorage.setItem(PLACE, location.hash || '#/');
}

/** End a session that began by signing in; any other key is only forgotten. The page is loaded anew. */
export async function signOut() {
  if (key()?.startsWith(SESSION)) await call('POST', '/login/end').catch(() => {});
  leaveTo(null);
}

/** Whose page this is, by the own space: the first that is told. */
export const belongsTo = (name) => { user ??= name; };

/** Whom the page was loaded anew for, because their key came into another's page; told once. */
export function loadedFor() {
  const name = sessionStorage.getItem(OTHER);
  sessionStorage.removeItem(OTHER);
  return name;
}

/** Nothing is sent from here on: what this page holds is its user's. */
function leaveTo(value) {
  over = true;
  setKey(value);
  setSpace(null);
  leave();
}

/** The shared space that this tab looks at; null for the own one, where a search finds in all. */
export const space = () => sessionStorage.getItem(SPACE);

/** Look at another space from now on; null is the own one. */
export function setSpace(name) {
  titles.clear();
  if (name) sessionStorage.setItem(SPACE, name);
  else sessionStorage.removeItem(SPACE);
}

const tabs = new BroadcastChannel(STORED); // reaches pages of this origin alone
tabs.addEventListener('message', ({ data }) => {
  if (data === 'asked' && key()) tabs.postMessage({ key: key() });
});

/** The key of another tab, as after a link was opened in a new one; null if none answers. */
function borrowed() {
  return new Promise((resolve) => {
    const listen = ({ data }) => { if (data?.key) done(data.key); };
    const done = (found) => {
      clearTimeout(timer);
      tabs.removeEventListener('message', listen);
      resolve(found);
    };
    const timer = setTimeout(() => done(null), LENT_MS);
    tabs.addEventListener('message', listen);
    tabs.postMessage('asked');
  });
}

const own = new Set();
const pending = new Set(); // changes that were sent and not answered yet
let sent = 0;

/** How many changes this tab has sent so far. */
export const changesSent = () => sent;

/** Until every change that this tab has sent is answered. */
export const changesAnswered = () => Promise.allSettled([...pending]);

/** Whether a commit was made by this tab, which has shown it already. */
export const isOwn = (commitId) => own.has(commitId);

function noteOwn(data) {
  for (const receipt of [data, data.receipt, ...(data.receipts ?? [])]) if (receipt?.commit_id) own.add(receipt.commit_id);
  for (const old of own) if (own.size > OWN_MOST) own.delete(old);
}

/**
 * `ask(wrong, optional) → Promise<string | null>`: called where a key is needed and none, or a wrong one, is there.
 * `anew()` loads the page with nothing of what it holds.
 */
export function onKeyNeeded(ask, anew) {
  askForKey = ask;
  leave = anew;
}

/** The URI's place in the API and in the page's addresses: no `viking://`, each segment percent-encoded. */
export function pathOf(uri) {
  return uri.replace(/^viking:\/\//, '').split('/').map(encodeURIComponent).join('/');
}

function address(path, params) {
  const given = new URLSearchParams(space() ? { space: space() } : {});
  for (const [name, value] of Object.entries(params ?? {})) {
    if (Array.isArray(value)) value.forEach((each) => given.append(name, each));
    else if (value !== undefined && value !== null && value !== '') given.set(name, String(value));
  }
  const query = given.toString();
  return `${path.startsWith('/api/') ? path : `${ROOT}${path}`}${query ? `?${query}` : ''}`;
}

async function call(method, url, body, { etag, signal, as = key() } = {}) {
  if (over) await new Promise(() => {});
  const headers = { Accept: 'application/json' };
  if (as) headers.Authorization = `Bearer ${as}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (etag !== undefined) headers['If-Match'] = etag.startsWith('"') ? etag : `"${etag}"`;
  const init = { method, headers, signal, cache: 'no-store', credentials: 'omit' };
  if (body !== undefined) init.body = JSON.stringify(body);
  try {
    return await fetch(url, init);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, t('error.offline'), t('error.offline.hint'));
  }
}

/** Ask for a key until one opens, and use it from now on; an `optional` question may be left, which gives false. */
export function renewKey(wrong, optional = false) {
  asking ??= newKey(wrong, optional).finally(() => { asking = null; });
  return asking;
}

async function newKey(wrong, optional) {
  let given = wrong || optional ? null : await borrowed();
  for (let again = wrong; ; again = true, given = null) {
    given ??= await askForKey(again, optional);
    if (given === null) return false;
    const answer = await call('GET', `${ROOT}/about`, undefined, { as: given });
    if (answer.status !== 401) return useKey(given, (await read(answer)).spaces);
  }
}

/** What was asked with another key is asked again only by the same user, where the space is still open to them. */
function useKey(given, spaces) {
  const [{ space: name }] = spaces;
  if (name === (user ?? name) && (space() === null || spaces.some((each) => each.space === space()))) {
    setKey(given);
    return true;
  }
  if (user !== null) sessionStorage.setItem(OTHER, name);
  leaveTo(given);
  return new Promise(() => {});
}

async function request(method, url, body, options = {}) {
  let answer = await call(method, url, body, options);
  while (answer.status === 401 && askForKey && !options.quiet) {
    offersLogin = answer.headers.get('link')?.includes('rel="login"') ?? false;
    await renewKey(Boolean(key()));
    answer = await call(method, url, body, options);
  }
  return read(answer);
}

async function read(answer) {
  const text = await answer.text();
  let data = {};
  try {
    data = text ? JSON.parse(text) : {};
  } catch {
    data = { error: text.slice(0, 400) };
  }
  if (answer.ok) {
    for (const [id, title] of Object.entries(data.titles ?? {})) titles.set(id, title);
    return data;
  }
  const said = typeof data.error === 'string' && data.error ? data.error : t('error.status', { status: String(answer.status) });
  throw new ApiError(answer.status, said, data.hint ?? '', data);
}

/** A file of the API, whole. */
export async function blob(path, options = {}) {
  const answer = await call('GET', address(path), undefined, options);
  if (!answer.ok) throw new ApiError(answer.status, t('error.status', { status: String(answer.status) }));
  return answer.blob();
}

/** GET; `path` is below /api/memory ("/entries") or begins with "/api/". */
export function get(path, params, options) {
  return request('GET', address(path, params), undefined, options);
}

/** POST, PUT, PATCH or DELETE; options: etag (sent as If-Match), signal. */
export function send(method, path, body, options) {
  // The server takes changes as JSON only, which no form of another site can send.
  const answer = request(method, address(path), body ?? {}, options).then((data) => {
    noteOwn(data);
    return data;
  });
  sent += 1;
  pending.add(answer);
  answer.catch(() => {}).finally(() => pending.delete(answer));
  return answer;
}

/** Read server-sent events until the server ends the stream, or `signal` is aborted: `listen(id, data)` for each. */
export async function follow(path, { params, signal, listen }) {
  const headers = { Accept: 'text/event-stream' };
  if (key()) headers.Authorization = `Bearer ${key()}`;
  const answer = await fetch(address(path, params), { headers, signal, cache: 'no-store', credentials: 'omit' });
  if (!answer.ok) throw new ApiError(answer.status, await answer.text());
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = '';
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const events = (held + part.value).split('\n\n');
    held = events.pop();
    for (const event of events) {
      const lines = Object.fromEntries(event.split('\n').map((line) => line.split(/: (.*)/s)));
      if (lines.data) listen(lines.id ?? null, JSON.parse(lines.data));
    }
  }
}

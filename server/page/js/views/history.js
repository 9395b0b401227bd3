// History: every commit by day, what it did and who made it, with a strip that shows how busy each day was.

import { get } from '../api.js';
import { h } from '../dom.js';
import { dateOf, day, moment, t } from '../i18n.js';
import { authorName, commitLines, kindBadge, mainFiles, marks } from '../parts/commits.js';
import { dayStrip, ends } from '../parts/charts.js';
import { nameOf } from '../parts/addresses.js';
import { listKeys } from '../parts/memoryrow.js';
import { empty, pending } from '../parts/states.js';
import { toastError } from '../parts/toast.js';

const PAGE = 30;
const STRIP_DAYS = 70;

/** `query.uri`: only what touched this file or directory. */
export async function view({ query, signal }) {
  const uri = query.uri ?? '';
  const page = h('section', { class: 'view view-history' },
    h('header', { class: 'view-head' }, h('h1', {}, t('history.title')), h('p', { class: 'lede' }, t('history.lede'))),
    uri ? h('p', { class: 'note' }, t('history.only', { name: nameOf(uri) }), ' ', h('a', { href: '#/history' }, t('history.all'))) : null,
    pending(async () => timeline(uri, await get('/history', { uri, limit: PAGE }))));
  listKeys(page, signal);
  return page;
}

function timeline(uri, first) {
  if (!first.commits.length) return empty(t('history.none'), t('history.none.more'));
  const commits = [];
  const days = new Map();
  const list = h('div', { class: 'timeline', dataset: { testid: 'timeline' } });
  const strip = h('div', { class: 'strip' });
  const foot = h('div', { class: 'timeline-foot' });
  const add = ({ commits: more, more: left }) => {
    commits.push(...more);
    for (const commit of more) inOrder(placed(list, days, commit), commitItem(commit), commit.at);
    strip.replaceChildren(...density(commits, days));
    foot.replaceChildren(...(left ? [moreButton(uri, commits.at(-1), add)] : [h('p', { class: 'muted small' }, t('history.end'))]));
  };
  add(first);
  return [strip, list, foot];
}

function moreButton(uri, last, add) {
  const button = h('button', { type: 'button', class: 'button', dataset: { testid: 'history-more' }, on: { click: async () => {
    button.disabled = true;
    try {
      add(await get('/history', { uri, limit: PAGE, before: last.commit_id }));
    } catch (error) {
      button.disabled = false;
      toastError(error);
    }
  } } }, t('history.older'));
  return button;
}

/** Put it before what happened earlier: commits come in the order in which they were made, not always in that of their times. */
function inOrder(list, item, at) {
  item.dataset.at = new Date(at).toISOString();
  list.insertBefore(item, [...list.children].find((each) => each.dataset.at < item.dataset.at) ?? null);
}

/** The list of the day of a commit, made where it is not there yet. */
function placed(list, days, commit) {
  const name = dayKey(new Date(commit.at));
  if (!days.has(name)) {
    const items = h('ol', { class: 'commits' });
    const section = h('section', { class: 'day', id: `day-${name}` }, h('h2', { tabindex: '-1' }, day(commit.at)), items);
    days.set(name, { section, items });
    inOrder(list, section, dateOf(name));
  }
  return days.get(name).items;
}

function commitItem(commit) {
  const files = mainFiles(commit).length;
  return h('li', { class: ['commit', commit.undone_by && 'is-undone'], dataset: { testid: 'commit', kind: commit.kind } },
    h('div', { class: 'commit-head' },
      h('a', { class: 'commit-link', href: `#/commit/${encodeURIComponent(commit.commit_id)}`, dataset: { testid: 'commit-link', listItem: '' } },
        h('time', { datetime: commit.at }, moment(commit.at, { timeStyle: 'short' }))),
      kindBadge(commit),
      h('span', { class: 'muted small' }, authorName(commit), ' · ', t('history.files', { count: files })),
      marks(commit)),
    commitLines(commit));
}

/** Commits per day for the last weeks that are loaded. */
function density(commits, days) {
  const counts = new Map();
  for (const commit of commits) {
    const name = dayKey(new Date(commit.at));
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const newest = new Date();
  const oldest = new Date(commits.at(-1).at);
  const span = Math.min(STRIP_DAYS, Math.max(14, Math.floor((newest - oldest) / 86_400_000) + 2));
  const columns = Array.from({ length: span }, (_, index) => {
    const at = new Date(newest);
    at.setDate(at.getDate() - (span - 1 - index));
    const name = dayKey(at);
    const count = counts.get(name) ?? 0;
    return { name, count, on: day(at.toISOString()), title: t('history.day', { day: day(at.toISOString()), count }) };
  });
  const label = t('history.strip', { days: span, count: columns.reduce((sum, column) => sum + column.count, 0) });
  const pick = ({ name }) => {
    const section = days.get(name)?.section;
    section?.scrollIntoView({ block: 'start' });
    section?.querySelector('h2')?.focus({ preventScroll: true });
  };
  return [dayStrip(columns, { label, onPick: pick }), ends(columns[0].on, columns.at(-1).on), h('p', { class: 'muted small' }, label)];
}

function dayKey(at) {
  return `${at.getFullYear()}-${String(at.getMonth() + 1).padStart(2, '0')}-${String(at.getDate()).padStart(2, '0')}`;
}

// History: every commit by day, what it did, who made it and how to take it back.

import { get } from '../api.js';
import { h } from '../dom.js';
import { dateOf, day, moment, t } from '../i18n.js';
import { authorName, commitLines, kindBadge, marks } from '../parts/commits.js';
import { nameOf } from '../parts/addresses.js';
import { listKeys } from '../parts/memoryrow.js';
import { empty, pending } from '../parts/states.js';
import { toastError } from '../parts/toast.js';
import { href } from '../router.js';
import { about } from '../state.js';

const PAGE = 30;

/** `query.uri`: only what touched this file or directory. */
export async function view({ query, signal }) {
  const uri = query.uri ?? '';
  const page = h('section', { class: 'view view-history' },
    h('header', { class: 'view-head' }, h('h1', {}, t('history.title')), h('p', { class: 'lede' }, t('history.lede'))),
    uri ? h('p', { class: 'note' }, t('history.only', { name: nameOf(uri) }), ' ', h('a', { href: '#/history' }, t('history.all'))) : null,
    pending(async () => timeline(uri, ...await Promise.all([get('/history', { uri, limit: PAGE }), about()]))));
  listKeys(page, signal);
  return page;
}

function timeline(uri, first, facts) {
  if (!first.commits.length) return empty(t('history.none'), t('history.none.more'));
  const days = new Map();
  const list = h('div', { class: 'timeline', dataset: { testid: 'timeline' } });
  const foot = h('div', { class: 'timeline-foot' });
  const add = ({ commits: more, more: left }) => {
    for (const commit of more) inOrder(placed(list, days, commit), commitItem(commit, facts.writable), commit.at);
    foot.replaceChildren(...(left ? [moreButton(uri, more.at(-1), add)] : [h('p', { class: 'muted small' }, t('history.end'))]));
  };
  add(first);
  return [list, foot];
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

function commitItem(commit, writable) {
  const place = `/commit/${encodeURIComponent(commit.commit_id)}`;
  return h('li', { class: ['commit', commit.undone_by && 'is-undone'], dataset: { testid: 'commit', kind: commit.kind } },
    h('div', { class: 'commit-head' },
      h('time', { class: 'commit-time', datetime: commit.at }, moment(commit.at, { timeStyle: 'short' })),
      h('span', { class: 'muted small' }, authorName(commit)),
      kindBadge(commit), marks(commit)),
    commitLines(commit),
    h('p', { class: 'commit-acts small' },
      h('a', { href: href(place), dataset: { testid: 'commit-link', listItem: '' } }, t('history.show')),
      writable && !commit.undone_by && h('a', { href: href(place, { undo: 1 }), dataset: { testid: 'commit-undo' } }, t('history.undo'))));
}

function dayKey(at) {
  return `${at.getFullYear()}-${String(at.getMonth() + 1).padStart(2, '0')}-${String(at.getDate()).padStart(2, '0')}`;
}

// Where a memory comes from, what it relates to, and how it came to be as it is.

import { get, pathOf } from '../api.js';
import { h } from '../dom.js';
import { moment, named, percent, t } from '../i18n.js';
import { href } from '../router.js';
import { authorName } from './commits.js';
import { diffTable } from './diff.js';
import { lastName, when } from './marks.js';
import { pending } from './states.js';

const STATES = { 'at rest': 'relation.at_rest', archived: 'relation.archived', gone: 'relation.gone' };

/** The memories it relates to, with the relation's strength. */
export function relations(links) {
  if (!links?.length) return h('p', { class: 'muted' }, t('memory.relations.none'));
  return h('ul', { class: 'relations', dataset: { testid: 'relations' } }, links.map((link) => {
    const name = link.state === 'gone' ? h('span', {}, lastName(link.uri)) : h('a', { href: `#/memory/${pathOf(link.uri)}` }, lastName(link.uri));
    return h('li', {},
      h('div', { class: 'row tight' },
        h('span', { class: ['badge', link.relation === 'contradicts' && 'bad'] }, named(`relation.${link.relation}`, link.relation.replaceAll('_', ' '))),
        name, STATES[link.state] && h('span', { class: 'badge warn' }, t(STATES[link.state])),
        h('span', { class: 'strength', role: 'img', title: t('memory.strength', { share: percent(link.strength) }), 'aria-label': t('memory.strength', { share: percent(link.strength) }) },
          h('i', { style: { inlineSize: `${Math.round(link.strength * 100)}%` } }))),
      link.abstract && h('p', { class: 'muted small' }, link.abstract));
  }));
}

/** The lines of conversation that it was taken from. */
export function sources(entry) {
  const pages = entry.source_pages ?? [];
  if (pages.length === 0) {
    const kind = entry.source?.kind;
    return h('p', { class: 'muted' }, t(kind && kind !== 'user_explicit' ? 'memory.source.other' : 'memory.source.none', { kind: String(kind).replaceAll('_', ' ') }));
  }
  return h('ol', { class: 'quotes', dataset: { testid: 'sources' } }, pages.map((page) => h('li', {},
    h('div', { class: 'memory-meta' }, h('strong', {}, page.speaker || named(`role.${page.role}`, page.role ?? '')),
      page.time && h('time', { datetime: page.time }, moment(page.time)),
      h('a', { href: href(`/session/${encodeURIComponent(page.session_id)}`, { line: page.line }) }, t('memory.source.page'))),
    h('blockquote', {}, page.text))));
}

/** Its versions, newest first; each opens to what it changed. */
export function versions(path, signal) {
  return pending(async () => {
    const found = (await get(`/versions/${path}`, {}, { signal })).versions;
    if (found.length === 0) return h('p', { class: 'muted' }, t('memory.history.none'));
    return h('ol', { class: 'versions', dataset: { testid: 'versions' } }, found.map(version));
  }, 3);
}

function version({ commit, action, rows }) {
  const holder = h('div', { class: 'version-diff' });
  const box = h('details', { class: 'version', dataset: { testid: 'version' } },
    h('summary', {},
      h('span', { class: `action-mark ${action}` }, named(`did.${action}`, action)),
      when(commit.at), h('span', { class: 'muted' }, authorName(commit)),
      commit.undone_by && h('span', { class: 'badge warn' }, t('memory.undone'))),
    holder,
    h('p', { class: 'small' }, h('a', { href: `#/commit/${encodeURIComponent(commit.commit_id)}` }, t('memory.commit'))));
  box.addEventListener('toggle', () => {
    if (box.open && !holder.firstChild) holder.append(diffTable(rows, { name: moment(commit.at) })); // built when looked at
  });
  return h('li', {}, box);
}

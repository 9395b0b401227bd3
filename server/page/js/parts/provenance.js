// Where a memory comes from, what it relates to, and how it came to be as it is.

import { get, pathOf } from '../api.js';
import { h } from '../dom.js';
import { ago, moment, named, percent, t } from '../i18n.js';
import { href } from '../router.js';
import { authorName } from './commits.js';
import { diffTable } from './diff.js';
import { lastName, speakerOf, when } from './marks.js';
import { pending } from './states.js';

/** What programs call themselves whose memories can be imported. */
const PROGRAMS = { chatgpt: 'ChatGPT', claude: 'Claude', 'claude-code': 'Claude Code', 'mcp-memory': 'MCP memory', memoryos: 'MemoryOS' };
/** Commits that change what is known of a memory, not what it says. */
const BESIDE = new Set(['relate', 'organize', 'undo']);
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

/** The file or program that it was imported from, or the lines of conversation that it was taken from. */
export function sources(entry) {
  const { kind, from, file } = entry.source ?? {};
  const pages = entry.source_pages ?? [];
  if (pages.length === 0) {
    const key = from ? 'import' : kind === 'compression' ? 'condensed' : isDirect(entry) ? 'none' : 'other';
    return h('p', { class: 'muted', dataset: { testid: 'origin' } }, t(`memory.source.${key}`, { from: file ?? PROGRAMS[from] ?? from }));
  }
  return h('ol', { class: 'quotes', dataset: { testid: 'sources' } }, pages.map((page) => h('li', {},
    h('div', { class: 'memory-meta' }, h('strong', {}, speakerOf(page)),
      page.time && h('time', { datetime: page.time }, moment(page.time)),
      h('a', { href: href(`/session/${encodeURIComponent(page.session_id)}`, { line: page.line }) }, t('memory.source.page'))),
    h('blockquote', {}, page.text))));
}

/** Whether somebody wrote it here and now: neither imported nor taken from a conversation. */
const isDirect = ({ source }) => !source?.from && !source?.session_id && (source?.kind ?? 'user_explicit') === 'user_explicit';

/** Who changed last what came from elsewhere, going by its versions. */
export function editedSince(entry, found) {
  const edit = isDirect(entry) ? null : found.find(({ action, commit }) => action === 'updated' && !BESIDE.has(commit.kind) && !commit.undone_by);
  return edit ? t('memory.source.edited', { author: authorName(edit.commit), ago: ago(edit.commit.at) }) : null;
}

/** Its versions, newest first; each opens to what it changed. `told(found)` is called with them. */
export function versions(path, signal, told) {
  return pending(async () => {
    const found = (await get(`/versions/${path}`, {}, { signal })).versions;
    told(found);
    if (found.length === 0) return h('p', { class: 'muted' }, t('memory.history.none'));
    return h('ol', { class: 'versions', dataset: { testid: 'versions' } }, found.map(version));
  }, 3);
}

function version({ commit, action, rows }) {
  const holder = h('div', { class: 'version-diff', dataset: { whenOpen: '' } });
  const box = h('details', { class: 'version', dataset: { testid: 'version', commit: commit.commit_id } },
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

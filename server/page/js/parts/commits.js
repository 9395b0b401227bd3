// What a commit did, in a sentence of the reader's language, and the receipt of a change. Made from facts, so that both
// languages say the same; names of files are links.

import { h } from '../dom.js';
import { named, t } from '../i18n.js';
import { isSummary, linkOf, nameOf } from './addresses.js';
import { sentence } from './sentences.js';

const NAMED = 3;
/** Passes of maintenance: their commits have no author. */
const PASSES = new Set(['segment', 'segments', 'sessions', 'promotion', 'summaries', 'eviction', 'expiry', 'tasks', 'capacity', 'logs', 'compression', 'rolling_summary', 'overviews']);
const VERBS = { messages: 'recorded', forget: 'forgot', purge: 'purged' };

/** What became of one file: moved, archived, restored, recorded, forgot, purged, created, updated or deleted. */
export function verbOf(kind, step) {
  if (step.moved_from) {
    const [from, to] = [step.moved_from, step.uri].map((uri) => uri.startsWith('viking://archive/'));
    return from === to ? 'moved' : to ? 'archived' : 'restored';
  }
  if (step.uri.includes('/review/') && step.action !== 'updated') return step.action === 'created' ? 'proposed' : 'decided';
  if (kind === 'messages' && !step.uri.startsWith('viking://session/')) return step.action;
  return VERBS[kind] ?? step.action;
}

/** The files that people care for; the summaries of directories only where there is nothing else. */
function mainFiles(commit) {
  const left = new Set(commit.files.map((step) => step.moved_from).filter(Boolean));
  const own = commit.files.filter((step) => !isSummary(step.uri) && !left.has(step.uri));
  return own.length ? own : commit.files.filter((step) => !left.has(step.uri));
}

/** Sentences as nodes: "Created: Tea, Osaka and 3 more". */
export function commitLines(commit) {
  const groups = new Map();
  for (const step of mainFiles(commit)) {
    const verb = verbOf(commit.kind, step);
    groups.set(verb, [...(groups.get(verb) ?? []), step]);
  }
  return [...groups].map(([verb, steps]) => h('p', { class: 'commit-line' },
    h('span', { class: `verb verb-${verb}` }, t('did.of', { verb: t(`did.${verb}`) })),
    steps.slice(0, NAMED).map((step, at) => [at ? t('list.comma') : null, fileLink(step)]),
    steps.length > NAMED ? ` ${t('did.more', { count: steps.length - NAMED })}` : null));
}

/** The same for a heading. */
export function commitTitle(commit) {
  const lines = commitLines(commit);
  return lines.length ? lines.map((line, at) => [at ? ' · ' : null, ...line.childNodes]) : kindName(commit.kind);
}

function fileLink(step) {
  if (step.action === 'deleted' || step.withheld) return h('span', { class: 'file-gone', title: step.uri }, nameOf(step.uri));
  return h('a', { href: linkOf(step.uri), title: step.uri }, nameOf(step.uri));
}

/** Kinds of which the sentence of what was done says enough. */
const PLAIN = new Set(['commit', 'messages', 'edit', 'delete', 'archive', 'restore', 'forget', 'purge']);

/** The kind of a commit as a badge, where its sentence does not say it. */
export const kindBadge = ({ kind }) => (PLAIN.has(kind) ? null : h('span', { class: 'badge' }, kindName(kind)));

/** A kind of commit in words; kinds that are not known by their own name. */
export const kindName = (kind) => named(`kind.${kind}`, kind);

/** "by Claude", "by hand". */
export function byWhom(commit) {
  const name = authorName(commit);
  return [t('author.hand'), t('author.by_hand')].includes(name) ? name : t('commit.by', { author: name });
}

/** Who made it; by hand where no program did. */
export function authorName(commit) {
  if (!commit.author) return t(commit.kind === 'external' ? 'author.hand' : PASSES.has(commit.kind) ? 'author.maintenance' : 'author.unknown');
  return named(`author.${commit.author.replaceAll(' ', '_')}`, commit.author);
}

/** The last characters of a commit's id: the first ones are its day. */
export const shortId = (id) => id.slice(-8);

/** What it takes back, and what took it back. */
export function marks(commit) {
  const link = (id) => h('a', { href: `#/commit/${encodeURIComponent(id)}` }, shortId(id));
  return [
    commit.undoes ? h('span', { class: 'badge warn' }, t('history.undoes'), ' ', link(commit.undoes)) : null,
    commit.undone_by ? h('span', { class: 'badge warn', dataset: { testid: 'undone' } }, t('history.undone'), ' ', link(commit.undone_by)) : null,
  ];
}

/** A receipt: its status in words, what became of each file, refusals with their next step, notes. */
export function receiptBox(receipt, { testid = 'receipt' } = {}) {
  const results = receipt.results ?? [];
  const shown = results.filter((result) => !isSummary(result.uri) || result.reason);
  const limit = 40;
  const tried = receipt.status === 'dry_run';
  const verb = (action) => (tried && named(`would.${action}`, null)) || named(`did.${action}`, action);
  return h('div', { class: `receipt receipt-${receipt.status}`, dataset: { testid } },
    tried ? null : h('p', { class: 'receipt-status' }, h('strong', {}, t(`receipt.${receipt.status}`)),
      receipt.commit_id ? [' ', h('a', { href: `#/commit/${encodeURIComponent(receipt.commit_id)}` }, shortId(receipt.commit_id))] : null),
    shown.length ? h('ul', { class: 'receipt-results' }, shown.slice(0, limit).map((result) =>
      h('li', { class: `result-${result.action}` },
        h('span', { class: `verb verb-${result.action}` }, verb(result.action)), ' ',
        result.uri && result.action !== 'deleted' ? h('a', { href: linkOf(result.uri), title: result.uri }, nameOf(result.uri)) : h('span', { title: result.uri }, nameOf(result.uri ?? '')),
        result.reason ? h('p', { class: 'receipt-reason' }, sentence(result.reason)) : null,
        result.hint ? h('p', { class: 'receipt-hint' }, sentence(result.hint)) : null,
        result.note ? h('p', { class: 'receipt-hint' }, sentence(result.note)) : null)),
    shown.length > limit ? h('li', {}, t('did.more', { count: shown.length - limit })) : null) : null,
    (receipt.notes ?? []).map((note) => h('p', { class: 'receipt-hint' }, note)));
}

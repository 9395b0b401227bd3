// One commit: what it did to each file, side by side, and taking it back after a look at what that would do.

import { get, send } from '../api.js';
import { fill, h } from '../dom.js';
import { ago, moment, t } from '../i18n.js';
import { isSummary, linkOf, nameOf } from '../parts/addresses.js';
import { byWhom, commitTitle, kindBadge, marks, receiptBox, verbOf } from '../parts/commits.js';
import { diffTable, summary } from '../parts/diff.js';
import { sentence } from '../parts/sentences.js';
import { failure, pending } from '../parts/states.js';
import { about } from '../state.js';

const CHANGES = new Set(['created', 'updated', 'deleted']);
const OPEN_FILES = 4;
const MOST_FILES = 60;
const ALL_LINES = 1_000_000;

/** `query.undo`: look at once at what taking it back would do. */
export async function view({ id, query }) {
  return h('section', { class: 'view view-commit' }, pending(() => drawn(id, Boolean(query.undo))));
}

async function drawn(id, undoing) {
  const [{ commit, files }, facts] = await Promise.all([get(`/commits/${encodeURIComponent(id)}`), about()]);
  const own = files.filter((file) => !isSummary(file.uri));
  const summaries = files.filter((file) => isSummary(file.uri));
  const { begin, panel } = undoPanel(commit, facts);
  if (undoing) begin?.click();
  return [
    h('header', { class: 'view-head' },
      h('p', { class: 'small' }, h('a', { href: '#/history' }, t('commit.back'))),
      h('div', { class: 'split' }, h('h1', {}, commitTitle(commit)), begin),
      h('p', { class: 'row muted small' }, kindBadge(commit),
        h('time', { datetime: commit.at }, `${moment(commit.at)} (${ago(commit.at)})`), h('span', {}, byWhom(commit)), marks(commit))),
    panel,
    reasons(commit),
    own.slice(0, MOST_FILES).map((file, at) => fileDiff(commit, file, at < OPEN_FILES, own.length > 1)),
    own.length > MOST_FILES ? h('p', { class: 'note' }, t('commit.more', { count: own.length - MOST_FILES })) : null,
    summaries.length ? h('details', { class: 'summaries', on: { toggle: opens(() => summaries.slice(0, MOST_FILES).map((file) => fileDiff(commit, file, false))) } },
      h('summary', {}, t('commit.summaries', { count: summaries.length }))) : null,
    h('details', { class: 'small' }, h('summary', {}, t('commit.technical')),
      [commit.commit_id, ...own.slice(0, MOST_FILES).map((file) => file.uri)].map((each) => h('p', {}, h('code', {}, each)))),
  ];
}

/** A listener that draws what a `details` holds when it is opened for the first time. */
function opens(draw) {
  let done = false;
  return (event) => {
    if (done || !event.currentTarget.open || event.target !== event.currentTarget) return;
    done = true;
    event.currentTarget.append(...[draw()].flat());
  };
}

/** `naming`: what was done to which file, where the title does not say it. */
function fileDiff(commit, file, open, naming = true) {
  const table = () => (file.withheld ? h('p', { class: 'note' }, t(file.withheld === 'purged' ? 'commit.purged' : 'commit.withheld'))
    : diffTable(file.rows, { name: t('commit.diff_of', { name: nameOf(file.uri) }), expand: () => allRows(commit, file) }));
  const verb = verbOf(commit.kind, file);
  const box = h('details', { class: 'file-diff', dataset: { testid: 'file-diff', uri: file.uri }, on: { toggle: open ? () => {} : opens(table) } },
    h('summary', {},
      naming && [h('span', { class: `verb verb-${verb}` }, t(`did.${verb}`)), ' ',
        file.action === 'deleted' ? h('strong', {}, nameOf(file.uri)) : h('a', { href: linkOf(file.uri) }, nameOf(file.uri)), ' '],
      file.moved_from ? h('span', { class: 'muted small' }, t('commit.moved_from', { name: file.moved_from })) : null,
      file.withheld ? null : summary(file.rows)));
  if (open) {
    box.open = true;
    box.append(table());
  }
  return box;
}

/** The rows of a file with nothing skipped. */
async function allRows(commit, { uri }) {
  const { files } = await get(`/commits/${encodeURIComponent(commit.commit_id)}`, { context: ALL_LINES });
  return files.find((file) => file.uri === uri)?.rows ?? [];
}

function reasons(commit) {
  const said = (commit.results ?? []).filter((result) => result.note);
  if (!said.length) return null;
  return h('details', { class: 'note' }, h('summary', {}, t('commit.reasons', { count: said.length })),
    h('ul', {}, said.slice(0, MOST_FILES).map((result) => h('li', {}, h('strong', {}, nameOf(result.uri)), ': ', sentence(result.note)))));
}

function undoPanel(commit, facts) {
  if (!facts.writable) return { panel: h('p', { class: 'note' }, t('commit.read_only')) };
  if (commit.undone_by) return {};
  const panel = h('div', { class: 'undo-panel', 'aria-live': 'polite' });
  const path = `/commits/${encodeURIComponent(commit.commit_id)}/undo`;
  const ask = (body) => send('POST', path, body);
  const begin = h('button', { type: 'button', class: 'button', dataset: { testid: 'undo' }, on: { click: () => preview() } }, t('commit.undo'));
  const cancel = () => {
    fill(panel);
    begin.hidden = false;
    begin.focus();
  };
  const preview = async () => {
    begin.disabled = true;
    try {
      const receipt = await ask({ dry_run: true });
      const sure = h('button', { type: 'button', class: 'button primary', dataset: { testid: 'undo-confirm' }, on: { click: () => undo(sure) } }, t('commit.undo_now'));
      const back = h('button', { type: 'button', class: 'button', on: { click: cancel } }, t('action.cancel'));
      const possible = receipt.results.some((result) => CHANGES.has(result.action));
      begin.hidden = true;
      fill(panel, h('div', { class: 'card stack', dataset: { testid: 'undo-preview' } },
        h('h2', {}, t(possible ? 'commit.undo_would' : 'commit.undo_cannot')), receiptBox(receipt),
        h('div', { class: 'actions' }, possible ? sure : null, back)));
      (possible ? sure : back).focus();
    } catch (error) {
      refused(error);
    } finally {
      begin.disabled = false;
    }
  };
  const undo = async (button) => {
    button.disabled = true;
    try {
      const receipt = await ask({ dry_run: false });
      fill(panel, h('div', { class: 'card stack' }, h('h2', {}, t('commit.undo_done')), receiptBox(receipt, { testid: 'undo-receipt' })));
      window.dispatchEvent(new Event('changed'));
    } catch (error) {
      refused(error);
    }
  };
  const refused = (error) => {
    begin.hidden = false;
    fill(panel, h('div', { class: 'card stack' }, error.data?.receipt ? receiptBox(error.data.receipt) : failure(error)));
  };
  return { begin, panel };
}

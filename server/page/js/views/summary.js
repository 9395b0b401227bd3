// The rolling summary: the page that every new session begins with. Made by maintenance until a person writes it.

import { get, send } from '../api.js';
import { fill, h, rendered } from '../dom.js';
import { t } from '../i18n.js';
import { go, setGuard, show } from '../router.js';
import { about, drafts } from '../state.js';
import { confirmed } from '../parts/dialogs.js';
import { livePreview } from '../parts/fields.js';
import { when } from '../parts/marks.js';
import { receiptToast } from '../parts/receipt.js';
import { complain, emptyBox } from '../parts/states.js';
import { toast, toastError } from '../parts/toast.js';

const DRAFT = 'rolling-summary';
const PLACE = '#/summary';
const SHEET = 'M6 3h9l4 4v14H6zM15 3v4h4M9 12h7M9 16h5';

export async function view({ query, signal }) {
  const [now, facts] = await Promise.all([get('/rolling-summary', {}, { signal }), about()]);
  const head = h('header', { class: 'view-head' }, h('h1', {}, t('summary.title')), h('p', { class: 'lede' }, t('summary.lede')));
  return h('div', { class: 'edit' }, head, query.edit && facts.writable ? writing(now, signal) : reading(now, facts.writable));
}

function reading(now, writable) {
  const edit = h('a', { class: 'button primary', href: `${PLACE}?edit=1`, dataset: { testid: 'edit' } }, t(now.text ? 'action.edit' : 'summary.write'));
  if (!now.text) return emptyBox(SHEET, t('summary.empty'), t('summary.empty.text'), writable && edit);
  return h('div', { class: 'stack' },
    h('p', { class: 'memory-meta' }, h('span', { class: 'badge' }, t(`summary.by.${now.written_by}`)), when(now.updated_at)),
    h('div', { class: 'card page', dataset: { testid: 'body' } }, rendered(now.html)),
    writable && h('div', { class: 'actions' }, edit,
      h('button', { type: 'button', class: 'button danger', dataset: { testid: 'clear' }, on: { click: clear } }, t('summary.clear'))));
}

async function clear() {
  if (!(await confirmed(t('summary.clear'), t('summary.clear.text'), t('summary.clear'), { kind: 'danger', testid: 'clear-dialog' }))) return;
  try {
    receiptToast(await send('DELETE', '/rolling-summary'), { undone: show });
    await show();
  } catch (error) {
    toastError(error);
  }
}

function writing(now, signal) {
  const kept = drafts.get(DRAFT);
  const draft = kept ?? { text: now.text, seen: now }; // of the version that it was begun on, also where the view is drawn anew
  const dirty = () => field.value.trim() !== draft.seen.text.trim();
  const preview = h('div', { class: 'card page', dataset: { testid: 'preview' } }, rendered(now.html));
  const beside = h('div');
  const live = livePreview(preview, async (abort) => rendered((await send('POST', '/preview', { markdown: field.value }, { signal: abort })).html));
  const field = h('textarea', { id: 'summary-text', rows: 16, value: draft.text, dataset: { testid: 'field-summary' }, on: { input: () => {
    draft.text = field.value;
    if (dirty()) drafts.set(DRAFT, draft);
    else drafts.delete(DRAFT);
    keep.disabled = !dirty();
    live.soon();
  } } });
  const keep = h('button', { type: 'submit', class: 'button primary', disabled: !dirty(), dataset: { testid: 'save' } }, t('action.save'));
  const leave = () => { drafts.delete(DRAFT); setGuard(null); return go(PLACE); };

  async function save() {
    if (!dirty()) return leave();
    try {
      const answer = await send('PUT', '/rolling-summary', { text: field.value }, { etag: draft.seen.sha256 });
      await leave();
      receiptToast(answer.receipt, { undone: show });
    } catch (error) {
      if (error.status !== 412 || !error.data.summary) { complain(beside, error); return; }
      draft.seen = error.data.summary;
      toast(t('conflict.title'), { kind: 'bad', detail: t('conflict.text') });
      fill(beside, h('section', { class: 'card stack tight', dataset: { testid: 'beside' } }, h('h2', {}, t('conflict.beside')), rendered(error.data.summary.html)));
    }
  }

  setGuard(async () => {
    if (!dirty()) return true;
    const left = await confirmed(t('edit.leave.title'), t('edit.leave.text'), t('edit.leave.go'), { kind: 'danger', cancel: t('edit.leave.stay'), testid: 'leave-dialog' });
    if (left) drafts.delete(DRAFT);
    return left;
  });
  signal.addEventListener('abort', live.stop);
  window.addEventListener('beforeunload', (event) => { if (drafts.has(DRAFT)) event.preventDefault(); }, { signal });
  if (kept !== undefined) live.now();
  const form = h('form', { class: 'stack' },
    h('div', { class: 'edit-columns' },
      h('div', { class: 'field' }, h('label', { for: 'summary-text' }, t('field.content')), field, h('span', { class: 'help' }, t('summary.help'))),
      h('div', { class: 'stack beside' }, beside, h('section', { class: 'stack tight' }, h('h2', {}, t('edit.preview')), preview))),
    h('div', { class: 'actions sticky' }, keep,
      h('a', { class: 'button', href: PLACE }, t('action.cancel')), h('span', { class: 'spacer' }), h('span', { class: 'muted small keys' }, t('edit.keys'))));
  form.addEventListener('submit', (event) => { event.preventDefault(); save(); });
  form.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); save(); }
    if (event.key === 'Escape') { event.preventDefault(); go(PLACE); }
  });
  return form;
}

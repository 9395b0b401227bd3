// Changing a memory's fields, with a preview, the changes so far, and a way out of every conflict.
// What is written is kept as a draft until it is saved or given up, whatever else is looked at.

import { get, pathOf, send } from '../api.js';
import { coded, fill, h, rendered } from '../dom.js';
import { t } from '../i18n.js';
import { go, setGuard } from '../router.js';
import { drafts } from '../state.js';
import { conflictView } from '../parts/conflict.js';
import { confirmed } from '../parts/dialogs.js';
import { diffTable } from '../parts/diff.js';
import { counted, fieldInput, livePreview, settable, tagList } from '../parts/fields.js';
import { fieldName, nameOf, typeBadge } from '../parts/marks.js';
import { changed, receiptToast } from '../parts/receipt.js';
import { complain } from '../parts/states.js';

/** Members of a PATCH: only what differs from the memory as it was opened. */
export function difference(entry, draft) {
  const fields = {};
  for (const [name, value] of Object.entries(draft.values)) {
    const before = (entry.fields ?? []).find((field) => field.name === name)?.value ?? '';
    if (String(value ?? '') !== String(before)) fields[name] = value;
  }
  const members = Object.keys(fields).length > 0 ? { fields } : {};
  if (draft.tags !== null && tagList(draft.tags).join('\n') !== (entry.tags ?? []).join('\n')) members.tags = tagList(draft.tags);
  return members;
}

export async function view({ path, signal }) {
  const kept = drafts.get(path);
  const draft = kept ?? { values: {}, tags: null, entry: await get(`/entries/${path}`, {}, { signal }), beside: null };
  const root = h('div', { class: 'edit' });
  const keys = { save: null };
  document.addEventListener('keydown', (event) => {
    if (event.defaultPrevented || event.target.closest?.('dialog')) return;
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey) && keys.save) { event.preventDefault(); keys.save(); }
    if (event.key === 'Escape') { event.preventDefault(); go(`#/memory/${path}`); }
  }, { signal });
  window.addEventListener('beforeunload', (event) => { if (drafts.has(path)) event.preventDefault(); }, { signal });
  editor(root, path, draft, keys, signal);
  return root;
}

function editor(root, path, draft, keys, signal) {
  const shown = `#/memory/${path}`;
  const dirty = () => Object.keys(difference(draft.entry, draft)).length > 0;
  const state = h('span', { class: 'badge warn', role: 'status', hidden: true, dataset: { testid: 'dirty' } }, t('edit.dirty'));
  const save = h('button', { type: 'submit', class: 'button primary', dataset: { testid: 'save' } }, t('action.save'));
  const problem = h('div');
  const preview = h('div', { class: 'card page', dataset: { testid: 'preview' } }, rendered(draft.entry.html));
  const changes = h('div', { dataset: { testid: 'changes' } }, h('p', { class: 'muted' }, t('edit.changes.none')));
  const live = livePreview(preview, (abort) => look(draft, changes, abort));

  function touched() {
    if (dirty()) drafts.set(path, draft);
    else drafts.delete(path);
    state.hidden = save.disabled = !dirty();
    live.soon();
  }

  async function submit() {
    const members = difference(draft.entry, draft);
    if (Object.keys(members).length === 0) {
      await leave();
      return;
    }
    save.disabled = true;
    live.stop(); // what it would ask about is no longer there
    try {
      const answer = await send('PATCH', `/entries/${path}`, members, { etag: draft.entry.sha256 });
      if (answer.receipt.status === 'rejected') throw Object.assign(new Error(answer.receipt.results[0]?.reason ?? t('receipt.rejected')), { status: 409, hint: answer.receipt.results[0]?.hint });
      await leave();
      receiptToast(answer.receipt, { undone: () => go(shown) });
      if (changed(answer.receipt)) window.dispatchEvent(new Event('changed'));
    } catch (error) {
      if (error.status === 412 && error.data?.current) decide(error.data.current);
      else {
        complain(problem, error);
        live.soon();
      }
    } finally {
      save.disabled = !dirty();
    }
  }

  async function leave() {
    drafts.delete(path);
    setGuard(null);
    live.stop();
    await go(shown);
  }

  function decide(current) {
    keys.save = null;
    fill(root, conflictView(path, current, difference(draft.entry, draft), {
      take: leave,
      keep: async (newest) => { draft.entry = newest; await submit(); },
      edit: (newest) => {
        draft.entry = newest;
        draft.beside = newest;
        drafts.set(path, draft);
        editor(root, path, draft, keys, signal);
      },
    }));
  }

  setGuard(async () => {
    if (!dirty()) return true;
    const left = await confirmed(t('edit.leave.title'), t('edit.leave.text'), t('edit.leave.go'), { kind: 'danger', cancel: t('edit.leave.stay'), testid: 'leave-dialog' });
    if (left) drafts.delete(path);
    return left;
  });
  signal.addEventListener('abort', live.stop);

  const form = h('form', { class: 'stack', novalidate: true },
    h('div', { class: 'edit-columns' }, h('div', { class: 'stack' }, inputs(draft, touched), problem),
      h('div', { class: 'stack beside' },
        draft.beside && h('details', { class: 'card stack', open: true, dataset: { testid: 'beside' } }, h('summary', {}, t('conflict.beside')), rendered(draft.beside.html)),
        h('section', { class: 'stack tight' }, h('h2', {}, t('edit.preview')), preview),
        h('section', { class: 'stack tight' }, h('h2', {}, t('edit.changes')), changes))),
    h('div', { class: 'actions sticky' }, save, h('a', { class: 'button', href: shown, dataset: { testid: 'cancel' } }, t('action.cancel')), state,
      h('span', { class: 'spacer' }), h('span', { class: 'muted small keys' }, t('edit.keys'))));
  form.addEventListener('submit', (event) => { event.preventDefault(); submit(); });
  keys.save = submit;
  fill(root,
    h('header', { class: 'view-head' }, h('div', { class: 'memory-meta' }, typeBadge(draft.entry.memory_type)), h('h1', {}, t('edit.title', { name: nameOf(draft.entry) }))),
    form);
  touched();
}

function inputs(draft, touched) {
  const fields = draft.entry.fields ?? [];
  const set = (name, value) => { draft.values[name] = value; touched(); };
  const tags = h('input', { id: 'edit-tags', type: 'text', autocomplete: 'off', placeholder: t('edit.tags.example'), value: draft.tags ?? (draft.entry.tags ?? []).join(', '), dataset: { testid: 'field-tags' },
    on: { input: () => { draft.tags = tags.value; touched(); } } });
  return [
    draft.entry.hand_edited && h('p', { class: 'note', dataset: { testid: 'hand-edited' } }, coded(t('edit.byhand', { uri: draft.entry.uri }))),
    fields.filter((field) => settable(field)).map((field) => {
      if (field.merge_op === 'immutable') return String(field.value) !== nameOf(draft.entry) && fixed(field, t('edit.fixed'));
      if (counted(field)) return null; // the system counts it
      return fieldInput(field, draft.values[field.name] ?? field.value, set);
    }),
    h('div', { class: 'field' }, h('label', { for: 'edit-tags' }, t('edit.tags')), tags, h('span', { class: 'help' }, t('edit.tags.help'))),
  ];
}

function fixed(field, why) {
  return h('div', { class: 'field' }, h('span', { class: 'label' }, fieldName(field.name)), h('span', {}, String(field.value ?? '–')), h('span', { class: 'help' }, why));
}

async function look(draft, changes, signal) {
  const members = difference(draft.entry, draft);
  if (Object.keys(members).length === 0) {
    fill(changes, h('p', { class: 'muted' }, t('edit.changes.none')));
    return rendered(draft.entry.html);
  }
  try {
    const { preview } = await send('PATCH', `/entries/${pathOf(draft.entry.uri)}`, { ...members, dry_run: true }, { etag: draft.entry.sha256, signal });
    fill(changes, diffTable(preview.rows));
    return rendered(preview.html);
  } catch (error) {
    if (error.status !== 412) {
      fill(changes);
      throw error;
    }
    fill(changes, h('p', { class: 'warning' }, t('conflict.title')));
    return rendered((await send('POST', '/preview', { markdown: String(draft.values.content ?? '') }, { signal })).html);
  }
}

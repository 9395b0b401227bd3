// Several memories at once: boxes to select them by, and a bar that does one thing to all of them in one commit.

import { get, send } from '../api.js';
import { fill, h, icon } from '../dom.js';
import { t } from '../i18n.js';
import { confirmed, dialog } from './dialogs.js';
import { tagList } from './fields.js';
import { receiptToast } from './receipt.js';
import { tagChoices } from './tags.js';
import { toastError } from './toast.js';

const MOST = 500;
const CHECK = 'M4 6.500h3v3H4zM4 14.500h3v3H4zM11 8h9M11 16h9';

/** For a list of memory rows: {button, bar, sync}. `entryOf(uri)` knows a row's memory, `changed()` shows the list anew. */
export function selection(list, entryOf, changed) {
  const chosen = new Set();
  const count = h('strong', { role: 'status', dataset: { testid: 'selected' } });
  const button = h('button', { type: 'button', class: 'button small', 'aria-pressed': 'false', dataset: { testid: 'select' }, on: { click: () => turn(!on()) } },
    icon(CHECK), t('bulk.select'));
  const act = (key, run, kind = '') => h('button', { type: 'button', class: ['button', 'small', kind], dataset: { testid: `bulk-${key}` }, on: { click: run } }, t(`bulk.${key}`));
  const acts = [
    act('tag', tag), act('pin', () => commit({ pinned: true })), act('unpin', () => commit({ pinned: false })), act('move', move),
    act('archive', () => commit({ action: 'archive' })), act('delete', remove, 'danger'),
  ];
  const bar = h('div', { class: 'bulk-bar', role: 'toolbar', 'aria-label': t('bulk.title'), hidden: true, dataset: { testid: 'bulk' } },
    count, h('button', { type: 'button', class: 'button small quiet', dataset: { testid: 'bulk-all' }, on: { click: all } }, t('bulk.all')),
    h('span', { class: 'spacer' }), acts,
    h('button', { type: 'button', class: 'button small quiet', dataset: { testid: 'bulk-done' }, on: { click: () => turn(false) } }, t('bulk.done')));
  const on = () => list.classList.contains('selecting');

  list.addEventListener('change', ({ target }) => { if (target.matches('.pick')) pick(target.closest('[data-uri]').dataset.uri, target.checked); });
  list.addEventListener('keydown', (event) => {
    if (event.key !== 'x' || event.ctrlKey || event.metaKey || event.altKey) return;
    const uri = event.target.closest('[data-uri]')?.dataset.uri;
    if (!uri) return;
    event.preventDefault();
    turn(true);
    pick(uri, !chosen.has(uri));
  });

  function turn(wanted) {
    list.classList.toggle('selecting', wanted);
    button.setAttribute('aria-pressed', String(wanted));
    if (!wanted) chosen.clear();
    sync();
  }

  function pick(uri, wanted) {
    if (wanted && chosen.size < MOST) chosen.add(uri);
    else chosen.delete(uri);
    sync();
  }

  function all() {
    const rows = [...list.children].map((row) => row.dataset.uri);
    if (rows.every((uri) => chosen.has(uri))) chosen.clear();
    else rows.slice(0, MOST).forEach((uri) => chosen.add(uri));
    sync();
  }

  /** Let boxes and bar say what is chosen; what is no longer listed is chosen no more. */
  function sync() {
    const rows = [...list.children];
    for (const uri of chosen) if (!rows.some((row) => row.dataset.uri === uri)) chosen.delete(uri);
    for (const row of rows) {
      const box = row.querySelector('.pick');
      box.checked = chosen.has(row.dataset.uri);
      box.tabIndex = on() ? 0 : -1;
      row.classList.toggle('chosen', box.checked);
    }
    bar.hidden = !on();
    fill(count, t('bulk.count', { count: chosen.size }));
    for (const each of acts) each.disabled = chosen.size === 0;
  }

  async function commit(asked) {
    try {
      const receipt = await send('POST', '/bulk', { uris: [...chosen], ...asked });
      receiptToast(receipt, { undone: changed });
    } catch (error) {
      if (error.data?.receipt) receiptToast(error.data.receipt);
      else toastError(error);
      return;
    }
    turn(false);
    await changed();
  }

  async function remove() {
    const sure = await confirmed(t('bulk.delete.title', { count: chosen.size }), t('bulk.delete.text', { count: chosen.size }), t('action.delete'), { kind: 'danger', testid: 'bulk-delete-dialog' });
    if (sure) await commit({ action: 'delete' });
  }

  async function tag() {
    const known = await get('/labels');
    const field = h('input', { id: 'bulk-tags', type: 'text', list: 'bulk-tags-known', autocomplete: 'off', dataset: { testid: 'bulk-tags' } });
    const here = [...new Set([...chosen].flatMap((uri) => entryOf(uri)?.tags ?? []))];
    const gone = here.map((name) => h('label', { class: 'chip' }, h('input', { type: 'checkbox', value: name, dataset: { testid: 'bulk-untag' } }), `#${name}`));
    const answer = await dialog(t('bulk.tag.title', { count: chosen.size }), [
      h('div', { class: 'field' }, h('label', { for: 'bulk-tags' }, t('bulk.tag.add')), field, tagChoices('bulk-tags-known', known.tags), h('span', { class: 'help' }, t('edit.tags.help'))),
      gone.length > 0 && h('fieldset', { class: 'plain' }, h('legend', {}, t('bulk.tag.remove')), h('div', { class: 'chips' }, gone)),
    ], [{ value: 'yes', label: t('action.save'), kind: 'primary' }, { value: 'no', label: t('action.cancel') }], 'bulk-tag-dialog');
    const asked = { tags: tagList(field.value), untags: gone.map((each) => each.firstChild).filter((box) => box.checked).map((box) => box.value) };
    if (answer === 'yes' && asked.tags.length + asked.untags.length > 0) await commit(asked);
  }

  async function move() {
    const known = await get('/labels');
    const field = h('input', { id: 'bulk-project', type: 'text', list: 'bulk-projects', autocomplete: 'off', maxlength: 200, dataset: { testid: 'bulk-project' } });
    const answer = await dialog(t('bulk.move.title', { count: chosen.size }),
      h('div', { class: 'field' }, h('label', { for: 'bulk-project' }, t('memory.project')), field, tagChoices('bulk-projects', known.projects), h('span', { class: 'help' }, t('bulk.move.help'))),
      [{ value: 'yes', label: t('bulk.move.go'), kind: 'primary' }, { value: 'no', label: t('action.cancel') }], 'bulk-move-dialog');
    if (answer === 'yes') await commit({ project: field.value.trim() || 'global' });
  }

  return { button, bar, sync };
}

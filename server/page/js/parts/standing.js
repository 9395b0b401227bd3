// How a memory stands: importance, confidence, pinned, in use, expiry; each changed where it is shown, one commit at a time.

import { pathOf, send } from '../api.js';
import { h } from '../dom.js';
import { number, t } from '../i18n.js';
import { importanceLevel, lastDay } from './marks.js';
import { receiptToast } from './receipt.js';
import { tagEditor } from './tags.js';
import { toast, toastError } from './toast.js';

const decimal = (value) => number(value, { minimumFractionDigits: 1 });

/** The controls; `changed(entry)` is called with what the server now holds. */
export function standingControls(entry, changed) {
  let held = entry;
  const controls = [];

  let last = Promise.resolve();

  /** One change after the other, each on what the one before left. */
  function change(members) {
    last = last.then(() => apply(members));
    return last;
  }

  async function apply(members) {
    try {
      const answer = await send('PATCH', `/entries/${pathOf(held.uri)}`, members, { etag: held.sha256 });
      held = answer.entry ?? held;
      receiptToast(answer.receipt, { undone: async () => changed(null) });
    } catch (error) {
      if (error.status === 412 && error.data.current) {
        held = error.data.current;
        toast(t('conflict.title'), { kind: 'bad', detail: error.hint });
      } else toastError(error);
    }
    sync();
    changed(held);
  }

  function sync() {
    for (const show of controls) show(held);
  }

  const readOnly = entry.editable === false;
  const slider = (name, label, help, said) => {
    const id = `standing-${name}`;
    const output = h('output', { for: id, class: 'muted' });
    const input = h('input', { id, type: 'range', min: 0, max: 1, step: 0.05, disabled: readOnly, 'aria-describedby': help ? `${id}-help` : null,
      dataset: { testid: id }, on: {
        input: () => { output.textContent = said(Number(input.value)); },
        change: () => change({ [name]: Number(input.value) }),
      } });
    controls.push((now) => { input.value = now[name] ?? 0.5; output.textContent = said(Number(now[name] ?? 0.5)); });
    return h('div', { class: 'field' }, h('div', { class: 'split' }, h('label', { for: id }, label), output), input,
      help && h('span', { class: 'help', id: `${id}-help` }, help));
  };
  const flag = (name, label) => {
    const input = h('input', { type: 'checkbox', role: 'switch', disabled: readOnly, dataset: { testid: `standing-${name}` },
      on: { change: () => change({ [name]: input.checked }) } });
    controls.push((now) => { input.checked = name === 'active' ? now.active !== false : Boolean(now[name]); });
    return h('label', { class: 'switch' }, input, h('span', {}, label));
  };
  const until = h('input', { id: 'standing-expires', type: 'date', disabled: readOnly, dataset: { testid: 'standing-expires' },
    on: { change: () => change({ expires_at: until.value }) } });
  const never = h('div', { class: 'split' }, h('span', { class: 'muted' }, t('memory.expires.never')), !readOnly && h('button', { type: 'button', class: 'button small', dataset: { testid: 'standing-expires-set' }, on: { click: () => {
    [until.hidden, never.hidden] = [false, true];
    until.focus();
  } } }, t('memory.expires.set')));
  controls.push((now) => {
    until.value = now.expires_at ? lastDay(now.expires_at) : '';
    [until.hidden, never.hidden] = [!now.expires_at, Boolean(now.expires_at)];
  });

  const tags = tagEditor((names) => change({ tags: names }), readOnly);
  controls.push((now) => tags.sync(now.tags));

  const node = h('div', { class: 'stack standing' },
    tags.node,
    slider('salience', t('importance.label'), '', (value) => `${t(`importance.${importanceLevel(value)}`)} · ${decimal(value)}`),
    slider('confidence', t('memory.confidence'), t('memory.confidence.help'), decimal),
    flag('pinned', t('memory.pinned')),
    flag('active', t('memory.active')),
    h('div', { class: 'field' }, h('label', { for: 'standing-expires' }, t('memory.expires')), until, never));
  sync();
  return { node, change, hold: (now) => { held = now; sync(); }, held: () => held };
}

// A form for the fields of a memory type, as both writing and editing use it.

import { coded, h } from '../dom.js';
import { named, t } from '../i18n.js';
import { fieldName } from './marks.js';

const LONG = new Set(['content', 'problem', 'solution', 'guidelines', 'recommended_flow', 'recommendation', 'common_failures', 'optimal_params', 'best_for', 'key_dependencies']);
const LONGEST = new Set(['content', 'guidelines']);
const STATES = ['open', 'in_progress', 'done', 'cancelled'];

/** Whether a person may set the field: averages are derived. */
export const settable = (field) => field.merge_op !== 'avg';

/** Whether it counts something. */
export const counted = (field) => field.merge_op === 'sum';

/** Label, control and help for one field; `onInput(name, value)` is called at each change. */
export function fieldInput(field, value, onInput, { required = false } = {}) {
  const id = `field-${field.name}`;
  const help = named(`fieldhint.${field.name}`, firstSentence(field.description));
  const control = controlFor(field, value ?? '', { id, required, 'aria-describedby': help ? `${id}-help` : null });
  control.addEventListener('input', () => {
    grow(control);
    onInput(field.name, valueOf(field, control));
  });
  requestAnimationFrame(() => grow(control));
  return h('div', { class: 'field' }, h('label', { for: id }, fieldName(field.name)), control,
    help && h('span', { class: 'help', id: `${id}-help` }, help));
}

function controlFor(field, value, props) {
  const dataset = { testid: `field-${field.name}` };
  if (field.type === 'bool') return h('input', { ...props, type: 'checkbox', checked: value === true || value === 'true', dataset });
  if (field.type === 'int64') return h('input', { ...props, type: 'number', step: 1, value: String(value), dataset });
  if (field.type === 'float32') return h('input', { ...props, type: 'number', step: 'any', value: String(value), dataset });
  if (field.name === 'state' && (value === '' || STATES.includes(value))) {
    return h('select', { ...props, value: value || STATES[0], dataset }, STATES.map((each) => h('option', { value: each }, named(`taskstate.${each}`, each))));
  }
  if (LONG.has(field.name) || String(value).includes('\n') || String(value).length > 90) {
    return h('textarea', { ...props, rows: LONGEST.has(field.name) ? 5 : 2, value: String(value), spellcheck: 'true', dataset });
  }
  return h('input', { ...props, type: 'text', autocomplete: 'off', value: String(value), dataset });
}

function valueOf(field, control) {
  if (field.type === 'bool') return control.checked;
  if (field.type === 'int64' || field.type === 'float32') return control.value === '' ? null : Number(control.value);
  return control.value;
}

/** Let a text area be as high as its text, within bounds. */
export function grow(control) {
  if (control.localName !== 'textarea' || !control.isConnected) return;
  control.style.height = 'auto';
  control.style.height = `${Math.min(control.scrollHeight + 4, window.innerHeight * 0.7)}px`;
}

function firstSentence(text) {
  return /^[^\n]*?[.。](?=\s|$)|^[^\n]*/.exec(String(text ?? '').trim())?.[0] ?? '';
}

/** "a, b，c" as a list. */
export function tagList(text) {
  return [...new Set(text.split(/[,，、\n]/).map((each) => each.trim().replace(/^#/, '')).filter(Boolean))];
}

/** A preview that follows what is written: `render(signal)` gives its nodes; calls in between are dropped. */
export function livePreview(box, render, pauseMs = 300) {
  let timer = 0;
  let running = null;
  const run = async () => {
    running?.abort();
    running = new AbortController();
    const { signal } = running;
    try {
      const nodes = await render(signal);
      if (!signal.aborted) box.replaceChildren(...[nodes].flat().filter(Boolean));
    } catch (error) {
      if (error.name !== 'AbortError') box.replaceChildren(h('p', { class: 'muted' }, coded(error.message), ' ', coded(error.hint ?? '')));
    }
  };
  return {
    soon: () => { clearTimeout(timer); timer = setTimeout(run, pauseMs); },
    now: run,
    stop: () => { clearTimeout(timer); running?.abort(); },
  };
}

/** A filter as a chip: its name, its value to choose, and a button to drop it once it is set. */
export function chipSelect(testid, label, options, usual, value, changed) {
  const select = h('select', { value, dataset: { testid }, on: { change: () => set(select.value) } },
    options.map(([value, text]) => h('option', { value }, text)));
  const drop = h('button', { type: 'button', class: 'plain-button', 'aria-label': t('filter.drop', { name: label }), dataset: { testid: `${testid}-drop` }, on: { click: () => {
    select.value = usual;
    set(usual);
    select.focus();
  } } }, '×');
  const box = h('span', { class: 'chip chip-select' }, h('label', {}, h('span', {}, label), select), drop);
  const show = (chosen) => {
    box.classList.toggle('active', chosen !== usual);
    drop.hidden = chosen === usual;
  };
  const set = (chosen) => {
    show(chosen);
    changed(chosen);
  };
  show(value);
  return box;
}

// Short notices in a corner, read out by screen readers, with at most one action (as Undo).

import { h } from '../dom.js';
import { errorTitle, t } from '../i18n.js';

const SHOWN_MS = 5000;
let box = null;

/** The region that `toast` writes to; the shell places it once. */
export function toastRegion() {
  box ??= h('div', { class: 'toasts', role: 'status', 'aria-live': 'polite', dataset: { testid: 'toasts' } });
  return box;
}

/** Say `text`; kind is "good", "bad" or "plain"; it goes after five seconds, not while it is pointed at or focused. */
export function toast(text, { kind = 'plain', detail = '', action = null } = {}) {
  const close = () => { clearTimeout(timer); note.remove(); };
  const note = h('div', { class: `toast ${kind}`, dataset: { testid: 'toast', kind } },
    h('div', { class: 'toast-text' }, h('span', {}, text), detail && h('small', {}, detail)),
    action && h('button', { type: 'button', class: 'button small', dataset: { testid: 'toast-action' },
      on: { click: () => { close(); action.run(); } } }, action.label),
    h('button', { type: 'button', class: 'plain-button', 'aria-label': t('action.close'), on: { click: close } }, '×'));
  let timer = setTimeout(close, SHOWN_MS);
  note.addEventListener('mouseenter', () => clearTimeout(timer));
  note.addEventListener('focusin', () => clearTimeout(timer));
  for (const left of ['mouseleave', 'focusout']) note.addEventListener(left, () => { clearTimeout(timer); timer = setTimeout(close, SHOWN_MS); });
  while (toastRegion().childElementCount >= 3) box.firstElementChild.remove();
  box.append(note);
}

/** Say what went wrong and what to do next. */
export function toastError(error) {
  if (error.name === 'AbortError') return;
  const title = errorTitle(error);
  toast(title || error.message, { kind: 'bad', detail: [title && error.message, error.hint].filter(Boolean).join(' ') });
}

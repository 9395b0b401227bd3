// Asks for the key where the server wants one and the address brought none, and whether to use one that a link brought.

import { canSignIn, key, notePlace } from '../api.js';
import { coded, h } from '../dom.js';
import { t } from '../i18n.js';
import { confirmed } from './dialogs.js';

/** A modal question; resolves to what was typed. `wrong`: the last key was refused. With `optional`, Esc and Cancel give null. */
export function askForKey(wrong, optional = false) {
  return new Promise((resolve) => {
    const field = h('input', {
      id: 'key', type: 'password', autocomplete: 'off', spellcheck: 'false', required: true,
      'aria-describedby': 'key-help', dataset: { testid: 'key' },
    });
    const form = h('form', { class: 'stack' },
      h('h2', {}, t('key.title')),
      wrong && h('p', { class: 'warning', role: 'alert', dataset: { testid: 'key-wrong' } }, t('key.wrong')),
      canSignIn() && h('div', { class: 'actions' },
        h('a', { class: 'button primary', href: '/login', dataset: { testid: 'sign-in' }, on: { click: notePlace } }, t('key.sign-in'))),
      h('p', { id: 'key-help' }, coded(t(canSignIn() ? 'key.or' : 'key.help'))),
      h('label', { for: 'key' }, t('key.label')), field,
      h('div', { class: 'actions' }, h('button', { class: 'button primary', dataset: { testid: 'key-send' } }, t('key.send')),
        optional && h('button', { type: 'button', class: 'button', on: { click: () => done(null) } }, t('action.cancel'))));
    const dialog = h('dialog', { class: 'dialog', 'aria-label': t('key.title'), dataset: { testid: 'key-dialog' } }, form);
    const done = (value) => {
      dialog.close();
      dialog.remove();
      resolve(value);
    };
    dialog.addEventListener('cancel', (event) => {
      event.preventDefault();
      if (optional) done(null);
    });
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (field.value.trim()) done(field.value.trim());
    });
    document.body.append(dialog);
    dialog.showModal();
    field.focus();
  });
}

/** Whether the key of the link that led here is to be used, in place of the one at hand if there is one. */
export function usesLink() {
  const text = t(key() === null ? 'key.link.new' : 'key.link.other');
  return confirmed(t('key.link'), text, t('key.link.use'), { kind: '', cancel: t('key.link.leave'), testid: 'key-link' });
}

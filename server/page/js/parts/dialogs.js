// Questions that stop everything else: leave, delete, and the list of shortcuts. Esc answers no.

import { h } from '../dom.js';
import { t } from '../i18n.js';

/** Show `content` in a modal dialog; resolves to the value of the button that closed it, "" for Esc. */
export function dialog(title, content, buttons, testid) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    const form = h('form', { method: 'dialog', class: 'stack' },
      h('h2', {}, title), content,
      h('div', { class: 'actions' }, buttons.map(({ value, label, kind = '' }) =>
        h('button', { class: `button ${kind}`, value, dataset: { testid: `${testid}-${value}` } }, label))));
    const box = h('dialog', { class: 'dialog', 'aria-label': title, dataset: { testid } }, form);
    box.addEventListener('close', () => {
      box.remove();
      if (before?.isConnected) before.focus();
      resolve(box.returnValue);
    });
    document.body.append(box);
    box.showModal();
  });
}

/** A question whose answer is `confirm` or no. */
export async function confirmed(title, text, confirm, { kind = 'primary', cancel = t('action.cancel'), testid = 'confirm' } = {}) {
  const answer = await dialog(title, h('p', {}, text),
    [{ value: 'yes', label: confirm, kind }, { value: 'no', label: cancel }], testid);
  return answer === 'yes';
}

const SHORTCUTS = [
  ['/', 'help.search'], ['n', 'help.new'], ['j ↓', 'help.next'], ['k ↑', 'help.previous'], ['Enter', 'help.open'], ['x', 'help.select'], ['e', 'help.edit'],
  ['Ctrl Enter', 'help.save'], ['Esc', 'help.close'], ['← → ↑ ↓', 'help.tree'], ['?', 'help.help'],
];

/** The keyboard shortcuts. */
export function showHelp() {
  const list = h('dl', { class: 'shortcuts' }, SHORTCUTS.map(([keys, key]) => [
    h('dt', {}, keys.split(' ').map((each) => h('kbd', {}, each))), h('dd', {}, t(key)),
  ]));
  return dialog(t('help.title'), list, [{ value: 'close', label: t('action.close') }], 'help');
}

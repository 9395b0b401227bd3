// From a field into the list below it by the keyboard (inside the list: memoryrow's listKeys), and lists that grow.

import { h } from '../dom.js';
import { t } from '../i18n.js';

/** Arrow down goes from `field` to the first of `items` inside `box`, arrow up from there back. */
export function fromField(box, field, items) {
  box.addEventListener('keydown', (event) => {
    const [input, first] = [box.querySelector(field), box.querySelector(items)];
    const target = { ArrowDown: [input, first], ArrowUp: [first, input] }[event.key];
    if (!first || !target || document.activeElement !== target[0]) return;
    event.preventDefault();
    target[1].focus();
  });
}

/** A list that shows `size` of `entries` and a button for the next ones. */
export function growing(entries, draw, { size = 30, tag = 'ul', props = {} } = {}) {
  const list = h(tag, props);
  const box = h('div', { class: 'growing' }, list);
  let at = 0;
  const extend = () => {
    list.append(...entries.slice(at, at + size).map(draw));
    at += size;
    const left = entries.length - at;
    if (left <= 0) return;
    const button = h('button', { type: 'button', class: 'button quiet', on: { click: () => {
      button.remove();
      extend();
    } } }, t('list.more', { count: left }));
    box.append(button);
  };
  extend();
  return box;
}

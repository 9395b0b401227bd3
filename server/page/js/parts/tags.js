// Tags: links to the list of what has them, and an editor that commits each change at once.

import { get } from '../api.js';
import { fill, h } from '../dom.js';
import { t } from '../i18n.js';
import { href } from '../router.js';
import { tagList } from './fields.js';

/** A tag that leads to all memories that have it. */
export const tagLink = (tag) => h('a', { class: 'tag', href: href('/', { tag }), dataset: { testid: 'tag' } }, `#${tag}`);

/** What may be typed into a field with `list: id`: the names of `known`, {name: count}. */
export const tagChoices = (id, known) => h('datalist', { id }, Object.keys(known).map((name) => h('option', { value: name })));

/** Tags with a button to take each away, and a field for more; `change(tags)` stores them. {node, sync(tags)} */
export function tagEditor(change, readOnly) {
  const list = h('ul', { class: 'chips', dataset: { testid: 'tags' } });
  const known = h('datalist', { id: 'tags-known' });
  let tags = [];
  const field = h('input', { id: 'tags-add', type: 'text', list: 'tags-known', autocomplete: 'off', placeholder: t('tags.add'), disabled: readOnly,
    dataset: { testid: 'tags-add' }, on: {
      focus: async () => { if (!known.childElementCount) known.replaceWith(tagChoices('tags-known', (await get('/labels')).tags)); },
      keydown: (event) => { if (event.key === 'Enter') { event.preventDefault(); add(); } },
      change: () => add(),
    } });

  function add() {
    const more = tagList(field.value).filter((tag) => !tags.includes(tag));
    field.value = '';
    if (more.length) change([...tags, ...more]);
  }

  const chip = (tag) => h('li', { class: 'chip tag-chip' }, tagLink(tag), !readOnly && h('button', { type: 'button', class: 'plain-button',
    'aria-label': t('tags.remove', { tag }), dataset: { testid: 'tag-remove' }, on: { click: () => change(tags.filter((each) => each !== tag)) } }, '×'));
  return {
    node: h('div', { class: 'field' }, h('label', { for: 'tags-add' }, t('edit.tags')), list, !readOnly && field, known),
    sync(now) {
      tags = [...(now ?? [])];
      fill(list, tags.map(chip));
      list.hidden = tags.length === 0;
    },
  };
}

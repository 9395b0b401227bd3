// Two texts of one memory: what was saved meanwhile and what is being written. Both stay until the reader decides.

import { send } from '../api.js';
import { h } from '../dom.js';
import { moment, t } from '../i18n.js';
import { diffTable } from './diff.js';
import { fieldName } from './marks.js';
import { failure, pending } from './states.js';

/** `current`: the memory as it is now; `members`: what the reader wants to change; `choices`: take(), keep(current), edit(current). */
export function conflictView(path, current, members, choices) {
  const button = (name, kind, run, help = null) => h('button', {
    type: 'button', class: `button ${kind}`, title: help, dataset: { testid: `conflict-${name}` }, on: { click: run } }, t(`conflict.${name}`));
  const head = h('h1', { tabindex: -1 }, t('conflict.title'));
  requestAnimationFrame(() => head.focus());
  return h('section', { class: 'stack conflict', dataset: { testid: 'conflict' } },
    h('header', { class: 'view-head' }, head, h('p', { class: 'lede' }, t('conflict.text'), ' ', h('time', { class: 'muted' }, moment(current.updated_at)))),
    pending(() => comparison(path, current, members), 6),
    h('div', { class: 'actions sticky' },
      button('edit', 'primary', () => choices.edit(current)),
      button('keep', '', () => choices.keep(current), t('conflict.keep.help')),
      button('take', '', () => choices.take())),
    h('p', { class: 'muted small' }, t('conflict.keep.help')),
    h('details', { class: 'stack' }, h('summary', {}, t('conflict.yours')), Object.entries(members.fields ?? {}).map(([name, value]) =>
      h('div', { class: 'field' }, h('label', { for: `yours-${name}` }, fieldName(name)),
        h('textarea', { id: `yours-${name}`, readonly: true, rows: 6, value: String(value), dataset: { testid: `yours-${name}` } })))));
}

async function comparison(path, current, members) {
  try {
    const { preview } = await send('PATCH', `/entries/${path}`, { ...members, dry_run: true }, { etag: current.sha256 });
    if (!preview.rows.some((row) => row.kind !== 'same' && row.kind !== 'skipped')) return h('p', { class: 'muted' }, t('conflict.equal'));
    return diffTable(preview.rows, { left: t('conflict.theirs'), right: t('conflict.yours'), name: t('conflict.title') });
  } catch (error) {
    return failure(error);
  }
}

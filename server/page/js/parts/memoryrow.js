// One memory in a list, and moving through such a list by keyboard.

import { pathOf } from '../api.js';
import { h } from '../dom.js';
import { number, t } from '../i18n.js';
import { decayBar, importanceLevel, importanceMark, nameOf, standingMarks, typeBadge, when } from './marks.js';
import { tagLink } from './tags.js';

/** A list item for an EntrySummary; its link opens the memory. */
export function memoryRow(entry) {
  const title = nameOf(entry);
  const line = entry.abstract ?? '';
  const rest = line.startsWith(title) ? line.slice(title.length) : null;
  const repeated = rest !== null && /^\s*([:：.。·—]|$)/.test(rest); // a heading or a label, not the subject of a sentence
  const said = repeated ? rest.replace(/^[\s:：.。·—-]+/, '') : line;
  return h('li', { class: ['memory-row', entry.active === false && 'resting'], dataset: { testid: 'memory-row', uri: entry.uri } },
    h('input', { type: 'checkbox', class: 'pick', tabindex: -1, 'aria-label': t('bulk.pick', { name: title }), dataset: { testid: 'pick' } }),
    h('div', { class: 'memory-head' },
      h('a', { href: `#/memory/${pathOf(entry.uri)}`, class: 'memory-link', dataset: { listItem: '' } }, title)),
    said && h('p', { class: 'memory-abstract' }, said),
    h('div', { class: 'memory-meta' },
      typeBadge(entry.memory_type), standingMarks(entry),
      entry.project && h('span', { class: 'project', title: t('memory.project') }, entry.project),
      (entry.tags ?? []).slice(0, 4).map(tagLink),
      when(entry.updated_at, 'mark.changed'),
      entry.accesses > 0 && h('span', {}, t('mark.accesses', { count: entry.accesses })),
      importanceLevel(entry.salience) !== 'normal' && importanceMark(entry.salience), decayBar(entry.decay)));
}

/** Let j, k and the arrows move between the links marked `data-list-item` inside `root` until `signal` is aborted. */
export function listKeys(root, signal) {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    const within = document.activeElement;
    if (!step || within.matches('input, textarea, select, [role="treeitem"], dialog *')) return;
    const items = [...root.querySelectorAll('[data-list-item]')];
    if (items.length === 0) return;
    const at = items.indexOf(within);
    if (at < 0 && event.key.startsWith('Arrow') && within !== document.body && !within.matches('main')) return;
    event.preventDefault();
    const next = items[at < 0 ? (step > 0 ? 0 : items.length - 1) : Math.max(0, Math.min(items.length - 1, at + step))];
    next.focus();
    next.scrollIntoView({ block: 'nearest' });
  }, { signal });
}

/** "12 of 300", "300 memories". */
export function countText(shown, total) {
  return shown < total ? t('home.count.some', { shown: number(shown), count: number(total) }) : t('home.count', { count: total });
}

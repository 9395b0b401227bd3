// Two versions of a text side by side. Owns the table, its folding on a phone (css) and the words that say what each
// row is; the rows come from the server. Promises a bounded number of nodes, and never a meaning by colour alone.

import { h } from '../dom.js';
import { t } from '../i18n.js';
import { toastError } from './toast.js';

const FIRST_ROWS = 300;
const MORE_ROWS = 600;
const TRAILER = '<!-- MEMORY_FIELDS';
const TRAILER_LINE = /^(<!-- MEMORY_FIELDS|\{|\}|-->|\s+\S.*)?$/;
const SIGNS = { added: '+', removed: '−', changed: '±' };

/**
 * A table of the rows {kind, left?: {line, text, parts?}, right?, count?}.
 * @param {Array<object>} rows As the server computed them.
 * @param {{left?: string, right?: string, name?: string, expand?: () => Promise<Array<object>>}} options Headings of the
 *   two sides, what is compared, and how to get all rows, the skipped ones too.
 */
export function diffTable(rows, { left, right, name, expand } = {}) {
  const shown = rows ?? [];
  if (!shown.some((row) => SIGNS[row.kind])) {
    return h('p', { class: 'diff-empty' }, t('diff.same'));
  }
  const split = trailerStart(shown);
  const body = shown.slice(0, split);
  while (body.at(-1)?.kind === 'same' && !body.at(-1).right.text.trim()) body.pop();
  const trailer = shown.slice(split);
  const changed = trailer.filter((row) => SIGNS[row.kind]).length;
  const wholly = !body.some((row) => SIGNS[row.kind]);
  const open = expand && (async (button) => {
    button.disabled = true;
    try {
      const whole = diffTable(await expand(), { left, right, name });
      box.replaceWith(whole);
      whole.querySelector('button')?.focus();
    } catch (error) {
      button.disabled = false;
      toastError(error);
    }
  });
  const box = h(
    'div',
    { class: 'diff', role: 'group', 'aria-label': name ?? t('diff.title'), 'data-testid': 'diff' },
    h(
      'table',
      { class: 'diff-table' },
      h('caption', { class: 'visually-hidden' }, name ?? t('diff.title')),
      h('colgroup', {}, h('col', { class: 'diff-col' }), h('col', {}), h('col', { class: 'diff-col' }), h('col', {})),
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          h('th', { colspan: '2', scope: 'colgroup' }, left ?? t('diff.before')),
          h('th', { colspan: '2', scope: 'colgroup' }, right ?? t('diff.after')),
        ),
      ),
      wholly ? null : lines(body, open),
      changed && !wholly ? folded(trailer, changed, open) : null,
      wholly ? lines(shown, open) : null,
    ),
  );
  return box;
}

/** How many rows were added, removed and changed. */
export function countRows(rows) {
  const counts = { added: 0, removed: 0, changed: 0 };
  for (const row of rows ?? []) {
    if (row.kind in counts) counts[row.kind] += 1;
  }
  return counts;
}

/** '4 lines added, 1 changed' of the text itself; of the stored details where only they changed. */
export function summary(rows) {
  const body = countRows((rows ?? []).slice(0, trailerStart(rows ?? [])));
  const counts = Object.entries(Object.values(body).some(Boolean) ? body : countRows(rows)).filter(([, count]) => count);
  const parts = counts.map(([kind, count], at) =>
    h('span', { class: `diff-count-${kind}` }, t(`diff.count.${kind}${at ? '.more' : ''}`, { count })));
  return h('span', { class: 'diff-summary' }, parts.map((part, at) => [at ? t('list.comma') : null, part]));
}

function trailerStart(rows) {
  let start = rows.length;
  for (let at = rows.length - 1; at >= 0; at -= 1) {
    const texts = [rows[at].left?.text, rows[at].right?.text].filter((text) => text !== undefined);
    if (!texts.every((text) => TRAILER_LINE.test(text))) break;
    if (texts.some((text) => text.startsWith(TRAILER))) return at;
    if (texts.some((text) => /^\s+"|^-->|^[{}]/.test(text))) start = at;
  }
  const last = rows.at(-1);
  const ends = [last?.left?.text, last?.right?.text].includes('-->');
  return ends ? start : rows.length;
}

function lines(rows, open) {
  const part = h('tbody', {});
  let at = 0;
  const extend = (count) => {
    part.append(...rows.slice(at, at + count).map((row) => line(row, open)));
    at += count;
    const left = rows.length - at;
    if (left <= 0) return;
    const button = h('button', { type: 'button', class: 'button quiet' }, t('diff.more', { count: left }));
    const holder = h('tr', { class: 'diff-skipped' }, h('td', { colspan: '4' }, button));
    button.addEventListener('click', () => {
      holder.remove();
      extend(MORE_ROWS);
    });
    part.append(holder);
  };
  extend(FIRST_ROWS);
  return part;
}

function folded(rows, changed, expand) {
  const part = h('tbody', { dataset: { whenOpen: '' } });
  const box = h('details', {}, h('summary', { 'data-testid': 'diff-fields' }, t('diff.fields', { count: changed })));
  const head = h('tr', { class: 'diff-skipped diff-fields' }, h('td', { colspan: '4' }, box));
  box.addEventListener('toggle', () => part.replaceChildren(head, ...(box.open ? rows.slice(0, FIRST_ROWS).map((row) => line(row, expand)) : [])));
  part.append(head);
  return part;
}

function line(row, open) {
  if (row.kind === 'skipped') {
    const said = t('diff.skipped', { count: row.count ?? 0 });
    return h(
      'tr',
      { class: 'diff-skipped' },
      h('td', { colspan: '4' }, open ? h('button', { type: 'button', class: 'button quiet', dataset: { testid: 'diff-expand' }, on: { click: (event) => open(event.currentTarget) } }, said) : said),
    );
  }
  const sides = row.kind === 'changed' ? ['removed', 'added'] : [row.kind, row.kind];
  return h('tr', { class: `diff-row diff-${row.kind}` }, ...side(row.left, sides[0]), ...side(row.right, sides[1]));
}

function side(cell, kind) {
  const marks = kind === 'added' || kind === 'removed';
  if (!cell) {
    return [h('td', { class: 'diff-number diff-none' }), h('td', { class: 'diff-text diff-none' })];
  }
  return [
    h('td', { class: `diff-number diff-at-${kind}` }, String(cell.line ?? '')),
    h(
      'td',
      { class: `diff-text diff-at-${kind}` },
      marks
        ? h(
            'span',
            { class: 'diff-sign' },
            h('span', { 'aria-hidden': 'true' }, SIGNS[kind]),
            h('span', { class: 'visually-hidden' }, t(`diff.sign.${kind}`)),
          )
        : null,
      h('span', { class: 'diff-line' }, ...words(cell, kind)),
    ),
  ];
}

function words(cell, kind) {
  if (!cell.parts) return [cell.text || '\u00a0'];
  const tag = kind === 'added' ? 'ins' : 'del';
  return cell.parts.map(([text, changed]) => (!changed ? text : !text.trim() ? h(tag, {}, text)
    : text.split(/(\s+)/).map((piece) => (piece.trim() ? h(tag, {}, piece) : piece))));
}

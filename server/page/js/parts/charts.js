// Small pictures of numbers as SVG. Pure: numbers and texts in, nodes out; no request, no language of its own. Each has
// a text form: a label that says it, or the list beside it. Meaning is carried by place, length and pattern, the colour
// only repeats it. Sizes are shares of the width, so that nothing is measured or drawn again.

import { h, s } from '../dom.js';

const STEPS = [1, 2, 5, 7, 10, 14, 20, 30, 60, 90];
const share = (value) => `${Math.round(Math.min(1, Math.max(0, value)) * 10_000) / 100}%`;
let patterns = 0;

/** Stripes as a fill that can be told apart without colour; gives the pattern and the address of the fill. */
function stripes(tone) {
  patterns += 1;
  const id = `stripes-${patterns}`;
  const pattern = s('pattern', { id, width: '5', height: '5', patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
    s('rect', { width: '5', height: '5', class: `chart-under ${tone}` }),
    s('rect', { width: '2', height: '5', class: `chart-fill ${tone}` }));
  return { pattern, fill: `url(#${id})` };
}

/**
 * One bar made of parts, left to right.
 * @param {Array<{value: number, tone: string, striped?: boolean, title: string}>} parts Values in units of `max`.
 * @param {{max: number, label: string, mark?: number}} options `mark`: where a dashed line stands.
 */
export function stackedBar(parts, { max, label, mark }) {
  const definitions = s('defs', {});
  const drawn = [];
  let at = 0;
  for (const part of parts.filter((each) => each.value > 0)) {
    const width = part.value / max;
    const look = { x: share(at), y: '0', width: share(width), height: '100%', class: `chart-fill ${part.tone}` };
    if (part.striped) {
      const { pattern, fill } = stripes(part.tone);
      definitions.append(pattern);
      delete look.class;
      look.fill = fill;
    }
    drawn.push(s('rect', look, s('title', {}, part.title)));
    if (at > 0) drawn.push(s('line', { x1: share(at), x2: share(at), y1: '0', y2: '100%', class: 'chart-gap' }));
    at += width;
  }
  const place = mark === undefined ? null : { x1: share(mark / max), x2: share(mark / max), y1: '-4', y2: '100%' };
  const line = place && [s('line', { ...place, class: 'chart-halo' }), s('line', { ...place, class: 'chart-mark' })];
  return s('svg', { class: 'chart-bar', role: 'img', 'aria-label': label, preserveAspectRatio: 'none', overflow: 'visible' },
    definitions,
    s('rect', { x: '0', y: '0', width: '100%', height: '100%', rx: '3', class: 'chart-track' }),
    ...drawn, line);
}

/** What the parts of stacked bars mean: [{tone, striped, text}]. */
export function legend(entries) {
  return h('ul', { class: 'chart-legend' }, entries.map(({ tone, striped, text }) => {
    const swatch = s('svg', { class: 'chart-swatch', 'aria-hidden': 'true', focusable: 'false' });
    if (striped) {
      const { pattern, fill } = stripes(tone);
      swatch.append(s('defs', {}, pattern), s('rect', { width: '100%', height: '100%', rx: '2', fill }));
    } else {
      swatch.append(s('rect', { width: '100%', height: '100%', rx: '2', class: `chart-fill ${tone}` }));
    }
    return h('li', {}, swatch, text);
  }));
}

/** Rows of a name, a bar and a number; rows: [{name: node or text, value, text, tone?}]. */
export function barRows(rows, { max, testid } = {}) {
  const most = max ?? Math.max(1, ...rows.map((row) => row.value));
  return h('ul', { class: 'chart-rows', 'data-testid': testid }, rows.map(({ name, value, text, tone }) =>
    h('li', { class: 'chart-row' },
      h('span', { class: 'chart-name' }, name),
      s('svg', { class: 'chart-bar', 'aria-hidden': 'true', focusable: 'false' },
        s('rect', { width: '100%', height: '100%', rx: '3', class: 'chart-track' }),
        s('rect', { width: value > 0 ? share(Math.max(value / most, 0.006)) : '0', height: '100%', rx: '3', class: `chart-fill ${tone ?? 'tone-1'}` })),
      h('span', { class: 'chart-value' }, text))));
}

/**
 * Columns, one for each day, a day without anything being a gap.
 * @param {Array<{count: number, title: string, href?: string, name?: string}>} days Oldest first.
 */
export function dayStrip(days, { label }) {
  const most = Math.max(1, ...days.map((day) => day.count));
  const [step, height] = [9, 44];
  const columns = days.map((day, at) => {
    // The root of the count: a day of an import must not flatten all others.
    const tall = day.count ? Math.max(4, (height - 6) * Math.sqrt(day.count / most)) : 2;
    return s('rect', {
      x: String(at * step + 1), y: String(height - tall), width: String(step - 2), height: String(tall), rx: '1.5',
      class: day.count ? 'chart-fill tone-1' : 'chart-track',
    }, s('title', {}, day.title));
  });
  return s('svg', {
    class: 'chart-days', viewBox: `0 0 ${days.length * step} ${height}`, width: String(days.length * step), height: String(height),
    role: 'img', 'aria-label': label,
  }, columns);
}

/**
 * How something grew: an area from nothing to the last total.
 * @param {Array<{name: string, total: number, title: string}>} points In order, one at least.
 */
export function growthCurve(points, { label, tick }) {
  const [width, height, left, bottom, top] = [460, 200, 52, 26, 12];
  const most = Math.max(1, points.at(-1).total);
  const x = (at) => left + ((at + 1) / points.length) * (width - left - 12);
  const y = (total) => top + (1 - total / most) * (height - top - bottom);
  const line = points.map(({ total }, at) => `L${x(at).toFixed(1)} ${y(total).toFixed(1)}`).join('');
  const grid = [0, 0.5, 1].map((part) => [
    s('line', { x1: String(left), x2: String(width - 12), y1: y(part * most).toFixed(1), y2: y(part * most).toFixed(1), class: 'chart-grid' }),
    s('text', { x: String(left - 8), y: (y(part * most) + 4).toFixed(1), class: 'chart-text', 'text-anchor': 'end' }, tick(Math.round(part * most))),
  ]);
  return s('svg', { class: 'chart-curve', viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label, 'data-testid': 'growth-curve' },
    grid, s('path', { d: `M${left} ${y(0)}${line}L${width - 12} ${y(0)}Z`, class: 'chart-under tone-1' }), s('path', { d: `M${left} ${y(0)}${line}`, class: 'chart-line' }),
    points.map(({ total, title }, at) => s('circle', { cx: x(at).toFixed(1), cy: y(total).toFixed(1), r: '3.5', class: 'chart-fill tone-1' }, s('title', {}, title))),
    points.length > 1 && s('text', { x: String(left), y: String(height - 6), class: 'chart-text' }, points[0].name),
    s('text', { x: String(width - 12), y: String(height - 6), class: 'chart-text', 'text-anchor': 'end' }, points.at(-1).name));
}

/** What stands at the two ends of a chart, below it. */
export const ends = (first, last) => h('p', { class: 'chart-ends' }, h('span', {}, first), h('span', {}, last));

/**
 * The forgetting curve exp(-rate x days) with points on it. Points that would cover each other become one, with a count.
 * @param {Array<{days: number, share: number, title: string, key: string}>} points
 * @param {{rate: number, days: number, label: string, axes: {x: string, y: string}, tick: (day: number) => string,
 *   part: (share: number) => string, half: string, onPick: (keys: string[]) => void}} options `days`: how far the axis goes at least.
 */
export function decayCurve(points, { rate, days: needed, label, axes, tick, part, half, onPick }) {
  const [width, height, left, bottom, top, right] = [460, 270, 60, 44, 14, 14];
  const step = STEPS.find((each) => needed / each <= 6) ?? 90;
  const days = Math.ceil(needed / step) * step;
  const x = (day) => left + (Math.min(day, days) / days) * (width - left - right);
  const y = (value) => top + (1 - value) * (height - top - bottom);
  const line = [];
  for (let at = 0; at <= 80; at += 1) {
    const day = (days * at) / 80;
    line.push(`${at ? 'L' : 'M'}${x(day).toFixed(1)} ${y(Math.exp(-rate * day)).toFixed(1)}`);
  }
  const grid = [0, 0.25, 0.5, 0.75, 1].map((value) => [
    s('line', { x1: String(left), x2: String(width - right), y1: y(value).toFixed(1), y2: y(value).toFixed(1), class: 'chart-grid' }),
    s('text', { x: String(left - 12), y: (y(value) + 4).toFixed(1), class: 'chart-text', 'text-anchor': 'end' }, part(value)),
  ]);
  const ticks = Array.from({ length: days / step + 1 }, (_, at) =>
    s('text', { x: x(at * step).toFixed(1), y: String(height - bottom + 18), class: 'chart-text', 'text-anchor': 'middle' }, tick(at * step)));
  const halfDays = Math.log(2) / rate;
  const middle = halfDays > days ? null : [
    s('line', { x1: x(halfDays).toFixed(1), x2: x(halfDays).toFixed(1), y1: y(0.5).toFixed(1), y2: y(0).toFixed(1), class: 'chart-mark' }),
    s('text', { x: (x(halfDays) + 6).toFixed(1), y: (y(0) - 7).toFixed(1), class: 'chart-text' }, half)];
  const dots = together(points.map((point) => ({ ...point, x: x(point.days), y: y(point.share) }))).map((group) =>
    dot(group, onPick));
  return s('svg', { class: 'chart-curve', viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label, 'data-testid': 'decay-curve' },
    grid, ticks,
    s('text', { x: String((width + left) / 2), y: String(height - 5), class: 'chart-text chart-axis', 'text-anchor': 'middle' }, axes.x),
    s('text', { x: '12', y: String((height - bottom) / 2), class: 'chart-text chart-axis', 'text-anchor': 'middle', transform: `rotate(-90 12 ${(height - bottom) / 2})` }, axes.y),
    s('path', { d: line.join(''), class: 'chart-line' }),
    middle, dots);
}

/** Points nearer to each other than a dot is wide, gathered. */
function together(points) {
  const groups = [];
  for (const point of [...points].sort((one, other) => one.x - other.x || one.y - other.y)) {
    const last = groups.at(-1);
    if (last && Math.hypot(point.x - last[0].x, point.y - last[0].y) < 12) last.push(point);
    else groups.push([point]);
  }
  return groups;
}

function dot(group, onPick) {
  const [first] = group;
  const titles = group.slice(0, 12).map((point) => point.title);
  const radius = group.length === 1 ? 5 : 7 + Math.min(5, Math.log2(group.length));
  const node = s('g', { class: 'chart-dot', dataset: { keys: JSON.stringify(group.map((point) => point.key)) } },
    s('circle', { cx: first.x.toFixed(1), cy: first.y.toFixed(1), r: radius.toFixed(1) }),
    group.length > 1 ? s('text', { x: first.x.toFixed(1), y: (first.y + 3.5).toFixed(1), 'text-anchor': 'middle' }, String(group.length)) : null,
    s('title', {}, [...titles, group.length > 12 ? '…' : null].filter(Boolean).join('\n')));
  node.addEventListener('click', () => onPick?.(group.map((point) => point.key)));
  return node;
}

/** Let the dot that holds this point stand out; null: none. */
export function markDot(curve, key) {
  for (const node of curve.querySelectorAll('.chart-dot')) {
    node.classList.toggle('is-marked', key !== null && JSON.parse(node.dataset.keys).includes(key));
  }
}

// Small pictures of numbers as SVG. Pure: numbers and texts in, nodes out; no request, no language of its own. Each has
// a text form: a label that says it, or the list beside it. Meaning is carried by place, length and pattern, the colour
// only repeats it. Sizes are shares of the width, so that nothing is measured or drawn again.

import { h, s } from '../dom.js';

/** What a plot measures when it has its usual size. */
const [WIDE, HIGH] = [400, 210];
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
 * @param {Array<{count: number, title: string, name: string}>} days Oldest first.
 */
export function dayStrip(days, { label, tick }) {
  const most = Math.max(3, ...days.map((day) => day.count)); // so that one is low
  const columns = days.map(({ count, title }, at) => {
    const tall = count ? Math.max(0.08, count / most) : 0.02;
    return s('rect', { x: share((at + 0.15) / days.length), y: share(1 - tall), width: share(0.7 / days.length), height: share(tall), class: count ? 'chart-fill tone-1' : 'chart-track' }, s('title', {}, title));
  });
  return plot([columns], { label, ys: steps(most, tick), xs: ends(days) });
}

/**
 * How something grew: an area from nothing to the last total.
 * @param {Array<{name: string, total: number, title: string}>} points In order, one at least.
 */
export function growthCurve(points, { label, tick }) {
  const most = Math.max(1, points.at(-1).total);
  const x = (at) => (at + 1) / points.length;
  const y = (total) => 1 - total / most;
  return plot([
    stretched([[0, 1], ...points.map(({ total }, at) => [x(at), y(total)])], { under: true }),
    points.map(({ total, title }, at) => s('circle', { cx: share(x(at)), cy: share(y(total)), r: '3.5', class: 'chart-fill tone-1' }, s('title', {}, title))),
  ], { label, testid: 'growth-curve', ys: steps(most, tick), xs: ends(points) });
}

const ends = (named) => [...(named.length > 1 ? [[0, named[0].name]] : []), [1, named.at(-1).name]];

/** Round numbers from 0 to `most` on an axis. */
function steps(most, tick) {
  const step = round(most / 4);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, at) => [1 - (at * step) / most, tick(at * step)]);
}

/** The next of 1, 2, 5, 10, 20, 50 and so on. */
function round(least) {
  const power = 10 ** Math.max(0, Math.floor(Math.log10(least)));
  return [1, 2, 5, 10].find((each) => each * power >= least) * power;
}

/** A line through points (shares of width and height), and what is under it. */
function stretched(points, { under = false } = {}) {
  const d = `M${points.map(([x, y]) => `${(100 * x).toFixed(2)} ${(100 * y).toFixed(2)}`).join('L')}`;
  return s('svg', { viewBox: '0 0 100 100', width: '100%', height: '100%', preserveAspectRatio: 'none', overflow: 'visible' },
    under && s('path', { d: `${d}V100H0Z`, class: 'chart-under tone-1' }), s('path', { d, class: 'chart-line' }));
}

/**
 * A frame for what is drawn in shares of it, with texts of one size on its axes, however wide it is.
 * @param {{label: string, testid?: string, xs?: Array<[number, string]>, ys?: Array<[number, string]>}} options Where each text stands.
 */
function plot(drawn, { label, testid, xs = [], ys = [] }) {
  const line = ([at]) => s('line', { x1: '0', x2: '100%', y1: share(at), y2: share(at), class: 'chart-grid' });
  const side = (at) => (at === 0 ? 'is-first' : at === 1 ? 'is-last' : null);
  return h('div', { class: 'chart-plot' },
    ys.length > 0 && h('p', { class: 'chart-ys', 'aria-hidden': 'true' }, ys.map(([at, text]) => h('span', { style: { top: share(at) } }, text))),
    s('svg', { class: 'chart-drawn', role: 'img', 'aria-label': label, 'data-testid': testid }, ys.map(line), drawn),
    h('p', { class: 'chart-xs', 'aria-hidden': 'true' }, xs.map(([at, text]) => h('span', { class: side(at), style: { left: share(at) } }, text))));
}

/**
 * The forgetting curve exp(-rate x days) with points on it. Points that would cover each other become one, with a count.
 * @param {Array<{days: number, share: number, title: string, key: string}>} points
 * @param {{rate: number, days: number, label: string, tick: (day: number) => string, part: (share: number) => string,
 *   half: string, onPick: (keys: string[]) => void}} options `days`: how far the axis goes at least.
 */
export function decayCurve(points, { rate, days: needed, label, tick, part, half, onPick }) {
  const step = STEPS.find((each) => needed / each <= 6) ?? 90;
  const days = Math.ceil(needed / step) * step;
  const x = (day) => Math.min(day, days) / days;
  const line = Array.from({ length: 81 }, (_, at) => [at / 80, 1 - Math.exp((-rate * days * at) / 80)]);
  const halfDays = Math.log(2) / rate;
  const middle = halfDays <= days && [
    s('line', { x1: share(x(halfDays)), x2: share(x(halfDays)), y1: '50%', y2: '100%', class: 'chart-mark' }),
    s('text', { x: share(x(halfDays)), y: '100%', dx: '6', dy: '-7', class: 'chart-text' }, half)];
  const dots = together(points.map((point) => ({ ...point, x: x(point.days), y: 1 - point.share }))).map((group) => dot(group, onPick));
  return plot([stretched(line), middle, dots], {
    label, testid: 'decay-curve', ys: [0, 0.25, 0.5, 0.75, 1].map((value) => [1 - value, part(value)]),
    xs: Array.from({ length: days / step + 1 }, (_, at) => [x(at * step), tick(at * step)]),
  });
}

/** Points nearer to each other than a dot is wide, gathered. */
function together(points) {
  const groups = [];
  for (const point of [...points].sort((one, other) => one.x - other.x || one.y - other.y)) {
    const last = groups.at(-1);
    if (last && Math.hypot(WIDE * (point.x - last[0].x), HIGH * (point.y - last[0].y)) < 12) last.push(point);
    else groups.push([point]);
  }
  return groups;
}

function dot(group, onPick) {
  const [first] = group;
  const titles = group.slice(0, 12).map((point) => point.title);
  const radius = group.length === 1 ? 5 : 7 + Math.min(5, Math.log2(group.length));
  const node = s('g', { class: 'chart-dot', dataset: { keys: JSON.stringify(group.map((point) => point.key)) } },
    s('circle', { cx: share(first.x), cy: share(first.y), r: radius.toFixed(1) }),
    group.length > 1 ? s('text', { x: share(first.x), y: share(first.y), dy: '3.5', 'text-anchor': 'middle' }, String(group.length)) : null,
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

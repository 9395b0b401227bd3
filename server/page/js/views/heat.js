// The store as a whole, and what of it is warm or fading: growth, use and freshness, how warm each topic of the conversations is, and where the memories used most stand on the curve of
// forgetting.

import { get } from '../api.js';
import { h } from '../dom.js';
import { day, moment, number, percent, t } from '../i18n.js';
import { linkOf, nameOf, sessionLink } from '../parts/addresses.js';
import { barRows, dayStrip, decayCurve, growthCurve, legend, markDot, stackedBar } from '../parts/charts.js';
import { growing } from '../parts/lists.js';
import { FRESH, typeName } from '../parts/marks.js';
import { listKeys } from '../parts/memoryrow.js';
import { empty, pending } from '../parts/states.js';

const PARTS = [['visits', { tone: 'tone-3' }], ['interactions', { tone: 'tone-2', striped: true }], ['recency', { tone: 'tone-1' }]];
const DAYS = 30;
const KEYWORDS = 4;
const TITLES = 100;
const tenth = (value) => number(value, { maximumFractionDigits: 1 });

export async function view({ signal }) {
  const page = h('section', { class: 'view view-heat' },
    h('header', { class: 'view-head' }, h('h1', {}, t('heat.title')), h('p', { class: 'lede' }, t('heat.lede'))),
    pending(async () => whole(await get('/growth')), 4),
    pending(async () => {
      const [facts, { sessions }] = await Promise.all([get('/heat'), get('/sessions', { limit: TITLES })]);
      return [warmth(facts, new Map(sessions.map((each) => [each.session_id, each.title]))), fading(facts)];
    }));
  listKeys(page, signal);
  return page;
}

/** The store as a whole: growth, use and freshness, each as a picture and as a table. */
function whole({ months, recalls, freshness }) {
  let total = 0;
  const points = everyMonth(months).map(({ month, count }) => {
    total += count;
    const name = moment(`${month}-15`, { month: 'short', year: 'numeric' });
    return { name, count, total, title: t('growth.month', { month: name, count, total }) };
  });
  const days = lastDays(recalls).map(({ date, count }) => ({ name: moment(date, { month: 'short', day: 'numeric' }), count, title: t('growth.day', { day: day(date), count }) }));
  const asked = days.reduce((sum, { count }) => sum + count, 0);
  const all = Math.max(1, freshness.reduce((sum, { count }) => sum + count, 0));
  return h('div', { class: 'pictures', dataset: { testid: 'growth' } },
    picture('growth.title', points.length ? [said(t('growth.label', { count: total })), growthCurve(points, { label: t('growth.label', { count: total }), tick: number }),
      table(['growth.column.month', 'growth.column.new', 'growth.column.total'], points.map(({ name, count, total: sum }) => [name, number(count), number(sum)]))] : h('p', { class: 'muted' }, t('growth.none'))),
    picture('growth.use', said(t('growth.use.said', { count: asked })), dayStrip(days, { label: t('growth.use.said', { count: asked }), tick: number }),
      table(['growth.column.day', 'growth.column.asked'], days.filter(({ count }) => count).map(({ name, count }) => [name, number(count)]))),
    picture('growth.fresh', said(t('growth.fresh.said')),
      barRows(freshness.map(({ count }, at) => ({ name: t(`growth.fresh.${at}`), value: count, text: t('growth.fresh.share', { count, share: percent(count / all) }), tone: FRESH[at][1] })), { max: all, testid: 'freshness' })));
}

const said = (text) => h('p', { class: 'muted small' }, text);

const picture = (key, ...content) => h('section', { class: 'card stack picture' }, h('h2', {}, t(key)), content);

const table = (columns, rows) => rows.length > 0 && h('details', {}, h('summary', {}, t('growth.table')), h('table', { class: 'data' },
  h('thead', {}, h('tr', {}, columns.map((key) => h('th', { scope: 'col' }, t(key))))), h('tbody', {}, rows.map((cells) => h('tr', {}, cells.map((cell) => h('td', {}, cell)))))));

/** The months with those between them in which nothing was made. */
function everyMonth(months) {
  if (!months.length) return [];
  const made = new Map(months.map(({ month, count }) => [month, count]));
  const all = [];
  for (let month = months[0].month; month <= months.at(-1).month; month = after(month)) all.push({ month, count: made.get(month) ?? 0 });
  return all;
}

function after(month) {
  const [year, number_] = month.split('-').map(Number);
  return number_ === 12 ? `${String(year + 1).padStart(4, '0')}-01` : `${String(year).padStart(4, '0')}-${String(number_ + 1).padStart(2, '0')}`;
}

function lastDays(recalls) {
  const made = new Map(recalls.map((each) => [each.day, each.count]));
  return Array.from({ length: DAYS }, (_, at) => {
    const date = new Date(Date.now() - (DAYS - 1 - at) * 86_400_000).toISOString().slice(0, 10);
    return { date, count: made.get(date) ?? 0 };
  });
}

function warmth(facts, titles) {
  const segments = [...facts.segments].sort((one, other) => other.heat - one.heat);
  const box = h('section', { class: 'card stack', 'aria-labelledby': 'heat-topics' },
    h('h2', { id: 'heat-topics' }, t('heat.topics')), h('p', { class: 'muted' }, t('heat.formula', { span: t('settings.days', { count: Math.round(facts.tau_hours / 1.2) / 10 }) })));
  if (!segments.length) {
    box.append(empty(t('heat.none'), t('heat.none.more')));
    return box;
  }
  const above = segments.filter((segment) => segment.heat >= facts.threshold).length;
  const max = 1.08 * Math.max(facts.threshold, segments[0].heat);
  box.append(
    legend(PARTS.map(([key, look]) => ({ ...look, text: t(`heat.${key}`) }))),
    h('p', { class: 'small threshold-key', dataset: { testid: 'heat-threshold' } },
      h('span', { class: 'threshold-mark', 'aria-hidden': 'true' }), t(above ? 'heat.threshold' : 'heat.threshold.none', { value: tenth(facts.threshold), count: above })),
    growing(segments, (segment) => row(segment, titles.get(segment.session_id), facts, max), { size: 30, tag: 'ol', props: { class: 'heat-rows', dataset: { testid: 'heat-rows' } } }));
  return box;
}

function row(segment, title, facts, max) {
  const made = {
    visits: (facts.alpha ?? 1) * segment.visits,
    interactions: (facts.beta ?? 1) * segment.interactions,
    recency: (facts.gamma ?? 1) * Math.exp(-Math.max(0, segment.hours) / facts.tau_hours),
  };
  const parts = PARTS.map(([key, look]) => ({ ...look, value: made[key], title: `${t(`heat.${key}`)}: ${tenth(made[key])}` }));
  const hot = segment.heat >= facts.threshold;
  const said = t('heat.said', { heat: tenth(segment.heat), visits: tenth(made.visits), interactions: tenth(made.interactions), recency: tenth(made.recency) });
  return h('li', { class: 'heat-row', dataset: { testid: 'heat-row', uri: segment.uri } },
    h('div', { class: 'heat-name' },
      h('a', { href: linkOf(segment.uri), dataset: { listItem: '' } }, segment.title || nameOf(segment.uri)),
      hot ? h('span', { class: 'badge warn' }, t('heat.hot')) : null,
      h('span', { class: 'muted small' }, t('heat.session'), ' ', h('a', { href: sessionLink(segment.session_id) }, title ?? segment.session_id))),
    h('div', { class: 'heat-bar' }, stackedBar(parts, { max, mark: facts.threshold, label: said }), h('strong', {}, tenth(segment.heat))),
    h('p', { class: 'muted small keywords' }, t('heat.last', { age: age(segment.hours / 24) }), (segment.keywords ?? []).slice(0, KEYWORDS).map((word) => h('span', { class: 'badge' }, word))));
}

function age(days) {
  if (days < 1 / 24) return t('heat.age.now');
  if (days < 1) return t('heat.age.hours', { count: Math.max(1, Math.round(days * 24)) });
  return t('heat.age.days', { count: Math.round(days) });
}

function fading(facts) {
  const rate = facts.lambda;
  const memories = facts.memories ?? [];
  const half = Math.log(2) / rate;
  const box = h('section', { class: 'card stack', 'aria-labelledby': 'heat-fading' },
    h('h2', { id: 'heat-fading' }, t('heat.fading')),
    h('p', { class: 'muted' }, t('heat.fading.more', { rate: number(rate, { maximumFractionDigits: 4 }), half: tenth(half) })));
  if (!memories.length) {
    box.append(empty(t('heat.unused'), t('heat.unused.more')));
    return box;
  }
  const days = Math.min(365, Math.max(2 * half, ...memories.map((memory) => memory.age_days * 1.05)));
  const rows = new Map();
  const mark = (uri) => {
    markDot(curve, uri);
    for (const [key, node] of rows) node.classList.toggle('is-marked', key === uri);
  };
  const points = memories.map((memory) => ({ key: memory.uri, days: Math.max(0, memory.age_days), share: memory.decay, title: `${memory.name}: ${percent(memory.decay)}` }));
  const curve = decayCurve(points, {
    rate, days, half: t('heat.half', { days: tenth(half) }), tick: (at) => number(at), part: percent,
    label: t('heat.curve', { count: memories.length, lowest: percent(Math.min(...memories.map((memory) => memory.decay))) }),
    onPick: ([uri]) => {
      mark(uri);
      rows.get(uri)?.querySelector('a')?.focus();
    },
  });
  const list = h('ol', { class: 'fading-rows', dataset: { testid: 'decay-list' } }, memories.map((memory) => {
    const item = h('li', { class: 'fading-row', on: { mouseenter: () => mark(memory.uri), mouseleave: () => mark(null), focusin: () => mark(memory.uri), focusout: () => mark(null) } },
      h('a', { href: linkOf(memory.uri), dataset: { listItem: '' } }, memory.name || nameOf(memory.uri)),
      h('span', { class: 'fading-share' }, percent(memory.decay)),
      h('span', { class: 'muted small' }, typeName(memory.memory_type), ' · ', t('heat.uses', { count: memory.accesses }), ' · ', age(memory.age_days)));
    rows.set(memory.uri, item);
    return item;
  }));
  box.append(h('div', { class: 'fading' }, h('div', {}, curve, h('p', { class: 'muted small' }, t('heat.axis.days'))), list));
  return box;
}

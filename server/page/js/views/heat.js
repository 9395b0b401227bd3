// Warm and fading: how warm each topic of the conversations is, and where the memories used most stand on the curve of
// forgetting.

import { get } from '../api.js';
import { h } from '../dom.js';
import { number, percent, t } from '../i18n.js';
import { linkOf, nameOf, sessionLink } from '../parts/addresses.js';
import { decayCurve, legend, markDot, stackedBar } from '../parts/charts.js';
import { growing } from '../parts/lists.js';
import { typeName } from '../parts/marks.js';
import { listKeys } from '../parts/memoryrow.js';
import { empty, pending } from '../parts/states.js';

const PARTS = [['visits', { tone: 'tone-1' }], ['interactions', { tone: 'tone-2', striped: true }], ['recency', { tone: 'tone-3' }]];
const tenth = (value) => number(value, { maximumFractionDigits: 1 });

export async function view({ signal }) {
  const page = h('section', { class: 'view view-heat' },
    h('header', { class: 'view-head' }, h('h1', {}, t('heat.title')), h('p', { class: 'lede' }, t('heat.lede'))),
    pending(async () => {
      const facts = await get('/heat');
      return [warmth(facts), fading(facts)];
    }));
  listKeys(page, signal);
  return page;
}

function warmth(facts) {
  const segments = [...facts.segments].sort((one, other) => other.heat - one.heat);
  const box = h('section', { class: 'card stack', 'aria-labelledby': 'heat-topics' },
    h('h2', { id: 'heat-topics' }, t('heat.topics')), h('p', { class: 'muted' }, t('heat.formula', { tau: facts.tau_hours })));
  if (!segments.length) {
    box.append(empty(t('heat.none'), t('heat.none.more')));
    return box;
  }
  const above = segments.filter((segment) => segment.heat >= facts.threshold).length;
  const max = 1.08 * Math.max(facts.threshold, segments[0].heat);
  box.append(
    legend([...PARTS.map(([key, look]) => ({ ...look, text: t(`heat.${key}`) }))]),
    h('p', { class: 'small threshold-key', dataset: { testid: 'heat-threshold' } },
      h('span', { class: 'threshold-mark', 'aria-hidden': 'true' }), t(above ? 'heat.threshold' : 'heat.threshold.none', { value: tenth(facts.threshold), count: above })),
    growing(segments, (segment) => row(segment, facts, max), { size: 30, tag: 'ol', props: { class: 'heat-rows', dataset: { testid: 'heat-rows' } } }));
  return box;
}

function row(segment, facts, max) {
  const made = {
    visits: (facts.alpha ?? 1) * segment.visits,
    interactions: (facts.beta ?? 1) * segment.interactions,
    recency: (facts.gamma ?? 1) * Math.exp(-Math.max(0, segment.hours) / facts.tau_hours),
  };
  const parts = PARTS.map(([key, look]) => ({ ...look, value: made[key], title: `${t(`heat.${key}`)}: ${tenth(made[key])}` }));
  const hot = segment.heat >= facts.threshold;
  const said = t('heat.said', { heat: tenth(segment.heat), visits: segment.visits, interactions: segment.interactions, age: age(segment.hours / 24) });
  return h('li', { class: 'heat-row', dataset: { testid: 'heat-row', uri: segment.uri } },
    h('div', { class: 'heat-name' },
      h('a', { href: linkOf(segment.uri), dataset: { listItem: '' } }, segment.title || nameOf(segment.uri)),
      hot ? h('span', { class: 'badge warn' }, t('heat.hot')) : null,
      h('a', { class: 'muted small', href: sessionLink(segment.session_id) }, t('heat.session', { id: segment.session_id }))),
    h('div', { class: 'heat-bar' }, stackedBar(parts, { max, mark: facts.threshold, label: said }), h('strong', {}, tenth(segment.heat))),
    h('p', { class: 'muted small' }, said),
    segment.keywords?.length ? h('p', { class: 'small keywords' }, segment.keywords.slice(0, 8).map((word) => h('span', { class: 'badge' }, word))) : null);
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
    axes: { x: t('heat.axis.days'), y: t('heat.axis.kept') },
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
  box.append(h('div', { class: 'fading' }, curve, list));
  return box;
}

// Health: what the doctor found, in words and with what to do; figures as small pictures; which question found what.

import { get, send } from '../api.js';
import { fill, h } from '../dom.js';
import { ago, bytes, moment, named, number, percent, t } from '../i18n.js';
import { linkOf, nameOf } from '../parts/addresses.js';
import { barRows } from '../parts/charts.js';
import { kindName } from '../parts/commits.js';
import { dialog } from '../parts/dialogs.js';
import { growing } from '../parts/lists.js';
import { typeName } from '../parts/marks.js';
import { sentence } from '../parts/sentences.js';
import { pending } from '../parts/states.js';
import { href } from '../router.js';
import { about } from '../state.js';

const ORDER = ['error', 'warning', 'notice', 'ok'];
const SIGNS = { error: '✕', warning: '!', notice: 'i', ok: '✓' };
const TRAIL = 60;
const TRAIL_HITS = 5;
const milliseconds = (value) => (value === null || value === undefined ? '–' : t('health.ms', { value: number(value, { maximumFractionDigits: value < 100 ? 1 : 0 }) }));

export async function view() {
  return h('section', { class: 'view view-health' },
    h('header', { class: 'view-head' }, h('h1', {}, t('health.title')), h('p', { class: 'lede' }, t('health.lede'))),
    examination(),
    pending(async () => figures(...await Promise.all([get('/stats'), about()])), 6),
    pending(async () => trail((await get('/trail', { limit: TRAIL })).trail ?? []), 4));
}

/** With very many memories an examination takes its time: it says so, and nothing else waits for it. */
function examination() {
  const note = h('p', { class: 'hint', role: 'status' }, t('health.examining'));
  const box = h('div');
  const mend = async (todo) => {
    const list = h('ul', { class: 'plain-list' }, todo.map((each) => h('li', {}, sentence(each.repair), ' ', h('code', {}, each.subject))));
    const answer = await dialog(t('health.mend.title'), [h('p', {}, t('health.mend.text')), list], [{ value: 'yes', label: t('health.mend'), kind: 'primary' }, { value: 'no', label: t('action.cancel') }], 'mend-dialog');
    if (answer === 'yes') fill(box, pending(async () => doctor(await send('POST', '/health/repair'), mend), 3));
  };
  fill(box, pending(async () => {
    try {
      const [report, facts] = await Promise.all([get('/health'), about()]);
      return doctor(report, facts.writable && facts.owner ? mend : null);
    } finally {
      note.remove();
    }
  }, 3));
  return h('div', { class: 'stack tight' }, note, box);
}

/** What was found; `mend(findings)` is offered where something can be mended and the reader may. */
function doctor(report, mend) {
  const findings = report.findings ?? [];
  const rank = (finding) => ORDER.indexOf(finding.severity);
  const found = findings.filter((finding) => finding.severity !== 'ok').sort((one, other) => rank(one) - rank(other));
  const fine = findings.filter((finding) => finding.severity === 'ok');
  const pressing = found.filter((finding) => rank(finding) < 2).length;
  const repairs = found.filter((finding) => finding.repair && rank(finding) < 2);
  const done = report.repaired ?? [];
  return h('section', { class: 'card stack', 'aria-labelledby': 'health-doctor' },
    h('h2', { id: 'health-doctor' }, t('health.doctor')),
    h('p', { class: ['verdict', report.clean ? 'good' : 'bad'], dataset: { testid: 'verdict' } },
      h('span', { class: 'sign', 'aria-hidden': 'true' }, report.clean ? SIGNS.ok : SIGNS.warning),
      t(report.clean ? (found.length ? 'health.sound_notices' : 'health.sound') : 'health.unsound', { count: report.clean ? found.length : pressing })),
    h('p', { class: 'muted small' }, t('health.covers')),
    done.length ? h('div', { class: 'note', dataset: { testid: 'mended' } }, h('p', {}, t('health.mended', { count: done.length })), h('ul', { class: 'plain-list' }, done.slice(0, 20).map((each) => h('li', {}, sentence(each))))) : null,
    repairs.length ? h('p', { class: 'row' }, mend ? h('button', { type: 'button', class: 'button primary', dataset: { testid: 'mend' }, on: { click: () => mend(repairs) } }, t('health.mend')) : null,
      h('span', { class: 'muted small' }, t('health.repair'), ' ', h('code', {}, 'runebook doctor --repair'))) : null,
    found.length ? growing(found, finding, { size: 20, props: { class: 'findings', dataset: { testid: 'findings' } } }) : null,
    fine.length ? h('details', {}, h('summary', {}, t('health.fine')),
      h('ul', { class: 'findings' }, fine.slice(0, 40).map(finding))) : null);
}

function finding({ check, severity, subject, detail, repair }) {
  const isFile = /^viking:\/\/\S+$/.test(subject);
  return h('li', { class: ['finding', `is-${severity}`], dataset: { testid: 'finding' } },
    h('span', { class: 'sign', 'aria-hidden': 'true' }, SIGNS[severity]),
    h('div', {},
      h('p', {}, h('strong', {}, t(`severity.${severity}`)), ' · ', named(`check.${check.replaceAll(' ', '_')}`, check)),
      h('p', { class: 'small' }, isFile ? h('a', { href: linkOf(subject) }, nameOf(subject)) : h('code', {}, subject), ' ', sentence(detail)),
      repair ? h('p', { class: 'muted small' }, t('health.would'), ' ', sentence(repair)) : null));
}

function figures(stats, facts) {
  const retrieval = stats.retrieval ?? {};
  const index = stats.index ?? {};
  const waiting = stats.waiting_extractions ?? {};
  const held = stats.memories + stats.messages;
  return h('section', { class: 'stack', 'aria-labelledby': 'health-figures' },
    h('h2', { id: 'health-figures' }, t('health.figures')),
    h('ul', { class: 'figures', dataset: { testid: 'figures' } },
      figure('health.memories', '#/', number(stats.memories), stats.pinned ? t('health.pinned', { count: stats.pinned }) : ''),
      figure('health.conversations', '#/sessions', number(stats.sessions), t('sessions.messages', { count: stats.messages })),
      figure('health.archived', '#/archive', number(stats.archived)),
      figure('health.waiting', '#/queue', number(waiting.sessions ?? 0), t('sessions.messages', { count: waiting.messages ?? 0 })),
      figure('health.used', '#/heat', t('health.used.of', { used: Math.min(stats.used, held), held }), t('health.used.what'))),
    h('div', { class: 'pictures' },
      picture('health.by_type', rows(stats.by_type, typeName)),
      picture('health.sizes', rows(stats.size_bytes, (name) => named(`size.${name}`, name), bytes)),
      picture('health.commits', rows(stats.commits, kindName))),
    h('details', { class: 'stack' }, h('summary', {}, t('health.technical')), h('div', { class: 'pictures' },
      picture('health.latency', latency(retrieval)),
      picture('health.caches', caches(retrieval, index, facts.model?.embedding === 'none')))));
}

const figure = (key, link, value, more = '') => h('li', {}, h('a', { class: 'figure', href: link },
  h('span', { class: 'muted small' }, t(key)), ' ', h('span', { class: 'figure-value' }, value), ' ', h('span', { class: 'muted small' }, more)));

const picture = (key, ...content) => h('section', { class: 'card stack picture' }, h('h3', {}, t(key)), content);

function rows(counts, name, text = (value) => number(value)) {
  const entries = Object.entries(counts ?? {});
  if (!entries.length) return h('p', { class: 'muted' }, t('health.nothing'));
  return barRows(entries.slice(0, 16).map(([key, value]) => ({ name: name(key), value, text: text(value) })));
}

function latency({ count, p50_ms: half, p99_ms: most }) {
  if (!count) return h('p', { class: 'muted' }, t('health.no_searches'));
  return [
    barRows([{ name: t('health.p50'), value: half, text: milliseconds(half) }, { name: t('health.p99'), value: most, text: milliseconds(most), tone: 'tone-2' }], { max: Math.max(half, most, 1) }),
    h('p', { class: 'muted small' }, t('health.searches', { count })),
  ];
}

function caches(retrieval, index, off) {
  const shares = [['health.cache.search', retrieval.cache_hit_rate], ['health.cache.embedding', index.cache_hit_rate]];
  const known = shares.filter(([, share]) => share !== null && share !== undefined);
  const vectors = off ? t('health.vectors_off') : index.vectors === null || index.vectors === undefined ? t('health.vectors_unknown')
    : t('health.vectors', { vectors: index.vectors, count: index.passages });
  return [
    known.length ? barRows(known.map(([key, share]) => ({ name: t(key), value: share, text: percent(share) })), { max: 1 }) : h('p', { class: 'muted' }, t('health.nothing')),
    h('p', { class: 'muted small' }, vectors, index.waiting && !off ? ` ${t('health.vectors_waiting', { count: index.waiting })}` : null),
  ];
}

function trail(recalls) {
  return h('section', { class: 'card stack', 'aria-labelledby': 'health-trail' },
    h('h2', { id: 'health-trail' }, t('health.trail')), h('p', { class: 'muted' }, t('health.trail.more')),
    recalls.length ? growing(recalls, recall, { size: 15, tag: 'ol', props: { class: 'trail', dataset: { testid: 'trail' } } }) : h('p', { class: 'muted' }, t('health.trail.none')));
}

function recall(asked) {
  const hits = asked.hits ?? [];
  return h('li', { class: 'recall' },
    h('p', {}, asked.query ? h('a', { href: href('/search', { q: asked.query }) }, asked.query) : h('em', {}, t('health.trail.unasked')), ' ',
      h('span', { class: 'muted small' }, t(`health.trail.${asked.kind === 'retrieve' ? 'retrieve' : 'find'}`), ' · ', milliseconds(asked.milliseconds),
        asked.cached ? ` · ${t('health.trail.cached')}` : null, ' · ', h('time', { datetime: asked.at, title: moment(asked.at) }, ago(asked.at)))),
    h('p', { class: 'small' }, hits.length ? hits.slice(0, TRAIL_HITS).map((hit, at) => [at ? t('list.comma') : null,
      h('a', { href: linkOf(hit.uri) }, nameOf(hit.uri)), hit.score ? h('span', { class: 'muted' }, ` ${number(hit.score, { minimumFractionDigits: 2 })}`) : null]) : t('health.trail.nothing'),
    hits.length > TRAIL_HITS ? ` ${t('did.more', { count: hits.length - TRAIL_HITS })}` : null));
}

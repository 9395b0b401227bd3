// Search: the question, how to rank, filters, and what was found in three groups, each hit with its score drawn.

import { get, send } from '../api.js';
import { fill, h } from '../dom.js';
import { number, t } from '../i18n.js';
import { chipSelect } from '../parts/fields.js';
import { hitCard } from '../parts/hits.js';
import { fromField } from '../parts/lists.js';
import { typeName } from '../parts/marks.js';
import { listKeys } from '../parts/memoryrow.js';
import { noteText, saysNothingFound } from '../parts/notes.js';
import { empty, failure, loading } from '../parts/states.js';
import { href, remember } from '../router.js';
import { about, types } from '../state.js';

const RANKS = ['relevance', 'balanced', 'decay', 'weighted'];
const FIRST_HITS = 20;
const MOST_HITS = 100;
const DAYS = [7, 30, 90, 365];
const IMPORTANCE = { high: 0.8, normal: 0.5 };
const TYPING_MS = 220;
const GROUPS = ['memory', 'resource', 'skill'];

/** `query`: q, rank, type, days, importance, project. */
export async function view({ query, signal }) {
  const [facts, known, labels] = await Promise.all([about(), types(), get('/labels', {}, { signal })]);
  const projects = [...new Set([query.project, ...Object.keys(labels.projects)])].filter(Boolean);
  const usual = RANKS.includes(facts.rank) ? facts.rank : 'balanced';
  const asked = { q: '', rank: usual, type: '', days: '', importance: '', project: '', ...query };
  const status = h('p', { class: 'hint', role: 'status', dataset: { testid: 'search-status' } });
  const state = { asked, usual, status, limit: FIRST_HITS, call: null };
  const results = h('div', { class: 'search-results', 'aria-busy': 'false', dataset: { testid: 'results' } });
  const run = () => search(state, results, facts);
  const form = searchForm(state, known.map((type) => type.name), projects, run);
  const page = h('section', { class: 'view view-search' }, h('h1', {}, t('search.title')), form, results);
  fromField(page, 'input[type=search]', '.hit-link');
  listKeys(page, signal);
  window.addEventListener('committed', () => { if (asked.q && !results.contains(document.activeElement)) run(); }, { signal });
  run();
  if (!asked.q && matchMedia('(pointer: fine)').matches) requestAnimationFrame(() => page.querySelector('input')?.focus());
  return page;
}

function searchForm(state, names, projects, run) {
  const { asked } = state;
  const input = h('input', {
    type: 'search', id: 'search-query', name: 'q', value: asked.q, autocomplete: 'off', enterkeyhint: 'search', maxlength: '2000',
    placeholder: t('search.placeholder'), 'aria-label': t('search.query'), dataset: { testid: 'search-query' },
  });
  let typing = 0;
  const start = () => {
    clearTimeout(typing);
    state.limit = FIRST_HITS;
    const { q, ...rest } = asked;
    remember(href('/search', { q, ...rest, rank: rest.rank === state.usual ? '' : rest.rank }));
    run();
  };
  const typed = () => {
    const q = input.value.trim();
    if (q === asked.q) return;
    asked.q = q;
    start();
  };
  input.addEventListener('input', (event) => {
    clearTimeout(typing);
    if (!event.isComposing) typing = setTimeout(typed, TYPING_MS);
  });
  input.addEventListener('compositionend', () => { typing = setTimeout(typed, TYPING_MS); });
  const hint = h('span', { class: 'hint', id: 'rank-about' }, t(`search.rank.${asked.rank}.about`));
  const rank = chipSelect('search-rank', t('search.rank'), RANKS.map((each) => [each, t(`search.rank.${each}`)]), state.usual, asked.rank, (value) => {
    asked.rank = value;
    fill(hint, t(`search.rank.${asked.rank}.about`));
    start();
  });
  rank.querySelector('select').setAttribute('aria-describedby', 'rank-about');
  const choice = (name, label, options) => chipSelect(`search-${name}`, label, options, '', asked[name], (value) => {
    asked[name] = value;
    start();
  });
  return h('form', { class: 'search-form', role: 'search', on: { submit: (event) => {
    event.preventDefault();
    asked.q = input.value.trim();
    start();
  } } },
  h('div', { class: 'search-line' }, input,
    h('button', { type: 'submit', class: 'button primary', dataset: { testid: 'search-go' } }, t('search.go'))),
  h('div', { class: 'chips', role: 'group', 'aria-label': t('filter.title') },
    choice('type', t('search.type'), [['', t('search.any')], ...names.map((name) => [name, typeName(name)])]),
    choice('days', t('search.time'), [['', t('search.any_time')], ...DAYS.map((days) => [String(days), t('search.days', { count: days })])]),
    choice('importance', t('search.importance'), [['', t('search.any')], ['normal', t('search.from_normal')], ['high', t('search.from_high')]]),
    projects.length > 0 && choice('project', t('search.project'), [['', t('search.any')], ...projects.map((name) => [name, name])]), rank),
  hint,
  state.status);
}

/** What the server is asked; the filter speaks its language. */
function question({ q, rank, type, days, importance, project }, limit) {
  const conditions = [];
  if (days) conditions.push({ updated_at: { gte: new Date(Date.now() - Number(days) * 86_400_000).toISOString() } });
  if (IMPORTANCE[importance] !== undefined) conditions.push({ salience: { gte: IMPORTANCE[importance] } });
  return {
    query: q, rank, limit,
    ...(type ? { memory_type: type } : {}),
    ...(project ? { project } : {}),
    ...(conditions.length ? { filter: { and: conditions } } : {}),
  };
}

async function search(state, results, facts) {
  state.call?.abort();
  state.call = null;
  if (!state.asked.q) {
    fill(state.status);
    fill(results, empty(t('search.start'), t('search.start.more')));
    return;
  }
  const call = new AbortController();
  state.call = call;
  results.setAttribute('aria-busy', 'true');
  if (!results.querySelector('.hit')) fill(results, loading(5));
  try {
    const found = await send('POST', '/search', question(state.asked, state.limit), { signal: call.signal });
    if (state.call === call) show(state, results, found, facts);
  } catch (error) {
    if (error.name === 'AbortError') return;
    fill(results, failure(error, () => search(state, results, facts)));
  } finally {
    if (state.call === call) results.setAttribute('aria-busy', 'false');
  }
}

function show(state, results, found, facts) {
  const { q, rank } = state.asked;
  const hits = found.hits ?? [];
  const notes = found.notes ?? [];
  const said = notes.filter((note) => !saysNothingFound(note));
  const how = { rank, rate: facts.decay_lambda, hybrid: hits.some((hit) => hit.why.semantic !== undefined) };
  const kinds = groups(hits);
  const count = t('search.found', { count: hits.length });
  fill(state.status, kinds.length < 2 ? count : t('search.found.of', { found: count, groups: kinds.map(([group, members]) => t(`search.count.${group}`, { count: members.length })).join(t('list.comma')) }));
  const again = () => search(state, results, facts);
  const noted = said.map((note) => h('p', { class: 'note', dataset: { testid: 'search-note' } }, noteText(note), ' ',
    /again in a moment/.test(note) ? h('button', { type: 'button', class: 'button small', on: { click: again } }, t('search.again')) : null));
  if (!hits.length) {
    const why = notes.filter(saysNothingFound).map(noteText).join(' ') || t('note.nothing_stored');
    fill(results, noted, empty(t('search.nothing'), why, ...ways(state, results, facts)));
    return;
  }
  fill(results, noted, kinds.map(([group, members]) =>
    h('section', { class: 'hit-group', dataset: { testid: `hits-${group}` } },
      h('h2', {}, t(`search.group.${group}`), ' ', h('span', { class: 'count' }, number(members.length))),
      h('ol', { class: 'hits' }, members.map((hit) => hitCard(hit, how, q))))),
  hits.length >= state.limit && state.limit < MOST_HITS ? h('button', {
    type: 'button', class: 'button', dataset: { testid: 'search-more' }, on: { click: () => {
      state.limit = state.limit === FIRST_HITS ? 50 : MOST_HITS;
      search(state, results, facts);
    } },
  }, t('search.more')) : null);
}

/** Hits by kind, the group with the best hit first. */
function groups(hits) {
  const kinds = GROUPS.map((kind) => [kind, hits.filter((hit) => hit.context_type === kind)]).filter(([, members]) => members.length);
  return kinds.sort(([, one], [, other]) => other[0].score - one[0].score);
}

/** What to try where nothing was found. */
function ways(state, results, facts) {
  const { asked } = state;
  const narrowed = ['type', 'days', 'importance', 'project'].some((name) => asked[name]);
  return [
    narrowed ? h('a', { class: 'button', href: href('/search', { q: asked.q, rank: asked.rank }) }, t('search.drop_filters')) : null,
    asked.rank === 'decay' ? h('button', { type: 'button', class: 'button', on: { click: () => {
      const rank = document.querySelector('[data-testid=search-rank]');
      rank.value = 'relevance';
      rank.dispatchEvent(new Event('change'));
    } } }, t('search.without_time')) : null,
    h('a', { class: 'button', href: '#/' }, t('search.browse')),
  ].filter(Boolean);
}

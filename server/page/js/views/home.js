// The list of memories with its filters. The filters live in the address, so that a list can be kept and shared.

import { get } from '../api.js';
import { fill, h } from '../dom.js';
import { number, t } from '../i18n.js';
import { href, remember } from '../router.js';
import { lengths, types } from '../state.js';
import { chipSelect, tagList } from '../parts/fields.js';
import { ORDER, typeName } from '../parts/marks.js';
import { countText, listKeys, memoryRow } from '../parts/memoryrow.js';
import { selection } from '../parts/selection.js';
import { empty, failure, loading } from '../parts/states.js';
import { tagChoices } from '../parts/tags.js';

const PAGE = 50;
const MOST = 200;
const MOST_TAGS = 12;
const FIRST_TYPES = 7;
const DAY_MS = 86_400_000;
const SORTS = ['updated', 'created', 'importance', 'accesses', 'name'];
const TIMES = ['1', '7', '30', '365', '-90'];
const IMPORTANCE = { high: { importance_min: 0.7 }, normal: { importance_min: 0.4 }, low: { importance_max: 0.39 } };

/** The filters of the address as the API takes them. */
export function asParams(filters, now = Date.now()) {
  const days = Number(filters.time ?? 0);
  const at = new Date(now - Math.abs(days) * DAY_MS).toISOString();
  return {
    memory_type: filters.type,
    context_type: filters.kind,
    project: filters.project,
    words: filters.words,
    tags: tagList(filters.tag ?? ''),
    sort: filters.sort ?? SORTS[0],
    pinned: filters.pinned === '1' ? true : undefined,
    active: filters.active,
    updated_after: days > 0 ? at : undefined,
    updated_before: days < 0 ? at : undefined,
    ...IMPORTANCE[filters.importance],
  };
}

export async function view({ query, signal }) {
  const filters = { ...query };
  const list = h('ul', { class: 'memory-list', dataset: { testid: 'memories' } });
  const more = h('div', { class: 'actions center' });
  const count = h('p', { class: 'muted', role: 'status', dataset: { testid: 'count' } });
  const entries = new Map();
  let shown = 0;
  let round = 0;

  async function load(offset, limit = PAGE) {
    const mine = (round += 1);
    if (offset === 0 && list.childElementCount === 0) fill(more, loading(8));
    list.setAttribute('aria-busy', 'true');
    try {
      const page = await get('/entries', { ...asParams(filters), limit, offset }, { signal });
      if (mine !== round) return;
      const focused = list.contains(document.activeElement) ? document.activeElement.closest('[data-uri]')?.dataset.uri : null;
      if (offset === 0) list.replaceChildren();
      if (offset === 0) entries.clear();
      page.entries.forEach((entry) => entries.set(entry.uri, entry));
      list.append(...page.entries.map(memoryRow));
      select.sync();
      if (focused) [...list.children].find((row) => row.dataset.uri === focused)?.querySelector('a').focus({ preventScroll: true });
      shown = offset + page.entries.length;
      lengths.set(href('/', filters), shown);
      count.textContent = isNarrowed() || shown < page.total || !bar.counts ? countText(shown, page.total) : '';
      bar.node.hidden = page.total === 0 && Object.keys(filters).length === 0;
      fill(more, shown === 0 ? nothing() : shown < page.total && h('button', {
        type: 'button', class: 'button', dataset: { testid: 'more' }, on: { click: () => load(shown) } }, t('action.more')));
    } catch (error) {
      if (error.name === 'AbortError' || mine !== round) return;
      fill(more, failure(error, () => load(offset)));
    } finally {
      if (mine === round) list.removeAttribute('aria-busy');
    }
  }

  const isNarrowed = () => Object.keys(filters).some((name) => name !== 'sort');

  function nothing() {
    count.textContent = '';
    if (isNarrowed()) {
      return empty(t('home.none'), t('home.none.text'), h('a', { class: 'button', href: '#/' }, t('action.reset')));
    }
    return empty(t('home.empty'), t('home.empty.text'), h('a', { class: 'button primary', href: '#/new' }, t('shell.new')));
  }

  function change(name, value) {
    if (value) filters[name] = value;
    else delete filters[name];
    remember(href('/', filters));
    bar.sync();
    load(0);
  }

  const [known, facts, labels] = await Promise.all([types(), get('/about', {}, { signal }), get('/labels', {}, { signal })]);
  const bar = filterBar(known, facts.counts ?? {}, labels, filters, change);
  const select = selection(list, (uri) => entries.get(uri), async () => {
    window.dispatchEvent(new Event('changed'));
  });
  listKeys(list, signal);
  await load(0, Math.min(MOST, Math.max(PAGE, lengths.get(href('/', filters)) ?? 0)));
  const again = () => {
    get('/about', {}, { signal }).then((now) => bar.recount(now.counts ?? {}), () => {}); // of a failure the list tells
    return load(0, Math.min(MOST, Math.max(PAGE, shown)));
  };
  window.addEventListener('changed', again, { signal });
  window.addEventListener('committed', async ({ detail: commits }) => {
    await again();
    const uris = new Set((commits ?? []).flatMap((commit) => commit.uris));
    for (const row of list.children) row.classList.toggle('just-changed', uris.has(row.dataset.uri));
  }, { signal });
  return h('div', { class: 'home' },
    h('header', { class: 'view-head split' }, h('h1', {}, t('home.title')), h('div', { class: 'row' }, count, facts.writable && select.button)),
    bar.node, list, more, select.bar);
}

function filterBar(known, counts, labels, filters, change) {
  const controls = [];
  const choose = (name, label, options) => {
    const select = h('select', { id: `filter-${name}`, dataset: { testid: `filter-${name}` }, on: { change: () => change(name, select.value) } },
      options.map(([value, text]) => h('option', { value }, text)));
    controls.push(() => { select.value = filters[name] ?? options[0][0]; });
    return h('div', { class: 'filter' }, h('label', { for: `filter-${name}` }, label), select);
  };
  const type = (event, fallback) => {
    clearTimeout(type.timer);
    type.timer = setTimeout(() => change(event.target.name, event.target.value.trim()), fallback);
  };
  const field = (name, more = {}) => {
    const input = h('input', { type: 'search', id: `filter-${name}`, name, ...more, autocomplete: 'off', dataset: { testid: `filter-${name}` },
      on: { input: (event) => type(event, 250) } });
    controls.push(() => { if (document.activeElement !== input) input.value = filters[name] ?? ''; });
    return input;
  };
  const place = (type) => (ORDER.includes(type.name) ? ORDER.indexOf(type.name) : ORDER.length);
  const held = known.filter((type) => counts[type.name] > 0 || type.name === filters.type).sort((left, right) => place(left) - place(right));
  const sum = (names) => names.reduce((all, name) => all + (counts[name] ?? 0), 0);
  const counted = (label, count) => [label, count > 0 && h('span', { class: 'count' }, number(count))];
  const chips = ['', ...held.map((type) => type.name)].map((value) =>
    h('button', { type: 'button', class: 'chip', value, dataset: { testid: `type-${value || 'any'}` }, on: { click: () => change('type', value) } }));
  const others = h('button', { type: 'button', class: 'chip', 'aria-expanded': 'false', dataset: { testid: 'more-types' }, on: { click: () => {
    others.setAttribute('aria-expanded', String(others.getAttribute('aria-expanded') === 'false'));
    sync();
  } } });
  const pinned = h('button', { type: 'button', class: 'chip', dataset: { testid: 'filter-pinned' },
    on: { click: () => change('pinned', filters.pinned === '1' ? '' : '1') } }, t('filter.pinned'));
  const tags = h('div', { class: 'chips', role: 'group', 'aria-label': t('edit.tags'), dataset: { testid: 'filter-tags' } });
  const most = Object.entries(labels.tags).slice(0, MOST_TAGS);
  const drawTags = () => {
    const chosen = tagList(filters.tag ?? '');
    const others = most.filter(([tag]) => !chosen.includes(tag));
    fill(tags, [...chosen.map((tag) => [tag]), ...others].map(([tag, many]) => h('button', {
      type: 'button', class: 'chip', 'aria-pressed': String(chosen.includes(tag)), dataset: { testid: `filter-tag-${tag}` },
      on: { click: () => change('tag', (chosen.includes(tag) ? chosen.filter((each) => each !== tag) : [...chosen, tag]).join(',')) },
    }, counted(`#${tag}`, many))));
    tags.hidden = tags.childElementCount === 0;
  };
  const reset = h('a', { class: 'chip', href: '#/', dataset: { testid: 'reset' } }, t('action.reset'));
  const any = ['', t('filter.any')];
  const sort = chipSelect('filter-sort', t('filter.sort'), SORTS.map((each) => [each, t(`filter.sort.${each}`)]), SORTS[0], filters.sort ?? SORTS[0], (value) => change('sort', value === SORTS[0] ? '' : value));
  const more = h('details', { class: 'filters' }, h('summary', { dataset: { testid: 'filters' } }, t('filter.more')),
    h('div', { class: 'filter-grid' },
      choose('importance', t('filter.importance'), [any, ...Object.keys(IMPORTANCE).map((each) => [each, t(`filter.importance.${each}`)])]),
      choose('time', t('filter.time'), [any, ...TIMES.map((each) => [each, t(`filter.time.${each}`)])]),
      choose('kind', t('filter.kind'), [any, ['memory', t('filter.kind.memory')], ['skill', t('filter.kind.skill')]]),
      choose('active', t('filter.state'), [any, ['true', t('filter.active.true')], ['false', t('filter.active.false')]]),
      h('div', { class: 'filter' }, h('label', { for: 'filter-project' }, t('filter.project')), field('project', { list: 'known-project' }), tagChoices('known-project', labels.projects))));
  more.open = ['importance', 'time', 'kind', 'active', 'project'].some((name) => filters[name]);
  const sync = () => {
    for (const apply of controls) apply();
    drawTags();
    const all = others.getAttribute('aria-expanded') === 'true';
    chips.forEach((chip, at) => {
      fill(chip, chip.value ? counted(typeName(chip.value), counts[chip.value]) : counted(t('filter.all'), sum(Object.keys(counts))));
      chip.setAttribute('aria-pressed', String((filters.type ?? '') === chip.value));
      chip.hidden = !all && at > FIRST_TYPES && filters.type !== chip.value;
    });
    others.hidden = chips.length <= FIRST_TYPES + 1;
    fill(others, all ? t('filter.fewer_types') : counted(t('filter.more_types'), sum(chips.filter((chip) => chip.hidden).map((chip) => chip.value))));
    pinned.setAttribute('aria-pressed', String(filters.pinned === '1'));
    reset.hidden = Object.keys(filters).length === 0;
  };
  sync();
  const several = held.length > 1;
  const node = h('section', { class: 'filter-bar', 'aria-label': t('filter.title') },
    several && h('div', { class: 'chips', role: 'group', 'aria-label': t('filter.type') }, chips, others), tags,
    h('div', { class: 'row tight' }, field('words', { placeholder: t('filter.words'), 'aria-label': t('filter.words') }), sort, pinned, more, reset));
  const recount = (now) => { counts = now; sync(); };
  return { node, sync, recount, counts: several };
}

// How memories are connected: a picture to walk through, and beside it the relations of the one that is chosen, to be
// added, changed and removed. The picture is drawn by Cytoscape.js; all that it shows is in the list below it, too.

import { get, pathOf, send } from '../api.js';
import { fill, h } from '../dom.js';
import { capital, named, percent, t } from '../i18n.js';
import { go, href, remember } from '../router.js';
import { about } from '../state.js';
import { linkOf, nameOf } from '../parts/addresses.js';
import { chipSelect } from '../parts/fields.js';
import { HUES, ORDER, hueKey, typeBadge, typeName } from '../parts/marks.js';
import { DASHES, drawGraph } from '../parts/network.js';
import { receiptToast } from '../parts/receipt.js';
import { empty, failure } from '../parts/states.js';
import { toastError } from '../parts/toast.js';

const RELATIONS = ['similar', 'supports', 'contradicts', 'refines', 'replaces'];
const TIMES = ['7', '30', '365'];
const DAY_MS = 86_400_000;
const CHOICES_MS = 200;
const CONVERSATION = 'conversation';

/** `query`: type, time (days), around (a URI). */
export async function view({ query, signal }) {
  const facts = await about();
  const asked = { type: '', time: '', around: '', ...query };
  const state = { asked, facts, found: null, chosen: asked.around || null, drawing: null, picture: '', addingTo: null, loads: 0 };
  const canvas = h('div', { class: 'graph-canvas', role: 'img', 'aria-label': t('graph.picture'), dataset: { testid: 'graph' } });
  const side = h('aside', { class: 'graph-side stack', 'aria-live': 'polite', dataset: { testid: 'graph-side' } });
  const chosen = h('div', { class: 'stack' });
  const addition = h('div');
  fill(side, chosen, addition);
  const list = h('div');
  const names = h('ul', { class: 'chips' });
  const listed = h('details', { class: 'graph-list' }, h('summary', {}, t('graph.list')), names); // stays open when others commit
  const key = h('ul', { class: 'chart-legend' });
  const status = h('p', { class: 'muted small', role: 'status', dataset: { testid: 'graph-count' } });

  async function load() {
    remember(href('/graph', asked));
    around.hidden = !asked.around;
    const turn = ++state.loads;
    const days = Number(asked.time);
    const after = days ? new Date(Date.now() - days * DAY_MS).toISOString() : '';
    let found;
    let resting;
    try {
      [found, { total: resting }] = await Promise.all([
        get('/graph', { types: asked.type ? [asked.type] : [], around: asked.around, after }, { signal }),
        asked.around ? { total: 0 } : get('/entries', { memory_type: asked.type, updated_after: after, active: false, limit: 1 }, { signal }),
      ]);
    } catch (error) {
      if (error.name !== 'AbortError') fill(list, failure(error, load));
      return;
    }
    if (turn !== state.loads) return; // a later load shows more
    for (const node of found.nodes) {
      node.place = linkOf(node.uri);
      if (node.type === 'profile') node.name = typeName('profile');
      if (node.type === CONVERSATION) node.name = nameOf(node.uri);
    }
    state.found = found;
    if (!found.nodes.some((node) => node.uri === state.chosen)) state.chosen = asked.around || null;
    const tied = new Set(found.edges.flatMap((edge) => [edge.source, edge.target]));
    state.drawn = tied.size > 0 ? found.nodes.filter((node) => tied.has(node.uri)) : found.nodes;
    const loose = found.nodes.length - state.drawn.length;
    const told = state.drawn.filter((node) => node.type === CONVERSATION).length;
    fill(status, t('home.count', { count: state.drawn.length - told }), told > 0 && [t('list.comma'), t('sessions.count', { count: told })],
      loose > 0 && [' · ', t('graph.loose', { count: loose }), h('button', { type: 'button', class: 'link-button', dataset: { testid: 'graph-to-list' }, on: { click: openList } }, t('graph.loose.list'))],
      resting > 0 && ` · ${t('graph.resting', { count: resting })}`, found.left_out > 0 && ` · ${t('graph.left_out', { count: found.left_out })}`);
    canvas.parentElement.hidden = found.nodes.length === 0;
    fill(key, keyOf());
    fill(names, found.nodes.map(nodeItem));
    fill(list, found.nodes.length === 0 ? empty(t('graph.none'), t('graph.none.text')) : listed);
    const picture = JSON.stringify([state.drawn, found.edges]);
    if (picture !== state.picture) await draw(); // else it stays as somebody zoomed and moved it
    state.picture = picture;
    showSide();
  }

  const choice = (name, label, any, options) => chipSelect(`graph-${name}`, label, [['', any], ...options], '', asked[name], (value) => { asked[name] = value; load(); });
  const held = ORDER.filter((type) => facts.counts?.[type] > 0);
  const around = h('button', { type: 'button', class: 'chip', dataset: { testid: 'graph-all' }, on: { click: () => { asked.around = ''; load(); } } }, t('graph.all'), ' ×');
  const filters = h('div', { class: 'chips', role: 'group', 'aria-label': t('filter.title') },
    choice('type', t('filter.type'), t('filter.all'), held.map((type) => [type, typeName(type)])),
    choice('time', t('filter.time'), t('search.any_time'), TIMES.map((days) => [days, t(`filter.time.${days}`)])), around);

  function choose(uri) {
    state.chosen = uri;
    state.drawing?.mark(uri);
    showSide();
    if (matchMedia('(max-width: 1000px)').matches) side.scrollIntoView({ block: 'nearest' }); // it stands below the picture there
  }

  async function draw() {
    if (signal.aborted || canvas.parentElement.hidden) return;
    state.drawing?.stop();
    state.drawing = drawGraph(canvas, { nodes: state.drawn, edges: state.found.edges }, choose, (uri) => go(`#/memory/${pathOf(uri)}`));
    state.drawing.mark(state.chosen);
  }

  function nodeItem(node) {
    return h('li', {}, h('button', { type: 'button', class: 'chip', dataset: { testid: 'graph-node', uri: node.uri }, on: { click: () => choose(node.uri) } },
      h('i', { class: node.type === CONVERSATION ? 'dot told' : `dot hue-${HUES[node.type] ?? 6}` }), node.name));
  }

  function openList() {
    listed.open = true;
    listed.querySelector('summary').focus();
    listed.scrollIntoView({ block: 'start' });
  }

  /** What the colours and lines of the picture mean. */
  function keyOf() {
    const relations = Object.entries({ ...DASHES, contradicts: 'bad' }).filter(([relation]) => state.found.edges.some((edge) => edge.relation === relation));
    return [
      hueKey(new Set(state.drawn.map((node) => node.type))),
      state.drawn.some((node) => node.type === CONVERSATION) && h('li', {}, h('i', { class: 'dot told' }), t('graph.conversation')),
      relations.map(([relation, look]) => h('li', {}, h('i', { class: `line ${look}` }), t(`relation.${relation}`))),
      h('li', {}, t('graph.size')),
    ];
  }

  function showSide() {
    const node = state.found.nodes.find((each) => each.uri === state.chosen);
    if (state.addingTo !== (node?.uri ?? null)) { // what is being typed stays while the same memory is chosen
      state.addingTo = node?.uri ?? null;
      fill(addition, node && node.type !== CONVERSATION && facts.writable && adding(node));
    }
    if (!node) { fill(chosen, h('p', { class: 'muted' }, t('graph.choose'))); return; }
    const called = (uri) => state.found.nodes.find((each) => each.uri === uri)?.name ?? uri;
    const edges = state.found.edges.filter((edge) => edge.source === node.uri || edge.target === node.uri);
    const isMemory = node.type !== CONVERSATION;
    fill(chosen,
      h('div', { class: 'stack tight' }, isMemory ? typeBadge(node.type) : h('span', { class: 'badge' }, t('graph.conversation')),
        h('h2', {}, node.name),
        node.abstract && h('p', { class: 'muted' }, node.abstract),
        h('div', { class: 'row tight' }, h('a', { class: 'button small primary', href: node.place, dataset: { testid: 'graph-open' } }, t('graph.enter')),
          isMemory && asked.around !== node.uri && h('button', { type: 'button', class: 'button small', dataset: { testid: 'graph-around' }, on: { click: () => { asked.around = node.uri; load(); } } }, t('graph.around')))),
      h('h3', {}, t('memory.relations')),
      edges.length === 0 && h('p', { class: 'muted' }, t('memory.relations.none')),
      h('ul', { class: 'graph-edges' }, edges.map((edge) => edgeRow(edge, node, called))));
  }

  function edgeRow(edge, node, called) {
    const outward = edge.source === node.uri;
    const other = outward ? edge.target : edge.source;
    const own = RELATIONS.includes(edge.relation);
    const word = named(`relation.${outward ? edge.relation : `${edge.relation}.back`}`, named(`relation.${edge.relation}`, edge.relation));
    return h('li', { dataset: { testid: 'graph-edge', uri: other } },
      h('span', { class: ['badge', edge.relation === 'contradicts' && 'bad'] }, word), ' ',
      h('button', { type: 'button', class: 'link-button', on: { click: () => choose(other) } }, called(other)),
      own && facts.writable && h('div', { class: 'row tight' },
        h('select', { value: edge.relation, 'aria-label': t('graph.relation'), dataset: { testid: 'graph-change' }, on: { change: ({ target }) =>
          store({ uri: edge.source, other: edge.target, relation: target.value, strength: edge.strength, ...(target.value === edge.relation ? {} : { instead: edge.relation }) }) } },
        RELATIONS.map((name) => h('option', { value: name }, capital(named(`relation.${name}`, name))))),
        h('label', { class: 'row tight small' }, h('input', { type: 'range', min: 0, max: 1, step: 0.1, value: edge.strength, dataset: { testid: 'graph-strength' },
          on: { change: ({ target }) => store({ uri: edge.source, other: edge.target, relation: edge.relation, strength: Number(target.value) }) } }), t('memory.strength', { share: percent(edge.strength) })),
        h('button', { type: 'button', class: 'button small quiet', dataset: { testid: 'graph-remove' }, on: { click: () => store({ uri: edge.source, other: edge.target, relation: edge.relation, remove: true }) } }, t('graph.remove'))));
  }

  function adding(node) {
    const known = new Map();
    const choices = h('datalist', { id: 'graph-others' });
    let waiting = 0;
    const field = h('input', { id: 'graph-other', type: 'text', list: 'graph-others', autocomplete: 'off', dataset: { testid: 'graph-other' }, on: { input: () => {
      clearTimeout(waiting);
      waiting = setTimeout(async () => {
        const page = await get('/entries', { words: field.value.trim(), limit: 12 }, { signal });
        page.entries.filter((entry) => entry.uri !== node.uri).forEach((entry) => known.set(entry.name, entry.uri));
        fill(choices, [...known.keys()].map((name) => h('option', { value: name })));
      }, CHOICES_MS);
    } } });
    const relation = h('select', { id: 'graph-new', dataset: { testid: 'graph-new' } }, RELATIONS.map((name) => h('option', { value: name }, capital(named(`relation.${name}`, name)))));
    const form = h('form', { class: 'stack tight', dataset: { testid: 'graph-add' } }, h('h3', {}, t('graph.add')),
      h('div', { class: 'field' }, h('label', { for: 'graph-new' }, t('graph.relation')), relation),
      h('div', { class: 'field' }, h('label', { for: 'graph-other' }, t('graph.other')), field, choices),
      h('div', {}, h('button', { type: 'submit', class: 'button small primary', dataset: { testid: 'graph-save' } }, t('graph.add.go'))));
    form.addEventListener('submit', async (event) => {
      event.preventDefault();
      const name = field.value.trim();
      if (!known.has(name) && name) {
        const page = await get('/entries', { words: name, limit: 12 }, { signal });
        page.entries.forEach((entry) => known.set(entry.name, entry.uri));
      }
      if (known.has(name)) {
        if (await store({ uri: node.uri, other: known.get(name), relation: relation.value })) field.value = '';
      } else toastError({ message: t('graph.unknown', { name }), hint: '' });
    });
    return form;
  }

  /** Whether it is stored. */
  async function store(asked_) {
    let stored = false;
    try {
      receiptToast(await send('POST', '/relations', asked_), { undone: load });
      stored = true;
    } catch (error) {
      if (error.data?.receipt) receiptToast(error.data.receipt);
      else toastError(error);
    }
    await load();
    return stored;
  }

  window.addEventListener('committed', load, { signal });
  window.addEventListener('theme', () => draw(), { signal });
  signal.addEventListener('abort', () => state.drawing?.stop());
  const zoom = h('div', { class: 'graph-zoom', role: 'group', 'aria-label': t('graph.zoom') }, [['+', 1.3, 'in'], ['−', 1 / 1.3, 'out'], ['⤢', 0, 'fit']].map(([sign, factor, key]) =>
    h('button', { type: 'button', class: 'button small', 'aria-label': t(`graph.zoom.${key}`), title: t(`graph.zoom.${key}`), on: { click: () => state.drawing?.zoom(factor) } }, sign)));
  const page = h('section', { class: 'view view-graph' },
    h('header', { class: 'view-head' }, h('h1', {}, t('graph.title')), h('p', { class: 'lede' }, t('graph.lede'))),
    h('div', { class: 'stack tight' }, filters, status), h('div', { class: 'graph-columns' }, h('div', { class: 'stack tight' }, h('div', { class: 'graph-frame' }, canvas, zoom), key, list), side));
  requestAnimationFrame(load); // the picture needs its place to have a size
  return page;
}


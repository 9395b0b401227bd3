// What surrounds the views: top bar, sections, folders, shortcuts; it draws the view of the current place into <main>.

import { changesAnswered, changesSent, get, setSpace, space } from './api.js';
import { fill, h, icon } from './dom.js';
import { language, number, setLanguage, t } from './i18n.js';
import { waiting } from './live.js';
import { go, guarded, href, mayLeave, place, renew, show, startRouter } from './router.js';
import { about, setTheme, theme } from './state.js';
import { showHelp } from './parts/dialogs.js';
import { empty, failure, loading } from './parts/states.js';
import { toastRegion } from './parts/toast.js';
import { folderTree, markCurrent } from './parts/tree.js';

const SECTIONS = [
  ['/', 'nav.home', 'M5 4h11l3 3v13H5zM9 9h6M9 13h6M9 17h4'],
  ['/search', 'nav.search', 'M11 4a7 7 0 1 1 0 14 7 7 0 0 1 0-14zM16.200 16.200 20 20'],
  ['/summary', 'nav.summary', 'M6 3h9l4 4v14H6zM15 3v4h4M9 12h7M9 16h5'],
  ['/graph', 'nav.graph', 'M6 4a2.500 2.500 0 1 1 0 5 2.500 2.500 0 0 1 0-5zM18 9a2.500 2.500 0 1 1 0 5 2.500 2.500 0 0 1 0-5zM8 15a2.500 2.500 0 1 1 0 5 2.500 2.500 0 0 1 0-5zM8.300 7.500l7.400 3M6.500 9l1 6M10.300 16.500l5.700-4'],
  ['/calendar', 'nav.calendar', 'M4 6h16v14H4zM4 10h16M8 3v4M16 3v4'],
  ['/history', 'nav.history', 'M4 12a8 8 0 1 0 2.600-5.900L4 8.500M4 4v4.500h4.500M12 8v4.500l3 2'],
  ['/sessions', 'nav.sessions', 'M4 5h16v11H9l-5 4z'],
  ['/heat', 'nav.heat', 'M12 3c1 4 5 5.500 5 10.500a5 5 0 0 1-10 0C7 11 8.500 10 9 8c1.500.8 2 2 2 3.500C12.500 9 12.500 6 12 3z'],
  ['/queue', 'nav.queue', 'M7 4h10M7 20h10M8 4c0 4 3 5 4 8 1-3 4-4 4-8M8 20c0-4 3-5 4-8 1 3 4 4 4 8'],
  ['/archive', 'nav.archive', 'M4 5h16v4H4zM5.500 9v10h13V9M10 13h4'],
  ['/health', 'nav.health', 'M3 12h4l2.500-6 4 12 2.500-6h5'],
  ['/transfer', 'nav.transfer', 'M8 20V5M4 9l4-4 4 4M16 4v15M12 15l4 4 4-4'],
  ['/settings', 'nav.settings', 'M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4'],
];
const OWNERS = { '/memory/{path}': '/', '/edit/{path}': '/', '/new': '/', '/commit/{id}': '/history', '/session/{id}': '/sessions' };
const THEMES = {
  auto: 'M12 4a8 8 0 1 0 0 16zM12 4v16M12 4a8 8 0 0 1 0 16',
  light: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2.500v2M12 19.500v2M2.500 12h2M19.500 12h2M5.300 5.300l1.400 1.400M17.300 17.300l1.400 1.400M18.700 5.300l-1.400 1.400M6.700 17.300l-1.400 1.400',
  dark: 'M19.500 14.500A8 8 0 0 1 9.500 4.500a8 8 0 1 0 10 10z',
};

const SELF_DRAWN = ['/', '/search', '/graph', '/calendar']; // these follow what is committed by themselves
const STILL = ['/health', '/settings', '/transfer']; // costly to draw, or nothing of it is committed
const GATHERED_MS = 300;
const BUSY_MS = 1_000;
const SETTLED_MS = 5_000;

const main = h('main', { id: 'main', tabindex: -1 });
const top = h('header', { class: 'top' });
const side = h('nav', { class: 'side', id: 'side' });
const scrim = h('button', { class: 'scrim', type: 'button', hidden: true, tabindex: -1, 'aria-hidden': 'true', on: { click: () => drawer(false) } });
const scrolled = new Map();
let firstView = true;
let here = '';
let freshening = null;
const changedUris = new Set();

/** Build the page and show the current place. */
export async function startShell() {
  document.body.append(
    h('button', { class: 'button primary skip', type: 'button', on: { click: () => main.focus() } }, t('shell.skip')),
    top, toastRegion(), h('div', { class: 'frame' }, side, main), scrim);
  drawTop();
  const drawn = startRouter(draw);
  drawSide();
  window.addEventListener('language', () => { drawTop(); drawSide(); show(); });
  window.addEventListener('theme', drawTop);
  window.addEventListener('changed', drawFolders);
  window.addEventListener('waiting', drawBadge);
  window.addEventListener('committed', ({ detail: commits }) => {
    for (const commit of commits ?? []) commit.uris.forEach((uri) => changedUris.add(uri));
    drawFolders();
    clearTimeout(freshening);
    freshening = setTimeout(freshen, GATHERED_MS);
  });
  document.addEventListener('keydown', onKey);
  await drawn;
}

function drawTop() {
  const focused = top.contains(document.activeElement) ? document.activeElement.dataset.testid : null;
  const field = h('input', {
    type: 'search', id: 'top-search', name: 'q', autocomplete: 'off', 'aria-label': t('shell.search'), placeholder: t('nav.search'),
    'aria-keyshortcuts': '/', dataset: { testid: 'top-search' },
  });
  const search = h('form', { class: 'top-search', role: 'search' },
    icon(SECTIONS[1][2]), field, h('kbd', { 'aria-hidden': 'true' }, '/'));
  search.addEventListener('submit', (event) => {
    event.preventDefault();
    go(href('/search', { q: field.value.trim() }));
  });
  const next = { auto: 'light', light: 'dark', dark: 'auto' }[theme()];
  const themeText = `${t('shell.theme')}: ${t(`shell.theme.${theme()}`)}`;
  fill(top,
    h('button', { type: 'button', class: 'plain-button menu-button', 'aria-label': t('shell.menu'), 'aria-controls': 'side', 'aria-expanded': 'false',
      dataset: { testid: 'menu' }, on: { click: () => drawer(!side.classList.contains('open')) } }, icon('M4 6h16M4 12h16M4 18h16')),
    h('a', { class: 'brand', href: '#/', 'aria-label': 'Runebook' }, h('img', { src: '/ui/img/mark.svg', alt: '', width: 26, height: 26 }), h('span', {}, 'Runebook')),
    search,
    h('div', { class: 'top-tools' },
      h('a', { class: 'button primary', href: '#/new', dataset: { testid: 'new' }, 'aria-label': t('shell.new') }, icon('M12 5v14M5 12h14'), h('span', {}, t('shell.new'))),
      h('button', { type: 'button', class: 'plain-button', title: t('shell.language.title'), lang: language() === 'zh' ? 'en' : 'zh-Hans',
        dataset: { testid: 'language' }, on: { click: () => setLanguage(language() === 'zh' ? 'en' : 'zh') } }, t('shell.language')),
      h('button', { type: 'button', class: 'plain-button wide', 'aria-label': themeText, title: themeText, dataset: { testid: 'theme' },
        on: { click: () => setTheme(next) } }, icon(THEMES[theme()])),
      h('button', { type: 'button', class: 'plain-button wide', 'aria-label': t('shell.help'), title: t('shell.help'), dataset: { testid: 'help-button' },
        on: { click: showHelp } }, '?')));
  if (focused) top.querySelector(`[data-testid="${focused}"]`)?.focus();
}

function drawSide() {
  side.setAttribute('aria-label', t('shell.sections'));
  fill(side,
    h('ul', { class: 'side-links' }, SECTIONS.map(([path, key, shape]) =>
      h('li', {}, h('a', { href: `#${path}`, dataset: { path, testid: `nav-${key.slice(4)}` } }, icon(shape), t(key))))),
    h('div', { class: 'side-spaces' }),
    h('h2', {}, t('tree.title')),
    h('div', { class: 'side-tree' }));
  markSection();
  drawBadge();
  drawSpaces();
  drawFolders();
}

/** The spaces that may be looked at, where there are several. */
async function drawSpaces() {
  const { spaces, user_space: here } = await about().catch((error) => {
    if (error.status === 404 && space()) { // it may no longer be seen
      setSpace(null);
      location.reload();
    }
    return { spaces: [] };
  });
  if (spaces.length < 2) return;
  const choice = h('select', { id: 'space', dataset: { testid: 'space' } }, spaces.map((each, at) =>
    h('option', { value: at === 0 ? '' : each.space, selected: each.space === here },
      at === 0 ? t('space.own') : t(each.writable ? 'space.shared' : 'space.read', { space: each.space }))));
  choice.addEventListener('change', async () => {
    const wanted = choice.value;
    choice.value = here === spaces[0].space ? '' : here; // until it is left, what is typed belongs there
    if (!(await mayLeave())) return;
    setSpace(wanted);
    location.hash = '#/';
    location.reload();
  });
  fill(side.querySelector('.side-spaces'), h('label', { for: 'space' }, t('space.label')), choice);
}

/** How many proposals wait, beside the section that shows them, and a dot on the button that opens the sections. */
function drawBadge() {
  const count = waiting();
  const said = t('shell.waiting', { count });
  side.querySelector('.badge-count')?.remove();
  top.querySelector('.menu-button').classList.toggle('dotted', count > 0);
  if (count > 0) {
    side.querySelector('[data-testid="nav-queue"]').append(h('span', { class: 'badge-count', title: said, dataset: { testid: 'waiting-badge' } },
      h('span', { 'aria-hidden': 'true' }, number(count)), h('span', { class: 'visually-hidden' }, said)));
  }
}

/** Let the view show what was committed meanwhile, without moving anything under the reader's hands. */
async function freshen() {
  await changesAnswered();
  const pattern = place()?.pattern;
  if (guarded() || SELF_DRAWN.includes(pattern) || STILL.includes(pattern)) {
    changedUris.clear();
    return;
  }
  if (inUse()) {
    freshening = setTimeout(freshen, BUSY_MS);
    return;
  }
  const before = changesSent();
  const uris = new Set(changedUris);
  changedUris.clear();
  await renew(async (where, signal, stays) => {
    const box = h('div', {}, await build(where, signal));
    await settled(box);
    if (changesSent() !== before) { // the view that stands has shown that change, this one was asked for before it
      uris.forEach((uri) => changedUris.add(uri));
      freshening = setTimeout(freshen, BUSY_MS);
      return false;
    }
    if (signal.aborted || !stays() || guarded() || same(main, box)) return false;
    const kept = whereabouts();
    fill(main, [...box.childNodes]);
    kept.restore();
    for (const node of main.querySelectorAll('[data-uri]')) node.classList.toggle('just-changed', uris.has(node.dataset.uri));
    return true;
  });
}

/** Whether the reader is in the middle of something: types, has marked text, or is asked something. */
function inUse() {
  const selection = getSelection();
  return document.querySelector('dialog[open]') !== null || main.getAttribute('aria-busy') === 'true'
    || (main.contains(document.activeElement) && document.activeElement.matches('input, textarea, select'))
    || (selection.isCollapsed === false && main.contains(selection.anchorNode));
}

function settled(box) {
  const done = () => !box.querySelector('.skeleton, [aria-busy="true"]');
  return new Promise((resolve) => {
    const watch = new MutationObserver(() => { if (done()) finish(); });
    const timer = setTimeout(() => finish(), SETTLED_MS);
    const finish = () => { watch.disconnect(); clearTimeout(timer); resolve(); };
    watch.observe(box, { subtree: true, childList: true, attributes: true });
    if (done()) finish();
  });
}

/** Whether two views show the same, but for what is open or marked. */
function same(one, other) {
  const bare = (box) => {
    const copy = box.cloneNode(true);
    for (const node of copy.querySelectorAll('.just-changed')) node.classList.remove('just-changed');
    for (const node of copy.querySelectorAll('details[open]')) node.removeAttribute('open');
    for (const node of copy.querySelectorAll('[data-when-open]')) node.replaceChildren(); // built by who opens it
    for (const node of copy.querySelectorAll('[class=""]')) node.removeAttribute('class');
    return [...copy.childNodes];
  };
  const [left, right] = [bare(one), bare(other)];
  return left.length === right.length && left.every((node, at) => node.isEqualNode(right[at]));
}

/** Scroll position, focus and opened details of the view, to be restored in the next one. */
function whereabouts() {
  const y = window.scrollY;
  const nameOf = (node) => [node.closest('[data-uri]')?.dataset.uri, node.closest('[data-commit]')?.dataset.commit, node.closest('[data-testid]')?.dataset.testid, node.getAttribute('href'), node.firstChild?.textContent].join('\n');
  const find = (selector, name) => [...main.querySelectorAll(selector)].find((node) => nameOf(node) === name);
  const focused = main.contains(document.activeElement) && document.activeElement !== main ? nameOf(document.activeElement) : null;
  const opened = [...main.querySelectorAll('details')].filter((node) => node.open).map((node) => nameOf(node.querySelector('summary')));
  return { restore() {
    for (const name of opened) {
      const details = find('summary', name)?.parentElement;
      details?.setAttribute('open', '');
      details?.dispatchEvent(new Event('toggle')); // by itself it comes later, and what is built then moves the page
    }
    if (focused) find('a, button, summary, [tabindex]', focused)?.focus({ preventScroll: true });
    window.scrollTo(0, y);
  } };
}

async function drawFolders() {
  const box = side.querySelector('.side-tree');
  try {
    const tree = await folderTree();
    if (!box.contains(document.activeElement)) fill(box, tree);
  } catch (error) {
    fill(box, h('p', { class: 'tree-note' }, error.message));
  }
}

function markSection() {
  const pattern = place()?.pattern;
  top.querySelector('.top-search').classList.toggle('covered', pattern === '/search'); // that view has a box of its own
  const current = OWNERS[pattern] ?? pattern;
  for (const link of side.querySelectorAll('.side-links a')) {
    if (link.dataset.path === current) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  const tree = side.querySelector('[role="tree"]');
  if (tree) markCurrent(tree);
}

function drawer(open) {
  side.classList.toggle('open', open);
  scrim.hidden = !open;
  top.querySelector('.menu-button').setAttribute('aria-expanded', String(open));
  if (open) side.querySelector('a').focus();
}

async function draw(where, signal, back) {
  scrolled.set(here, window.scrollY);
  here = location.hash;
  drawer(false);
  markSection();
  main.setAttribute('aria-busy', 'true');
  const waiting = setTimeout(() => { if (!signal.aborted) fill(main, h('div', {}, loading(6))); }, 120); // a quick view shows no grey lines at all
  const node = await build(where, signal);
  clearTimeout(waiting);
  if (signal.aborted) return;
  fill(main, node);
  main.removeAttribute('aria-busy');
  const heading = main.querySelector('h1');
  document.title = heading ? `${heading.textContent} · Runebook` : 'Runebook';
  if (!firstView && !main.contains(document.activeElement)) main.focus({ preventScroll: true });
  if (!firstView) window.scrollTo(0, back ? scrolled.get(here) ?? 0 : 0);
  firstView = false;
}

async function build(where, signal) {
  if (where === null) {
    return empty(t('shell.unknown'), t('shell.unknown.text'), h('a', { class: 'button', href: '#/' }, t('action.home')));
  }
  try {
    const [module, facts] = await Promise.all([where.load(), about()]);
    top.querySelector('[data-testid="new"]').hidden = !facts.writable;
    side.querySelector('[data-testid="nav-transfer"]').hidden = !facts.owner;
    const node = await module.view({ ...where.params, query: where.query, signal });
    return [standing(facts), node];
  } catch (error) {
    if (error.name === 'AbortError') return null;
    return error.status === undefined ? failure(await cause(error), () => location.reload()) : failure(error, show);
  }
}

/** Why a view did not come: nobody answers any more, or the page itself is mistaken. */
async function cause(error) {
  try {
    await get('/about', {}, { quiet: true });
  } catch (refused) {
    if (refused.status === 0) return refused;
  }
  console.error(error);
  return { message: t('error.page'), hint: t('error.page.hint') };
}

function standing(facts) {
  if (facts.private_mode) return h('p', { class: 'warning banner', role: 'note', dataset: { testid: 'private-mode' } }, t('shell.private'));
  if (!facts.writable) return h('p', { class: 'warning banner', role: 'note', dataset: { testid: 'read-only' } }, t('shell.readonly'));
  return null;
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === 'Escape' && side.classList.contains('open')) {
    drawer(false);
    top.querySelector('.menu-button').focus();
    return;
  }
  if (event.target.matches('input, textarea, select, dialog, dialog *')) return;
  const acts = {
    '/': () => (main.querySelector('#search-query') ?? top.querySelector('#top-search')).select(),
    '?': showHelp,
    n: () => go('#/new'),
    e: () => { if (place()?.pattern === '/memory/{path}') main.querySelector('[data-testid="edit"]')?.click(); },
  };
  if (acts[event.key]) {
    event.preventDefault();
    acts[event.key]();
  }
}

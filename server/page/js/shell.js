// What surrounds the views: top bar, sections, folders, shortcuts; it draws the view of the current place into <main>.

import { get } from './api.js';
import { fill, h, icon } from './dom.js';
import { language, setLanguage, t } from './i18n.js';
import { go, href, place, show, startRouter } from './router.js';
import { about, setTheme, theme } from './state.js';
import { showHelp } from './parts/dialogs.js';
import { empty, failure, loading } from './parts/states.js';
import { toastRegion } from './parts/toast.js';
import { folderTree, markCurrent } from './parts/tree.js';

const SECTIONS = [
  ['/', 'nav.home', 'M5 4h11l3 3v13H5zM9 9h6M9 13h6M9 17h4'],
  ['/search', 'nav.search', 'M11 4a7 7 0 1 1 0 14 7 7 0 0 1 0-14zM16.200 16.200 20 20'],
  ['/summary', 'nav.summary', 'M6 3h9l4 4v14H6zM15 3v4h4M9 12h7M9 16h5'],
  ['/history', 'nav.history', 'M4 12a8 8 0 1 0 2.600-5.900L4 8.500M4 4v4.500h4.500M12 8v4.500l3 2'],
  ['/sessions', 'nav.sessions', 'M4 5h16v11H9l-5 4z'],
  ['/heat', 'nav.heat', 'M12 3c1 4 5 5.500 5 10.500a5 5 0 0 1-10 0C7 11 8.500 10 9 8c1.500.8 2 2 2 3.500C12.500 9 12.500 6 12 3z'],
  ['/queue', 'nav.queue', 'M7 4h10M7 20h10M8 4c0 4 3 5 4 8 1-3 4-4 4-8M8 20c0-4 3-5 4-8 1 3 4 4 4 8'],
  ['/archive', 'nav.archive', 'M4 5h16v4H4zM5.500 9v10h13V9M10 13h4'],
  ['/health', 'nav.health', 'M3 12h4l2.500-6 4 12 2.500-6h5'],
  ['/settings', 'nav.settings', 'M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4'],
];
const OWNERS = { '/memory/{path}': '/', '/edit/{path}': '/', '/new': '/', '/commit/{id}': '/history', '/session/{id}': '/sessions' };
const THEMES = {
  auto: 'M12 4a8 8 0 1 0 0 16zM12 4v16M12 4a8 8 0 0 1 0 16',
  light: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2.500v2M12 19.500v2M2.500 12h2M19.500 12h2M5.300 5.300l1.400 1.400M17.300 17.300l1.400 1.400M18.700 5.300l-1.400 1.400M6.700 17.300l-1.400 1.400',
  dark: 'M19.500 14.500A8 8 0 0 1 9.500 4.500a8 8 0 1 0 10 10z',
};

const main = h('main', { id: 'main', tabindex: -1 });
const top = h('header', { class: 'top' });
const side = h('nav', { class: 'side', id: 'side' });
const scrim = h('button', { class: 'scrim', type: 'button', hidden: true, tabindex: -1, 'aria-hidden': 'true', on: { click: () => drawer(false) } });
const scrolled = new Map();
let firstView = true;
let here = '';

/** Build the page and show the current place. */
export async function startShell() {
  document.body.append(
    h('button', { class: 'button primary skip', type: 'button', on: { click: () => main.focus() } }, t('shell.skip')),
    top, h('div', { class: 'frame' }, side, main), scrim, toastRegion());
  drawTop();
  const drawn = startRouter(draw);
  drawSide();
  window.addEventListener('language', () => { drawTop(); drawSide(); show(); });
  window.addEventListener('theme', drawTop);
  window.addEventListener('changed', drawFolders);
  document.addEventListener('keydown', onKey);
  await drawn;
}

function drawTop() {
  const focused = top.contains(document.activeElement) ? document.activeElement.dataset.testid : null;
  const field = h('input', {
    type: 'search', id: 'top-search', name: 'q', autocomplete: 'off', 'aria-label': t('shell.search'), placeholder: t('shell.search'),
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
      h('button', { type: 'button', class: 'plain-button', 'aria-label': themeText, title: themeText, dataset: { testid: 'theme' },
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
    h('h2', {}, t('tree.title')),
    h('div', { class: 'side-tree' }));
  markSection();
  drawFolders();
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

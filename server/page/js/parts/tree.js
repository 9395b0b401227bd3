// The folders of the store, loaded as they are opened. Keyboard as the pattern for trees asks: arrows, Home, End, Enter, letters.

import { get, pathOf } from '../api.js';
import { fill, h, icon } from '../dom.js';
import { language, named, t } from '../i18n.js';
import { about } from '../state.js';
import { lastName } from './marks.js';
import { go } from '../router.js';

const SHOWN = 200;
const CHEVRON = 'M9 6l6 6-6 6';
const opened = new Set();
let untouched = true;

/** A `role=tree` of the owner's folders; opened ones stay open when it is drawn again. */
export async function folderTree() {
  const facts = await about();
  const roots = [
    { uri: `viking://user/${facts.user_space}/memories`, label: t('tree.user') },
    { uri: `viking://agent/${facts.agent_space}/memories`, label: t('tree.agent') },
    { uri: `viking://user/${facts.user_space}/logs`, label: t('tree.logs') },
  ];
  const tree = h('ul', { role: 'tree', class: 'tree', 'aria-label': t('tree.title'), dataset: { testid: 'tree' } },
    roots.map((root, index) => folder(root.uri, root.label, 1, index === 0)));
  tree.addEventListener('keydown', (event) => onKey(tree, event));
  tree.addEventListener('focusin', (event) => {
    const item = event.target.closest('[role="treeitem"]');
    for (const each of tree.querySelectorAll('[role="treeitem"][tabindex="0"]')) each.tabIndex = -1;
    if (item) item.tabIndex = 0;
  });
  if (untouched && Object.keys(facts.counts ?? {}).length > 0) { // an empty store has no folders to open
    opened.add(roots[0].uri);
    untouched = false;
  }
  for (const item of itemsIn(tree)) if (opened.has(item.dataset.uri)) await expand(item);
  markCurrent(tree);
  return tree;
}

/** Mark the file that the address shows. */
export function markCurrent(tree) {
  const shown = /^#\/(?:memory|edit)\/([^?]+)/.exec(location.hash)?.[1];
  for (const item of tree.querySelectorAll('[role="treeitem"]')) {
    const current = item.dataset.kind === 'file' && pathOf(item.dataset.uri) === shown;
    if (current) item.setAttribute('aria-current', 'page');
    else item.removeAttribute('aria-current');
  }
}

/** A folder's line is the item; what it holds is the group behind it. */
function folder(uri, label, level, first = false) {
  const item = h('div', {
    class: 'tree-line', role: 'treeitem', 'aria-expanded': 'false', 'aria-level': level, tabindex: first ? 0 : -1, dataset: { uri, kind: 'folder' },
    on: { click: () => toggle(item) },
  }, icon(CHEVRON, { class: 'icon chevron' }), h('span', {}, label));
  return h('li', { role: 'none' }, item, h('ul', { role: 'group', hidden: true, 'aria-label': label }));
}

function file(entry, level) {
  const label = entry.uri.endsWith('/memories/profile.md') ? t('type.profile') : lastName(entry.uri);
  return h('li', { role: 'none' }, h('a', {
    class: 'tree-line', role: 'treeitem', href: `#/memory/${pathOf(entry.uri)}`, 'aria-level': level, tabindex: -1, title: entry.abstract || label,
    dataset: { uri: entry.uri, kind: 'file' },
  }, h('span', {}, label)));
}

const groupOf = (item) => item.nextElementSibling;
const itemsIn = (list) => [...list.children].map((row) => row.firstElementChild).filter((item) => item?.matches('[role="treeitem"]'));

async function expand(item) {
  const group = groupOf(item);
  item.setAttribute('aria-expanded', 'true');
  group.hidden = false;
  opened.add(item.dataset.uri);
  if (item.dataset.loaded) return;
  const level = Number(item.getAttribute('aria-level')) + 1;
  let listed;
  try {
    listed = await get('/tree', { uri: item.dataset.uri, depth: 1 });
  } catch (error) {
    if (error.status !== 404) {
      fill(group, h('li', { class: 'tree-note', role: 'none' }, error.message));
      return;
    }
    listed = { entries: [], left_out: 0 };
  }
  item.dataset.loaded = 'yes';
  const entries = listed.entries.filter((entry) => entry.uri !== item.dataset.uri && !entry.name.startsWith('.'));
  const collator = new Intl.Collator(language(), { numeric: true });
  entries.sort((left, right) => collator.compare(left.name, right.name));
  const folders = entries.filter((entry) => entry.is_dir);
  const files = entries.filter((entry) => !entry.is_dir);
  const left = Math.max(0, files.length - SHOWN) + (listed.left_out ?? 0);
  const name = (entry) => lastName(entry.uri.replace(/\/$/, ''));
  fill(group,
    folders.map((entry) => folder(entry.uri.replace(/\/$/, ''), named(`type.${name(entry)}`, name(entry)), level)),
    files.slice(0, SHOWN).map((entry) => file(entry, level)),
    left > 0 && h('li', { class: 'tree-note', role: 'none' }, t('tree.left', { count: left })),
    entries.length === 0 && h('li', { class: 'tree-note', role: 'none' }, t('tree.empty')));
  for (const child of itemsIn(group)) if (opened.has(child.dataset.uri)) await expand(child);
  markCurrent(item.closest('[role="tree"]') ?? group);
}

function collapse(item) {
  item.setAttribute('aria-expanded', 'false');
  groupOf(item).hidden = true;
  opened.delete(item.dataset.uri);
}

function toggle(item) {
  if (item.getAttribute('aria-expanded') === 'true') collapse(item);
  else expand(item);
}

function visible(tree) {
  return [...tree.querySelectorAll('[role="treeitem"]')].filter((item) => !item.closest('[role="group"][hidden]'));
}

function onKey(tree, event) {
  const item = event.target.closest('[role="treeitem"]');
  if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
  const items = visible(tree);
  const at = items.indexOf(item);
  const open = item.getAttribute('aria-expanded') === 'true';
  const isFolder = item.dataset.kind === 'folder';
  const moves = {
    ArrowDown: () => items[at + 1]?.focus(),
    ArrowUp: () => items[at - 1]?.focus(),
    Home: () => items[0].focus(),
    End: () => items.at(-1).focus(),
    ArrowRight: () => { if (isFolder && !open) expand(item); else if (open) items[at + 1]?.focus(); },
    ArrowLeft: () => { if (open) collapse(item); else item.closest('[role="group"]')?.previousElementSibling.focus(); },
    Enter: () => { if (isFolder) toggle(item); else go(`#/memory/${pathOf(item.dataset.uri)}`); },
    ' ': () => { if (isFolder) toggle(item); else go(`#/memory/${pathOf(item.dataset.uri)}`); },
  };
  if (moves[event.key]) {
    event.preventDefault();
    event.stopPropagation();
    moves[event.key]();
  } else if (event.key.length === 1 && /\p{L}|\p{N}/u.test(event.key)) {
    event.stopPropagation();
    const wanted = event.key.toLowerCase();
    [...items.slice(at + 1), ...items.slice(0, at)].find((each) => each.textContent.toLowerCase().startsWith(wanted))?.focus();
  }
}

// What outlives a view: facts about the store, drafts that are not saved yet, the theme.

import { belongsTo, get } from './api.js';

const kept = new Map();

function once(name, load) {
  if (!kept.has(name)) {
    kept.set(name, load().catch((error) => {
      kept.delete(name);
      throw error;
    }));
  }
  return kept.get(name);
}

/** GET /about, asked once: {version, writable, private_mode, decay_lambda, ranks, types, model, …}. */
export const about = () => once('about', async () => {
  const facts = await get('/about');
  belongsTo(facts.spaces[0].space);
  return facts;
});

/** GET /types, asked once: the memory types with their fields. */
export const types = () => once('types', async () => (await get('/types')).types);

/** Ask again next time, as after another key. */
export const forget = () => kept.clear();
window.addEventListener('key', forget);

/** Texts being written, by place: kept while one looks elsewhere, given up when saved or discarded. */
export const drafts = new Map();

/** Load the page anew, from its beginning, with nothing of what is shown or written. */
export function leave() {
  drafts.clear();
  history.replaceState(null, '', '#/');
  location.reload();
}

/** How many entries a list showed, by its address: shown again to who comes back. */
export const lengths = new Map();

/** `auto`, `light` or `dark`. */
export function theme() {
  return document.documentElement.dataset.theme ?? 'auto';
}

export function setTheme(wanted) {
  if (wanted === 'auto') {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem('runebook.theme');
  } else {
    document.documentElement.dataset.theme = wanted;
    localStorage.setItem('runebook.theme', wanted);
  }
  window.dispatchEvent(new Event('theme'));
}

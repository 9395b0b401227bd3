// What outlives a view: facts about the store, drafts that are not saved yet, the theme.

import { get } from './api.js';

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
export const about = () => once('about', () => get('/about'));

/** GET /types, asked once: the memory types with their fields. */
export const types = () => once('types', async () => (await get('/types')).types);

/** Ask again next time, as after another key. */
export const forget = () => kept.clear();

/** Texts being written, by place: kept while one looks elsewhere, given up when saved or discarded. */
export const drafts = new Map();

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

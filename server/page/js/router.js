// Addresses inside the page: `#/memory/user/default/…?x=y`. One view at a time; leaving a dirty one asks first.

const routes = [];
let draw = null;
let shown = null;
let leaving = null;
let guard = null;
let traversing = false;

/** `pattern`: "/memory/{path}" (path takes the rest), "/commit/{id}"; `load` gives the module with `view(params)`. */
export function route(pattern, load) {
  const names = [];
  const source = pattern.replace(/\{(\w+)\}/g, (_, name) => {
    names.push(name);
    return name === 'path' ? '(.+)' : '([^/]+)';
  });
  routes.push({ pattern, names, test: new RegExp(`^${source}$`), load });
}

/** The current place: {pattern, params, query, hash}; null where no route fits. */
export function place(hash = location.hash) {
  const [path, search = ''] = (hash.replace(/^#/, '') || '/').split(/\?(.*)/s);
  for (const { pattern, names, test, load } of routes) {
    const found = test.exec(path);
    if (!found) continue;
    const params = {};
    names.forEach((name, index) => { params[name] = read(name, found[index + 1]); });
    return { pattern, load, params, query: Object.fromEntries(new URLSearchParams(search)), hash };
  }
  return null;
}

function read(name, raw) {
  const parts = raw.split('/').map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  return name === 'path' ? parts.map(encodeURIComponent).join('/') : parts.join('/');
}

/** An address for a link: href('/search', {q: 'tea'}) → "#/search?q=tea"; empty values are left out. */
export function href(path, query = {}) {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== '') given.set(name, String(value));
  }
  const search = given.toString();
  return `#${path}${search ? `?${search}` : ''}`;
}

/** Go there. With {replace: true} no step is added to the browser's history; the view is drawn anew either way. */
export async function go(hash, { replace = false } = {}) {
  if (!(await mayLeave())) return;
  if (hash === location.hash) {
    await show();
    return;
  }
  shown = hash;
  history[replace ? 'replaceState' : 'pushState'](null, '', hash);
  await show();
}

/** Note another query in the address without drawing anything: the view keeps its own state. */
export function remember(hash) {
  shown = hash;
  history.replaceState(null, '', hash);
}

/** `ask() → boolean | Promise<boolean>` is called before the view is left; null: leave freely. A view that is left loses it. */
export function setGuard(ask) {
  guard = ask;
}

/** Whether the view may be left: one with something typed asks first, and is not asked again. */
export async function mayLeave() {
  if (!guard) return true;
  const may = await guard();
  if (may) guard = null;
  return may;
}

/** Draw the current place again, as after a change of language. */
export async function show() {
  leaving?.abort();
  leaving = new AbortController();
  shown = location.hash;
  await draw(place(), leaving.signal, traversing);
  traversing = false;
}

/** Whether leaving the view would ask first, as where something is typed that is not saved. */
export const guarded = () => guard !== null;

/**
 * Draw the current place anew behind what is shown. `redraw(place, signal)` says whether it took the place of what was
 * there: then that one's signal is aborted, else the new one's.
 */
export async function renew(redraw) {
  const [before, next] = [leaving, new AbortController()];
  const stays = () => leaving === before;
  before.signal.addEventListener('abort', () => { if (stays()) next.abort(); });
  const took = await redraw(place(), next.signal, stays);
  if (!took || !stays()) {
    next.abort();
    return;
  }
  leaving = next;
  before.abort();
}

/** `render(place, signal, back)` draws a view; `signal` is aborted when it is left, `back` says that the reader was here before. */
export function startRouter(render) {
  draw = render;
  history.scrollRestoration = 'manual';
  window.navigation?.addEventListener('navigate', (event) => { traversing = event.navigationType === 'traverse'; });
  window.addEventListener('hashchange', async () => {
    if (location.hash === shown) return;
    const wanted = location.hash;
    if (guard) {
      history.replaceState(null, '', shown);
      if (!(await mayLeave())) return;
      history.pushState(null, '', wanted);
    }
    await show();
  });
  return show();
}

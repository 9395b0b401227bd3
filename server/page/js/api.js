// The HTTP API as the page calls it: JSON, the key of this tab, and errors with their next step.
// The key came in the address (`#key=…`), from another tab of this page, or was typed in; it lives in the sessionStorage
// of its tabs and nowhere else.

import { t } from './i18n.js';

const STORED = 'runebook.key';
const ROOT = '/api/memory';
const LENT_MS = 200;
let askForKey = null;
let asking = null;

export class ApiError extends Error {
  constructor(status, message, hint = '', data = {}) {
    super(message);
    this.name = 'ApiError';
    this.status = status;
    this.hint = hint;
    this.data = data;
  }
}

/** Take the key out of the address, so that it is neither shown, bookmarked nor copied along. */
export function takeKey() {
  const found = /^#key=([^&]+)$/.exec(location.hash);
  if (!found) return;
  sessionStorage.setItem(STORED, decodeURIComponent(found[1]));
  history.replaceState(null, '', `${location.pathname}#/`);
}

export const key = () => sessionStorage.getItem(STORED);
export const setKey = (value) => (value ? sessionStorage.setItem(STORED, value) : sessionStorage.removeItem(STORED));

const tabs = new BroadcastChannel(STORED); // reaches pages of this origin alone
tabs.addEventListener('message', ({ data }) => {
  if (data === 'asked' && key()) tabs.postMessage({ key: key() });
});

/** The key of another tab, as after a link was opened in a new one; null if none answers. */
function borrowed() {
  return new Promise((resolve) => {
    const listen = ({ data }) => { if (data?.key) done(data.key); };
    const done = (found) => {
      clearTimeout(timer);
      tabs.removeEventListener('message', listen);
      resolve(found);
    };
    const timer = setTimeout(() => done(null), LENT_MS);
    tabs.addEventListener('message', listen);
    tabs.postMessage('asked');
  });
}

/** `ask(wrong) → Promise<string>`: called where a key is needed and none, or a wrong one, is there. */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

/** The URI's place in the API and in the page's addresses: no `viking://`, each segment percent-encoded. */
export function pathOf(uri) {
  return uri.replace(/^viking:\/\//, '').split('/').map(encodeURIComponent).join('/');
}

/** The URI that such a path stands for. */
export function uriOf(path) {
  return `viking://${path.split('/').map(decodeURIComponent).join('/')}`;
}

function address(path, params) {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    if (value !== undefined && value !== null && value !== '') given.set(name, String(value));
  }
  const query = given.toString();
  return `${path.startsWith('/api/') ? path : `${ROOT}${path}`}${query ? `?${query}` : ''}`;
}

async function call(method, url, body, { etag, signal } = {}) {
  const headers = { Accept: 'application/json' };
  if (key()) headers.Authorization = `Bearer ${key()}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (etag) headers['If-Match'] = etag.startsWith('"') ? etag : `"${etag}"`;
  const init = { method, headers, signal, cache: 'no-store', credentials: 'omit' };
  if (body !== undefined) init.body = JSON.stringify(body);
  try {
    return await fetch(url, init);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, t('error.offline'), t('error.offline.hint'));
  }
}

async function newKey(wrong) {
  return (wrong ? null : await borrowed()) ?? askForKey(wrong);
}

async function fresh(wrong) {
  asking ??= newKey(wrong).finally(() => { asking = null; });
  setKey(await asking);
}

async function request(method, url, body, options = {}) {
  let answer = await call(method, url, body, options);
  while (answer.status === 401 && askForKey && !options.quiet) {
    await fresh(Boolean(key()));
    answer = await call(method, url, body, options);
  }
  const text = await answer.text();
  let data = {};
  try {
    data = text ? JSON.parse(text) : {};
  } catch {
    data = { error: text.slice(0, 400) };
  }
  if (answer.ok) return data;
  const said = typeof data.error === 'string' && data.error ? data.error : t('error.status', { status: String(answer.status) });
  throw new ApiError(answer.status, said, data.hint ?? '', data);
}

/** GET; `path` is below /api/memory ("/entries") or begins with "/api/". */
export function get(path, params, options) {
  return request('GET', address(path, params), undefined, options);
}

/** POST, PUT, PATCH or DELETE; options: etag (sent as If-Match), signal. */
export function send(method, path, body, options) {
  // The server takes changes as JSON only, which no form of another site can send.
  return request(method, address(path), body ?? {}, options);
}

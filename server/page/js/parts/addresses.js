// Where on the page a URI is shown, and what it is called. Pure.

import { pathOf, titles } from '../api.js';
import { t } from '../i18n.js';
import { href } from '../router.js';

const MESSAGE = /^viking:\/\/session\/[^/]+\/(.+)\/messages\.jsonl(?:#(\d+))?$/;

/** The page's address of a memory, a message (its conversation, at its line) or any other file. */
export function linkOf(uri) {
  const message = MESSAGE.exec(uri);
  if (message) return sessionLink(message[1], message[2]);
  return `#/memory/${pathOf(uri.replace(/#\d+$/, ''))}`;
}

/** The conversation, at a line of it if one is named. */
export function sessionLink(id, line) {
  return href(`/session/${encodeURIComponent(id)}`, { line });
}

/** What a file is called: its name without ".md"; of a message its conversation, by its title where that is known, and line. */
export function nameOf(uri) {
  const message = MESSAGE.exec(uri);
  if (message) {
    const called = titles.get(message[1]);
    if (message[2] === undefined) return called ?? t('address.session', { id: message[1] });
    return t('address.line', { id: called ?? message[1], line: Number(message[2]) + 1 });
  }
  const last = uri.replace(/#\d+$/, '').replace(/\/+$/, '').split('/').at(-1) ?? uri;
  if (last === '.abstract.md' || last === '.overview.md') {
    return t(last === '.abstract.md' ? 'address.abstract' : 'address.overview', { folder: uri.split('/').at(-2) });
  }
  return last.replace(/\.md$/, '').replace(uri.includes('/review/') ? / [0-9a-f]{8}$/ : '', ''); // a proposal's file carries a hash of it
}

/** The summaries that the server makes of directories: nobody wrote them. */
export const isSummary = (uri) => /\/\.(abstract|overview)\.md$/.test(uri);

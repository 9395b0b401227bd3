// Conversations as they were stored: the list of them, and one with its messages and what it was about beside them.

import { get } from '../api.js';
import { fill, h } from '../dom.js';
import { ago, day, moment, number, t } from '../i18n.js';
import { linkOf, nameOf, sessionLink } from '../parts/addresses.js';
import { speakerOf, typeBadge } from '../parts/marks.js';
import { listKeys } from '../parts/memoryrow.js';
import { empty, failure, loading, pending } from '../parts/states.js';
import { href, remember } from '../router.js';

const LIST_PAGE = 40;
const WAITING = 'waiting';
const MESSAGE_PAGE = 100;
const SEGMENTS_SHOWN = 40;
const TYPING_MS = 220;

/** With an id that conversation, at `query.line` of it; else all of them, from `query.offset` on, or those that wait. */
export async function view({ id, query: { line, offset, words = '', state = '' }, signal }) {
  if (id !== undefined) return conversation(id, line === undefined ? null : Math.max(0, Number.parseInt(line, 10) || 0), words);
  const start = Math.max(0, Number.parseInt(offset ?? '0', 10) || 0);
  const page = h('section', { class: 'view view-sessions' },
    h('header', { class: 'view-head' }, h('h1', {}, t('sessions.title')), h('p', { class: 'lede' }, t('sessions.lede'))),
    pending(async () => list(await get('/sessions', { limit: LIST_PAGE, offset: start, waiting: state === WAITING }), start, state)));
  listKeys(page, signal);
  return page;
}

function list({ sessions, total, all, waiting }, start, state) {
  if (!all) return empty(t('sessions.none'), t('sessions.none.more'));
  const mixed = state !== WAITING && waiting < all;
  const chip = (value, label, count) => h('a', { class: 'chip', href: href('/sessions', { state: value }), 'aria-current': state === value ? 'true' : null, dataset: { testid: `sessions-${value || 'all'}` } }, label, h('span', { class: 'count' }, number(count)));
  return [
    h('nav', { class: 'chips', 'aria-label': t('filter.state') }, chip('', t('filter.all'), all), chip(WAITING, t('sessions.waiting'), waiting)),
    !sessions.length && h('p', { class: 'muted' }, t('sessions.waiting.none')),
    sessions.length > 0 && h('ul', { class: 'session-list card' }, sessions.map((session) => h('li', { class: 'session-item', dataset: { testid: 'session' } },
      h('a', { class: 'session-link', href: sessionLink(session.session_id), dataset: { testid: 'session-link', listItem: '' } }, session.title ?? session.session_id),
      h('span', { class: 'muted small session-facts' }, h('time', { datetime: session.updated_at, title: moment(session.updated_at) }, ago(session.updated_at)), ' · ',
        t('sessions.messages', { count: session.messages }), countOf(session.segments) > 0 && [' · ', t('sessions.segments', { count: countOf(session.segments) })]),
      session.waiting && mixed ? h('a', { class: 'badge', href: '#/queue' }, t('sessions.waiting')) : null))),
    pager(start, LIST_PAGE, total, (offset) => href('/sessions', { state, offset: offset || '' })),
  ];
}

const countOf = (segments) => (Array.isArray(segments) ? segments.length : segments ?? 0);

function pager(start, size, total, address) {
  if (total <= size) return null;
  return h('nav', { class: 'pager', 'aria-label': t('pager.label') },
    start > 0 ? h('a', { class: 'button', href: address(Math.max(0, start - size)) }, t('pager.newer')) : null,
    h('span', { class: 'muted small' }, t('pager.range', { first: start + 1, last: Math.min(total, start + size), total })),
    start + size < total ? h('a', { class: 'button', href: address(start + size) }, t('pager.older')) : null);
}

async function conversation(id, line, words) {
  const state = { id, line, total: 0, words, told: null };
  const title = h('h1', {}, id);
  const under = h('p', { class: 'muted small' });
  const messages = h('div', { class: 'messages', dataset: { testid: 'messages' } });
  const aside = h('aside', { class: 'session-aside', 'aria-label': t('session.segments') });
  const named = (found) => {
    const at = found.messages.find((message) => message.time)?.time ?? found.updated_at;
    if (!state.words) fill(under, at && [h('time', { datetime: at, title: moment(at) }, day(at)), ' · '], t('sessions.messages', { count: found.total }));
    if (!found.title) return;
    fill(title, found.title);
    document.title = `${found.title} · Runebook`;
  };
  const open = (at) => openAt(state, at, messages, aside, named);
  const page = h('section', { class: 'view view-session' },
    h('header', { class: 'view-head' },
      h('p', { class: 'small' }, h('a', { href: '#/sessions' }, t('session.back'))),
      title, under,
      seek(state, () => open(0))),
    h('div', { class: 'session-body' }, messages, aside));
  fill(messages, loading(6));
  open(line ?? 0);
  return page;
}

/** Search inside: only the messages that hold all words. */
function seek(state, open) {
  let typing = 0;
  const field = h('input', { type: 'search', autocomplete: 'off', value: state.words, placeholder: t('session.seek'), 'aria-label': t('session.seek'), dataset: { testid: 'session-words' }, on: { input: () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      if (state.words === field.value.trim()) return;
      state.words = field.value.trim();
      state.line = null;
      remember(href(`/session/${encodeURIComponent(state.id)}`, { words: state.words }));
      open();
    }, TYPING_MS);
  } } });
  return h('div', { class: 'session-seek', role: 'search' }, field);
}

/** Show the page of messages that holds a line, with that line marked if it was asked for. */
async function openAt(state, at, messages, aside, named) {
  const asked = state.words;
  const offset = Math.floor(at / MESSAGE_PAGE) * MESSAGE_PAGE;
  try {
    const found = await get(`/sessions/${encodeURIComponent(state.id)}`, { words: asked, offset, limit: MESSAGE_PAGE });
    if (asked !== state.words) return; // something else was typed meanwhile
    named(found);
    state.total = found.total;
    state.told ??= await get(`/sessions/${encodeURIComponent(state.id)}/memories`).then((told) => told.memories, () => []);
    fill(aside, memoryList(state), segmentList(state, found.segments ?? []));
    if (asked && !found.messages.length) {
      fill(messages, empty(t('session.nothing'), t('session.nothing.more', { words: asked })));
      return;
    }
    if (!found.messages.length) {
      fill(messages, empty(t('session.empty'), found.total ? t('session.beyond', { count: found.total }) : ''), found.total ? turn(state, offset) : null);
      return;
    }
    fill(messages, turn(state, offset), h('ol', { class: 'turns' }, spoken(state, found.messages)), turn(state, offset));
    const wanted = state.line === null ? null : messages.querySelector(`#line-${state.line}`);
    requestAnimationFrame(() => {
      if (wanted?.getBoundingClientRect().bottom > window.innerHeight) wanted.scrollIntoView({ block: 'center' });
      wanted?.focus({ preventScroll: true });
    });
  } catch (error) {
    fill(messages, failure(error, () => openAt(state, at, messages, aside, named)));
  }
}

function turn(state, offset) {
  if (state.total <= MESSAGE_PAGE) return null;
  const to = (line) => sessionLink(state.id, line);
  return h('nav', { class: 'pager', 'aria-label': t('pager.label') },
    offset > 0 ? h('a', { class: 'button small', href: to(Math.max(0, offset - MESSAGE_PAGE)) }, t('pager.earlier')) : null,
    h('span', { class: 'muted small' }, t('pager.range', { first: offset + 1, last: Math.min(state.total, offset + MESSAGE_PAGE), total: state.total })),
    offset + MESSAGE_PAGE < state.total ? h('a', { class: 'button small', href: to(offset + MESSAGE_PAGE) }, t('pager.later')) : null);
}

/** Messages, with the day where it changes. */
function spoken({ id, line, words, told }, messages) {
  let last = '';
  return messages.map((message) => {
    const on = message.time ? day(message.time) : '';
    const heading = on && on !== last ? h('p', { class: 'turn-day' }, on) : null;
    last = on || last;
    const wanted = message.line === line;
    return h('li', { class: ['turn', `turn-${message.role}`, wanted && 'is-wanted'], id: `line-${message.line}`, tabindex: wanted ? '-1' : null, dataset: { testid: 'message', line: String(message.line) } },
      heading,
      h('p', { class: 'turn-head' },
        h('strong', {}, speakerOf(message)),
        wanted && h('span', { class: 'badge' }, t('session.linked')),
        message.time ? h('time', { class: 'muted small', datetime: message.time }, moment(message.time, { timeStyle: 'short' })) : null,
        h('a', { class: 'muted small turn-line', href: sessionLink(id, message.line), title: t('session.line_of', { line: message.line + 1 }) }, `#${message.line + 1}`)),
      h('div', { class: 'turn-text' }, message.text ? highlighted(message.text, words) : t('session.no_text')),
      toldHere(told, message.line));
  });
}

/** The memories that a turn led to, beside it. */
function toldHere(told, line) {
  const here = (told ?? []).filter((memory) => memory.lines.includes(line));
  return here.length > 0 && h('p', { class: 'turn-told', dataset: { testid: 'turn-told' } }, t('session.remembered'), ' ',
    here.map((memory, at) => [at ? t('list.comma') : null, h('a', { href: linkOf(memory.uri) }, memory.name)]));
}

/** The text with each of the words marked. */
function highlighted(text, words) {
  const wanted = words.split(/\s+/).filter(Boolean).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  if (!wanted.length) return text;
  return text.split(new RegExp(`(${wanted.join('|')})`, 'gi')).map((piece, at) => (at % 2 ? h('mark', {}, piece) : piece));
}

/** What was remembered of the conversation, with the lines that each memory came from. */
function memoryList({ id, told }) {
  if (!told?.length) return null;
  return [h('h2', {}, t('session.memories')),
    h('ul', { class: 'segment-list', dataset: { testid: 'session-memories' } }, told.map((memory) => h('li', { class: 'segment' },
      h('a', { href: linkOf(memory.uri) }, memory.name), ' ', typeBadge(memory.memory_type),
      h('p', { class: 'small muted' }, memory.abstract),
      memory.lines.length > 0 && h('p', { class: 'small' }, t('session.from'), ' ', memory.lines.map((line, at) => [at ? t('list.comma') : null, h('a', { href: sessionLink(id, line) }, `#${line + 1}`)])))))];
}

function segmentList(state, segments) {
  if (!segments.length) return h('p', { class: 'muted small' }, t('session.no_segments'));
  return h('details', { open: !matchMedia('(max-width: 860px)').matches },
    h('summary', {}, h('h2', {}, t('session.segments'))),
    h('ul', { class: 'segment-list' }, segments.slice(0, SEGMENTS_SHOWN).map((segment) => h('li', { class: 'segment' },
      h('a', { href: linkOf(segment.uri) }, segment.title || nameOf(segment.uri)),
      segment.pages?.length ? h('p', { class: 'small' }, joined(segment.pages).slice(0, 12).map(([first, last], at) => [
        at ? t('list.comma') : null, h('a', { href: sessionLink(state.id, first) }, t(last > first ? 'session.span' : 'session.span.single', { first: first + 1, last: last + 1 }))])) : null))),
    segments.length > SEGMENTS_SHOWN ? h('p', { class: 'muted small' }, t('did.more', { count: segments.length - SEGMENTS_SHOWN })) : null);
}

/** Spans of lines, those that touch as one. */
function joined(pages) {
  const spans = [];
  for (const [first, last] of pages) {
    if (spans.at(-1)?.[1] === first - 1) spans.at(-1)[1] = last;
    else spans.push([first, last]);
  }
  return spans;
}

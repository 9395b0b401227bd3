// Conversations as they were stored: the list of them, and one with its messages and what it was about beside them.

import { get } from '../api.js';
import { fill, h } from '../dom.js';
import { ago, day, moment, named, t } from '../i18n.js';
import { linkOf, nameOf, sessionLink } from '../parts/addresses.js';
import { listKeys } from '../parts/memoryrow.js';
import { empty, failure, loading, pending } from '../parts/states.js';
import { href, remember } from '../router.js';

const LIST_PAGE = 40;
const MESSAGE_PAGE = 100;
const SEGMENTS_SHOWN = 40;

/** With an id that conversation, at `query.line` of it; else all of them, from `query.offset` on. */
export async function view({ id, query: { line, offset }, signal }) {
  if (id !== undefined) return conversation(id, line === undefined ? null : Math.max(0, Number.parseInt(line, 10) || 0));
  const start = Math.max(0, Number.parseInt(offset ?? '0', 10) || 0);
  const page = h('section', { class: 'view view-sessions' },
    h('header', { class: 'view-head' }, h('h1', {}, t('sessions.title')), h('p', { class: 'lede' }, t('sessions.lede'))),
    pending(async () => list(await get('/sessions', { limit: LIST_PAGE, offset: start }), start)));
  listKeys(page, signal);
  return page;
}

function list({ sessions, total }, start) {
  if (!sessions.length) return empty(t('sessions.none'), t('sessions.none.more'));
  return [
    h('p', { class: 'muted small' }, t('sessions.count', { count: total })),
    h('ul', { class: 'session-list card' }, sessions.map((session) => h('li', { class: 'session-item', dataset: { testid: 'session' } },
      h('a', { class: 'session-link', href: sessionLink(session.session_id), dataset: { testid: 'session-link', listItem: '' } }, session.session_id),
      h('span', { class: 'muted small' },
        t('sessions.messages', { count: session.messages }), ' · ', countOf(session.segments) ? t('sessions.segments', { count: countOf(session.segments) }) : t('sessions.no_segments'), ' · ',
        h('time', { datetime: session.updated_at, title: moment(session.updated_at) }, ago(session.updated_at))),
      session.waiting ? h('a', { class: 'badge warn', href: '#/queue' }, t('sessions.waiting', { count: session.waiting })) : null))),
    pager(start, LIST_PAGE, total, (offset) => href('/sessions', { offset: offset || '' })),
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

async function conversation(id, line) {
  const state = { id, line, total: 0 };
  const messages = h('div', { class: 'messages', dataset: { testid: 'messages' } });
  const aside = h('aside', { class: 'session-aside', 'aria-label': t('session.segments') });
  const open = (at) => openAt(state, at, messages, aside);
  const page = h('section', { class: 'view view-session' },
    h('header', { class: 'view-head' },
      h('p', { class: 'small' }, h('a', { href: '#/sessions' }, t('session.back'))),
      h('h1', {}, id),
      jump(state, open)),
    h('div', { class: 'session-body' }, messages, aside));
  fill(messages, loading(6));
  open(line ?? 0);
  return page;
}

function jump(state, open) {
  const field = h('input', { type: 'number', min: '0', step: '1', value: String(state.line ?? ''), 'aria-label': t('session.line'), dataset: { testid: 'session-line' } });
  return h('form', { class: 'row', on: { submit: (event) => {
    event.preventDefault();
    const at = Math.max(0, Number.parseInt(field.value, 10) || 0);
    state.line = at;
    remember(sessionLink(state.id, at));
    open(at);
  } } }, h('label', { class: 'row small' }, t('session.line'), field), h('button', { type: 'submit', class: 'button small' }, t('session.jump')));
}

/** Show the page of messages that holds a line, with that line marked if it was asked for. */
async function openAt(state, at, messages, aside) {
  const offset = Math.floor(at / MESSAGE_PAGE) * MESSAGE_PAGE;
  try {
    const found = await get(`/sessions/${encodeURIComponent(state.id)}`, { offset, limit: MESSAGE_PAGE });
    state.total = found.total;
    fill(aside, segmentList(state, found.segments ?? []));
    if (!found.messages.length) {
      fill(messages, empty(t('session.empty'), found.total ? t('session.beyond', { count: found.total }) : ''), found.total ? turn(state, offset) : null);
      return;
    }
    fill(messages, turn(state, offset), h('ol', { class: 'turns' }, spoken(state.id, found.messages, state.line)), turn(state, offset));
    const wanted = state.line === null ? null : messages.querySelector(`#line-${state.line}`);
    requestAnimationFrame(() => {
      wanted?.scrollIntoView({ block: 'center' });
      wanted?.focus({ preventScroll: true });
    });
  } catch (error) {
    fill(messages, failure(error, () => openAt(state, at, messages, aside)));
  }
}

function turn(state, offset) {
  if (state.total <= MESSAGE_PAGE) return null;
  const to = (line) => sessionLink(state.id, line);
  return h('nav', { class: 'pager', 'aria-label': t('pager.label') },
    offset > 0 ? h('a', { class: 'button small', href: to(Math.max(0, offset - MESSAGE_PAGE)) }, t('pager.earlier')) : null,
    h('span', { class: 'muted small' }, t('pager.range', { first: offset, last: Math.min(state.total, offset + MESSAGE_PAGE) - 1, total: state.total })),
    offset + MESSAGE_PAGE < state.total ? h('a', { class: 'button small', href: to(offset + MESSAGE_PAGE) }, t('pager.later')) : null);
}

/** Messages, with the day where it changes. */
function spoken(id, messages, line) {
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
        message.time ? h('time', { class: 'muted small', datetime: message.time }, moment(message.time, { timeStyle: 'short' })) : null,
        h('a', { class: 'muted small turn-line', href: sessionLink(id, message.line), title: t('session.line_of', { line: message.line }) }, `#${message.line}`)),
      h('div', { class: 'turn-text' }, message.text || t('session.no_text')));
  });
}

const speakerOf = ({ speaker, role }) => (speaker && speaker !== role ? speaker : named(`role.${role}`, role));

function segmentList(state, segments) {
  if (!segments.length) return h('p', { class: 'muted small' }, t('session.no_segments'));
  return [
    h('h2', {}, t('session.segments')),
    h('ul', { class: 'segment-list' }, segments.slice(0, SEGMENTS_SHOWN).map((segment) => h('li', { class: 'segment' },
      h('a', { href: linkOf(segment.uri) }, segment.title || nameOf(segment.uri)),
      segment.summary ? h('p', { class: 'small muted' }, segment.summary.slice(0, 220)) : null,
      segment.pages?.length ? h('p', { class: 'small' }, segment.pages.slice(0, 12).map(([first, last], at) => [
        at ? t('list.comma') : null, h('a', { href: sessionLink(state.id, first) }, last > first ? `${first}–${last}` : String(first))])) : null))),
    segments.length > SEGMENTS_SHOWN ? h('p', { class: 'muted small' }, t('did.more', { count: segments.length - SEGMENTS_SHOWN })) : null,
  ];
}

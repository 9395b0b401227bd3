// A month: what happened on which day, as memories tell it, and which memories were made.

import { get } from '../api.js';
import { fill, h } from '../dom.js';
import { day, locale, t } from '../i18n.js';
import { href, remember } from '../router.js';
import { linkOf } from '../parts/addresses.js';
import { HUES, hueKey, nameOf } from '../parts/marks.js';
import { failure } from '../parts/states.js';

const SHOWN = 2;
const two = (value) => String(value).padStart(2, '0');
const keyOf = (date) => `${date.getFullYear()}-${two(date.getMonth() + 1)}`;

/** `query.month`: 2026-05; this month without it. */
export async function view({ query, signal }) {
  const state = { month: /^\d{4}-\d\d$/.test(query.month ?? '') ? query.month : keyOf(new Date()) };
  const heading = h('h2', { 'aria-live': 'polite', dataset: { testid: 'calendar-month' } });
  const body = h('div');
  const none = h('p', { class: 'muted small', role: 'status', hidden: true, dataset: { testid: 'calendar-none' } });
  const key = h('ul', { class: 'chart-legend' });
  const step = (by) => {
    const [year, month] = state.month.split('-').map(Number);
    state.month = keyOf(new Date(year, month - 1 + by, 1));
    remember(href('/calendar', { month: state.month }));
    load();
  };
  const button = (key, act, sign) => h('button', { type: 'button', class: 'button small', 'aria-label': t(`calendar.${key}`), dataset: { testid: `calendar-${key}` }, on: { click: act } }, sign);
  const now = h('button', { type: 'button', class: 'button small', on: { click: () => { state.month = keyOf(new Date()); step(0); } } }, t('calendar.today'));

  async function load() {
    const asked = state.month;
    try {
      const found = await get('/calendar', { month: asked }, { signal });
      if (asked !== state.month) return;
      const first = new Date(`${asked}-01T12:00`);
      fill(heading, first.toLocaleDateString(locale(), { month: 'long', year: 'numeric' }));
      now.disabled = asked === keyOf(new Date());
      fill(none, t(found.added.length ? 'calendar.none.added' : 'calendar.none'));
      none.hidden = found.events.length > 0;
      fill(key, hueKey(new Set([...found.events, ...found.added].map((each) => each.memory_type))));
      fill(body, grid(first, found));
    } catch (error) {
      if (error.name !== 'AbortError') fill(body, failure(error, load));
    }
  }

  window.addEventListener('committed', load, { signal });
  await load();
  return h('section', { class: 'view view-calendar' },
    h('header', { class: 'view-head' }, h('h1', {}, t('calendar.title')), h('p', { class: 'lede' }, t('calendar.lede'))),
    h('div', { class: 'row' }, button('earlier', () => step(-1), '‹'), heading, button('later', () => step(1), '›'),
      now, none),
    h('div', { class: 'stack' }, body, key));
}

/** Weeks from Monday on; on a narrow screen only the days that hold something. */
function grid(first, { month, events, added, made }) {
  const last = new Date(first.getFullYear(), first.getMonth() + 1, 0).getDate();
  const before = (first.getDay() + 6) % 7;
  const names = Array.from({ length: 7 }, (_, at) => new Date(2024, 0, 1 + at).toLocaleDateString(locale(), { weekday: 'short' })); // 1 January 2024 was a Monday
  const today = `${keyOf(new Date())}-${two(new Date().getDate())}`;
  const cell = (number) => {
    const iso = `${month}-${two(number)}`;
    const here = events.filter((event) => event.day === iso);
    const more = Math.max(0, here.length - SHOWN) + Math.max(0, (made[iso] ?? 0) - SHOWN);
    const entry = (each, isNew) => h('li', { class: isNew && 'is-new' }, h('a', { class: `hue-${HUES[each.memory_type] ?? 6}`, href: linkOf(each.uri), title: isNew ? t('calendar.added') : null, dataset: { testid: isNew ? 'calendar-added' : 'calendar-event' } },
      isNew && '+ ', nameOf(each).replace(/^\d{4}-\d\d-\d\d\s+/, '')));
    return h('td', { class: [!here.length && !made[iso] && 'quiet', iso === today && 'today'], dataset: { testid: 'calendar-day', day: iso } },
      h('time', { datetime: iso, title: day(iso) }, h('span', { class: 'weekday' }, names[(before + number - 1) % 7], ' '), String(number)),
      h('div', {}, h('ul', {}, here.slice(0, SHOWN).map((each) => entry(each, false)), added.filter((each) => each.day === iso).map((each) => entry(each, true))),
        more > 0 && h('p', { class: 'muted small' }, t('did.more', { count: more }))));
  };
  const days = [...Array.from({ length: before }, () => h('td', { class: 'outside' })), ...Array.from({ length: last }, (_, at) => cell(at + 1))];
  while (days.length % 7) days.push(h('td', { class: 'outside' }));
  const weeks = Array.from({ length: days.length / 7 }, (_, at) => h('tr', {}, days.slice(7 * at, 7 * at + 7)));
  return h('table', { class: 'calendar' }, h('thead', {}, h('tr', {}, names.map((name) => h('th', { scope: 'col' }, name)))), h('tbody', {}, weeks));
}

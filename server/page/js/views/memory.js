// One memory: its text, how it stands, what it relates to, where it comes from, and its past.

import { get, pathOf, send } from '../api.js';
import { fill, h, icon, rendered } from '../dom.js';
import { day, duration, moment, number, percent, t } from '../i18n.js';
import { go, href } from '../router.js';
import { linkOf } from '../parts/addresses.js';
import { confirmed } from '../parts/dialogs.js';
import { counted } from '../parts/fields.js';
import { fieldName, importanceMark, decayBar, nameOf, standingMarks, typeBadge, when } from '../parts/marks.js';
import { editedSince, relations, sources, versions } from '../parts/provenance.js';
import { receiptToast } from '../parts/receipt.js';
import { standingControls } from '../parts/standing.js';
import { empty } from '../parts/states.js';
import { toast, toastError } from '../parts/toast.js';

/** Types whose text the server makes of their fields, unless somebody edited it by hand. What the fields say is left out of it: they say it in the reader's language. */
const MADE = new Set(['tools', 'skills']);
const isMade = (entry) => MADE.has(entry.memory_type) && !entry.hand_edited;
const MADE_TEXT = /^(Tool|Skill|Static Description|Tool Memory Context|Skill Memory Context):/;
const MADE_ITEM = /^(Success rate|Avg time|Best for|Optimal params|Recommended flow|Key dependencies|Common failures|Recommendation):/;
const FIGURES = ['total_calls', 'total_executions', 'fail_count', 'success_rate', 'total_time_ms', 'avg_time', 'total_tokens', 'avg_tokens'];
const SAID = { success_rate: (value) => percent(value / 100), avg_time: (value) => duration(1000 * value), total_time_ms: duration };
const saidOf = ({ name, value }) => (typeof value === 'number' ? (SAID[name] ?? number)(value) : String(value));

export async function view({ path, signal }) {
  const place = linkOf(`viking://${decodeURIComponent(path)}`);
  if (place.startsWith('#/session/')) { location.replace(place); return h('div'); }
  let entry;
  try {
    entry = await get(`/entries/${path}`, {}, { signal });
  } catch (error) {
    if (error.status !== 404) throw error;
    return h('div', {}, empty(t('memory.gone'), t('memory.gone.text'),
      h('a', { class: 'button', href: '#/history' }, t('nav.history')), h('a', { class: 'button', href: '#/' }, t('action.home'))));
  }
  return entryView(entry, path, signal);
}

function entryView(first, path, signal) {
  let entry = first;
  const head = h('header', { class: 'view-head' });
  const facts = h('div');
  const past = h('div');
  const edited = h('p', { class: 'muted' });
  const showPast = () => fill(past, versions(path, signal, (found) => fill(edited, editedSince(entry, found))));
  const body = h('div', { class: 'card page', dataset: { testid: 'body' } });
  const raw = h('pre', { class: 'raw' });

  async function held(now) {
    entry = now ?? await get(`/entries/${path}`, {}, { signal });
    if (!now) standing.hold(entry);
    draw();
    showPast();
    window.dispatchEvent(new Event('changed'));
  }

  const standing = standingControls(entry, held);

  function draw() {
    fill(head, headOf(entry, standing, held));
    const text = rendered(entry.html);
    const first = text.firstElementChild;
    if (first?.matches('h1, h2') && first.textContent.trim() === nameOf(entry)) first.remove(); // the title says it
    if (isMade(entry)) sayFields(text, entry);
    fill(body, text);
    body.hidden = !text.textContent.trim() && isMade(entry);
    fill(facts, atAGlance(entry));
    raw.textContent = entry.text;
  }

  draw();
  showPast();
  const section = (title, ...content) => h('section', { class: 'stack tight' }, h('h2', {}, title), content);
  const rank = ({ name }) => FIGURES.indexOf(name);
  const numbers = MADE.has(entry.memory_type) ? given(entry).filter((field) => rank(field) >= 0).sort((one, other) => rank(one) - rank(other)) : [];
  const told = given(entry).filter((field) => !field.in_text && !numbers.includes(field));
  return h('article', { class: 'memory', dataset: { testid: 'memory' } }, head,
    h('div', { class: 'memory-columns' },
      h('div', { class: 'stack wide' }, body,
        told.length > 0 && section(t('memory.fields'), fieldTable(told)),
        numbers.length > 0 && section(t('memory.totals'), fieldTable(numbers, 'numbers')),
        entry.memory_type && section(t('memory.relations'), relations(entry.links), entry.editable !== false && h('p', {}, h('a', { href: href('/graph', { around: entry.uri }), dataset: { testid: 'to-graph' } }, t(entry.links?.length ? 'graph.open' : 'graph.connect')))),
        entry.memory_type && section(t('memory.sources'), sources(entry), edited),
        section(t('memory.history'), past),
        h('details', { class: 'raw-file', dataset: { testid: 'raw' } },
          h('summary', {}, t('memory.raw'), ' ', h('span', { class: 'muted small' }, t('memory.lines', { count: entry.lines ?? entry.text.split('\n').length }))),
          h('p', { class: 'muted small mono' }, entry.uri), raw)),
      h('aside', { class: 'stack' },
        entry.editable === false ? h('p', { class: 'muted' }, t('memory.notmemory'))
          : h('section', { class: 'card stack' }, h('h2', {}, t('memory.standing')), standing.node),
        h('section', { class: 'card stack tight' }, h('h2', {}, t('memory.facts')), facts))));
}

function headOf(entry, standing, held) {
  const path = pathOf(entry.uri);
  const pin = () => standing.change({ pinned: !entry.pinned });
  const bound = entry.editable === false;
  return [
    h('p', { class: 'small' }, h('a', { href: '#/' }, t('memory.back'))),
    h('div', { class: 'memory-meta' }, entry.memory_type && [typeBadge(entry.memory_type), standingMarks(entry), importanceMark(entry.salience)]),
    h('h1', { dataset: { testid: 'title' } }, nameOf(entry)),
    h('div', { class: 'actions' },
      !bound && h('a', { class: 'button primary', href: `#/edit/${path}`, dataset: { testid: 'edit' }, 'aria-keyshortcuts': 'e' }, icon('M4 20l1-4L16 5l3 3L8 19zM14 7l3 3'), t('action.edit')),
      !bound && h('button', { type: 'button', class: 'button', 'aria-pressed': String(Boolean(entry.pinned)), dataset: { testid: 'pin' }, on: { click: pin } },
        icon('M9 4h6l-1 6 3 3v1H7v-1l3-3zM12 14v6'), t(entry.pinned ? 'action.unpin' : 'action.pin')),
      h('button', { type: 'button', class: 'button', 'aria-label': t('action.copy'), dataset: { testid: 'copy' }, on: { click: () => copy(entry.uri) } },
        icon('M9 9h11v11H9zM5 15H4V4h11v1'), h('span', { class: 'wide' }, t('action.copy'))),
      !bound && h('button', { type: 'button', class: 'button danger', 'aria-label': t('action.delete'), dataset: { testid: 'delete' }, on: { click: () => remove(entry) } },
        icon('M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13'), h('span', { class: 'wide' }, t('action.delete')))),
  ];
}

async function copy(uri) {
  try {
    await navigator.clipboard.writeText(uri);
    toast(t('action.copied'), { detail: uri, kind: 'good' });
  } catch {
    toast(uri); // no clipboard without the reader's leave: show it to be selected
  }
}

async function remove(entry) {
  const sure = await confirmed(t('memory.delete.title'), t('memory.delete.text', { name: nameOf(entry) }), t('action.delete'), { kind: 'danger', testid: 'delete-dialog' });
  if (!sure) return;
  try {
    const receipt = await send('DELETE', `/entries/${pathOf(entry.uri)}`, {}, { etag: entry.sha256 });
    const back = `#/memory/${pathOf(entry.uri)}`;
    await go('#/');
    receiptToast(receipt, { undone: async () => { window.dispatchEvent(new Event('changed')); await go(back); } });
    window.dispatchEvent(new Event('changed'));
  } catch (error) {
    toastError(error);
  }
}

/** The fields that have a value and are not the title. */
const given = (entry) => (entry.fields ?? []).filter(({ value }) => value !== null && value !== undefined && value !== '' && String(value) !== nameOf(entry));

/** What is known of a tool or skill: what it does, and each of the other fields by its name. */
function sayFields(text, entry) {
  for (const node of text.querySelectorAll(':scope > p')) if (MADE_TEXT.test(node.textContent.trim())) node.remove();
  for (const node of text.querySelectorAll(':scope > ul > li')) if (MADE_ITEM.test(node.textContent.trim())) node.remove();
  for (const list of text.querySelectorAll(':scope > ul')) if (!list.children.length) list.remove();
  const known = given(entry).filter((field) => field.in_text && !counted(field) && !FIGURES.includes(field.name) && field.name !== 'guidelines');
  const [does, others] = [known.find(({ name }) => name === 'static_desc'), known.filter(({ name }) => name !== 'static_desc')];
  text.prepend(...[does && h('p', {}, saidOf(does)), others.length > 0 && h('dl', { class: 'told' }, others.map((field) => [h('dt', {}, fieldName(field.name)), h('dd', { class: 'prewrap' }, saidOf(field))]))].filter(Boolean));
}

function fieldTable(fields, kind) {
  return h('table', { class: ['data', kind], dataset: { testid: 'fields' } }, h('tbody', {}, fields.map((field) =>
    h('tr', {}, h('th', { scope: 'row' }, fieldName(field.name)), h('td', { class: 'prewrap' }, saidOf(field))))));
}

function atAGlance(entry) {
  const rows = [
    [t('memory.updated'), when(entry.updated_at)],
    [t('memory.created'), entry.created_at && h('time', { datetime: entry.created_at, title: moment(entry.created_at) }, day(entry.created_at))],
    [t('memory.read'), entry.accesses > 0
      ? [t('mark.accesses', { count: entry.accesses }), entry.last_access && [' · ', when(entry.last_access)]] : t('memory.read.never')],
    [t('mark.vivid'), decayBar(entry.decay, { named: false })],
    [t('memory.project'), entry.project],
  ];
  return h('dl', { class: 'facts' }, rows.filter(([, value]) => value).map(([label, value]) => [h('dt', {}, label), h('dd', {}, value)]));
}

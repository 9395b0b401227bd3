// Writing a memory by hand: what kind of thing it is, then the fields of that kind.

import { pathOf, send } from '../api.js';
import { fill, h, rendered } from '../dom.js';
import { capital, named, t } from '../i18n.js';
import { go, setGuard } from '../router.js';
import { drafts, types } from '../state.js';
import { confirmed } from '../parts/dialogs.js';
import { counted, fieldInput, livePreview, settable } from '../parts/fields.js';
import { ORDER, lastName, typeName } from '../parts/marks.js';
import { changed, receiptToast } from '../parts/receipt.js';
import { complain } from '../parts/states.js';

const DRAFT = 'new';
const LOG = { name: 'daily_log', description: '', fields: [{ name: 'content', type: 'string', description: '', merge_op: 'patch' }] };
const LEVELS = ['low', 'normal', 'high', 'critical'];
const COMMON = ['notes', 'preferences', 'facts', 'entities', 'events', 'tasks'];
const FIRST = [...COMMON, 'daily_log', ...ORDER];

export async function view({ query, signal }) {
  const known = [...await types(), LOG].sort((left, right) => rank(left.name) - rank(right.name));
  const draft = drafts.get(DRAFT) ?? { type: query.type ?? known[0].name, values: {}, priority: 'normal', project: '', private: false };
  const area = h('div');
  const dirty = () => Object.values(draft.values).some((value) => value !== '' && value !== null && value !== false);

  setGuard(async () => {
    if (!dirty()) return true;
    const gone = await confirmed(t('edit.leave.title'), t('edit.leave.text'), t('edit.leave.go'), { kind: 'danger', cancel: t('edit.leave.stay'), testid: 'leave-dialog' });
    if (gone) drafts.delete(DRAFT);
    return gone;
  });
  window.addEventListener('beforeunload', (event) => { if (drafts.has(DRAFT)) event.preventDefault(); }, { signal });

  const choice = (type) => h('label', { class: 'type-choice' },
    h('input', { type: 'radio', name: 'type', value: type.name, checked: type.name === draft.type, dataset: { testid: `new-${type.name}` },
      on: { change: () => { draft.type = type.name; form(); } } }),
    h('span', {}, typeName(type.name)));
  const [common, others] = [known.filter((type) => COMMON.includes(type.name)), known.filter((type) => !COMMON.includes(type.name))];
  const more = h('button', { type: 'button', class: 'type-choice', 'aria-expanded': 'false', dataset: { testid: 'new-more' }, on: { click: () => {
    const rest = others.map(choice);
    more.replaceWith(...rest);
    rest[0].firstElementChild.focus();
  } } }, t('new.more'));
  const picker = h('fieldset', { class: 'types' }, h('legend', {}, t('new.type')),
    h('div', { class: 'type-row' }, common.map(choice), others.some((type) => type.name === draft.type) ? others.map(choice) : more));
  const hint = h('p', { class: 'type-hint', role: 'status' });

  const form = () => {
    const type = known.find((each) => each.name === draft.type) ?? known[0];
    hint.textContent = named(`typehint.${type.name}`, type.description.split('\n')[0]);
    fill(area, formFor(type, draft, dirty, signal));
  };
  form();
  return h('div', { class: 'edit new' },
    h('header', { class: 'view-head' }, h('h1', {}, t('new.title'))), picker, hint, area);
}

const rank = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);

function formFor(type, draft, dirty, signal) {
  const fields = type.fields.filter(settable);
  const own = fields.filter((field) => !counted(field));
  const counts = fields.filter(counted);
  const hasText = own.some((field) => field.name === 'content');
  const nothing = () => h('p', { class: 'muted' }, t('new.preview'));
  const preview = h('div', { class: 'card page', dataset: { testid: 'preview' } }, nothing());
  const live = livePreview(preview, async (abort) => {
    const text = String(draft.values.content ?? '');
    return text.trim() === '' ? nothing() : rendered((await send('POST', '/preview', { markdown: text }, { signal: abort })).html);
  });
  signal.addEventListener('abort', live.stop);
  const problem = h('div');
  const touched = (name, value) => {
    draft.values[name] = value;
    if (dirty()) drafts.set(DRAFT, draft);
    else drafts.delete(DRAFT);
    create.disabled = !dirty();
    if (name === 'content') live.soon();
  };
  const create = h('button', { type: 'submit', class: 'button primary', disabled: !dirty(), dataset: { testid: 'save' } }, t('action.save'));
  const [place, secret] = project(draft);
  const written = h('div', { class: 'stack' },
    own.map((field) => fieldInput(field, draft.values[field.name], touched, { required: field.merge_op === 'immutable' })),
    counts.length > 0 && h('details', {}, h('summary', {}, t('new.counts')),
      h('div', { class: 'filter-grid' }, counts.map((field) => fieldInput(field, draft.values[field.name], touched)))),
    type !== LOG && [h('div', { class: 'filter-grid' }, importance(draft), place), secret],
    problem);
  const form = h('form', { class: 'stack', novalidate: true },
    hasText ? h('div', { class: 'edit-columns' }, written, h('section', { class: 'stack tight beside' }, h('h2', {}, t('edit.preview')), preview)) : written,
    h('div', { class: 'actions sticky' }, create, h('a', { class: 'button', href: '#/', dataset: { testid: 'cancel' } }, t('action.cancel')),
      h('span', { class: 'spacer' }), h('span', { class: 'muted small keys' }, t('edit.keys'))));
  const submit = async () => {
    if (create.disabled) return;
    create.disabled = true;
    try {
      await remember(type, draft, own.concat(counts));
    } catch (error) {
      complain(problem, error);
    } finally {
      create.disabled = !dirty();
    }
  };
  form.addEventListener('submit', (event) => { event.preventDefault(); submit(); });
  form.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); submit(); }
    if (event.key === 'Escape') { event.preventDefault(); go('#/'); }
  });
  if (draft.values.content) live.now();
  return form;
}

async function remember(type, draft, fields) {
  const names = new Set(fields.map((field) => field.name));
  const given = Object.entries(draft.values).filter(([name, value]) => names.has(name) && value !== '' && value !== null && name !== 'content');
  const receipt = await send('POST', '/entries', type === LOG ? { to: 'daily_log', content: draft.values.content } : {
    memory_type: type.name,
    content: names.has('content') && draft.values.content ? draft.values.content : undefined,
    fields: given.length > 0 ? Object.fromEntries(given) : undefined,
    priority: draft.priority,
    project: draft.project.trim() || undefined,
    private: (draft.private && draft.project.trim() !== '') || undefined,
  });
  drafts.delete(DRAFT);
  setGuard(null);
  const uri = receipt.results.find((each) => each.action !== 'rejected')?.uri;
  await go(uri ? `#/memory/${pathOf(uri)}` : '#/');
  const near = (receipt.similar ?? []).map((each) => lastName(each.uri));
  receiptToast({ ...receipt, notes: near.length > 0 ? [t('new.similar', { names: near.join(', ') })] : receipt.notes }, {
    text: uri && changed(receipt) && receipt.results[0].action === 'created' ? t('new.created', { name: lastName(uri) }) : null,
    undone: async () => { window.dispatchEvent(new Event('changed')); await go('#/'); },
  });
  window.dispatchEvent(new Event('changed'));
}

function importance(draft) {
  const select = h('select', { id: 'new-priority', value: draft.priority, dataset: { testid: 'new-priority' }, on: { change: () => { draft.priority = select.value; } } },
    LEVELS.map((level) => h('option', { value: level }, capital(t(`importance.${level}`)))));
  return h('div', { class: 'field' }, h('label', { for: 'new-priority' }, t('importance.label')), select);
}

/** The fields for the project, and for whether only it sees the memory. */
function project(draft) {
  const box = h('input', { type: 'checkbox', checked: draft.private, disabled: !draft.project.trim(), dataset: { testid: 'new-private' }, on: { change: () => { draft.private = box.checked; } } });
  const field = h('input', { id: 'new-project', type: 'text', autocomplete: 'off', value: draft.project, placeholder: t('new.project.help'), dataset: { testid: 'new-project' }, on: { input: () => {
    draft.project = field.value;
    box.disabled = !draft.project.trim();
    box.checked = draft.private && !box.disabled;
  } } });
  return [h('div', { class: 'field' }, h('label', { for: 'new-project' }, t('memory.project')), field),
    h('label', { class: 'switch' }, box, h('span', {}, t('new.private')))];
}

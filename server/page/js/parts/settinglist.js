// Every setting of the server with what it means, its value and where that comes from; its owner changes it here.

import { get, send } from '../api.js';
import { coded, fill, h } from '../dom.js';
import { language, named, t } from '../i18n.js';
import { forget } from '../state.js';
import { failure } from './states.js';
import { toast, toastError } from './toast.js';

const text = (value) => (Array.isArray(value) ? value.join(', ') : String(value ?? ''));

/** Descriptions in other languages than the server's own English, by language and name of the setting. */
const descriptions = { en: {} };

async function loadDescriptions() {
  if (descriptions[language()]) return;
  const answer = await fetch(`/ui/locales/settings.${language()}.json`).catch(() => null); // without it they stay English
  if (answer?.ok) descriptions[language()] = await answer.json();
}

function about({ name, description }) {
  const own = descriptions[language()]?.[name];
  return own ? { text: own, lang: document.documentElement.lang } : { text: description, lang: 'en' };
}

/** The list, with a field that narrows it and sections that open. */
export async function settingList() {
  const [{ settings }] = await Promise.all([get('/settings'), loadDescriptions()]);
  const box = h('div', { class: 'stack tight' });
  const field = h('input', { id: 'setting-filter', type: 'search', autocomplete: 'off', 'aria-label': t('server.filter'), placeholder: t('server.filter'), dataset: { testid: 'setting-filter' } });
  const draw = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = settings.filter((each) => words.every((word) => `${each.name} ${each.description} ${about(each).text}`.toLowerCase().includes(word)));
    const sections = Map.groupBy(found, ({ name }) => (name.includes('.') ? name.slice(0, name.indexOf('.')) : ''));
    fill(box, found.length ? [...sections].map(([section, rows]) => h('details', { class: 'setting-section', open: words.length > 0 },
      h('summary', {}, named(`server.section.${section || 'general'}`, section), ' ', h('span', { class: 'count' }, String(rows.length)), changedMark(rows)),
      h('ul', { class: 'lined' }, rows.map(row)))) : h('p', { class: 'muted' }, t('server.none')));
  };
  field.addEventListener('input', draw);
  draw();
  return h('div', { class: 'stack' }, field, box);
}

const changedMark = (rows) => {
  const count = rows.filter((each) => (each.origin ?? 'default') !== 'default').length;
  return count > 0 && h('span', { class: 'muted small' }, ` · ${t('server.changed', { count })}`);
};

function row(setting) {
  const line = h('li', { class: 'setting stack tight', dataset: { testid: 'setting', name: setting.name } });
  const draw = (now, said = null) => {
    const origin = now.origin ?? 'default';
    const control = controlOf(now);
    control.disabled = Boolean(now.locked);
    const save = async (value) => {
      try {
        const { setting: changed } = await send('PUT', `/settings/${now.name}`, { value });
        forget();
        toast(t(changed.at_start ? 'server.saved.later' : 'server.saved'), { kind: 'good', detail: changed.name });
        draw(Object.assign(setting, { value: undefined }, changed));
        line.querySelector('input, select, textarea')?.focus();
      } catch (error) {
        if (error.status !== 400 && error.status !== 422) toastError(error);
        else fill(problem, failure(error));
        control.setAttribute('aria-invalid', 'true');
      }
    };
    const problem = h('div', { 'aria-live': 'polite' }, said);
    control.addEventListener('change', () => save(valueOf(now, control)));
    fill(line,
      h('label', { for: control.id }, h('code', {}, now.name)),
      h('p', { class: 'small', lang: about(now).lang, id: `${control.id}-about` }, coded(about(now).text)),
      h('div', { class: 'row' }, control, bounds(now), origin === 'file' && !now.locked
        ? h('button', { type: 'button', class: 'button small quiet', dataset: { testid: 'setting-reset' }, on: { click: () => save(null) } }, t('server.reset', { value: text(now.default) || t('server.empty') })) : null),
      h('p', { class: 'muted small' }, [t(`server.origin.${origin}`, { name: now.environment }), now.locked ? t(`server.locked.${now.locked}`) : null, now.at_start && !now.locked ? t('server.at_start') : null].filter(Boolean).join(' · ')),
      problem);
  };
  draw(setting);
  return line;
}

const bounds = ({ least, most }) => (least === undefined || least === null ? null
  : h('span', { class: 'muted small' }, most === undefined || most === null ? t('server.least', { least }) : t('server.bounds', { least, most })));

function controlOf({ name, kind, value, choices }) {
  const props = { id: `setting-${name}`, 'aria-describedby': `setting-${name}-about`, dataset: { testid: 'setting-value' } };
  if (kind === 'flag') return h('input', { ...props, type: 'checkbox', checked: value === true });
  if (kind === 'choice') return h('select', { ...props, value }, choices.map((each) => h('option', { value: each }, each)));
  return h('input', { ...props, type: kind === 'number' ? 'number' : 'text', step: kind === 'number' ? 'any' : null, autocomplete: 'off', value: text(value), placeholder: t('server.empty') });
}

function valueOf({ kind }, control) {
  if (kind === 'flag') return control.checked;
  if (kind === 'number') return control.value === '' ? null : Number(control.value);
  if (kind === 'list') return control.value.split(',').map((each) => each.trim()).filter(Boolean);
  return control.value;
}

// What holds for this browser, what the server says of itself, and for its owner all that can be set there.

import { get, key, renewKey, send, signOut } from '../api.js';
import { h } from '../dom.js';
import { LANGUAGES, ago, language, moment, named, number, setLanguage, t } from '../i18n.js';
import { show } from '../router.js';
import { about, forget, setTheme, theme } from '../state.js';
import { settingList } from '../parts/settinglist.js';
import { pending } from '../parts/states.js';
import { toastError } from '../parts/toast.js';
import { tokens } from '../parts/tokens.js';

const NAMES = { en: 'English', zh: '简体中文' };

export async function view() {
  const facts = await about();
  return h('div', { class: 'settings' },
    h('header', { class: 'view-head' }, h('h1', {}, t('settings.title'))),
    h('div', { class: 'stack narrow' },
      h('h2', {}, t('settings.browser')),
      h('section', { class: 'card stack' },
        choice('language', LANGUAGES.map((each) => [each, NAMES[each]]), language(), setLanguage),
        choice('theme', ['auto', 'light', 'dark'].map((each) => [each, t(`shell.theme.${each}`)]), theme(), setTheme)),
      h('section', { class: 'card stack tight' }, h('h3', {}, t('settings.key')),
        h('p', { class: 'muted small' }, t(key() ? 'settings.key.set' : 'settings.key.none')),
        h('div', { class: 'actions' },
          h('button', { type: 'button', class: 'button', on: { click: async () => { if (await renewKey(false, true)) await show(); } } }, t('settings.key.other')),
          key() && h('button', { type: 'button', class: 'button', on: { click: signOut } }, t('settings.key.forget')))),
      h('h2', {}, t('settings.server')),
      facts.owner && [privateMode(facts), tokens(facts), card('clients.title', pending(clients, 2))],
      card('models.title', pending(models, 2)),
      h('section', { class: 'card stack tight' }, h('h3', {}, t('settings.about')), server(facts)),
      facts.owner && card('server.title', h('p', { class: 'muted small' }, t('server.lede')), pending(settingList, 6))));
}

const card = (title, ...content) => h('section', { class: 'card stack tight' }, h('h3', {}, t(title)), content);

function privateMode(facts) {
  const box = h('input', { type: 'checkbox', checked: facts.private_mode, dataset: { testid: 'private-switch' }, on: { change: async () => {
    try {
      await send('PUT', '/settings/private_mode', { value: box.checked });
    } catch (error) {
      toastError(error);
    }
    forget();
    await show();
  } } });
  return h('section', { class: 'card stack tight' }, h('h3', {}, t('settings.private')), h('label', { class: 'switch' }, box, t('settings.private.on')),
    h('p', { class: 'muted small' }, t('settings.private.help')));
}

async function clients() {
  const rows = (await get('/clients')).clients;
  if (!rows.length) return h('p', { class: 'muted' }, t('clients.none'));
  return h('table', { class: 'data', dataset: { testid: 'clients' } }, h('thead', {}, h('tr', {}, ['clients.name', 'clients.last'].map((each) => h('th', { scope: 'col' }, t(each))))),
    h('tbody', {}, rows.map(({ name, at }) => h('tr', {}, h('td', {}, name), h('td', {}, h('time', { datetime: at, title: moment(at) }, ago(at)))))));
}

async function models() {
  const calls = (await get('/stats')).models ?? [];
  if (!calls.length) return h('p', { class: 'muted' }, t('models.none'));
  const columns = ['models.model', 'models.purpose', 'models.calls', 'models.read', 'models.written'];
  return h('div', { class: 'scroll-x', tabindex: 0, role: 'region', 'aria-label': t('models.title') }, h('table', { class: 'data', dataset: { testid: 'models' } },
    h('thead', {}, h('tr', {}, columns.map((each) => h('th', { scope: 'col' }, t(each))))),
    h('tbody', {}, calls.map((call) => h('tr', {}, [call.model, named(`purpose.${call.purpose}`, call.purpose), number(call.calls ?? 0), number(call.prompt_tokens ?? 0), number(call.completion_tokens ?? 0)]
      .map((value) => h('td', {}, value)))))));
}

function choice(name, options, chosen, choose) {
  return h('div', { class: 'choices', role: 'radiogroup', 'aria-labelledby': `settings-${name}` }, h('h3', { id: `settings-${name}` }, t(`settings.${name}`)),
    options.map(([value, label]) => h('label', { class: 'switch' },
      h('input', { type: 'radio', name, value, checked: value === chosen, dataset: { testid: `${name}-${value}` }, on: { change: () => choose(value) } }), h('span', {}, label))));
}

function server(facts) {
  const yes = (value) => t(value ? 'settings.yes' : 'settings.no');
  const model = facts.model ?? {};
  const rows = [
    ['version', facts.version], ['space', facts.user_space], ['agent', facts.agent_space], ['project', facts.project],
    ['writable', yes(facts.writable)],
    ['halflife', facts.half_life_days && t('settings.days', { count: Math.round(facts.half_life_days * 10) / 10 })],
    ['embedding', said(model.embedding)], ['llm', said(model.llm, model.llm_model)],
  ];
  return h('dl', { class: 'facts' }, rows.filter(([, value]) => value).map(([name, value]) => [h('dt', {}, t(`settings.${name}`)), h('dd', {}, value)]));
}

function said(provider, name = '') {
  return !provider || provider === 'none' ? t('settings.none') : [provider, name].filter(Boolean).join(' · ');
}

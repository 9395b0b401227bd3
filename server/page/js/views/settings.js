// What holds for this browser, and what the server says of itself.

import { key, setKey, signOut } from '../api.js';
import { h } from '../dom.js';
import { LANGUAGES, language, setLanguage, t } from '../i18n.js';
import { show } from '../router.js';
import { about, forget, setTheme, theme } from '../state.js';
import { askForKey } from '../parts/keydialog.js';

const NAMES = { en: 'English', zh: '简体中文' };

export async function view() {
  const facts = await about();
  return h('div', { class: 'settings' },
    h('header', { class: 'view-head' }, h('h1', {}, t('settings.title')), h('p', { class: 'lede' }, t('settings.lede'))),
    h('div', { class: 'stack narrow' },
      choice('language', LANGUAGES.map((each) => [each, NAMES[each]]), language(), setLanguage),
      choice('theme', ['auto', 'light', 'dark'].map((each) => [each, t(`shell.theme.${each}`)]), theme(), setTheme),
      h('section', { class: 'card stack tight' }, h('h2', {}, t('settings.key')),
        h('p', {}, t(key() ? 'settings.key.set' : 'settings.key.none')), h('p', { class: 'muted small' }, t('settings.key.help')),
        h('div', { class: 'actions' },
          h('button', { type: 'button', class: 'button', on: { click: renew } }, t('settings.key.other')),
          key() && h('button', { type: 'button', class: 'button', on: { click: async () => { await signOut(); forget(); show(); } } }, t('settings.key.forget')))),
      h('section', { class: 'card stack tight' }, h('h2', {}, t('settings.server')), server(facts))));
}

function choice(name, options, chosen, choose) {
  return h('fieldset', { class: 'card stack tight' }, h('legend', { class: 'visually-hidden' }, t(`settings.${name}`)), h('h2', { 'aria-hidden': 'true' }, t(`settings.${name}`)),
    h('div', { class: 'row' }, options.map(([value, label]) => h('label', { class: 'switch' },
      h('input', { type: 'radio', name, value, checked: value === chosen, dataset: { testid: `${name}-${value}` }, on: { change: () => choose(value) } }), h('span', {}, label)))));
}

async function renew() {
  const given = await askForKey(false, true);
  if (given === null) return;
  setKey(given);
  forget();
  await show();
}

function server(facts) {
  const yes = (value) => t(value ? 'settings.yes' : 'settings.no');
  const model = facts.model ?? {};
  const rows = [
    ['version', facts.version], ['space', facts.user_space], ['agent', facts.agent_space], ['project', facts.project],
    ['writable', yes(facts.writable)], ['private', yes(facts.private_mode)],
    ['halflife', facts.half_life_days && t('settings.days', { count: Math.round(facts.half_life_days * 10) / 10 })],
    ['embedding', said(model.embedding)], ['llm', said(model.llm, model.llm_model)],
  ];
  return h('dl', { class: 'facts' }, rows.filter(([, value]) => value).map(([name, value]) => [h('dt', {}, t(`settings.${name}`)), h('dd', {}, value)]));
}

function said(provider, name = '') {
  return !provider || provider === 'none' ? t('settings.none') : [provider, name].filter(Boolean).join(' · ');
}

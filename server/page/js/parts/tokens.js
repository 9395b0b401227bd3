// Tokens of the server, for its owner: who may come in with which rights, and when each last did.

import { get, send } from '../api.js';
import { fill, h } from '../dom.js';
import { ago, capital, day, moment, t } from '../i18n.js';
import { confirmed, dialog } from './dialogs.js';
import { failure, pending } from './states.js';
import { toast, toastError } from './toast.js';

const DAYS = [7, 30, 90, 365];

/** The list of tokens with what may be done to them. */
export function tokens(facts) {
  const box = h('div');
  const draw = () => fill(box, pending(async () => listed((await get('/tokens')).tokens, draw), 2));
  draw();
  return h('section', { class: 'card stack tight', 'aria-labelledby': 'tokens-title', dataset: { testid: 'tokens' } },
    h('div', { class: 'row' }, h('h3', { id: 'tokens-title' }, t('tokens.title')), h('span', { class: 'spacer' }),
      h('button', { type: 'button', class: 'button', dataset: { testid: 'token-issue' }, on: { click: async () => { if (await issue(facts)) draw(); } } }, t('tokens.issue'))),
    h('p', { class: 'muted small' }, t('tokens.lede')), box);
}

function listed(rows, draw) {
  if (!rows.length) return null;
  return h('ul', { class: 'lined' }, rows.map((row) => h('li', { class: 'row', dataset: { testid: 'token' } },
    h('div', { class: 'grow' },
      h('p', {}, h('strong', {}, row.label), ' ', h('span', { class: ['badge', !row.live && 'bad'] }, t(row.live ? `tokens.${row.read_only ? 'reads' : 'writes'}` : 'tokens.expired'))),
      h('p', { class: 'muted small' }, [
        t('tokens.opens', { user: row.user_space, agent: row.agent_space }),
        row.shared?.length ? t('tokens.shares', { spaces: row.shared.map(({ name, read_only: reads }) => (reads ? t('tokens.shares.read', { space: name }) : name)).join(t('list.comma')) }) : null,
        row.expires_at ? t('tokens.expires', { day: day(row.expires_at) }) : t('tokens.unlimited'),
        row.last_used_at ? t('tokens.used', { when: ago(row.last_used_at) }) : t('tokens.unused'),
      ].filter(Boolean).join(' · '))),
    h('button', { type: 'button', class: 'button small danger', 'aria-label': t('tokens.revoke.of', { label: row.label }), dataset: { testid: 'token-revoke' }, on: { click: () => revoke(row, draw) } }, t('tokens.revoke')))));
}

async function revoke(row, draw) {
  if (!await confirmed(t('tokens.revoke.title', { label: row.label }), t('tokens.revoke.text'), t('tokens.revoke'), { kind: 'danger', testid: 'revoke-dialog' })) return;
  try {
    await send('DELETE', `/tokens/${row.id}`);
    toast(t('tokens.revoked', { label: row.label }), { kind: 'good' });
  } catch (error) {
    toastError(error);
  }
  draw();
}

/** Ask what the token is to be, and show it, once; whether there is another one now. */
async function issue(facts, given = {}, error = null) {
  const label = h('input', { id: 'token-label', type: 'text', required: true, maxlength: 64, autocomplete: 'off', value: given.label ?? '', dataset: { testid: 'token-label' } });
  const user = h('input', { id: 'token-user', type: 'text', maxlength: 64, autocomplete: 'off', value: given.user_space ?? facts.user_space });
  const shared = sharing(given.shared ?? []);
  const rights = h('select', { id: 'token-rights', value: given.read_only ? 'reads' : 'writes', dataset: { testid: 'token-rights' } }, ['writes', 'reads'].map((each) => h('option', { value: each }, capital(t(`tokens.${each}`)))));
  const expiry = h('select', { id: 'token-expiry', value: String(given.expires_days ?? ''), dataset: { testid: 'token-expiry' } },
    h('option', { value: '' }, capital(t('tokens.unlimited'))), DAYS.map((count) => h('option', { value: String(count) }, t('settings.days', { count }))));
  const field = (key, control, help = null) => h('div', { class: 'field' }, h('label', { for: control.id }, t(key)), control, help && h('span', { class: 'help' }, t(help)));
  const answer = await dialog(t('tokens.issue'), [
    error && failure(error), field('tokens.label', label, 'tokens.label.help'), field('tokens.rights', rights), field('tokens.expiry', expiry), field('tokens.space', user, 'tokens.space.help'), shared.node,
  ], [{ value: 'yes', label: t('tokens.issue'), kind: 'primary' }, { value: 'no', label: t('action.cancel') }], 'token-dialog');
  if (answer !== 'yes') return false;
  const asked = { label: label.value.trim(), user_space: user.value.trim() || null, read_only: rights.value === 'reads', expires_days: Number(expiry.value) || null, shared: shared.value() };
  try {
    const { token, issued } = await send('POST', '/tokens', asked);
    await shown(token, issued);
    return true;
  } catch (failed) {
    return issue(facts, asked, failed);
  }
}

/** Spaces of several users that a token opens beside its own, each to write or only to read: {node, value()}. */
function sharing(given) {
  const list = h('ul', { class: 'stack tight plain-list' });
  const row = (text = '') => {
    const name = h('input', { type: 'text', maxlength: 64, autocomplete: 'off', 'aria-label': t('tokens.shared.name'), placeholder: t('tokens.shared.name'), value: text.replace(/:read$/, ''), dataset: { testid: 'token-shared' } });
    const rights = h('select', { 'aria-label': t('tokens.shared.rights'), value: text.endsWith(':read') ? 'reads' : 'writes', dataset: { testid: 'token-shared-rights' } }, ['writes', 'reads'].map((each) => h('option', { value: each }, capital(t(`tokens.${each}`)))));
    const line = h('li', { class: 'row tight' }, name, rights, h('button', { type: 'button', class: 'button small quiet', 'aria-label': t('tokens.shared.remove'), title: t('tokens.shared.remove'), on: { click: () => { line.remove(); add.focus(); } } }, '×'));
    line.said = () => (name.value.trim() && rights.value === 'reads' ? `${name.value.trim()}:read` : name.value.trim());
    return line;
  };
  const add = h('button', { type: 'button', class: 'button small', dataset: { testid: 'token-shared-add' }, on: { click: () => {
    list.append(row());
    list.lastElementChild.querySelector('input').focus();
  } } }, t('tokens.shared.add'));
  list.append(...given.map(row));
  return {
    node: h('div', { class: 'field', role: 'group', 'aria-labelledby': 'token-shared-title' }, h('span', { id: 'token-shared-title', class: 'label' }, t('tokens.shared')), list, h('div', {}, add), h('span', { class: 'help' }, t('tokens.shared.help'))),
    value: () => [...list.children].map((line) => line.said()).filter(Boolean),
  };
}

function shown(token, issued) {
  const field = h('input', { id: 'token-text', type: 'text', class: 'mono', readOnly: true, value: token, on: { focus: () => field.select() }, dataset: { testid: 'token-text' } });
  return dialog(t('tokens.issued', { label: issued.label }), [
    h('p', {}, t('tokens.once')), h('div', { class: 'field' }, h('label', { for: 'token-text' }, t('tokens.text')), field),
    h('p', { class: 'muted small' }, t('tokens.header'), ' ', h('code', {}, 'Authorization: Bearer …')),
    issued.expires_at && h('p', { class: 'muted small' }, t('tokens.expires', { day: moment(issued.expires_at) })),
  ], [{ value: 'close', label: t('tokens.kept'), kind: 'primary' }], 'issued-dialog');
}

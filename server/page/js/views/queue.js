// What waits: conversations whose memories are still to be extracted, and proposals that wait for their owner.

import { get, send } from '../api.js';
import { fill, h } from '../dom.js';
import { ago, moment, number, t } from '../i18n.js';
import { linkOf, nameOf, sessionLink } from '../parts/addresses.js';
import { receiptBox } from '../parts/commits.js';
import { growing } from '../parts/lists.js';
import { fieldName } from '../parts/marks.js';
import { reasonText } from '../parts/notes.js';
import { empty, failure, pending } from '../parts/states.js';
import { about } from '../state.js';

/** So many of the latest conversations are called by what they are about. */
const TITLES = 100;

export async function view() {
  return h('section', { class: 'view view-queue' },
    h('header', { class: 'view-head' }, h('h1', {}, t('queue.title')), h('p', { class: 'lede' }, t('queue.lede'))),
    pending(async () => {
      const [facts, review, queue, { sessions }] = await Promise.all([about(), get('/review'), get('/queue'), get('/sessions', { limit: TITLES })]);
      const titles = new Map(sessions.map((each) => [each.session_id, each.title]));
      const parts = [reviews(facts, review.waiting ?? [], review.left ?? 0), extractions(facts, queue.waiting ?? [], titles)];
      return review.waiting?.length ? parts : parts.reverse(); // first what waits for the reader
    }));
}

function extractions(facts, waiting, titles) {
  const box = h('section', { class: 'card stack', 'aria-labelledby': 'queue-extractions' });
  const outcome = h('div', { class: 'stack tight', 'aria-live': 'polite', dataset: { testid: 'extract-outcome' } });
  const able = facts.model?.llm !== 'none';
  const missing = !able && facts.writable && waiting.length > 0;
  const draw = (rows) => fill(box,
    h('div', { class: 'split' }, h('div', {}, heading('queue-extractions', t('queue.extractions'), rows.length),
      h('p', { class: 'hint' }, missing && [h('span', { dataset: { testid: 'no-model' } }, t('queue.no_model.needed')), ' '], rows.length > 1 && t('queue.order'))),
      missing && h('a', { class: 'button primary', href: '#/settings' }, t('queue.no_model.go')),
      rows.length > 0 && facts.writable && able && extractButton(t('queue.extract_all'), undefined, 'extract-all')),
    outcome,
    rows.length ? growing(rows, row, { size: 25, props: { class: 'queue-rows' } }) : empty(t('queue.none'), t('queue.none.more')));
  const extractButton = (label, session_id, testid) => {
    const button = h('button', { type: 'button', class: 'button', dataset: { testid }, on: { click: async () => {
      button.disabled = true;
      button.setAttribute('aria-busy', 'true');
      fill(outcome, h('p', { class: 'note' }, t('queue.working')));
      try {
        const { receipts } = await send('POST', '/consolidate', session_id === undefined ? {} : { session_id });
        fill(outcome, receipts.length ? receipts.map((receipt) => receiptBox(receipt)) : h('p', { class: 'note' }, t('queue.nothing_done')));
        draw((await get('/queue')).waiting ?? []);
        window.dispatchEvent(new Event('changed'));
      } catch (error) {
        fill(outcome, failure(error), h('p', { class: 'note' }, t('queue.kept')));
        button.disabled = false;
      } finally {
        button.removeAttribute('aria-busy');
      }
    } } }, label);
    return button;
  };
  const whyOf = ({ reason }) => (able ? h('p', { dataset: { testid: 'queue-reason' } }, reason ? reasonText(reason) : t('queue.no_reason')) : null); // else it is said above
  const row = (entry) => h('li', { class: 'queue-row', dataset: { testid: 'queue-row' } },
    h('div', { class: 'row' },
      h('a', { class: 'session-link', href: sessionLink(entry.session_id) }, titles.get(entry.session_id) ?? entry.session_id),
      facts.writable && able ? [h('span', { class: 'spacer' }), extractButton(t('queue.extract'), entry.session_id, 'extract')] : null),
    whyOf(entry),
    h('p', { class: 'muted small' },
      h('time', { datetime: entry.since, title: moment(entry.since) }, t('queue.since', { messages: t('sessions.messages', { count: entry.messages }), when: ago(entry.since) })),
      entry.attempts ? ` · ${t('queue.attempts', { count: entry.attempts })}` : null,
      retry(entry)));
  draw(waiting);
  return box;
}

function retry({ retry_at: at }) {
  if (!at) return null;
  return at.startsWith('9999') ? ` · ${t('queue.on_request')}` : ` · ${t('queue.retry', { when: ago(at) })}`;
}

function heading(id, said, count) {
  return h('h2', { id }, said, count > 0 && [' ', h('span', { class: 'count' }, number(count))]);
}

function reviews(facts, waiting, more) {
  let left = waiting.length + more;
  const title = heading('queue-review', t('queue.review'), left);
  const decided = () => {
    left -= 1;
    title.querySelector('.count').textContent = number(left);
  };
  return h('section', { class: 'card stack', 'aria-labelledby': 'queue-review' },
    title,
    waiting.length ? [h('p', { class: 'muted' }, t('queue.review.more')), growing(waiting, (proposal) => reviewRow(facts, proposal, decided), { size: 20, props: { class: 'queue-rows' } })]
      : h('p', { class: 'muted' }, t('queue.review.none')));
}

function reviewRow(facts, proposal, decided) {
  const texts = Object.entries(proposal.texts ?? {});
  const outcome = h('div', { 'aria-live': 'polite' });
  const buttons = facts.writable ? ['accept', 'reject'].map((verdict) => h('button', {
    type: 'button', class: ['button', verdict === 'accept' && 'primary'], dataset: { testid: `review-${verdict}` },
    on: { click: () => decide(verdict) },
  }, t(`queue.${verdict}`))) : [];
  const decide = async (verdict) => {
    buttons.forEach((button) => { button.disabled = true; });
    try {
      const receipt = await send('POST', `/review/${encodeURIComponent(proposal.name)}/${verdict}`, {}, { etag: proposal.sha256 });
      fill(outcome, receiptBox(receipt));
      buttons.forEach((button) => button.remove());
      decided();
      window.dispatchEvent(new Event('changed'));
    } catch (error) {
      fill(outcome, error.data?.receipt ? receiptBox(error.data.receipt) : failure(error));
      buttons.forEach((button) => { button.disabled = false; });
    }
  };
  const target = nameOf(proposal.target || proposal.uri);
  return h('li', { class: 'queue-row', dataset: { testid: 'proposal' } },
    h('div', { class: 'row' },
      h('span', { class: `verb verb-${proposal.would}` }, t(`would.${proposal.would}`)), ' ',
      proposal.would === 'created' || !proposal.target ? h('strong', {}, target) : h('a', { href: linkOf(proposal.target) }, target),
      h('span', { class: 'spacer' }), h('div', { class: 'actions' }, buttons)),
    proposal.reason ? h('p', {}, proposal.reason) : null,
    h('p', { class: 'muted small' }, proposal.at ? t('queue.proposed', { when: ago(proposal.at) }) : null,
      proposal.session_id ? [' · ', h('a', { href: sessionLink(proposal.session_id) }, t('queue.from_session'))] : null),
    proposal.gone ? h('p', { class: 'note' }, proposal.gone) : null,
    texts.length ? h('details', { open: texts.length === 1 && texts[0][1].length < 300 }, h('summary', {}, t('queue.show')),
      h('dl', { class: 'proposal-texts' }, texts.map(([name, text]) => [h('dt', {}, fieldName(name)), h('dd', {}, text)]))) : null,
    outcome);
}

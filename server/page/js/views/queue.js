// What waits: conversations whose memories are still to be extracted, and proposals that wait for their owner.

import { get, send } from '../api.js';
import { fill, h } from '../dom.js';
import { ago, day, moment, t } from '../i18n.js';
import { linkOf, nameOf, sessionLink } from '../parts/addresses.js';
import { receiptBox } from '../parts/commits.js';
import { growing } from '../parts/lists.js';
import { fieldName } from '../parts/marks.js';
import { reasonText } from '../parts/notes.js';
import { empty, failure, noModel, pending } from '../parts/states.js';
import { about } from '../state.js';

/** So many of the latest conversations are called by what they are about. */
const TITLES = 100;

export async function view() {
  return h('section', { class: 'view view-queue' },
    h('header', { class: 'view-head' }, h('h1', {}, t('queue.title')), h('p', { class: 'lede' }, t('queue.lede'))),
    pending(async () => {
      const [facts, review, queue, { sessions }] = await Promise.all([about(), get('/review'), get('/queue'), get('/sessions', { limit: TITLES })]);
      const titles = new Map(sessions.map((each) => [each.session_id, each.title]));
      const parts = [reviews(facts, review.waiting ?? []), extractions(facts, queue.waiting ?? [], titles)];
      return review.waiting?.length ? parts : parts.reverse(); // first what waits for the reader
    }));
}

function extractions(facts, waiting, titles) {
  const box = h('section', { class: 'card stack', 'aria-labelledby': 'queue-extractions' });
  const outcome = h('div', { class: 'stack tight', 'aria-live': 'polite', dataset: { testid: 'extract-outcome' } });
  const able = facts.model?.llm !== 'none';
  const draw = (rows) => fill(box,
    h('div', { class: 'row' }, h('h2', { id: 'queue-extractions' }, t('queue.extractions')), h('span', { class: 'count' }, String(rows.length)), h('span', { class: 'spacer' }),
      rows.length && facts.writable ? h('div', { class: 'row' }, able ? null : h('span', { class: 'hint', id: 'queue-no-model', dataset: { testid: 'no-model' } }, noModel()),
        extractButton(t('queue.extract_all'), undefined, 'extract-all')) : null),
    outcome,
    rows.length ? growing(rows, row, { size: 25, props: { class: 'queue-rows' } }) : empty(t('queue.none'), t('queue.none.more')));
  const extractButton = (label, session_id, testid) => {
    const button = h('button', { type: 'button', class: 'button', disabled: !able, 'aria-describedby': able ? null : 'queue-no-model', dataset: { testid }, on: { click: async () => {
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
      h('a', { href: sessionLink(entry.session_id) }, titles.get(entry.session_id) ?? entry.session_id),
      facts.writable && able ? [h('span', { class: 'spacer' }), extractButton(t('queue.extract'), entry.session_id, 'extract')] : null),
    whyOf(entry),
    h('p', { class: 'muted small' },
      h('time', { datetime: entry.since, title: moment(entry.since) }, t('queue.since', { messages: t('queue.messages', { count: entry.messages }), day: day(entry.since), when: ago(entry.since) })),
      entry.attempts ? ` · ${t('queue.attempts', { count: entry.attempts })}` : null,
      retry(entry)));
  draw(waiting);
  return box;
}

function retry({ retry_at: at }) {
  if (!at) return null;
  return at.startsWith('9999') ? ` · ${t('queue.on_request')}` : ` · ${t('queue.retry', { when: ago(at) })}`;
}

function reviews(facts, waiting) {
  const count = h('span', { class: 'count' }, String(waiting.length));
  let left = waiting.length;
  const decided = () => {
    left -= 1;
    count.textContent = String(left);
  };
  return h('section', { class: 'card stack', 'aria-labelledby': 'queue-review' },
    h('div', { class: 'row' }, h('h2', { id: 'queue-review' }, t('queue.review')), count),
    h('p', { class: 'muted' }, t('queue.review.more')),
    waiting.length ? growing(waiting, (proposal) => reviewRow(facts, proposal, decided), { size: 20, props: { class: 'queue-rows' } })
      : empty(t('queue.review.none'), t('queue.review.none.more')));
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
      const receipt = await send('POST', `/review/${encodeURIComponent(proposal.name)}/${verdict}`);
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

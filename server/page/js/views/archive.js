// The archive: what was set aside, why and when; searching it by words, and bringing a memory back.

import { get, send } from '../api.js';
import { fill, h } from '../dom.js';
import { ago, day, moment, t } from '../i18n.js';
import { linkOf, nameOf } from '../parts/addresses.js';
import { receiptBox } from '../parts/commits.js';
import { fromField, growing } from '../parts/lists.js';
import { listKeys } from '../parts/memoryrow.js';
import { archivedBecause } from '../parts/notes.js';
import { emptyBox, failure, loading } from '../parts/states.js';
import { toastError } from '../parts/toast.js';
import { href, remember } from '../router.js';
import { about } from '../state.js';

const SHOWN = 30;
const MOST = 300;
const BOX = 'M4 5h16v4H4zM5.500 9v10h13V9M10 13h4';

/** `query.words`: only what holds them. */
export async function view({ query: { words = '' }, signal }) {
  const facts = await about();
  const list = h('div', { class: 'archive-list' });
  const field = h('input', { type: 'search', value: words, maxlength: '500', placeholder: t('archive.words'), 'aria-label': t('archive.words'), dataset: { testid: 'archive-words' } });
  const form = h('form', { class: 'search-line', role: 'search', hidden: !words, on: { submit: (event) => {
    event.preventDefault();
    remember(href('/archive', { words: field.value.trim() }));
    show(list, field.value.trim(), facts);
  } } }, field, h('button', { type: 'submit', class: 'button' }, t('archive.search')));
  const page = h('section', { class: 'view view-archive' },
    h('header', { class: 'view-head' }, h('h1', {}, t('archive.title')), h('p', { class: 'lede' }, t('archive.lede'))), form, list);
  fromField(page, 'input[type=search]', '.archive-name');
  listKeys(page, signal);
  show(list, words, facts).then((some) => { form.hidden = !some && !words; });
  return page;
}

/** Show what holds the words; whether there is any. */
async function show(list, words, facts) {
  fill(list, loading(5));
  try {
    const { archived, more } = await get('/archive', { words, limit: MOST });
    if (!archived.length) {
      fill(list, words ? emptyBox(BOX, t('archive.nothing'), t('archive.nothing.more', { words })) : emptyBox(BOX, t('archive.none'), t('archive.none.more')));
      return false;
    }
    fill(list, h('p', { class: 'muted small', role: 'status' }, t('archive.count', { count: archived.length })),
      growing(archived, (entry) => row(entry, facts), { size: SHOWN, props: { class: 'archive-rows card' } }),
    more ? h('p', { class: 'note' }, t('archive.more', { count: MOST })) : null);
  } catch (error) {
    fill(list, failure(error, () => show(list, words, facts)));
  }
  return true;
}

function row(entry, facts) {
  const outcome = h('div', { 'aria-live': 'polite' });
  const name = h('a', { class: 'archive-name', href: linkOf(entry.uri), dataset: { listItem: '' } }, nameOf(entry.original || entry.uri));
  const button = h('button', { type: 'button', class: 'button', dataset: { testid: 'restore' }, on: { click: () => restore() } }, t('archive.restore'));
  const item = h('li', { class: 'archive-row', dataset: { testid: 'archived', uri: entry.uri } },
    h('div', { class: 'row' }, name, h('span', { class: 'spacer' }), facts.writable ? button : null),
    h('p', {}, entry.abstract),
    h('p', { class: 'muted small', title: entry.original },
      entry.at ? h('time', { datetime: entry.at, title: moment(entry.at) }, t('archive.since', { day: day(entry.at), when: ago(entry.at) })) : t('archive.since_unknown'),
      entry.reason ? ` · ${archivedBecause(entry.reason)}` : null),
    outcome);
  const restore = async () => {
    button.disabled = true;
    try {
      const receipt = await send('POST', '/archive/restore', { uris: [entry.uri] });
      fill(outcome, receiptBox(receipt, { testid: 'restore-receipt' }));
      button.remove();
      name.replaceWith(h('a', { class: 'archive-name', href: linkOf(receipt.results?.[0]?.uri ?? entry.original) }, nameOf(entry.original || entry.uri)));
      item.classList.add('is-restored');
      window.dispatchEvent(new Event('changed'));
    } catch (error) {
      button.disabled = false;
      if (error.data?.receipt) fill(outcome, receiptBox(error.data.receipt));
      else {
        fill(outcome, failure(error));
        toastError(error);
      }
    }
  };
  return item;
}

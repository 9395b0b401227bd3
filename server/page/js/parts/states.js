// What a view shows while it has nothing to show: loading, empty, failed.

import { coded, h, fill, icon } from '../dom.js';
import { errorTitle, t } from '../i18n.js';

/** Grey lines in the place of what is coming; `lines` of them. */
export function loading(lines = 4) {
  return h('div', { class: 'skeleton', role: 'status', 'aria-label': t('state.loading') },
    Array.from({ length: lines }, (_, index) => h('div', { class: `skeleton-line w${(index * 37) % 4}` })));
}

const BOOK = 'M4 5.5A1.5 1.5 0 0 1 5.5 4H12v16H5.5A1.5 1.5 0 0 1 4 18.5zM20 5.5A1.5 1.5 0 0 0 18.5 4H12v16h6.5a1.5 1.5 0 0 0 1.5-1.5zM7 8h2M7 11h2';

/** Nothing here, why, and what to do about it. */
export function empty(title, text = '', ...actions) {
  return emptyBox(BOOK, title, text, ...actions);
}

/** The same with a picture of its own. */
export function emptyBox(path, title, text = '', ...actions) {
  return h('div', { class: 'empty', dataset: { testid: 'empty' } },
    icon(path, { class: 'icon large' }),
    h('h2', {}, title), text && h('p', {}, text), actions.length > 0 && h('div', { class: 'actions center' }, actions));
}

/** That a language model is missing, and where to set one up. */
export const noModel = () => [t('queue.no_model'), ' ', h('a', { href: '#/settings' }, t('queue.no_model.set'))];

/** What went wrong, what to do next, and a button to try again. */
export function failure(error, retry = null) {
  return h('div', { class: 'failure', role: 'alert', dataset: { testid: 'failure' } },
    h('strong', {}, errorTitle(error) || coded(error.message)), errorTitle(error) && h('p', {}, coded(error.message)), error.hint && h('p', {}, coded(error.hint)),
    retry && h('div', { class: 'actions' },
      h('button', { type: 'button', class: 'button', on: { click: retry }, dataset: { testid: 'retry' } }, t('action.retry'))));
}

/** A failure in `box`, brought into sight: below a long text nobody would look for it. */
export function complain(box, error) {
  fill(box, failure(error));
  box.firstElementChild.scrollIntoView({ block: 'nearest' });
}

/** A box that shows loading lines, then what `load` resolves to, or the error with a way to try again. */
export function pending(load, lines = 4) {
  const box = h('div', { class: 'pending' });
  const run = async () => {
    fill(box, loading(lines));
    box.setAttribute('aria-busy', 'true');
    try {
      fill(box, await load());
    } catch (error) {
      if (error.name === 'AbortError') return;
      if (error.status === undefined) console.error(error); // a mistake of the page itself
      fill(box, failure(error, run));
    } finally {
      box.removeAttribute('aria-busy');
    }
  };
  run();
  return box;
}

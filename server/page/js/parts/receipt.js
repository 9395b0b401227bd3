// A receipt in words, as a notice, with Undo where there is something to take back.

import { send } from '../api.js';
import { t } from '../i18n.js';
import { lastName } from './marks.js';
import { toast, toastError } from './toast.js';

const CHANGES = new Set(['created', 'updated', 'deleted']);

/** Whether the commit changed any file. */
export const changed = (receipt) => Boolean(receipt?.commit_id) && receipt.results.some((each) => CHANGES.has(each.action));

/** What a receipt says: {text, detail, good}. */
export function inWords(receipt) {
  const results = receipt.results ?? [];
  const done = results.filter((each) => CHANGES.has(each.action));
  const refused = results.find((each) => each.action === 'rejected');
  const detail = refused ? [refused.reason, refused.hint].filter(Boolean).join(' ') : (receipt.notes ?? []).join(' ');
  let text = t(`receipt.${receipt.status}`);
  if (done.length === 1) text = t(`receipt.${done[0].action}`, { name: lastName(done[0].uri) });
  else if (done.length > 1) text = t('receipt.several', { count: done.length });
  return { text, detail, good: done.length > 0 || receipt.status === 'unchanged' || receipt.status === 'queued' };
}

/** Say what the commit did; `undone(receipt)` is called after its Undo button took it back. */
export function receiptToast(receipt, { text = null, undone = null } = {}) {
  const said = inWords(receipt);
  toast(text ?? said.text, {
    kind: said.good ? 'good' : 'bad',
    detail: said.detail,
    action: changed(receipt) ? { label: t('action.undo'), run: () => undo(receipt.commit_id, undone) } : null,
  });
}

/** Take a commit back and say so. */
export async function undo(commitId, undone = null) {
  try {
    const receipt = await send('POST', `/commits/${encodeURIComponent(commitId)}/undo`, {});
    const said = inWords(receipt);
    toast(changed(receipt) ? t('receipt.undone') : said.text, { kind: said.good ? 'good' : 'bad', detail: said.detail });
    if (undone) await undone(receipt);
  } catch (error) {
    toastError(error);
  }
}

// What the server says in its own words about a search, in the reader's language and in terms of this page. A sentence
// that is not known here is shown as it came.

import { t } from '../i18n.js';

const KNOWN = [
  [/^searched by words only: (.*)$/s, 'note.words_only'],
  [/^not everything is searched by meaning yet/, 'note.meaning_pending'],
  [/^not reranked: (.*)$/s, 'note.not_reranked'],
  [/^nothing relevant scores ([\d.]+) or more/, 'note.nothing_scores'],
  [/^nothing relevant belongs to the project (.*); search/s, 'note.nothing_project'],
  [/^nothing relevant within the filter/, 'note.nothing_filter'],
  [/^nothing relevant is stored/, 'note.nothing_stored'],
];

/** One note of the server, for a person. */
export function noteText(note) {
  for (const [pattern, key] of KNOWN) {
    const found = pattern.exec(note);
    if (found) return t(key, { what: found[1] ?? '' });
  }
  return note;
}

/** Whether a note says why nothing was found. */
export const saysNothingFound = (note) => note.startsWith('nothing relevant');

const REASONS = [
  [/no (language )?model|without (a )?model|provider.*none/i, 'reason.no_model'],
  [/its extraction was undone/, 'reason.undone'],
];

const ARCHIVED = [
  [/^by its owner$/, 'archived.owner'],
  [/^expired$/, 'archived.expired'],
  [/^used least of the knowledge/, 'archived.capacity'],
  [/^condensed into (.*)$/s, 'archived.condensed'],
  [/^(?:done|cancelled) since (.*)$/s, 'archived.finished'],
];

/** Why a memory is in the archive, likewise. */
export function archivedBecause(reason) {
  for (const [pattern, key] of ARCHIVED) {
    const found = pattern.exec(reason);
    if (found) return t(key, { what: found[1] ?? '' });
  }
  return reason;
}

/** Why a conversation waits, for a person; what no sentence is known for stays as the server said it. */
export function reasonText(reason) {
  const known = REASONS.find(([pattern]) => pattern.test(reason));
  return known ? t(known[1]) : reason;
}

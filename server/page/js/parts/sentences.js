// Sentences that the server says in English (findings, refusals), in the reader's language. The English text `says.…` of
// the locale is the server's own sentence with {places} for what varies: it is recognised by it, and told by its
// translation. What is not known stays as it came.

import { t } from '../i18n.js';

const own = (text) => text.replace(/\{\w+\}/g, '').length;

function pattern(text) {
  const parts = text.split(/\{\w+\}/).map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  return new RegExp(`^${parts.join('(.+?)')}$`, 's');
}

async function load() {
  const answer = await fetch('/ui/locales/en.json').catch(() => null); // without it, sentences stay as they came
  const known = Object.entries(answer?.ok ? await answer.json() : {}).filter(([key]) => key.startsWith('says.'));
  // The one with most words of its own is the most telling.
  known.sort(([, one], [, other]) => own(other) - own(one));
  return known.map(([key, text]) => ({ key, names: [...text.matchAll(/\{(\w+)\}/g)].map((found) => found[1]), pattern: pattern(text) }));
}

const table = await load();

/** A sentence of the server for the reader; what stands in its places is told likewise. */
export function sentence(said) {
  if (!said) return said ?? '';
  for (const { key, names, pattern: known } of table) {
    const found = known.exec(said);
    if (found) return t(key, Object.fromEntries(names.map((name, at) => [name, sentence(found[at + 1])])));
  }
  return said;
}

// One found item: what it is, the picture of its score, what speaks against it, and in words on demand why it is here.

import { h } from '../dom.js';
import { capital, number, percent, t } from '../i18n.js';
import { linkOf, nameOf } from './addresses.js';
import { legend, stackedBar } from './charts.js';
import { typeBadge, typeName, when } from './marks.js';
import { explainScore } from './score.js';

/** How each part of a score is drawn, in the order of the bar. */
const LOOKS = {
  lexical: { tone: 'tone-1' },
  semantic: { tone: 'tone-2' },
  rerank: { tone: 'tone-5' },
  speaker: { tone: 'tone-6' },
  date: { tone: 'tone-6', striped: true },
  linked: { tone: 'tone-1', striped: true },
  recency: { tone: 'tone-3' },
  salience: { tone: 'tone-4' },
};
const NEAR = [[0.6, 'why.line.near'], [0.35, 'why.line.rather_near']];
/** From which match on it is called what. */
const MATCHES = [[0.5, 'strong'], [0.2, 'fair'], [0, 'weak']];
const WORDS_SHOWN = 4;
const MARKS = ['exact', 'speaker', 'date', 'project', 'rerank'];
const part2 = (value) => number(value, { minimumFractionDigits: 2, maximumFractionDigits: 2 });

/** What the colours of a bar mean. */
function scoreLegend({ parts, lost }) {
  const entries = parts.map(({ key }) => ({ ...LOOKS[key], text: t(`why.${key}`) }));
  if (lost.length) entries.push({ tone: 'tone-lost', striped: true, text: t('why.lost') });
  return legend(entries);
}

/** A hit as a list item; `search` is what `explainScore` is told. */
export function hitCard(hit, search, query) {
  const explained = explainScore(hit, search);
  const rivals = hit.rivals ?? [];
  return h('li', { class: 'hit', dataset: { testid: 'hit', uri: hit.uri } },
    h('div', { class: 'hit-head' },
      h('a', { class: 'hit-link', href: linkOf(hit.uri), dataset: { testid: 'hit-link', listItem: '' } }, titleOf(hit)),
      hit.memory_type !== 'profile' && typeBadge(hit.memory_type), // its title is its type
      hit.project ? h('span', { class: 'badge badge-project' }, hit.project) : null,
      h('span', { class: 'hit-score', title: t('search.score'), dataset: { testid: 'hit-match' } }, t(`search.match.${MATCHES.find(([from]) => explained.match >= from)[1]}`),
        h('span', { class: 'decay tone-1', 'aria-hidden': 'true' }, h('i', { style: { inlineSize: `${Math.round(100 * explained.match)}%` } })))),
    h('p', { class: 'hit-abstract', dataset: { testid: 'hit-passage' } }, hit.passage ? marked(hit.passage, hit.marks) : hit.abstract),
    h('div', { class: 'hit-foot' },
      h('span', {}, h('span', { dataset: { testid: 'hit-line' } }, lineOf(hit, search)), ' · ', when(hit.updated_at, 'mark.changed'), hit.accesses ? ` · ${t('mark.accesses', { count: hit.accesses })}` : null),
      MARKS.filter((mark) => hit.why[mark] !== undefined).map((mark) =>
        h('span', { class: `mark mark-${mark}`, title: t(`why.${mark}.more`) }, t(`why.${mark}.mark`))),
      hit.confidence < 1 ? h('span', { class: 'mark' }, t('search.confidence', { share: percent(hit.confidence) })) : null),
    rivals.map((rival) => h('p', { class: 'hit-rival', dataset: { testid: 'hit-rival' } },
      h('span', { class: 'hit-rival-verb' }, t(rival.relation === 'replaced_by' ? 'search.replaced' : 'search.contradicted')), ' ',
      h('a', { href: linkOf(rival.uri) }, rival.abstract || nameOf(rival.uri)), ' ',
      h('small', {}, t('search.rival', { strength: percent(rival.strength), confidence: percent(rival.confidence) })))),
    (hit.also ?? []).length ? h('p', { class: 'hit-also' }, t('search.also', { count: hit.also.length }), ' ',
      hit.also.slice(0, 3).map((uri, at) => [at ? t('list.comma') : null, h('a', { href: linkOf(uri) }, nameOf(uri))])) : null,
    h('details', { class: 'hit-why', dataset: { testid: 'hit-why' } },
      h('summary', {}, t('search.why')), h('p', { dataset: { testid: 'hit-score' } }, t('search.score.number', { score: part2(hit.score) })), bar(hit, explained), scoreLegend(explained),
      h('ul', {}, reasons(hit, explained, search, query).map((line) => h('li', {}, line)))));
}

/** What a hit is called, with what matched marked. */
function titleOf(hit) {
  if (hit.memory_type === 'profile') return typeName('profile');
  return hit.context_type === 'resource' || !hit.name ? nameOf(hit.uri) : marked(hit.name.replace(/^(\d{4}-\d\d-\d\d)_/, '$1 '), hit.name_marks);
}

/** A text with what matched marked. */
function marked(text, marks = []) {
  const chars = [...text]; // positions count characters, as the server does, not UTF-16 units
  const piece = (from, to) => chars.slice(from, to).join('');
  const starts = [0, ...marks.map(([, end]) => end)];
  return starts.map((start, at) => [piece(start, marks[at]?.[0] ?? chars.length), marks[at] && h('mark', {}, piece(...marks[at]))]);
}

/** Why it is here, in one plain line. */
function lineOf(hit, search) {
  const { why } = hit;
  const said = [[hit.passage ?? '', hit.marks ?? []], [hit.name, hit.name_marks ?? []]];
  const found = said.flatMap(([text, marks]) => marks.map(([start, end]) => [...text].slice(start, end).join('')));
  const words = found.filter((word, at) => found.findIndex((each) => each.toLowerCase() === word.toLowerCase()) === at);
  const quoted = words.slice(0, WORDS_SHOWN).map((word) => t('why.line.quoted', { word })).join(t('list.comma'));
  const near = NEAR.find(([from]) => (why.rerank ?? why.semantic ?? 0) >= from)?.[1];
  const parts = [
    why.exact && t('why.line.exact'),
    quoted ? t('why.line.words', { words: quoted }) : why.lexical >= 0.005 && t('why.line.elsewhere'),
    near && t(near),
    why.speaker && t('why.line.speaker'),
    why.date && t('why.line.date'),
    why.linked && t('why.line.linked'),
    why.project && t('why.line.project'),
  ].filter(Boolean);
  if (parts.length === 0) parts.push(t(search.hybrid ? 'why.line.weak' : 'why.line.weak_words'));
  return capital(parts.join(t('why.line.and')));
}

function bar(hit, { parts, lost }) {
  const shown = parts.map((part) => ({ ...LOOKS[part.key], value: part.value, title: `${t(`why.${part.key}`)}: ${part2(part.value)}` }));
  const taken = lost.map((part) => ({ tone: 'tone-lost', striped: true, value: part.value, title: `${t(`why.lost.${part.key}`)}: −${part2(part.value)}` }));
  const label = t('search.bar', {
    score: part2(hit.score),
    parts: parts.map((part) => `${t(`why.${part.key}`)} ${part2(part.value)}`).join(t('list.comma')),
  });
  return stackedBar([...shown, ...taken], { max: 1, label });
}

/** Why it is here, sentence by sentence, in the order of the bar. */
function reasons(hit, { parts, lost, match, moved }, search, query) {
  const { why } = hit;
  const share = Object.fromEntries(parts.map((part) => [part.key, part2(part.value)]));
  const gives = (key) => t('why.gives', { share: share[key] ?? part2(0) });
  const lines = [];
  lines.push([t(why.lexical >= 0.005 ? 'why.say.lexical' : 'why.say.lexical_none', { share: percent(why.lexical), query }), gives('lexical')]);
  if (why.semantic !== undefined) lines.push([t('why.say.semantic', { share: percent(why.semantic) }), gives('semantic')]);
  else lines.push([t(search.hybrid ? 'why.say.semantic_waiting' : 'why.say.semantic_none'), search.hybrid ? gives('semantic') : '']);
  if (why.rerank !== undefined) lines.push([t('why.say.rerank', { share: percent(why.rerank) }), gives('rerank')]);
  if (why.speaker) lines.push([t('why.say.speaker'), gives('speaker')]);
  if (why.date) lines.push([t('why.say.date', { share: percent(why.date) }), gives('date')]);
  if (why.linked) lines.push([t('why.say.linked'), gives('linked')]);
  if (why.substance !== undefined) lines.push([t('why.say.substance'), '']);
  if (why.exact) lines.push([t('why.say.exact'), '']);
  if (moved !== 1) lines.push([t(moved > 1 ? movedUp(hit) : movedDown(hit), { share: percent(Math.abs(moved - 1)) }), '']);
  lines.push(...standing(why, search.rank, lost, match));
  return lines.map(([said, gained]) => [said, gained ? ' ' : null, gained ? h('span', { class: 'why-gives' }, gained) : null]);
}

function movedUp(hit) {
  return hit.why.project ? 'why.say.project' : 'why.say.raised';
}

function movedDown(hit) {
  return (hit.rivals ?? []).length ? 'why.say.contested' : 'why.say.doubted';
}

function standing(why, rank, lost, match) {
  if (why.recency === undefined) return [[t('why.say.timeless'), '']];
  const taken = lost.reduce((sum, part) => sum + part.value, 0);
  const facts = { recency: percent(why.recency), salience: percent(why.salience), match: part2(match), lost: part2(taken) };
  return [[t('why.say.standing', facts), ''], [t(`why.say.rank.${rank}`, facts), '']];
}

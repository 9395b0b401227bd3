// Small marks for one fact about a memory, each with its words: type, importance, decay, reads, age, name.

import { h } from '../dom.js';
import { ago, day, moment, named, percent, t } from '../i18n.js';

const LEVELS = [['critical', 0.95], ['high', 0.7], ['normal', 0.4], ['low', 0]];
/** The colour of a type: `--c1` to `--c6`. */
export const HUES = {
  profile: 4, preferences: 4, entities: 1, facts: 1, events: 2, tasks: 2, cases: 3, patterns: 3, skills: 5, tools: 5,
  reflections: 4, assistant_knowledge: 5, notes: 6,
};

/** The types as people meet them, from themselves to their tools. */
export const ORDER = ['profile', 'preferences', 'facts', 'entities', 'events', 'tasks', 'notes', 'reflections', 'cases', 'patterns', 'tools', 'skills', 'assistant_knowledge'];

/** What the colours of these types mean, as items of a legend: types of one colour together. */
export function hueKey(types) {
  const hues = Map.groupBy(ORDER.filter((type) => types.has(type)), (type) => HUES[type]);
  return [...hues].map(([hue, names]) => h('li', {}, h('i', { class: `dot hue-${hue}` }), names.map(typeName).join(t('list.comma'))));
}

/** A type's name in the reader's language; types of the owner's own keep theirs. */
export const typeName = (type) => named(`type.${type}`, String(type ?? '').replaceAll('_', ' '));

/** A field's name likewise. */
export const fieldName = (name) => named(`field.${name}`, name.replaceAll('_', ' '));

/** What a memory is called: its name, or its file's. */
export function nameOf(entry) {
  return entry.memory_type === 'profile' ? typeName('profile') : entry.name || lastName(entry.uri);
}

/** Who said a message: the name that it carries, or the role in the reader's language. */
export const speakerOf = ({ speaker, role }) => (speaker && speaker !== role ? speaker : named(`role.${role}`, role ?? ''));

/** The last part of a URI, without ".md". */
export function lastName(uri) {
  return uri.replace(/\/$/, '').split('/').at(-1).replace(/\.md$/, '') || uri;
}

/** "Preferences" with its colour. */
export function typeBadge(type) {
  return h('span', { class: `badge type hue-${HUES[type] ?? 6}` }, typeName(type));
}

/** `low`, `normal`, `high` or `critical`. */
export function importanceLevel(salience) {
  return LEVELS.find(([, from]) => (salience ?? 0.5) >= from)[0];
}

/** "Importance high", with four dots, as many filled as the level is high. */
export function importanceMark(salience) {
  const level = importanceLevel(salience);
  const filled = 4 - LEVELS.findIndex(([name]) => name === level);
  return h('span', { class: `importance ${level}`, title: t('importance.of', { level: t(`importance.${level}`), value: Number(salience ?? 0.5) }) },
    h('span', { class: 'dots', 'aria-hidden': 'true' }, Array.from({ length: 4 }, (_, index) => h('i', { class: index < filled ? 'on' : '' }))),
    h('span', { class: 'said' }, t('importance.short', { level: t(`importance.${level}`) })));
}

/** The steps of freshness: from which share on, and the colour. */
export const FRESH = [[0.75, 'tone-1'], [0.5, 'tone-fading'], [0.25, 'tone-faint'], [0, 'tone-lost']];

/** "Freshness 82%" and a short bar: what time has left of it; `named: false` where a label beside it says what it is. */
export function decayBar(decay, { named: said = true } = {}) {
  if (typeof decay !== 'number') return null;
  const share = Math.max(0, Math.min(1, decay));
  return h('span', { class: 'fresh', title: t('mark.fresh', { share: percent(share) }) },
    said ? t('mark.fresh.short', { share: percent(share) }) : percent(share),
    h('span', { class: 'decay tone-1', 'aria-hidden': 'true' }, h('i', { style: { inlineSize: `${Math.round(share * 100)}%` } })));
}

/** "3 days ago", with the moment as its title. */
export function when(iso, key = null) {
  if (!iso) return null;
  const said = ago(iso);
  return h('time', { datetime: iso, title: moment(iso) }, key ? t(key, { ago: said }) : said);
}

/** The last day (2031-05-04) on which a memory holds that no longer does so from the moment `expires_at` on; days end in UTC. */
export const lastDay = (expiresAt) => new Date(new Date(expiresAt).getTime() - 1000).toISOString().slice(0, 10);

/** "Until 3 May", or that it is over. */
export function expiryMark(entry) {
  if (!entry.expires_at) return null;
  const over = new Date(entry.expires_at) < new Date();
  return h('span', { class: 'badge warn' }, t(over ? 'mark.expired' : 'mark.expires', { day: day(lastDay(entry.expires_at)) }));
}

/** Badges for what sets a memory apart: pinned, at rest, private, expiring. */
export function standingMarks(entry) {
  return [
    entry.pinned && h('span', { class: 'badge good', dataset: { testid: 'pinned-mark' } }, t('mark.pinned')),
    entry.active === false && h('span', { class: 'badge warn' }, t('mark.resting')),
    entry.private && h('span', { class: 'badge' }, t('mark.private')),
    expiryMark(entry),
  ];
}

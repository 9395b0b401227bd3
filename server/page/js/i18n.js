// Texts in the reader's language: flat keys in locales/{en,zh}.json, numbers and moments by Intl.
// A key whose text depends on a count has the forms `key.one` and `key.other`, chosen by `vars.count`.

export const LANGUAGES = ['en', 'zh'];
const STORED = 'runebook.language';
const texts = {};
let current = 'en';

function preferred() {
  const kept = localStorage.getItem(STORED);
  if (LANGUAGES.includes(kept)) return kept;
  const wanted = (navigator.languages ?? [navigator.language]).map((tag) => tag.slice(0, 2).toLowerCase());
  return wanted.find((tag) => LANGUAGES.includes(tag)) ?? 'en';
}

async function load(language) {
  if (texts[language]) return;
  const answer = await fetch(`/ui/locales/${language}.json`);
  texts[language] = await answer.json();
}

/** Load the texts; to be awaited before anything is drawn. */
export async function startLanguage() {
  current = preferred();
  await Promise.all([load('en'), load(current)]);
  document.documentElement.lang = current === 'zh' ? 'zh-Hans' : 'en';
}

/** `en` or `zh`. */
export function language() {
  return current;
}

/** Speak another language from now on; the shell and the view are drawn again (event "language"). */
export async function setLanguage(wanted) {
  if (!LANGUAGES.includes(wanted)) return;
  await load(wanted);
  current = wanted;
  localStorage.setItem(STORED, wanted);
  document.documentElement.lang = wanted === 'zh' ? 'zh-Hans' : 'en';
  window.dispatchEvent(new Event('language'));
}

/** The language with the reader's own region, for dates and numbers: en-GB writes other dates than en-US. */
export function locale() {
  const own = (navigator.languages ?? []).find((tag) => tag.toLowerCase().startsWith(`${current}-`));
  return own ?? (current === 'zh' ? 'zh-CN' : 'en');
}

/** A moment, or the reader's own midnight where only a day is given. */
export function dateOf(iso) {
  const only = /^(\d{4})-(\d\d)-(\d\d)$/.exec(String(iso ?? ''));
  return only ? new Date(Number(only[1]), Number(only[2]) - 1, Number(only[3])) : new Date(iso);
}

/** The text of `key`, with `{name}` filled in from `vars` and numbers written as the language writes them. */
export function t(key, vars = {}) {
  let text = texts[current]?.[key] ?? texts.en?.[key];
  if (text === undefined && typeof vars.count === 'number') {
    const form = new Intl.PluralRules(current).select(vars.count) === 'one' ? 'one' : 'other';
    text = texts[current]?.[`${key}.${form}`] ?? texts[current]?.[`${key}.other`] ?? texts.en?.[`${key}.other`];
  }
  if (text === undefined) return key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => {
    const value = vars[name];
    if (value === undefined) return whole;
    return typeof value === 'number' ? number(value) : String(value);
  });
}

/** The text of `key` if there is one, else `otherwise`: for names that a store may add (types, passes). */
export function named(key, otherwise) {
  return texts[current]?.[key] ?? texts.en?.[key] ?? otherwise;
}

/** What an error is called where the reader's language is not the server's: its words are English. */
export function errorTitle(error) {
  return current === 'en' || /[\u4e00-\u9fff]/.test(error.message) ? '' : named(`status.${error.status}`, '');
}

/** With a capital letter, as choices begin. */
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** A number as the language writes it; options as for Intl.NumberFormat. */
export function number(value, options = {}) {
  return new Intl.NumberFormat(locale(), { maximumFractionDigits: 2, ...options }).format(value);
}

/** 0.42 as "42%". */
export function percent(value) {
  return number(value, { style: 'percent', maximumFractionDigits: 0 });
}

/** A moment with its day and time, in the reader's own zone. */
export function moment(iso, options = { dateStyle: 'medium', timeStyle: 'short' }) {
  const at = dateOf(iso);
  return Number.isNaN(at.getTime()) ? String(iso ?? '') : new Intl.DateTimeFormat(locale(), options).format(at);
}

/** A day without its time. */
export function day(iso) {
  return moment(iso, { dateStyle: 'medium' });
}

const DAY_MS = 86_400_000;
const CALENDAR = [['year', 365.25], ['month', 30.44], ['week', 7], ['day', 1]];
const CLOCK = [['hour', 3_600_000], ['minute', 60_000]];
/** So far one counts in days, and so near in hours, be it over midnight. */
const MOST_DAYS = 13;
const NEAR_MS = DAY_MS / 2;

/** A space between a digit and a Chinese character. */
const spaced = (text) => text.replace(/(\d)(?=[\u4e00-\u9fff])/g, '$1 ');

/** How long ago, or how soon, by the calendar from half a day on: "3 days ago", "3 天前"; "yesterday" is the day before. */
export function ago(iso, now = Date.now()) {
  const at = dateOf(iso);
  const passed = at.getTime() - now;
  if (Number.isNaN(passed)) return '';
  const days = Math.round((new Date(at).setHours(12, 0, 0, 0) - new Date(now).setHours(12, 0, 0, 0)) / DAY_MS);
  const byClock = days === 0 || Math.abs(passed) < NEAR_MS;
  const [unit, size] = byClock ? CLOCK.find((each) => Math.abs(passed) >= each[1]) ?? []
    : CALENDAR.find((each) => Math.abs(days) >= each[1] && (each[1] === 1 || Math.abs(days) > MOST_DAYS));
  if (!unit) return t('time.now');
  const format = new Intl.RelativeTimeFormat(locale(), { numeric: Math.abs(days) === 1 && !byClock ? 'auto' : 'always' });
  return spaced(format.format(Math.trunc((byClock ? passed : days) / size), unit));
}

/** Milliseconds as seconds, minutes or hours: "2 min". */
export function duration(count) {
  const [size, unit] = count < 60_000 ? [1000, 'second'] : count < 3_600_000 ? [60_000, 'minute'] : [3_600_000, 'hour'];
  return t(`unit.${unit}`, { value: number(count / size, { maximumFractionDigits: 1 }) });
}

/** Bytes as B, kB or MB. */
export function bytes(count) {
  const [size, unit] = count < 1000 ? [1, 'B'] : count < 1_000_000 ? [1000, 'kB'] : [1_000_000, 'MB'];
  return `${number(count / size, { minimumFractionDigits: size > 1 ? 1 : 0, maximumFractionDigits: 1 })} ${unit}`;
}

// Import, export, backup and restore: what would come is shown before it comes, and how far the work is while it goes on.

import { blob, get, send } from '../api.js';
import { coded, fill, h } from '../dom.js';
import { bytes, moment, named, number, t } from '../i18n.js';
import { confirmed } from '../parts/dialogs.js';
import { growing } from '../parts/lists.js';
import { typeName } from '../parts/marks.js';
import { undo } from '../parts/receipt.js';
import { sentence } from '../parts/sentences.js';
import { empty, failure, noModel } from '../parts/states.js';
import { tagChoices } from '../parts/tags.js';
import { show } from '../router.js';
import { about, forget } from '../state.js';

const ASKED_EVERY_MS = 300;

export async function view({ signal }) {
  const facts = await about();
  const head = h('header', { class: 'view-head' }, h('h1', {}, t('transfer.title')), h('p', { class: 'lede' }, t('transfer.lede')));
  if (!facts.owner) return [head, empty(t('transfer.owner'))];
  return h('section', { class: 'view' }, head, h('div', { class: 'stack narrow' },
    facts.writable ? importing(facts, await get('/labels', {}, { signal }), signal) : null, exporting(signal), facts.files ? [backingUp(signal), restoring(signal)] : card('transfer.backup', h('p', { class: 'muted' }, t('transfer.backup.database')))));
}

const card = (title, ...content) => h('section', { class: 'card stack', 'aria-label': t(title) }, h('h2', {}, t(title)), content);
const button = (key, testid, act, kind = '') => h('button', { type: 'button', class: `button ${kind}`, dataset: { testid }, on: { click: act } }, t(key));
const box = () => h('div', { class: 'stack tight', 'aria-live': 'polite' });
const fileInput = (id, label, chosen, accept = null) => h('div', { class: 'field' }, h('label', { for: id }, t(label)),
  fileChoice(id, accept, chosen));
/** A button of the page's own: the browser's speaks the browser's language. */
function fileChoice(id, accept, chosen) {
  const name = h('span', { class: 'muted' }, t('transfer.none_chosen'));
  const input = h('input', { id, type: 'file', class: 'visually-hidden', accept, dataset: { testid: id }, on: { change: () => {
    name.textContent = input.files[0]?.name ?? t('transfer.none_chosen');
    chosen();
  } } });
  return h('div', { class: 'row file-choice' }, input, h('label', { class: 'button', for: id }, t('transfer.choose')), name);
}

const option = (id, label, checked = false) => {
  const input = h('input', { id, type: 'checkbox', checked, dataset: { testid: id } });
  return [input, h('label', { class: 'switch', for: id }, input, t(label))];
};

/** Do `work(progress)` with what it is at shown in `out`, and then what it gives; a failure takes its place. */
async function shown(out, control, work) {
  const bar = h('progress', { 'aria-label': t('transfer.working') });
  const said = h('p', { class: 'muted small' }, t('transfer.working'));
  fill(out, h('div', { class: 'stack tight', dataset: { testid: 'working' } }, bar, said));
  control.disabled = true;
  const progress = (stage, done, total) => {
    said.textContent = [named(`stage.${stage}`, stage), total ? t('transfer.of', { done: number(done ?? 0), total: number(total) }) : done ? number(done) : null].filter(Boolean).join(' · ');
    if (total) Object.assign(bar, { max: total, value: done ?? 0 });
    else bar.removeAttribute('value');
  };
  try {
    fill(out, await work(progress));
  } catch (error) {
    if (error.name !== 'AbortError') fill(out, failure({ ...error, message: sentence(error.message), hint: sentence(error.hint) }));
  } finally {
    control.disabled = false;
  }
}

/** Send a file in parts; its transfer. */
async function sent(file, progress, signal) {
  const { transfer, part_bytes: step } = await send('POST', '/transfers', { name: file.name }, { signal });
  for (let offset = 0; offset < file.size; offset += step) {
    progress('uploading', offset, file.size);
    const part = new Uint8Array(await file.slice(offset, offset + step).arrayBuffer());
    let text = '';
    for (let at = 0; at < part.length; at += 0x8000) text += String.fromCharCode(...part.subarray(at, at + 0x8000));
    await send('PUT', `/transfers/${transfer.id}`, { offset, base64: btoa(text) }, { signal });
  }
  return transfer.id;
}

/** Wait for the work on a transfer; its report is there then. */
async function finished({ id }, progress, signal) {
  for (;;) {
    const now = await get(`/transfers/${id}`, {}, { signal });
    if (now.state === 'failed') throw Object.assign(new Error(now.error), { hint: now.hint, status: 400 });
    if (now.state === 'done') return now;
    if (now.stage) progress(now.stage, now.done, now.total);
    await new Promise((resolve) => { setTimeout(resolve, ASKED_EVERY_MS); });
  }
}

function importing(facts, { projects }, signal) {
  const out = box();
  let upload = null;
  const field = fileInput('import-file', 'transfer.import.file', () => { upload = null; look.disabled = !input.files.length; fill(out); });
  const input = field.querySelector('input');
  const project = h('input', { id: 'import-project', type: 'text', maxlength: '200', autocomplete: 'off', list: 'import-projects', placeholder: t('transfer.project.none'), dataset: { testid: 'import-project' } });
  const able = facts.model?.llm !== 'none';
  const [extract, withExtract] = option('import-extract', 'transfer.extract');
  extract.disabled = !able;
  const conflict = h('select', { id: 'import-conflict' }, ['keep', 'both', 'replace'].map((each) => h('option', { value: each }, t(`transfer.conflict.${each}`))));
  const run = (dry_run) => shown(out, look, async (progress) => {
    upload ??= await sent(input.files[0], progress, signal);
    const asked = { dry_run, on_conflict: conflict.value, project: project.value.trim() || null, extract: extract.checked };
    const { report } = await finished(await send('POST', `/transfers/${upload}/import`, asked, { signal }), progress, signal);
    if (!dry_run) window.dispatchEvent(new Event('changed'));
    return [told(report, dry_run), dry_run ? h('div', { class: 'actions' }, button('transfer.import.go', 'import-go', () => run(false), 'primary')) : takeBack(report)];
  });
  const look = button('transfer.import.look', 'import-look', () => run(true));
  look.disabled = true;
  return card('transfer.import', h('p', { class: 'muted' }, t('transfer.import.lede')), field,
    h('details', {}, h('summary', { dataset: { testid: 'import-options' } }, t('transfer.options')), h('div', { class: 'stack tight' },
      h('div', { class: 'field' }, h('label', { for: 'import-project' }, t('transfer.project')), project, tagChoices('import-projects', projects), h('span', { class: 'help' }, t('transfer.project.help'))),
      h('div', { class: 'field' }, withExtract, h('span', { class: 'help' }, able ? t('transfer.extract.help') : noModel())),
      h('div', { class: 'field' }, h('label', { for: 'import-conflict' }, t('transfer.conflict')), conflict))),
    h('div', { class: 'actions' }, look), out);
}

/** What came, or would come. */
function told({ counts, left_out: out, kept, notes }, dry) {
  const rows = Object.entries(counts).flatMap(([kind, actions]) => Object.entries(actions).map(([action, count]) => [named(`counted.${kind}`, typeName(kind)), t(`transfer.${dry ? 'would' : 'did'}.${action}`), number(count)]));
  const list = (key, lines) => (lines.length ? h('details', {}, h('summary', {}, t(key, { count: lines.length })), growing(lines, (line) => h('li', { class: 'small' }, sentence(line)), { size: 20, props: { class: 'plain-list' } })) : null);
  return h('div', { class: 'stack tight', dataset: { testid: dry ? 'import-preview' : 'import-done' } },
    h('h3', {}, t(dry ? 'transfer.preview' : 'transfer.done')),
    rows.length ? h('table', { class: 'data' }, h('tbody', {}, rows.map(([kind, action, count]) => h('tr', {}, h('th', { scope: 'row' }, kind), h('td', {}, action), h('td', { class: 'align-right' }, count)))))
      : h('p', { class: 'muted' }, t('transfer.nothing')),
    list('transfer.left_out', out), list('transfer.kept', kept), list('transfer.notes', notes));
}

function takeBack({ commits }) {
  if (!commits.length) return null;
  const act = button('transfer.undo', 'import-undo', async () => {
    act.disabled = true;
    for (const commit of [...commits].reverse()) await undo(commit);
    window.dispatchEvent(new Event('changed'));
  });
  return h('div', { class: 'actions' }, act);
}

/** Make a file on the server, and hand it to the browser. */
function making(signal, out, control, path, asked) {
  return shown(out, control, async (progress) => {
    const made = await finished(await send('POST', path, asked(), { signal }), progress, signal);
    progress('downloading');
    const address = URL.createObjectURL(await blob(`/transfers/${made.id}/file`, { signal }));
    const name = made.name.replace(/(\.\w+)$/, `-${new Date().toISOString().slice(0, 10)}$1`);
    const link = h('a', { class: 'button', href: address, download: name, dataset: { testid: 'download' } }, t('transfer.save', { name }));
    link.click();
    return [h('p', { class: 'note' }, t('transfer.made', { files: made.report.counts.files ?? 0, memories: made.report.counts.memories ?? 0, size: bytes(made.size_bytes) })),
      (made.report.left_out ?? []).map((uri) => h('p', { class: 'small' }, uri)), h('div', { class: 'actions' }, link)];
  });
}

function exporting(signal) {
  const out = box();
  const [sessions, withSessions] = option('export-sessions', 'transfer.export.sessions', true);
  const [history, withHistory] = option('export-history', 'transfer.export.history');
  const format = h('select', { id: 'export-format' }, ['zip', 'jsonl'].map((each) => h('option', { value: each }, t(`transfer.export.${each}`))));
  const act = button('transfer.export.go', 'export-go', () => making(signal, out, act, '/exports', () => ({ format: format.value, sessions: sessions.checked, history: history.checked })));
  return card('transfer.export', h('p', { class: 'muted' }, t('transfer.export.lede')), h('div', { class: 'row apart' }, withSessions, withHistory),
    h('div', { class: 'field' }, h('label', { for: 'export-format' }, t('transfer.export.format')), format), h('div', { class: 'actions' }, act), out);
}

function backingUp(signal) {
  const out = box();
  const act = button('transfer.backup.go', 'backup-go', () => making(signal, out, act, '/backups', () => ({})));
  return card('transfer.backup', h('p', { class: 'muted' }, t('transfer.backup.lede')), h('div', { class: 'actions' }, act), out);
}

function restoring(signal) {
  const out = box();
  const field = fileInput('restore-file', 'transfer.restore.file', () => { look.disabled = !input.files.length; fill(out); }, '.zip');
  const input = field.querySelector('input');
  const look = button('transfer.restore.look', 'restore-look', () => shown(out, look, async (progress) => {
    const id = await sent(input.files[0], progress, signal);
    const { report } = await finished(await send('POST', `/transfers/${id}/restore`, { dry_run: true }, { signal }), progress, signal);
    const facts = { when: moment(report.created_at), memories: report.counts.memories ?? 0, replaces: report.replaces };
    return [h('p', { class: 'note', dataset: { testid: 'restore-preview' } }, t('transfer.restore.found', facts)),
      h('div', { class: 'actions' }, button('transfer.restore.go', 'restore-go', () => restore(id, facts), 'danger'))];
  }));
  look.disabled = true;
  const restore = async (id, facts) => {
    if (!await confirmed(t('transfer.restore.title'), t('transfer.restore.text', facts), t('transfer.restore.go'), { kind: 'danger', testid: 'restore-dialog' })) return;
    await shown(out, look, async (progress) => {
      const { report } = await finished(await send('POST', `/transfers/${id}/restore`, {}, { signal }), progress, signal);
      forget();
      window.dispatchEvent(new Event('changed'));
      return [h('p', { class: 'note', dataset: { testid: 'restored' } }, coded(t('transfer.restored', { files: report.files, aside: `\`${report.aside}\`` }))),
        h('div', { class: 'actions' }, button('transfer.again', 'transfer-again', show))];
    });
  };
  return card('transfer.restore', h('p', { class: 'muted' }, t('transfer.restore.lede')), field, h('div', { class: 'actions' }, look), out);
}

// Draws openapi.json. Nothing of it becomes HTML but through textContent.

const STORED = 'runebook.key';
const METHODS = ['get', 'post', 'put', 'patch', 'delete'];
const DEPTH = 4;
const byId = (id) => document.getElementById(id);

function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== ''));
  return node;
}

async function load() {
  const key = sessionStorage.getItem(STORED);
  const answer = await fetch('/api/openapi.json', {
    headers: key ? { Authorization: `Bearer ${key}` } : {}, credentials: 'omit', cache: 'no-store',
  });
  if (answer.status === 401) return askForKey(Boolean(key));
  if (!answer.ok) throw new Error(await answer.text());
  byId('key').hidden = true;
  const spec = await answer.json();
  byId('download').href = URL.createObjectURL(new Blob([JSON.stringify(spec, null, 2)], { type: 'application/json' }));
  draw(spec);
  return undefined;
}

function askForKey(wrong) {
  byId('key').hidden = false;
  byId('said').textContent = wrong ? 'This key does not fit. 密钥不对。' : '';
  byId('token').focus();
}

function draw(spec) {
  const groups = new Map();
  for (const [path, item] of Object.entries(spec.paths)) {
    for (const method of METHODS.filter((name) => item[name])) {
      const [tag] = item[method].tags ?? ['other'];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push({ path, method, operation: item[method] });
    }
  }
  const main = byId('description');
  main.replaceChildren(...spec.info.description.split('\n\n').map((text) => paragraph(text)));
  const contents = h('ul');
  for (const [tag, operations] of groups) {
    main.append(h('h2', {}, tag), ...operations.map((each) => section(spec, each)));
    contents.append(...operations.map((each) => h('li', {}, h('a', { href: `#${each.operation.operationId}` },
      h('code', {}, `${each.method.toUpperCase()} ${each.path.replace('/api/memory', '')}`)))));
  }
  byId('contents').replaceChildren(contents);
  main.setAttribute('aria-busy', 'false');
  reveal();
}

/** Text with `code` in it. */
function paragraph(text) {
  const pieces = text.split('`');
  return h('p', {}, ...pieces.map((piece, at) => (at % 2 ? h('code', {}, piece) : piece)));
}

function section(spec, { path, method, operation }) {
  const body = operation.requestBody?.content?.['application/json'];
  return h('details', { id: operation.operationId },
    h('summary', {}, h('span', { class: 'method' }, method.toUpperCase()), h('code', {}, path),
      h('span', { class: 'about' }, ` — ${operation.summary ?? ''}`)),
    paragraph(operation.description ?? ''),
    parameters(operation.parameters ?? []),
    body ? h('h3', {}, 'Body') : null,
    body ? members(spec, body.schema) : null,
    ...examples(spec, body?.schema),
    h('h3', {}, 'Answers'),
    answers(spec, operation.responses));
}

function parameters(list) {
  if (!list.length) return null;
  const rows = list.map((each) => row(each.name, `${each.in}, ${kind(each.schema)}`, each.required, each.description ?? each.schema?.description));
  return h('div', {}, h('h3', {}, 'Parameters'), table(rows));
}

function resolved(spec, schema) {
  if (!schema) return {};
  const named = schema.$ref ?? schema.anyOf?.find((each) => each.$ref)?.$ref;
  return named ? spec.components.schemas[named.split('/').pop()] : schema;
}

function kind(schema = {}) {
  if (schema.$ref) return schema.$ref.split('/').pop();
  if (schema.anyOf) return [...new Set(schema.anyOf.map(kind))].filter((name) => name !== 'null').join(' | ');
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(' | ');
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === 'array') return `[${kind(schema.items)}]`;
  return schema.type ?? 'any';
}

function members(spec, schema) {
  const found = resolved(spec, schema);
  const rows = Object.entries(found.properties ?? {}).map(([name, each]) =>
    row(name, kind(each), (found.required ?? []).includes(name), each.description));
  return rows.length ? table(rows) : h('p', {}, h('code', {}, kind(found)));
}

function row(name, type, required, description) {
  const told = paragraph(description ?? '');
  return h('tr', {}, h('td', {}, h('code', {}, name), required ? ' *' : ''), h('td', {}, h('code', {}, type)), h('td', {}, told));
}

function table(rows) {
  const head = h('tr', {}, ...['name', 'type', ''].map((name) => h('th', { scope: 'col' }, name)));
  return h('table', {}, h('thead', {}, head), h('tbody', {}, ...rows));
}

function examples(spec, schema) {
  const given = resolved(spec, schema).examples ?? [];
  return given.map((each) => h('pre', {}, JSON.stringify(each, null, 2)));
}

function answers(spec, responses) {
  const list = h('div');
  for (const [status, answer] of Object.entries(responses)) {
    const schema = answer.content?.['application/json']?.schema;
    list.append(h('details', {},
      h('summary', {}, h('strong', {}, status), ` ${answer.description}`),
      schema ? tree(spec, schema, DEPTH) : null));
  }
  return list;
}

/** The members of a shape, and those of the shapes in it. */
function tree(spec, schema, depth) {
  const found = resolved(spec, schema);
  const inner = Object.entries(found.properties ?? {}).map(([name, each]) => [name, each.type === 'array' ? each.items : each]);
  const named = inner.filter(([, each]) => each && (each.$ref || each.anyOf?.some((one) => one.$ref)));
  return h('div', {}, members(spec, schema),
    ...(depth > 1 ? named.map(([name, each]) => h('details', {}, h('summary', {}, h('code', {}, name)), tree(spec, each, depth - 1))) : []));
}

/** Open what the address names. */
function reveal() {
  const named = location.hash.length > 1 ? byId(decodeURIComponent(location.hash.slice(1))) : null;
  if (named instanceof HTMLDetailsElement) {
    named.open = true;
    named.scrollIntoView();
  }
}

function tell(error) {
  byId('description').replaceChildren(h('p', { role: 'alert' }, String(error.message ?? error)));
}

byId('key').addEventListener('submit', (event) => {
  event.preventDefault();
  sessionStorage.setItem(STORED, byId('token').value.trim());
  load().catch(tell);
});
window.addEventListener('hashchange', reveal);
load().catch(tell);

// Nodes: how every view makes them. Text is always text; nothing that a memory says is ever read as markup.
// Only `rendered` takes HTML, what the server made of Markdown, and keeps of it what the lists below name.

const SVG = 'http://www.w3.org/2000/svg';
const PROPERTIES = new Set(['value', 'checked', 'disabled', 'selected', 'hidden', 'indeterminate', 'open', 'readOnly', 'inert']);
const TAGS = new Set(('a abbr b blockquote br code dd del div dl dt em h1 h2 h3 h4 h5 h6 hr i input kbd li mark ol p pre s small'
  + ' span strong sub sup table tbody td tfoot th thead tr u ul').split(' '));
const SAFE_LINK = /^(https?:|mailto:|#\/|#)/i;

function attach(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === true) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

function dress(node, props, svg) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined) continue;
    if (name === 'class') node.setAttribute('class', Array.isArray(value) ? value.filter(Boolean).join(' ') : value);
    else if (name === 'dataset') Object.assign(node.dataset, value);
    else if (name === 'style') for (const [key, given] of Object.entries(value)) node.style.setProperty(kebab(key), given);
    else if (name === 'on') for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (!svg && PROPERTIES.has(name)) continue;
    else if (value === true) node.setAttribute(name, '');
    else if (value !== false) node.setAttribute(name, String(value));
  }
  return node;
}

const kebab = (key) => (key.startsWith('--') ? key : key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`));

/** An HTML element. props: class (string or list), dataset, style ({"--share": "40%"}), on ({event: listener}), attributes. */
export function h(tag, props, ...children) {
  const node = attach(dress(document.createElement(tag), props, false), children);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (PROPERTIES.has(name) && value !== undefined && value !== null) node[name] = value; // after a select has its options
  }
  return node;
}

/** An SVG element; the same props. */
export function s(tag, props, ...children) {
  return attach(dress(document.createElementNS(SVG, tag), props, true), children);
}

/** Replace what `node` holds. */
export function fill(node, ...children) {
  node.replaceChildren();
  return attach(node, children);
}

/** Text in which what stands between back-ticks is code, as in the next steps that errors name. */
export function coded(text) {
  return String(text ?? '').split('`').map((part, at) => (at % 2 ? h('code', {}, part) : part));
}

/** A line icon of 24 units; `path` is its data. */
export function icon(path, props = {}) {
  return s('svg', { viewBox: '0 0 24 24', class: 'icon', 'aria-hidden': 'true', focusable: 'false', ...props },
    s('path', { d: path }));
}

/** What the server rendered from Markdown, rebuilt from the tags and attributes that are allowed. */
export function rendered(html) {
  const parsed = new DOMParser().parseFromString(String(html ?? ''), 'text/html');
  const box = h('div', { class: 'prose' });
  for (const child of parsed.body.childNodes) copy(child, box);
  return box;
}

function copy(from, into) {
  if (from.nodeType === Node.TEXT_NODE) {
    into.append(document.createTextNode(from.data));
    return;
  }
  if (from.nodeType !== Node.ELEMENT_NODE) return;
  const tag = from.localName;
  if (!TAGS.has(tag)) {
    if (!['script', 'style', 'template', 'iframe', 'object', 'embed', 'svg', 'math'].includes(tag)) {
      for (const child of from.childNodes) copy(child, into);
    }
    return;
  }
  const node = document.createElement(tag);
  const say = (name) => { if (from.hasAttribute(name)) node.setAttribute(name, from.getAttribute(name)); };
  if (tag === 'a') {
    const target = (from.getAttribute('href') ?? '').trim();
    if (SAFE_LINK.test(target)) {
      node.setAttribute('href', target);
      if (!target.startsWith('#')) {
        node.setAttribute('rel', 'noopener noreferrer nofollow');
        node.setAttribute('target', '_blank');
      }
    }
    say('title');
  } else if (tag === 'ol') say('start');
  else if (tag === 'td' || tag === 'th') {
    const align = /^align-(left|right|center)$/.exec(from.className);
    if (align) node.className = align[0];
  } else if (tag === 'input') {
    node.setAttribute('type', 'checkbox');
    node.disabled = true;
    node.checked = from.hasAttribute('checked');
  } else if (tag === 'code' && /^language-[\w-]+$/.test(from.className)) node.className = from.className;
  for (const child of from.childNodes) copy(child, node);
  into.append(node);
}

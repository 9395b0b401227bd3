// The host behind the frame: JSON-RPC 2.0 over postMessage, as MCP Apps (2026-01-26) has it.

const PROTOCOL = "2026-01-26";
const METHOD_NOT_FOUND = -32601;

const host = {
  capabilities: {},
  context: {},
  listeners: {},
  waiting: new Map(),
  lastId: 0,
  height: 0,

  post(message) {
    window.parent.postMessage({ jsonrpc: "2.0", ...message }, "*"); // a view is not told its host's origin
  },

  request(method, params) {
    const id = ++this.lastId;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.post({ id, method, params });
    });
  },

  notify(method, params = {}) {
    this.post({ method, params });
  },

  on(method, listener) {
    this.listeners[method] = listener;
  },

  receive(message) {
    if (message?.jsonrpc !== "2.0") return;
    if (typeof message.method === "string") {
      if (message.id === undefined) this.listeners[message.method]?.(message.params ?? {});
      else this.answer(message);
      return;
    }
    const asked = this.waiting.get(message.id);
    if (!asked) return;
    this.waiting.delete(message.id);
    if (message.error) asked.reject(new Error(message.error.message ?? "The host refused."));
    else asked.resolve(message.result ?? {});
  },

  answer({ id, method }) {
    if (method === "ping" || method === "ui/resource-teardown") this.post({ id, result: {} });
    else this.post({ id, error: { code: METHOD_NOT_FOUND, message: `${method} is not known here` } });
  },

  async connect() {
    window.addEventListener("message", (event) => {
      if (event.source === window.parent) this.receive(event.data);
    });
    this.on("ui/notifications/host-context-changed", (changed) => this.settle(changed));
    const told = await this.request("ui/initialize", {
      appInfo: { name: `runebook-${VIEW.name}`, version: VIEW.version },
      appCapabilities: { availableDisplayModes: ["inline", "fullscreen"] },
      protocolVersion: PROTOCOL,
    });
    this.capabilities = told.hostCapabilities ?? {};
    this.settle(told.hostContext ?? {});
    this.notify("ui/notifications/initialized");
    new ResizeObserver(() => this.measure()).observe(document.getElementById("view"));
  },

  // Takes over theme, language and style variables, of the whole context or of what changed.
  settle(changed) {
    Object.assign(this.context, changed);
    const root = document.documentElement;
    if (changed.theme) root.style.colorScheme = changed.theme === "dark" ? "dark" : "light";
    for (const [name, value] of Object.entries(changed.styles?.variables ?? {})) {
      if (name.startsWith("--") && typeof value === "string") root.style.setProperty(name, value);
    }
    const insets = changed.safeAreaInsets;
    if (insets) {
      document.body.style.padding = ["top", "right", "bottom", "left"].map((side) => `${insets[side] ?? 0}px`).join(" ");
    }
    if (changed.locale) {
      root.lang = language();
      this.onLanguage?.();
    }
  },

  measure() {
    const height = Math.ceil(document.body.getBoundingClientRect().height);
    if (height === this.height || height === 0) return;
    this.height = height;
    this.notify("ui/notifications/size-changed", { width: Math.ceil(window.innerWidth), height });
  },

  get callsTools() {
    return Boolean(this.capabilities.serverTools);
  },

  get opensLinks() {
    return Boolean(this.capabilities.openLinks);
  },

  get takesMessages() {
    return Boolean(this.capabilities.message);
  },

  callTool(name, given) {
    return this.request("tools/call", { name, arguments: given });
  },

  openLink(url) {
    return this.request("ui/open-link", { url });
  },

  say(text) {
    return this.request("ui/message", { role: "user", content: [{ type: "text", text }] });
  },
};

function language() {
  return /^zh\b/i.test(host.context.locale ?? navigator.language ?? "") ? "zh" : "en";
}

function t(key, values = {}) {
  const text = VIEW.texts[language()][key] ?? key;
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
}

// The word for a name that the server uses, else the name itself: owners have types of their own.
function word(kind, name) {
  return VIEW.texts[language()][`${kind}.${name}`] ?? String(name ?? "").replaceAll("_", " ");
}

function moment(iso) {
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return String(iso);
  const form = { dateStyle: "medium" };
  if (host.context.timeZone) form.timeZone = host.context.timeZone;
  try {
    return new Intl.DateTimeFormat(host.context.locale || language(), form).format(date);
  } catch {
    return date.toISOString().slice(0, 10); // a locale or zone that the browser does not know
  }
}

// One memory: its text, what is known about it, and where else it leads. Both views show it.

const TRAILER = /\n?<!-- MEMORY_FIELDS\n([\s\S]*?)\n-->\s*$/;
const SAID_FIRST = ["memory_type", "category", "project", "tags", "updated_at", "created_at", "expires_at", "salience", "confidence"];
const TIMES = new Set(["updated_at", "created_at", "expires_at"]);
const SHARES = new Set(["salience", "confidence"]);
const UNSAID = new Set(["version", "abstract", "name", "source", "overview", "private", "archived", "links", "rendered_sha256", "shown_fields"]);

// The body and the fields of a memory file; a text without a trailer that can be read is all body.
function parted(content) {
  const found = content.match(TRAILER);
  if (!found) return { body: content, fields: {} };
  try {
    const fields = JSON.parse(found[1]);
    if (fields && typeof fields === "object") return { body: content.slice(0, found.index), fields };
  } catch {
    // shown as it is
  }
  return { body: content, fields: {} };
}

function fact(name, value) {
  const label = word("field", name);
  let shown = Array.isArray(value) ? value.join(", ") : String(value);
  if (TIMES.has(name)) shown = moment(value);
  if (name === "memory_type") shown = word("type", value);
  if (typeof value === "boolean") shown = t(value ? "yes" : "no");
  const said = SHARES.has(name) ? [bar(label, value, "salience"), ` ${Number(value).toFixed(2)}`] : [shown];
  return [h("dt", {}, label), h("dd", {}, said)];
}

function facts(fields) {
  const names = Object.keys(fields).filter((name) => !UNSAID.has(name));
  const tells = (name) => fields[name] !== null && fields[name] !== "" && typeof fields[name] !== "undefined";
  const flat = (name) => typeof fields[name] !== "object" || Array.isArray(fields[name]);
  const ordered = [...SAID_FIRST.filter((name) => names.includes(name)), ...names.filter((name) => !SAID_FIRST.includes(name))];
  const told = ordered.filter((name) => tells(name) && flat(name));
  return told.length ? h("dl", { class: "facts", "data-testid": "facts" }, told.flatMap((name) => fact(name, fields[name]))) : null;
}

function related(links, open) {
  if (!links?.length) return null;
  const lines = links.map((each) => {
    const title = plainLine(each.abstract || nameOf(each.uri));
    const goes = open && each.state !== "gone";
    return h(
      "li",
      {},
      h("span", { class: "kind" }, word("relation", each.relation)),
      " ",
      goes ? h("button", { type: "button", class: "link", on: { click: () => open(each.uri) } }, title) : title,
    );
  });
  return h("section", {}, h("h2", {}, t("related")), h("ul", { class: "related" }, lines));
}

// What ``read`` returned, as a page; ``open`` shows another memory, ``back`` leaves.
function page(told, { open, back }) {
  const { body, fields } = parted(told.content);
  const isMarkdown = /\.md$/.test(told.uri);
  const heading = h("h1", { tabindex: "-1", "data-testid": "title" }, fields.name || nameOf(told.uri));
  const text = isMarkdown ? markdown(body) : h("pre", { class: "plain" }, body);
  const ask = () => host.say(t("ask.about", { uri: told.uri })).catch(() => {});
  const more = () => host.callTool("read", { uri: told.uri, offset: told.next_offset }).then(append, () => {});
  const append = (result) => {
    const next = result.structuredContent;
    if (!next) return;
    rest.replaceWith(page(next, { open, back: null }));
  };
  const rest =
    told.next_offset && host.callsTools
      ? h("button", { type: "button", on: { click: more } }, t("more", { line: told.next_offset, total: told.total_lines }))
      : null;
  return h(
    "article",
    { "data-testid": "memory" },
    back ? h("button", { type: "button", class: "quiet", "data-testid": "back", on: { click: back } }, t("back")) : null,
    told.first_line ? null : heading,
    told.first_line ? null : h("p", { class: "address" }, told.uri),
    text,
    facts(fields),
    related(told.links, open),
    rest,
    host.takesMessages && !told.first_line
      ? h("button", { type: "button", "data-testid": "ask", on: { click: ask } }, t("ask"))
      : null,
  );
}

// Shows a memory by its address, or why not.
async function opened(uri, back) {
  show(note(t("loading"), "quiet"));
  let shown;
  try {
    const result = await host.callTool("read", { uri });
    const open = (next) => opened(next, () => opened(uri, back));
    shown = result.isError || !result.structuredContent
      ? [h("button", { type: "button", class: "quiet", on: { click: back } }, t("back")), note(resultText(result), "failure")]
      : [page(result.structuredContent, { open, back })];
  } catch (error) {
    shown = [h("button", { type: "button", class: "quiet", on: { click: back } }, t("back")), note(error.message, "failure")];
  }
  show(...shown);
  document.querySelector("h1")?.focus();
}

// Elements. Text becomes text nodes and never markup; nothing here reads HTML.

function h(tag, given = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (name === "class") node.className = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function show(...nodes) {
  document.getElementById("view").replaceChildren(...nodes.filter(Boolean));
}

function note(text, kind = "note") {
  return h("p", { class: kind, role: kind === "failure" ? "alert" : undefined }, text);
}

// A part of 1 as a bar; the words beside it say the same.
function bar(label, part, kind) {
  const share = Math.min(1, Math.max(0, Number(part) || 0));
  const filled = h("span", { class: `filled ${kind}` });
  filled.style.width = `${share * 100}%`;
  return h(
    "span",
    { class: "bar", role: "img", "aria-label": `${label} ${share.toFixed(2)}`, title: `${label} ${share.toFixed(2)}` },
    filled,
  );
}

function resultText(result) {
  return (result.content ?? [])
    .filter((block) => block.type === "text")
    .map((block) => block.text)
    .join("\n\n");
}

// A line as a person reads it: without the marks of headings and emphasis.
function plainLine(text) {
  return String(text).replace(/^#{1,6}\s+/, "").replaceAll("**", "");
}

function nameOf(uri) {
  const last = String(uri).split("/").pop() || String(uri);
  return last.replace(/\.md$/, "");
}

// From now on the host's word moves a view: ``state`` keeps it, ``draw`` shows it.
function follow(state, draw) {
  host.on("ui/notifications/tool-result", (result) => {
    state.result = result;
    draw();
  });
  host.on("ui/notifications/tool-cancelled", () => {
    state.cancelled = true;
    draw();
  });
  host.onLanguage = draw;
  host.connect().then(draw, (error) => show(note(error.message, "failure")));
}

// The view of ``find``: what was found, why, and a click away what it says.

const GROUPS = ["memories", "resources", "skills"];
const PARTS = ["lexical", "semantic", "rerank", "recency", "salience"];
const state = { given: {}, result: null, cancelled: false, asking: false };

function reasons(why) {
  const drawn = PARTS.filter((name) => typeof why?.[name] === "number").map((name) =>
    h("span", { class: "reason" }, h("span", { class: "label" }, t(`why.${name}`)), bar(t(`why.${name}`), why[name], name)),
  );
  const marks = Object.keys(why ?? {}).filter((name) => !PARTS.includes(name));
  return h("div", { class: "why" }, drawn, marks.map((name) => h("span", { class: "kind" }, word("why", name))));
}

function hit(found) {
  const title = plainLine(found.abstract || nameOf(found.uri));
  const score = Number(found.score) || 0;
  const about = [word("type", found.memory_type), found.project, found.updated_at ? moment(found.updated_at) : null];
  const rivals = (found.rivals ?? []).map((each) =>
    h("p", { class: "rival" }, `${word("rival", each.relation)} ${plainLine(each.abstract || nameOf(each.uri))}`),
  );
  return h(
    "li",
    { class: "hit", "data-testid": "hit" },
    h(
      "div",
      { class: "head" },
      host.callsTools
        ? h("button", { type: "button", class: "title", on: { click: () => opened(found.uri, draw) } }, title)
        : h("span", { class: "title" }, title),
      h("span", { class: "score", title: t("score") }, bar(t("score"), score, "total"), ` ${score.toFixed(2)}`),
    ),
    h("p", { class: "about" }, about.filter(Boolean).join(" · ")),
    reasons(found.why),
    rivals,
    found.also?.length ? h("p", { class: "about" }, t("also", { count: found.also.length })) : null,
  );
}

function results(told) {
  const groups = GROUPS.filter((name) => told[name]?.length).map((name) =>
    h("section", {}, h("h2", {}, t(`group.${name}`)), h("ul", { class: "hits" }, told[name].map(hit))),
  );
  const none = told.total ? null : note(t("none"));
  return [none, ...groups, ...(told.notes ?? []).map((text) => note(text, "quiet"))];
}

function box() {
  const query = String(state.given.query ?? "");
  if (!host.callsTools) return query ? h("p", { class: "query" }, query) : null;
  const field = h("input", { type: "search", name: "query", value: query, "aria-label": t("query"), "data-testid": "query" });
  const submit = () => field.value.trim() && search(field.value);
  field.addEventListener("keydown", (event) => event.key === "Enter" && !event.isComposing && submit());
  // No form: hosts need not allow a frame to submit one.
  return h("div", { role: "search" }, field, h("button", { type: "button", on: { click: submit } }, t("search")));
}

function draw() {
  if (state.cancelled) return show(box(), note(t("cancelled")));
  if (state.asking || !state.result) return show(box(), note(t("searching"), "quiet"));
  const told = state.result.structuredContent;
  if (state.result.isError || typeof told?.total !== "number") {
    return show(box(), note(resultText(state.result), state.result.isError ? "failure" : "plain"));
  }
  show(box(), h("p", { class: "about", role: "status" }, t("found", { count: told.total })), ...results(told));
}

async function search(query) {
  state.given = { ...state.given, query };
  state.cancelled = false;
  state.asking = true;
  draw();
  try {
    state.result = await host.callTool("find", state.given);
  } catch (error) {
    state.result = { isError: true, content: [{ type: "text", text: error.message }] };
  }
  state.asking = false;
  draw();
  document.querySelector("input")?.focus();
}

function given(params) {
  if (params.arguments && typeof params.arguments === "object") state.given = params.arguments;
  draw();
}

host.on("ui/notifications/tool-input-partial", given);
host.on("ui/notifications/tool-input", given);
follow(state, draw);

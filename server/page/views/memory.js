// The view of ``read``.

const state = { uri: "", result: null, cancelled: false };

function draw() {
  if (state.cancelled) return show(note(t("cancelled")));
  if (!state.result) return show(note(state.uri ? `${t("loading")} ${state.uri}` : t("loading"), "quiet"));
  const told = state.result.structuredContent;
  if (state.result.isError || typeof told?.content !== "string") {
    return show(note(resultText(state.result) || t("nothing"), state.result.isError ? "failure" : "plain"));
  }
  const open = host.callsTools ? (uri) => opened(uri, draw) : null;
  show(page(told, { open, back: null }));
}

host.on("ui/notifications/tool-input", ({ arguments: given }) => {
  state.uri = String(given?.uri ?? "");
  draw();
});
follow(state, draw);

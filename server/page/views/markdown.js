// A little Markdown as elements: headings, lists, quotes, code, emphasis, links. The rest is shown as it is written.

const INLINE =
  /`([^`\n]{1,400})`|\*\*([^*\n]{1,400})\*\*|\[([^\]\n]{1,200})\]\((https?:\/\/[^\s()]{1,400})\)|(https?:\/\/[^\s<>"'()\[\]（）。，、；]{1,400})/g;

function inline(text) {
  const nodes = [];
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > at) nodes.push(text.slice(at, found.index));
    const [whole, code, strong, label, address, bare] = found;
    if (code) nodes.push(h("code", {}, code));
    else if (strong) nodes.push(h("strong", {}, strong));
    else nodes.push(link(label ?? bare, address ?? bare));
    at = found.index + whole.length;
  }
  if (at < text.length) nodes.push(text.slice(at));
  return nodes;
}

// The frame must not go anywhere by itself: the host opens what a person clicks, or nothing does.
function link(label, address) {
  if (!host.opensLinks) return h("span", { title: address }, label);
  const open = () => host.openLink(address).catch(() => {});
  return h("button", { type: "button", class: "link", title: address, on: { click: open } }, label);
}

const HEADING = /^(#{1,6})\s+(.*)$/;
const ITEM = /^\s*(?:([-*+])|(\d{1,9})[.)])\s+(.*)$/;

function markdown(text) {
  const whole = h("div", { class: "prose" });
  const lines = text.split("\n");
  let index = 0;
  const taken = (fits) => {
    const from = index;
    while (index < lines.length && fits(lines[index])) index += 1;
    return lines.slice(from, index);
  };
  while (index < lines.length) {
    const line = lines[index];
    if (!line.trim()) {
      index += 1;
    } else if (line.startsWith("```")) {
      index += 1;
      whole.append(h("pre", {}, h("code", {}, taken((each) => !each.startsWith("```")).join("\n"))));
      index += 1;
    } else if (HEADING.test(line)) {
      const [, marks, title] = line.match(HEADING);
      whole.append(h(`h${Math.min(6, marks.length + 1)}`, {}, inline(title)));
      index += 1;
    } else if (ITEM.test(line)) {
      const ordered = Boolean(line.match(ITEM)[2]);
      const items = taken((each) => ITEM.test(each) && Boolean(each.match(ITEM)[2]) === ordered);
      whole.append(h(ordered ? "ol" : "ul", {}, items.map((each) => h("li", {}, inline(each.match(ITEM)[3])))));
    } else if (line.startsWith(">")) {
      const quoted = taken((each) => each.startsWith(">")).map((each) => each.replace(/^>\s?/, ""));
      whole.append(h("blockquote", {}, inline(quoted.join("\n"))));
    } else {
      const plain = (each) => each.trim() && !/^(```|>)/.test(each) && !HEADING.test(each) && !ITEM.test(each);
      whole.append(h("p", {}, inline(taken(plain).join("\n"))));
    }
  }
  return whole;
}

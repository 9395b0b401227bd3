// A picture of nodes and edges, drawn by Cytoscape.js in the colours of the page. Choosing a node calls `choose(uri)`, a
// second time `enter(uri)`.

import { h } from '../dom.js';
import { named } from '../i18n.js';
import { HUES } from './marks.js';

const LABEL_CHARS = 28;
const COLUMN_PX = 110;
const ROW_PX = 74;
const LOOSE_SHARE = 0.6;
/** The library adds a style sheet of its own unless it finds this one; the page's policy forbids styles in scripts. */
const OWN_STYLES = '__________cytoscape_stylesheet';

/** Draw `{nodes, edges}` into `box`. Returns {mark(uri), zoom(factor; 0 shows all), stop()}. */
export function drawGraph(box, { nodes, edges }, choose, enter) {
  const held = { drawing: null, stopped: false, marked: null };
  begin(box, nodes, edges, choose, enter, held);
  return {
    mark(uri) {
      held.marked = uri;
      held.drawing?.nodes().removeClass('chosen').filter((node) => node.id() === uri).addClass('chosen');
    },
    zoom(factor) {
      const { drawing } = held;
      if (!drawing) return;
      if (factor === 0) drawing.fit(undefined, 24);
      else drawing.zoom({ level: drawing.zoom() * factor, renderedPosition: { x: box.clientWidth / 2, y: box.clientHeight / 2 } });
    },
    stop() {
      held.stopped = true;
      held.drawing?.destroy();
    },
  };
}

async function begin(box, nodes, edges, choose, enter, held) {
  if (!document.getElementById(OWN_STYLES)) document.head.append(h('meta', { id: OWN_STYLES }));
  const { default: cytoscape } = await import('/ui/vendor/cytoscape.js');
  if (held.stopped) return;
  const colour = reader(box);
  const short = (name) => (name.length > LABEL_CHARS ? `${name.slice(0, LABEL_CHARS - 1)}…` : name);
  held.drawing = cytoscape({
    container: box,
    minZoom: 0.2,
    maxZoom: 3,
    userZoomingEnabled: false, // the wheel scrolls the page; there are buttons
    elements: [
      ...nodes.map((node) => ({ data: { id: node.uri, label: short(node.name), size: node.type === 'conversation' ? 16 : 14 + 22 * (node.salience ?? 0.5), hue: colour(`--c${HUES[node.type] ?? 6}`), shape: node.type === 'conversation' ? 'round-rectangle' : 'ellipse' } })),
      ...edges.map((edge, at) => ({ data: { id: `edge ${at}`, source: edge.source, target: edge.target, label: named(`relation.${edge.relation}`, edge.relation), width: 1 + 3 * edge.strength, hue: colour(edge.relation === 'contradicts' ? '--bad' : '--line-strong'), dash: ['mentions', 'told in'].includes(edge.relation) ? 'dotted' : 'solid', arrow: ['similar', 'contradicts'].includes(edge.relation) ? 'none' : 'triangle' } })),
    ],
    style: [
      { selector: 'node', style: { width: 'data(size)', height: 'data(size)', shape: 'data(shape)', 'background-color': 'data(hue)', label: 'data(label)', color: colour('--text'), 'font-size': 11, 'text-valign': 'bottom', 'text-margin-y': 3, 'text-wrap': 'wrap', 'text-max-width': '96px', 'text-outline-width': 2, 'text-outline-color': colour('--surface') } },
      { selector: 'node.chosen', style: { 'border-width': 4, 'border-color': colour('--accent') } },
      { selector: 'edge', style: { width: 'data(width)', 'line-color': 'data(hue)', 'line-style': 'data(dash)', 'target-arrow-shape': 'data(arrow)', 'target-arrow-color': 'data(hue)', 'curve-style': 'bezier', label: 'data(label)', 'font-size': 9, color: colour('--muted'), 'text-rotation': 'autorotate', 'text-outline-width': 2, 'text-outline-color': colour('--surface') } },
    ],
    layout: { name: 'preset' },
  });
  arrange(held.drawing, box);
  held.drawing.on('tap', 'node', ({ target }) => choose(target.id()));
  held.drawing.on('dbltap', 'node', ({ target }) => { if (!target.id().startsWith('viking://session/')) enter(target.id()); });
  box.dataset.drawn = String(nodes.length);
  if (held.marked) held.drawing.getElementById(held.marked).addClass('chosen');
}

/** What is connected above, as the library lays it out; what is not in rows below. */
function arrange(drawing, box) {
  const [width, height] = [box.clientWidth, box.clientHeight];
  const loose = drawing.nodes().filter((node) => node.degree(false) === 0);
  const tied = drawing.elements().difference(loose);
  const cols = Math.max(1, Math.floor(width / COLUMN_PX));
  const below = tied.empty() ? height : Math.min(LOOSE_SHARE * height, Math.ceil(loose.length / cols) * ROW_PX);
  tied.layout({ name: 'cose', animate: false, fit: false, randomize: false, nodeRepulsion: () => 9_000, idealEdgeLength: () => 90, componentSpacing: 70, boundingBox: { x1: 0, y1: 0, w: width, h: height - below } }).run();
  const bottom = tied.empty() ? 0 : tied.boundingBox().y2 + ROW_PX / 2;
  const left = tied.empty() ? 0 : tied.boundingBox().x1;
  loose.layout({ name: 'grid', animate: false, fit: false, cols, condense: false, boundingBox: { x1: left, y1: bottom, w: width, h: Math.ceil(loose.length / cols) * ROW_PX } }).run();
  drawing.fit(undefined, 24);
}

/** Reads the page's colours as the browser resolves them, for light or dark. */
function reader(box) {
  const probe = h('i', { hidden: true });
  box.parentElement.append(probe);
  const known = new Map();
  queueMicrotask(() => probe.remove());
  return (name) => {
    if (!known.has(name)) {
      probe.style.color = `var(${name})`;
      known.set(name, getComputedStyle(probe).color);
    }
    return known.get(name);
  };
}

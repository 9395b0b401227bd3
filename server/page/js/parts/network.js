// A picture of nodes and edges, drawn by Cytoscape.js in the colours of the page. Choosing a node calls `choose(uri)`, a
// second time `enter(uri)`.

import { h } from '../dom.js';
import { named } from '../i18n.js';
import { HUES } from './marks.js';

const LABEL_CHARS = 54;
const COLUMN_PX = 110;
const ROW_PX = 74;
const EDGE_PX = 44; // room for the buttons; less in a narrow picture
const EDGE_SHARE = 0.08;
/** In a narrower picture only the relations of the chosen node are named. */
const NARROW_PX = 600;
/** Fewer nodes than this need only part of the picture. */
const FILLING_NODES = 10;
const MOST_FITTED = 1.2;
const LABEL_PX = 12;
const LABEL_WIDTH_PX = 100;
const LABEL_GAP_PX = 3;
/** Where a name may stand, the first that fits: across, down, and the direction from the node. */
const SIDES = [['center', 'bottom', 0, 1], ['center', 'top', 0, -1], ['right', 'center', 1, 0], ['left', 'center', -1, 0]];
/** From this cosine between a line and a side on, it runs through a name there. */
const THROUGH = 0.3;
/** How the lines of these relations are drawn; the others are solid. */
export const DASHES = { 'told in': 'dotted', mentions: 'dashed' };
/** Names grow against a small picture up to this. */
const MOST_GROWN = 1.8;
/** The library adds a style sheet of its own unless it finds this one; the page's policy forbids styles in scripts. */
const OWN_STYLES = '__________cytoscape_stylesheet';

/** Draw `{nodes, edges}` into `box`. Returns {mark(uri), zoom(factor; 0 shows all), stop()}. */
export function drawGraph(box, { nodes, edges }, choose, enter) {
  const held = { drawing: null, stopped: false, marked: null };
  begin(box, nodes, edges, choose, enter, held);
  return {
    mark(uri) {
      held.marked = uri;
      if (held.drawing) show(held.drawing, uri);
    },
    zoom(factor) {
      const { drawing } = held;
      if (!drawing) return;
      if (factor === 0) fit(drawing);
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
  const cut = (name) => (name.length > LABEL_CHARS ? `${name.slice(0, LABEL_CHARS - 1).trimEnd()}…` : name);
  held.drawing = cytoscape({
    container: box,
    minZoom: 0.2,
    maxZoom: 2,
    userZoomingEnabled: false, // the wheel scrolls the page; there are buttons
    elements: [
      ...nodes.map((node) => ({ data: { id: node.uri, label: cut(node.name.replace(/^\d{4}-\d\d-\d\d\s+/, '')), wrap: /[\u3040-\u9fff]/.test(node.name) ? 'anywhere' : 'whitespace', size: node.type === 'conversation' ? 16 : 14 + 22 * (node.salience ?? 0.5), hue: colour(node.type === 'conversation' ? '--text' : `--c${HUES[node.type] ?? 6}`), across: 'center', down: 'bottom', x: 0, y: LABEL_GAP_PX, shape: node.type === 'conversation' ? 'round-rectangle' : 'ellipse' } })),
      ...edges.map((edge, at) => ({ data: { id: `edge ${at}`, source: edge.source, target: edge.target, label: named(`relation.${edge.relation}`, edge.relation), width: 1 + 3 * edge.strength, hue: colour(edge.relation === 'contradicts' ? '--bad' : '--line-strong'), dash: DASHES[edge.relation] ?? 'solid', arrow: ['similar', 'contradicts'].includes(edge.relation) ? 'none' : 'triangle' } })),
    ],
    style: [
      { selector: '*', style: { 'font-family': getComputedStyle(box).fontFamily, 'text-background-color': colour('--surface'), 'text-background-opacity': 1, 'text-background-padding': 2 } },
      { selector: 'node', style: { width: 'data(size)', height: 'data(size)', shape: 'data(shape)', 'background-color': 'data(hue)', label: 'data(label)', color: colour('--text'), 'font-size': LABEL_PX, 'text-halign': 'data(across)', 'text-valign': 'data(down)', 'text-margin-x': 'data(x)', 'text-margin-y': 'data(y)', 'line-height': 1.3, 'text-wrap': 'wrap', 'text-overflow-wrap': 'data(wrap)', 'text-max-width': `${LABEL_WIDTH_PX}px` } },
      { selector: 'node.chosen', style: { 'border-width': 4, 'border-color': colour('--accent') } },
      { selector: 'edge', style: { width: 'data(width)', 'line-color': 'data(hue)', 'line-style': 'data(dash)', 'target-arrow-shape': 'data(arrow)', 'target-arrow-color': 'data(hue)', 'curve-style': 'bezier', label: box.clientWidth < NARROW_PX ? '' : 'data(label)', 'font-size': LABEL_PX - 2, color: colour('--muted'), 'text-rotation': 'autorotate' } },
      { selector: 'edge.chosen', style: { label: 'data(label)', 'line-color': colour('--accent'), 'target-arrow-color': colour('--accent') } },
    ],
    layout: { name: 'preset' },
  });
  arrange(held.drawing, box);
  held.drawing.on('tap', 'node', ({ target }) => choose(target.id()));
  held.drawing.on('dbltap', 'node', ({ target }) => { if (!target.id().startsWith('viking://session/')) enter(target.id()); });
  box.dataset.drawn = String(nodes.length);
  if (held.marked) show(held.drawing, held.marked);
}

/** Mark a node, and its relations. */
function show(drawing, uri) {
  drawing.elements().removeClass('chosen');
  const node = drawing.getElementById(uri);
  node.addClass('chosen').connectedEdges().addClass('chosen');
}

/** What is connected as the library lays it out; where nothing is, in rows. Names stay readable however small the picture gets. */
function arrange(drawing, box) {
  const room = Math.min(1, Math.sqrt(drawing.nodes().length / FILLING_NODES));
  const [width, height] = [room * box.clientWidth, room * box.clientHeight];
  const cols = Math.max(1, Math.floor(width / COLUMN_PX));
  const layout = drawing.edges().empty()
    ? { name: 'grid', cols, condense: false, boundingBox: { x1: 0, y1: 0, w: width, h: Math.ceil(drawing.nodes().length / cols) * ROW_PX } }
    : { name: 'cose', randomize: false, nodeDimensionsIncludeLabels: true, nodeOverlap: 20, nodeRepulsion: () => 9_000, idealEdgeLength: () => 90, componentSpacing: 70, boundingBox: { x1: 0, y1: 0, w: width, h: height } };
  drawing.layout({ ...layout, animate: false, fit: false }).run();
  drawing.nodes().forEach(placeName);
  drawing.fit(undefined, edge(drawing));
  const shrunk = Math.min(MOST_GROWN, Math.max(1, 1 / drawing.zoom()));
  drawing.nodes().style({ 'font-size': LABEL_PX * shrunk, 'text-max-width': `${LABEL_WIDTH_PX * shrunk}px` });
  drawing.edges().style({ 'font-size': (LABEL_PX - 2) * shrunk });
  drawing.nodes().forEach(placeName);
  fit(drawing);
}

/** Put its name where nothing else stands and best no line comes; below it where there is no such place. */
function placeName(node) {
  const others = node.cy().nodes().not(node);
  const open = ([, , x, y]) => node.neighborhood('node').every((other) => {
    const [right, down] = [other.position('x') - node.position('x'), other.position('y') - node.position('y')];
    return (right * x + down * y) / Math.hypot(right, down) < THROUGH;
  });
  const put = ([across, down, x, y]) => node.data({ across, down, x: x * LABEL_GAP_PX, y: y * LABEL_GAP_PX });
  const free = (side) => {
    put(side);
    const box = node.boundingBox();
    return others.every((other) => {
      const { x1, x2, y1, y2 } = other.boundingBox();
      return x1 > box.x2 || x2 < box.x1 || y1 > box.y2 || y2 < box.y1;
    });
  };
  put(SIDES.find((side) => open(side) && free(side)) ?? SIDES.find(free) ?? SIDES[0]);
}

const edge = (drawing) => Math.min(EDGE_PX, EDGE_SHARE * drawing.width());

/** All in sight, and a few no larger than life. */
function fit(drawing) {
  drawing.fit(undefined, edge(drawing));
  if (drawing.zoom() > MOST_FITTED) drawing.zoom(MOST_FITTED).center();
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

'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const svg = document.getElementById('map'), NS = svg.namespaceURI;
const colours = { chat: 'var(--chat)', repeater: 'var(--repeater)', room: 'var(--room)', sensor: 'var(--sensor)', own: 'var(--own)' };
const own = data.own ? { ...data.own, type: 'own', key: data.own.key || '' } : null;
const nodes = (own ? [own] : []).concat(data.nodes.filter(n => !own || n.key !== own.key));
const placed = nodes.filter(n => typeof n.lat === 'number' && typeof n.lon === 'number');
const label = n => n.alias || n.name || n.key.slice(0, 12);

// Degrees to a plane: distances east shrink with the cosine of the middle latitude.
const middle = placed.length ? placed.reduce((sum, n) => sum + n.lat, 0) / placed.length : 0;
const shrink = Math.cos(middle * Math.PI / 180) || 1, x = lon => lon * shrink, y = lat => -lat;
let view = { x: -1, y: -1, width: 2 };
function fit() {
  if (!placed.length) return;
  const xs = placed.map(n => x(n.lon)), ys = placed.map(n => y(n.lat));
  const box = svg.getBoundingClientRect(), ratio = box.height / box.width || 1;
  const width = Math.max(Math.max(...xs) - Math.min(...xs), (Math.max(...ys) - Math.min(...ys)) / ratio, 0.005) * 1.3;
  view = { width, x: (Math.max(...xs) + Math.min(...xs) - width) / 2, y: (Math.max(...ys) + Math.min(...ys) - width * ratio) / 2 };
}
const scale = () => svg.getBoundingClientRect().width / view.width;
const px = lon => (x(lon) - view.x) * scale(), py = lat => (y(lat) - view.y) * scale();
function add(parent, name, attributes, text) {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.appendChild(element);
  return element;
}

// A path has the first 1 to 3 bytes of each repeater's key.
function path(node) {
  if (!own || typeof own.lat !== 'number' || typeof node.lat !== 'number' || typeof node.path !== 'string') return null;
  const size = node.hops ? node.path.length / node.hops : 2, stops = [own];
  let guess = false;
  for (let at = 0; at < node.path.length; at += size) {
    const fitting = data.nodes.filter(n => n.type === 'repeater' && n.key.startsWith(node.path.slice(at, at + size)));
    if (fitting.length !== 1 || typeof fitting[0].lat !== 'number') guess = true; else stops.push(fitting[0]);
  }
  return { stops: stops.concat(node), guess };
}

let chosen = null;
function draw() {
  svg.replaceChildren();
  grid();
  if (data.background) beneath(data.background);
  for (const node of placed) {
    const way = path(node);
    if (!way) continue;
    const points = way.stops.map(n => `${px(n.lon).toFixed(1)},${py(n.lat).toFixed(1)}`).join(' ');
    add(svg, 'polyline', { points, class: `path${way.guess ? ' guess' : ''}${node === chosen ? ' chosen' : ''}` });
  }
  // Draws names where there is room: this radio's first, then those of repeaters.
  const rank = n => n === chosen ? 0 : n.type === 'own' ? 1 : n.type === 'repeater' ? 2 : 3, taken = [], named = new Set();
  for (const node of placed.slice().sort((a, b) => rank(a) - rank(b))) {
    const box = { x: px(node.lon) - 8, y: py(node.lat) - 9, width: 24 + label(node).length * 7, height: 18 };
    if (taken.some(t => box.x < t.x + t.width && t.x < box.x + box.width && box.y < t.y + t.height && t.y < box.y + box.height)) continue;
    taken.push(box);
    named.add(node);
  }
  for (const node of placed.slice().reverse()) {
    const g = add(svg, 'g', { class: 'node', transform: `translate(${px(node.lon)} ${py(node.lat)})` });
    const colour = colours[node.type] || 'var(--quiet)';
    if (node.type === 'repeater') add(g, 'rect', { x: -6, y: -6, width: 12, height: 12, transform: 'rotate(45)', fill: colour });
    else add(g, 'circle', { r: node === chosen ? 9 : 6, fill: colour });
    if (node.type === 'own') add(g, 'circle', { r: 11, fill: 'none', stroke: colour, 'stroke-width': 2 });
    if (named.has(node)) add(g, 'text', { x: 11, y: 4 }, label(node));
    else add(g, 'title', {}, label(node));
    g.addEventListener('click', () => choose(node));
  }
}
function grid() {
  const box = svg.getBoundingClientRect();
  const steps = [.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 45], step = steps.find(s => s * scale() > 110) || 45;
  const lon0 = view.x / shrink, lon1 = (view.x + view.width) / shrink, lat1 = -view.y, lat0 = lat1 - box.height / scale();
  for (let lon = Math.ceil(lon0 / step) * step; lon < lon1; lon += step) {
    add(svg, 'line', { class: 'grid', x1: px(lon), x2: px(lon), y1: 0, y2: box.height });
    add(svg, 'text', { class: 'axis', x: px(lon) + 3, y: box.height - 6 }, `${+lon.toFixed(3)}°`);
  }
  for (let lat = Math.ceil(lat0 / step) * step; lat < lat1; lat += step) {
    add(svg, 'line', { class: 'grid', x1: 0, x2: box.width, y1: py(lat), y2: py(lat) });
    add(svg, 'text', { class: 'axis', x: 4, y: py(lat) - 3 }, `${+lat.toFixed(3)}°`);
  }
  const metres = 111320 / scale(), wanted = metres * 120, power = 10 ** Math.floor(Math.log10(wanted));
  const length = [5, 2, 1].map(n => n * power).find(n => n <= wanted) || power, bar = length / metres;
  add(svg, 'line', { x1: box.width - 16 - bar, x2: box.width - 16, y1: 22, y2: 22, stroke: 'currentColor', 'stroke-width': 2 });
  add(svg, 'text', { x: box.width - 16 - bar, y: 16 }, length >= 1000 ? `${length / 1000} km` : `${length} m`);
}
function beneath(shape) {
  const lines = [];
  const walk = item => {
    if (!item || typeof item !== 'object') return;
    if (Array.isArray(item.features)) item.features.forEach(f => walk(f.geometry));
    else if (Array.isArray(item.geometries)) item.geometries.forEach(walk);
    else if (item.type === 'Feature') walk(item.geometry);
    else if (item.type === 'LineString') lines.push(item.coordinates);
    else if (item.type === 'MultiLineString' || item.type === 'Polygon') lines.push(...item.coordinates);
    else if (item.type === 'MultiPolygon') item.coordinates.forEach(p => lines.push(...p));
  };
  walk(shape);
  for (const line of lines) add(svg, 'polyline', { class: 'beneath', points: line.map(c => `${px(c[0])},${py(c[1])}`).join(' ') });
}

function choose(node) {
  chosen = node;
  if (node && typeof node.lat === 'number') {
    const box = svg.getBoundingClientRect();
    if (px(node.lon) < 0 || px(node.lon) > box.width || py(node.lat) < 0 || py(node.lat) > box.height) {
      view.x = x(node.lon) - view.width / 2;
      view.y = y(node.lat) - box.height / scale() / 2;
    }
  }
  draw();
  list();
}
function list() {
  const wanted = document.getElementById('find').value.toLowerCase(), ul = document.getElementById('list');
  ul.replaceChildren();
  for (const node of nodes) {
    if (wanted && !label(node).toLowerCase().includes(wanted) && !node.key.startsWith(wanted)) continue;
    const li = document.createElement('li'), dot = document.createElement('span'), small = document.createElement('small');
    dot.className = 'dot';
    dot.style.background = colours[node.type] || 'var(--quiet)';
    const heard = node.last_heard ? `heard ${new Date(node.last_heard).toLocaleString()}` : '';
    const way = node.type === 'own' ? 'this radio' : typeof node.hops !== 'number' ? 'no path known' : node.hops === 0 ? 'direct' :
      `${node.hops} hop${node.hops > 1 ? 's' : ''}: ${node.path}`;
    small.textContent = [node.type === 'own' ? '' : node.type, way, heard, typeof node.lat === 'number' ? '' : 'no position']
      .filter(Boolean).join(', ');
    li.append(dot, label(node), small);
    if (node === chosen) li.className = 'chosen';
    li.addEventListener('click', () => choose(node));
    ul.appendChild(li);
  }
}

// Drag to move; wheel or two fingers to zoom.
const fingers = new Map();
const zoom = (factor, cx, cy) => {
  const mx = view.x + cx / scale(), my = view.y + cy / scale();
  view.width = Math.min(Math.max(view.width * factor, 1e-4), 720);
  view.x = mx - cx / scale();
  view.y = my - cy / scale();
  draw();
};
svg.addEventListener('wheel', e => { e.preventDefault(); zoom(e.deltaY > 0 ? 1.2 : 1 / 1.2, e.offsetX, e.offsetY); }, { passive: false });
svg.addEventListener('pointerdown', e => { fingers.set(e.pointerId, e); });
window.addEventListener('pointerup', e => { fingers.delete(e.pointerId); });
window.addEventListener('pointercancel', e => { fingers.delete(e.pointerId); });
svg.addEventListener('pointermove', e => {
  const before = fingers.get(e.pointerId);
  if (!before) return;
  const [a, b] = [...fingers.values()];
  fingers.set(e.pointerId, e);
  if (fingers.size === 1) {
    view.x -= (e.clientX - before.clientX) / scale();
    view.y -= (e.clientY - before.clientY) / scale();
    draw();
  } else if (b) {
    const [c, d] = [...fingers.values()], length = (p, q) => Math.hypot(p.clientX - q.clientX, p.clientY - q.clientY) || 1;
    zoom(length(a, b) / length(c, d), (c.clientX + d.clientX) / 2, (c.clientY + d.clientY) / 2);
  }
});
document.getElementById('find').addEventListener('input', list);
document.getElementById('title').textContent = own ? label(own) : 'Meshpost';
document.getElementById('about').textContent =
  `${nodes.length} nodes, ${placed.length} with a position, ${new Date(data.at).toLocaleString()}`;
window.addEventListener('resize', draw);
fit();
draw();
list();

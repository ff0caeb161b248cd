// Where the nodes are, on a grid of the ground or on tiles of the server that the operator has named: shapes by kind, age as opacity, near ones as one; and the list of what is in sight.
import { fill, iconButton, make } from "../parts/page.js";
import { kilometres, number, when } from "../parts/numbers.js";
import { cut, named } from "../parts/text.js";
import { t } from "../parts/words.js";
import { Windowed } from "../parts/windowed.js";
import { Tiles } from "../parts/tiles.js";
import { gateway } from "../stores/gateway.js";
import { nodeName, nodes } from "../stores/nodes.js";
import { onKeys } from "../shell/keys.js";
import { route } from "../shell/route.js";
import { kindMark, KINDS } from "./nodes.js";

/** Metres of a degree of latitude. */
const DEGREE = 111_195;
/** Pixels. */
const CLUSTER = 34;
const INKS = ["companion", "repeater", "room", "sensor", "quiet", "text", "line", "accent", "surface"];
const INK = { chat: "companion", repeater: "repeater", room: "room", sensor: "sensor", none: "quiet" };

export class View {
  #shell;
  #ends = [];
  /** The middle, and metres a pixel. */
  #place = null;
  #inks = {};
  #marks = [];
  #frame = 0;
  #details = null;
  #pointers = new Map();
  #moved = 0;
  #keep = 0;
  #tiles = null;

  constructor(shell) {
    this.#shell = shell;
    if (shell.tiles) this.#tiles = new Tiles(shell.tiles, () => this.#draw());
    this.canvas = make("canvas", { class: "map-canvas", tabindex: 0, role: "application", "aria-label": t("map.label"), on: {
      pointerdown: (event) => this.#down(event), pointermove: (event) => this.#move(event), pointerup: (event) => this.#up(event), pointercancel: (event) => this.#pointers.delete(event.pointerId),
      wheel: (event) => { event.preventDefault(); this.#zoom(Math.exp(event.deltaY / 400), event.offsetX, event.offsetY); }, keydown: (event) => this.#key(event) } });
    this.scale = make("div", { class: "map-scale", "aria-hidden": "true" });
    this.chips = make("div", { class: "chips map-legend", role: "group", "aria-label": t("nodes.kinds") });
    this.empty = make("div", { class: "map-empty" });
    this.probe = make("span", { class: "unseen", "aria-hidden": "true" });
    this.side = make("div", { class: "map-list" });
    this.count = make("p", { class: "quiet small", role: "status" });
    this.list = new Windowed(this.side, { estimate: 52, role: "list", label: t("map.list"), render: ({ node }) => this.#row(node) });
    fill(shell.main, make("header", { class: "view-head" }, make("h1", { text: t("nav.map") }), this.count), make("div", { class: "map" },
      make("div", { class: "map-place" }, this.canvas, this.chips, make("div", { class: "map-buttons" },
        make("button", { type: "button", class: "button", "aria-label": t("map.closer"), title: t("map.closer"), text: "+", on: { click: () => this.#zoom(0.6) } }),
        make("button", { type: "button", class: "button", "aria-label": t("map.wider"), title: t("map.wider"), text: "−", on: { click: () => this.#zoom(1 / 0.6) } }),
        iconButton("map", t("map.all"), () => { this.#place = null; this.#fit(); this.#draw(); this.#note(); }, { class: "button" })),
      this.scale, make("p", { class: "map-credit" }, shell.tiles?.credit ? make("bdi", { text: shell.tiles.credit }) : null), this.empty, this.probe), this.side));
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => { this.#readInks(); this.#draw(); };
    scheme.addEventListener("change", changed);
    this.observer = new ResizeObserver(() => { this.#fit(); this.#draw(); });
    this.observer.observe(this.canvas);
    this.#ends = [nodes.subscribe(() => this.#changed()), gateway.subscribe(() => this.#changed()), () => scheme.removeEventListener("change", changed), () => this.observer.disconnect()];
    onKeys({ Escape: () => { if (!route.id) return false; this.#shut(); return true; } });
    this.#readInks();
    nodes.need();
  }

  close() {
    for (const end of this.#ends) end();
    cancelAnimationFrame(this.#frame);
    this.#tiles?.close();
    clearTimeout(this.#keep);
    this.list.close();
    this.#details?.close();
  }

  #readInks() {
    for (const name of INKS) {
      this.probe.style.color = `var(--${name})`;
      this.#inks[name] = getComputedStyle(this.probe).color;
    }
  }

  update() {
    this.#changed();
    this.#showDetails();
  }

  get #shown() {
    const kind = route.get("kind");
    return nodes.list.filter((node) => (node.lat || node.lon) && Math.abs(node.lat) <= 90 && (!kind || kindOf(node) === kind));
  }

  #changed() {
    this.#drawLegend();
    this.#fit();
    const count = nodes.list.filter((node) => node.lat || node.lon).length;
    const words = nodes.isLoaded ? t("map.count", { count }) : nodes.trouble?.message ?? t("loading");
    if (this.count.textContent !== words) this.count.textContent = words;
    fill(this.empty, nodes.isLoaded && !count ? make("div", { class: "empty" }, make("h2", { text: t("map.none") }), make("p", { class: "quiet", text: t("map.none-why") })) : null);
    this.#draw();
  }

  #drawLegend() {
    const kind = route.get("kind");
    const here = KINDS.filter((one) => nodes.list.some((node) => (node.lat || node.lon) && kindOf(node) === one));
    const version = `${here} ${kind}`;
    if (this.chips.dataset.version === version) return;
    this.chips.dataset.version = version;
    fill(this.chips, here.map((one) => make("button", { type: "button", class: "chip", "aria-pressed": String(kind === one), on: { click: () => route.set({ kind: kind === one ? undefined : one }) } }, kindMark(one))));
  }

  // MARK: Place

  /** The address's place, else one in which all are. */
  #fit() {
    if (this.#place || !this.canvas.clientWidth) return;
    const [lat, lon, metres] = (route.get("at") ?? "").split(",").map(Number);
    if (Number.isFinite(lat) && Number.isFinite(lon) && metres > 0 && Math.abs(lat) <= 90) {
      this.#place = { lat, lon, metres };
      return;
    }
    const own = gateway.position;
    const all = [...this.#shown, ...(own ? [own] : [])];
    if (!all.length) return;
    const lats = all.map((one) => one.lat);
    const lons = all.map((one) => one.lon);
    const least = (values) => values.reduce((a, b) => Math.min(a, b));
    const most = (values) => values.reduce((a, b) => Math.max(a, b));
    const place = { lat: (least(lats) + most(lats)) / 2, lon: (least(lons) + most(lons)) / 2 };
    const tall = (most(lats) - least(lats)) * DEGREE;
    const wide = (most(lons) - least(lons)) * DEGREE * Math.cos((place.lat * Math.PI) / 180);
    this.#place = { ...place, metres: Math.max(1, wide / Math.max(50, this.canvas.clientWidth - 160), tall / Math.max(50, this.canvas.clientHeight - 160)) };
  }

  #xy({ lat, lon }) {
    const { lat: middle, lon: side } = this.#place;
    const world = this.#world;
    return [this.canvas.clientWidth / 2 + (mercator.x(lon) - mercator.x(side)) * world, this.canvas.clientHeight / 2 + (mercator.y(lat) - mercator.y(middle)) * world];
  }

  /** Pixels around the whole world, on the map as it is: metres a pixel hold in its middle. */
  get #world() { return (360 * DEGREE * Math.cos((this.#place.lat * Math.PI) / 180)) / this.#place.metres; }

  #shift(dx, dy) {
    const { lat, lon, metres } = this.#place;
    const world = this.#world;
    this.#place = { metres, lat: Math.max(-85, Math.min(85, mercator.lat(mercator.y(lat) - dy / world))), lon: lon - (dx / world) * 360 };
    this.#draw();
    this.#note();
  }

  #zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    if (!this.#place) return;
    const metres = Math.max(0.2, Math.min(40_000, this.#place.metres * factor));
    const [dx, dy] = [x - this.canvas.clientWidth / 2, y - this.canvas.clientHeight / 2];
    const change = 1 - metres / this.#place.metres;
    this.#shift(-dx * change, -dy * change);
    this.#place = { ...this.#place, metres };
    this.#draw();
    this.#note();
  }

  /** In the address, a moment after the last move. */
  #note() {
    clearTimeout(this.#keep);
    this.#keep = setTimeout(() => {
      if (route.view !== "map" || !this.#place) return;
      const { lat, lon, metres } = this.#place;
      history.replaceState(history.state, "", route.with({ at: `${lat.toFixed(5)},${lon.toFixed(5)},${metres.toPrecision(4)}` }));
      route.values = new URLSearchParams(location.search);
    }, 300);
  }

  // MARK: Pointing

  #down(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.#pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
    this.#moved = 0;
  }

  #move(event) {
    const was = this.#pointers.get(event.pointerId);
    if (!was || !this.#place) return;
    const now = [event.offsetX, event.offsetY];
    const others = [...this.#pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    this.#moved += Math.hypot(now[0] - was[0], now[1] - was[1]);
    this.#pointers.set(event.pointerId, now);
    if (others.length) {
      const [other] = others;
      const before = Math.hypot(was[0] - other[0], was[1] - other[1]);
      const after = Math.hypot(now[0] - other[0], now[1] - other[1]);
      if (before > 10 && after > 10) this.#zoom(before / after, (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    } else this.#shift(now[0] - was[0], now[1] - was[1]);
  }

  #up(event) {
    this.#pointers.delete(event.pointerId);
    if (this.#moved > 6) return;
    let best = null;
    for (const mark of this.#marks) {
      const far = Math.hypot(mark.x - event.offsetX, mark.y - event.offsetY);
      if (far < 24 && (!best || far < best.far)) best = { far, mark };
    }
    if (!best) { if (route.id) this.#shut(); return; }
    const { mark } = best;
    if (mark.nodes.length > 1 && this.#place.metres > 0.5) {
      this.#place = { ...this.#place, lat: mark.nodes[0].lat, lon: mark.nodes[0].lon };
      this.#zoom(0.35);
    } else this.#choose(mark.nodes[0].key);
  }

  #key(event) {
    const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
    if (step && this.#place) this.#shift(...step);
    else if (event.key === "+" || event.key === "=") this.#zoom(0.7);
    else if (event.key === "-") this.#zoom(1 / 0.7);
    else return;
    event.preventDefault();
  }

  #choose(key) { route.go(`/map/${key}${location.search}`, { replace: Boolean(route.id) }); }
  #shut() { route.go(`/map${location.search}`, { replace: true }); }

  // MARK: Drawing

  #draw() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => { this.#frame = 0; this.#paint(); });
  }

  #paint() {
    const { canvas } = this;
    const [wide, tall, ratio] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio || 1];
    if (!wide || !tall) return;
    if (canvas.width !== Math.round(wide * ratio) || canvas.height !== Math.round(tall * ratio)) { canvas.width = Math.round(wide * ratio); canvas.height = Math.round(tall * ratio); }
    const paper = canvas.getContext("2d");
    paper.setTransform(ratio, 0, 0, ratio, 0, 0);
    paper.clearRect(0, 0, wide, tall);
    if (!this.#place) return;
    const metres = this.#paintGround(paper, wide, tall);
    fill(this.scale, make("span", { class: "map-bar" }), make("span", { text: kilometres(metres) }));
    this.scale.firstChild.style.inlineSize = `${metres / this.#place.metres}px`;
    const inside = [];
    for (const node of this.#shown) {
      const [x, y] = this.#xy(node);
      if (x > -20 && y > -20 && x < wide + 20 && y < tall + 20) inside.push({ node, x, y });
    }
    this.#marks = clusters(inside);
    const chosen = route.id ? nodes.get(route.id) : null;
    if (chosen) this.#paintPath(paper, chosen);
    paper.font = "12px system-ui, sans-serif";
    paper.textAlign = "center";
    const names = [];
    for (const mark of this.#marks) this.#paintMark(paper, mark, names, chosen);
    const own = gateway.position;
    if (own) {
      const [x, y] = this.#xy(own);
      paper.globalAlpha = 1;
      paper.strokeStyle = this.#inks.text;
      paper.lineWidth = 2;
      paper.beginPath();
      paper.arc(x, y, 9, 0, 7);
      paper.moveTo(x - 14, y); paper.lineTo(x + 14, y); paper.moveTo(x, y - 14); paper.lineTo(x, y + 14);
      paper.stroke();
    }
    this.#drawList(inside.map((one) => one.node));
  }

  /** Tiles where there are any, else a grid; returns a round distance for the scale. */
  #paintGround(paper, wide, tall) {
    const { lat, lon } = this.#place;
    const world = this.#world;
    this.#tiles?.paint(paper, { wide, tall, world, left: mercator.x(lon) * world - wide / 2, top: mercator.y(lat) * world - tall / 2 });
    return this.#paintGrid(paper, wide, tall, Boolean(this.#tiles?.hasAny));
  }

  /** Lines at round distances from the middle of the world; returns how far apart they are. */
  #paintGrid(paper, wide, tall, isHidden) {
    const wanted = 110 * this.#place.metres;
    const power = 10 ** Math.floor(Math.log10(wanted));
    const metres = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= wanted);
    if (isHidden) return metres;
    const step = metres / this.#place.metres;
    const [x0, y0] = [wide / 2 - ((this.#place.lon * DEGREE * Math.cos((this.#place.lat * Math.PI) / 180)) / this.#place.metres) % step, tall / 2 + ((this.#place.lat * DEGREE) / this.#place.metres) % step];
    paper.strokeStyle = this.#inks.line;
    paper.globalAlpha = 0.8;
    paper.lineWidth = 1;
    paper.beginPath();
    for (let x = ((x0 % step) + step) % step; x < wide; x += step) { paper.moveTo(Math.round(x) + 0.5, 0); paper.lineTo(Math.round(x) + 0.5, tall); }
    for (let y = ((y0 % step) + step) % step; y < tall; y += step) { paper.moveTo(0, Math.round(y) + 0.5); paper.lineTo(wide, Math.round(y) + 0.5); }
    paper.stroke();
    return metres;
  }

  /** The way to the one that is chosen, over those repeaters that can be told and have a position. */
  #paintPath(paper, node) {
    const own = gateway.position;
    const stops = own ? [own] : [];
    const width = node.hops ? node.path.length / node.hops : 0;
    for (let hop = 0; hop < (node.hops ?? 0) && Number.isInteger(width); hop += 1) {
      const prefix = node.path.slice(hop * width, (hop + 1) * width);
      const found = nodes.list.filter((one) => one.type === "repeater" && one.key.startsWith(prefix));
      if (found.length === 1 && (found[0].lat || found[0].lon)) stops.push(found[0]);
    }
    if (node.lat || node.lon) stops.push(node);
    if (stops.length < 2) return;
    paper.globalAlpha = 1;
    paper.strokeStyle = this.#inks.accent;
    paper.lineWidth = 2.5;
    paper.beginPath();
    stops.forEach((stop, index) => paper[index ? "lineTo" : "moveTo"](...this.#xy(stop)));
    paper.stroke();
  }

  #paintMark(paper, { x, y, nodes: here }, names, chosen) {
    const node = here[0];
    const isChosen = chosen && here.includes(chosen);
    if (here.length > 1) {
      const size = Math.min(22, 11 + Math.log2(here.length) * 1.5);
      paper.globalAlpha = 1;
      paper.fillStyle = this.#inks.surface;
      paper.strokeStyle = isChosen ? this.#inks.accent : this.#inks.quiet;
      paper.lineWidth = isChosen ? 3 : 1.5;
      paper.beginPath();
      paper.arc(x, y, size, 0, 7);
      paper.fill();
      paper.stroke();
      paper.fillStyle = this.#inks.text;
      paper.textBaseline = "middle";
      paper.fillText(number(here.length), x, y + 0.5);
      return;
    }
    paper.globalAlpha = isChosen ? 1 : opacity(node);
    paper.fillStyle = this.#inks[INK[kindOf(node)]];
    paper.beginPath();
    const size = isChosen ? 9 : 7;
    if (node.type === "repeater") { paper.moveTo(x, y - size - 1); paper.lineTo(x + size + 1, y); paper.lineTo(x, y + size + 1); paper.lineTo(x - size - 1, y); }
    else if (node.type === "room") paper.rect(x - size + 1, y - size + 1, 2 * size - 2, 2 * size - 2);
    else if (node.type === "sensor") { paper.moveTo(x, y - size - 1); paper.lineTo(x + size, y + size - 1); paper.lineTo(x - size, y + size - 1); }
    else paper.arc(x, y, size - 0.5, 0, 7);
    paper.closePath();
    paper.fill();
    paper.globalAlpha = 1;
    if (isChosen) { paper.strokeStyle = this.#inks.text; paper.lineWidth = 2; paper.stroke(); }
    // A name only where there is room for it.
    const words = cut(nodeName(node), 20);
    const half = paper.measureText(words).width / 2;
    const box = [x - half, y + 10, x + half, y + 26];
    if (!isChosen && names.some((one) => box[0] < one[2] && box[2] > one[0] && box[1] < one[3] && box[3] > one[1])) return;
    if (!isChosen && this.#marks.some((one) => one.nodes[0] !== node && one.x > box[0] - 8 && one.x < box[2] + 8 && one.y > box[1] - 6 && one.y < box[3] + 6)) return;
    names.push(box);
    paper.textBaseline = "alphabetic";
    if (this.#tiles?.hasAny) {
      paper.strokeStyle = this.#inks.surface;
      paper.lineWidth = 3;
      paper.lineJoin = "round";
      paper.strokeText(words, x, y + 22);
    }
    paper.fillStyle = this.#inks.text;
    paper.fillText(words, x, y + 22);
  }

  // MARK: List and details

  #drawList(inside) {
    inside.sort((a, b) => (b.last_heard ?? 0) - (a.last_heard ?? 0) || (a.key < b.key ? -1 : 1));
    this.list.set(inside.map((node) => ({ key: node.key, node, version: `${nodeName(node)} ${node.last_heard} ${route.id === node.key}` })));
  }

  #row(node) {
    return make("div", { role: "listitem" }, make("button", { type: "button", class: "map-row", "aria-current": route.id === node.key ? "true" : null, on: { click: () => this.#choose(node.key) } },
      kindMark(node.type, true), named(nodeName(node)), make("span", { class: "quiet small" }, node.last_heard ? when(node.last_heard) : "–")));
  }

  async #showDetails() {
    const key = route.id;
    if (!key) {
      this.#details?.close();
      this.#details = null;
      this.#shell.showDetails(null);
      return;
    }
    if (this.#details?.key !== key) {
      const { NodeDetails } = await import("./node.js");
      if (route.view !== "map" || route.id !== key || this.#details?.key === key) return;
      this.#details?.close();
      this.#details = new NodeDetails(key, { shut: () => this.#shut() });
    }
    this.#shell.showDetails(this.#details.element, () => this.#shut());
  }
}

/** Places on the map of the world (web Mercator), of which each side is 1; from the north-west. */
const mercator = {
  x: (lon) => lon / 360 + 0.5,
  y: (lat) => 0.5 - Math.asinh(Math.tan((Math.max(-85.05, Math.min(85.05, lat)) * Math.PI) / 180)) / (2 * Math.PI),
  lat: (y) => (Math.atan(Math.sinh((0.5 - y) * 2 * Math.PI)) * 180) / Math.PI,
};

function kindOf(node) { return KINDS.includes(node.type) ? node.type : "none"; }

/** What was not heard for long fades. */
function opacity(node) {
  const hours = (Date.now() - (node.last_heard ?? node.first_seen ?? 0)) / 3_600_000;
  return hours < 1 ? 1 : hours < 24 ? 0.8 : hours < 168 ? 0.6 : 0.4;
}

/** Those that would lie on each other as one mark: each goes to the first that is near, found by its place on a coarse grid. */
function clusters(inside) {
  const found = [];
  const cells = new Map();
  for (const { node, x, y } of inside) {
    const [column, row] = [Math.floor(x / CLUSTER), Math.floor(y / CLUSTER)];
    let near = null;
    for (let dx = -1; dx <= 1 && !near; dx += 1) {
      for (let dy = -1; dy <= 1 && !near; dy += 1) near = (cells.get(`${column + dx} ${row + dy}`) ?? []).find((one) => Math.hypot(one.x - x, one.y - y) < CLUSTER) ?? null;
    }
    if (near) { near.nodes.push(node); continue; }
    near = { x, y, nodes: [node] };
    found.push(near);
    const cell = `${column} ${row}`;
    cells.set(cell, [...(cells.get(cell) ?? []), near]);
  }
  return found;
}

// The ground of a map: a canvas that is shifted and zoomed by pointer, wheel and keys, with a grid or tiles under what a view paints on it. Its place is in the address.
import { fill, iconButton, make } from "./page.js";
import { kilometres } from "./distance.js";
import { cut } from "./text.js";
import { t } from "./words.js";
import { Tiles } from "./tiles.js";
import { route } from "../shell/route.js";

/** Metres of a degree of latitude. */
const DEGREE = 111_195;
/** Pixels within which marks become one. */
const CLUSTER = 34;
/** Pixels between marks that are pointed at together: one may lie on the other. */
const TOGETHER = 8;
/** Pixels of the longest name: a node's 31 bytes fit. */
const LONGEST_NAME = 380;

export class Ground {
  #place = null;
  #frame = 0;
  #pointers = new Map();
  #moved = 0;
  #keep = 0;
  #tiles = null;
  #places;
  #paintOn;
  #picked;
  #probe;
  #inkNames;
  #ends = [];
  inks = {};
  /** What was painted, for pointing: `{x, y, items}`. */
  marks = [];

  /** `places(isAll)`: all positions that the first sight shows, and those for a button that shows all; `paint(paper, wide, tall)`: on the ground; `picked(mark)`: one of `marks`, or `null` beside them; `inks`: names of colours. */
  constructor({ label, tiles, places, paint, picked, inks, extras = [] }) {
    [this.#places, this.#paintOn, this.#picked, this.#inkNames] = [places, paint, picked, inks];
    if (tiles) this.#tiles = new Tiles(tiles, () => this.draw());
    this.canvas = make("canvas", { class: "map-canvas", tabindex: 0, role: "application", "aria-label": label, on: {
      pointerdown: (event) => this.#down(event), pointermove: (event) => this.#move(event), pointerup: (event) => this.#up(event), pointercancel: (event) => this.#pointers.delete(event.pointerId),
      wheel: (event) => { event.preventDefault(); this.zoom(Math.exp(event.deltaY / 400), event.offsetX, event.offsetY); }, keydown: (event) => this.#key(event) } });
    this.scale = make("div", { class: "map-scale", "aria-hidden": "true" });
    this.#probe = make("span", { class: "unseen", "aria-hidden": "true" });
    this.element = make("div", { class: "map-place" }, this.canvas, extras, make("div", { class: "map-buttons" },
      make("button", { type: "button", class: "button", "aria-label": t("map.closer"), title: t("map.closer"), text: "+", on: { click: () => this.zoom(0.6) } }),
      make("button", { type: "button", class: "button", "aria-label": t("map.wider"), title: t("map.wider"), text: "−", on: { click: () => this.zoom(1 / 0.6) } }),
      iconButton("map", t("map.all"), () => { this.#place = null; this.fit(true); this.draw(); this.#note(); }, { class: "button" })),
    this.scale, make("p", { class: "map-credit" }, tiles?.credit ? make("bdi", { text: tiles.credit }) : null), this.#probe);
  }

  /** Once it is in the page. */
  begin() {
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => { this.#readInks(); this.draw(); };
    scheme.addEventListener("change", changed);
    const observer = new ResizeObserver(() => { this.fit(); this.draw(); });
    observer.observe(this.canvas);
    this.#ends = [() => scheme.removeEventListener("change", changed), () => observer.disconnect()];
    this.#readInks();
  }

  close() {
    for (const end of this.#ends) end();
    cancelAnimationFrame(this.#frame);
    this.#tiles?.close();
    clearTimeout(this.#keep);
  }

  #readInks() {
    for (const name of this.#inkNames) {
      this.#probe.style.color = `var(--${name})`;
      this.inks[name] = getComputedStyle(this.#probe).color;
    }
  }

  get hasTiles() { return Boolean(this.#tiles?.hasAny); }
  /** Metres a pixel; `undefined`: nothing is in sight yet. */
  get metres() { return this.#place?.metres; }

  // MARK: Place

  /** The address's place, unless it is to be all, else one in which all are. */
  fit(isAll = false) {
    if (this.#place || !this.canvas.clientWidth) return;
    const [lat, lon, metres] = (isAll ? "" : route.get("at") ?? "").split(",").map(Number);
    if (Number.isFinite(lat) && Number.isFinite(lon) && metres > 0 && Math.abs(lat) <= 90) {
      this.#place = { lat, lon, metres };
      return;
    }
    const all = this.#places(isAll);
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

  /** Where it is on the canvas. */
  xy({ lat, lon }) {
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
    this.draw();
    this.#note();
  }

  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    if (!this.#place) return;
    const metres = Math.max(0.2, Math.min(40_000, this.#place.metres * factor));
    const [dx, dy] = [x - this.canvas.clientWidth / 2, y - this.canvas.clientHeight / 2];
    const change = 1 - metres / this.#place.metres;
    this.#shift(-dx * change, -dy * change);
    this.#place = { ...this.#place, metres };
    this.draw();
    this.#note();
  }

  /** In the address, a moment after the last move. */
  #note() {
    clearTimeout(this.#keep);
    this.#keep = setTimeout(() => {
      if (!this.canvas.isConnected || !this.#place) return;
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
      if (before > 10 && after > 10) this.zoom(before / after, (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    } else this.#shift(now[0] - was[0], now[1] - was[1]);
  }

  #up(event) {
    this.#pointers.delete(event.pointerId);
    if (this.#moved > 6) return;
    let best = null;
    for (const mark of this.marks) {
      const far = Math.hypot(mark.x - event.offsetX, mark.y - event.offsetY);
      if (far < 24 && (!best || far < best.far)) best = { far, mark };
    }
    const items = best ? this.marks.filter(({ x, y }) => Math.hypot(x - best.mark.x, y - best.mark.y) < TOGETHER).flatMap((mark) => mark.items) : [];
    this.#picked(best ? { ...best.mark, items } : null);
  }

  /** Nearer to this position. */
  approach({ lat, lon }) {
    this.#place = { ...this.#place, lat, lon };
    this.zoom(0.35);
  }

  /** To this position, at the same height. */
  show({ lat, lon }) {
    if (!this.#place) return;
    this.#place = { ...this.#place, lat, lon };
    this.draw();
  }

  #key(event) {
    const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
    if (step && this.#place) this.#shift(...step);
    else if (event.key === "+" || event.key === "=") this.zoom(0.7);
    else if (event.key === "-") this.zoom(1 / 0.7);
    else return;
    event.preventDefault();
  }

  // MARK: Drawing

  draw() {
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
    paper.font = "12px system-ui, sans-serif";
    paper.textAlign = "center";
    this.#paintOn(paper, wide, tall);
  }

  /** Those of the items that are in sight: `{item, x, y}`. */
  inSight(items, wide, tall) {
    const inside = [];
    for (const item of items) {
      const [x, y] = this.xy(item);
      if (x > -20 && y > -20 && x < wide + 20 && y < tall + 20) inside.push({ item, x, y });
    }
    return inside;
  }

  /** A name below a mark, where there is room for it among `names` and `marks`, or where it `must` be: all of it, unless it is longer than names are. */
  name(paper, name, { x: middle, y }, names, must, mark) {
    const wide = this.canvas.clientWidth;
    const words = fitting(paper, name, Math.min(LONGEST_NAME, wide - 16));
    const half = paper.measureText(words).width / 2;
    const x = Math.max(half + 8, Math.min(wide - half - 8, middle));
    const box = [x - half, y + 10, x + half, y + 26];
    if (!must && names.some((one) => box[0] < one[2] && box[2] > one[0] && box[1] < one[3] && box[3] > one[1])) return;
    if (!must && this.marks.some((one) => one !== mark && one.x > box[0] - 8 && one.x < box[2] + 8 && one.y > box[1] - 6 && one.y < box[3] + 6)) return;
    names.push(box);
    paper.textBaseline = "alphabetic";
    if (this.hasTiles) {
      paper.strokeStyle = this.inks.surface;
      paper.lineWidth = 3;
      paper.lineJoin = "round";
      paper.strokeText(words, x, y + 22);
    }
    paper.fillStyle = this.inks.text;
    paper.fillText(words, x, y + 22);
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
    paper.strokeStyle = this.inks.line;
    paper.globalAlpha = 0.8;
    paper.lineWidth = 1;
    paper.beginPath();
    for (let x = ((x0 % step) + step) % step; x < wide; x += step) { paper.moveTo(Math.round(x) + 0.5, 0); paper.lineTo(Math.round(x) + 0.5, tall); }
    for (let y = ((y0 % step) + step) % step; y < tall; y += step) { paper.moveTo(0, Math.round(y) + 0.5); paper.lineTo(wide, Math.round(y) + 0.5); }
    paper.stroke();
    return metres;
  }
}

/** As much as fits, as it is measured. */
function fitting(paper, words, most) {
  let fits = words;
  for (let letters = 63; letters > 0 && paper.measureText(fits).width > most; letters -= 1) fits = cut(words, letters);
  return fits;
}

/** Places on the map of the world (web Mercator), of which each side is 1; from the north-west. */
const mercator = {
  x: (lon) => lon / 360 + 0.5,
  y: (lat) => 0.5 - Math.asinh(Math.tan((Math.max(-85.05, Math.min(85.05, lat)) * Math.PI) / 180)) / (2 * Math.PI),
  lat: (y) => (Math.atan(Math.sinh((0.5 - y) * 2 * Math.PI)) * 180) / Math.PI,
};

/** Those that would lie on each other as one mark: each goes to the first that is near, found by its place on a coarse grid. */
export function clusters(inside) {
  const found = [];
  const cells = new Map();
  for (const { item, x, y } of inside) {
    const [column, row] = [Math.floor(x / CLUSTER), Math.floor(y / CLUSTER)];
    let near = null;
    for (let dx = -1; dx <= 1 && !near; dx += 1) {
      for (let dy = -1; dy <= 1 && !near; dy += 1) near = (cells.get(`${column + dx} ${row + dy}`) ?? []).find((one) => Math.hypot(one.x - x, one.y - y) < CLUSTER) ?? null;
    }
    if (near) { near.items.push(item); continue; }
    near = { x, y, items: [item] };
    found.push(near);
    const cell = `${column} ${row}`;
    cells.set(cell, [...(cells.get(cell) ?? []), near]);
  }
  return found;
}

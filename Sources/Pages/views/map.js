// Where the nodes are: shapes by kind, age as opacity, near ones as one; and the list of what is in sight.
import { fill, make, showTrouble } from "../parts/page.js";
import { refill } from "../parts/held.js";
import { number } from "../parts/numbers.js";
import { now, when } from "../parts/times.js";
import { cut, named } from "../parts/text.js";
import { t } from "../parts/words.js";
import { clusters, Ground } from "../parts/ground.js";
import { lines, paintLines, waysNote } from "../parts/ways.js";
import { Windowed } from "../parts/windowed.js";
import { gateway } from "../stores/gateway.js";
import { live } from "../stores/live.js";
import { nodeName, nodes, ownPosition } from "../stores/nodes.js";
import { rowAt } from "../stores/rows.js";
import { onKeys } from "../shell/keys.js";
import { route } from "../shell/route.js";
import { kindMark, KINDS } from "../parts/kinds.js";

const INKS = ["companion", "repeater", "room", "sensor", "quiet", "text", "line", "accent", "surface"];
const INK = { chat: "companion", repeater: "repeater", room: "room", sensor: "sensor", none: "quiet" };

export class View {
  #shell;
  #ends = [];
  #ground;
  #details = null;
  /** The message whose ways are drawn: its cursor, its row, why it cannot be read, and its lines. */
  #ways = { cursor: null };

  constructor(shell) {
    this.#shell = shell;
    this.chips = make("div", { class: "chips map-legend", role: "group", "aria-label": t("nodes.kinds") });
    this.empty = make("div", { class: "map-empty" });
    this.note = make("div", { class: "map-note" });
    this.side = make("div", { class: "map-list" });
    this.count = make("p", { class: "quiet small", role: "status" });
    this.list = new Windowed(this.side, { estimate: 52, role: "list", label: t("map.list"), render: ({ node }) => this.#row(node) });
    this.#ground = new Ground({
      label: t("map.label"), tiles: shell.tiles, inks: INKS, extras: [this.chips, this.empty, this.note],
      places: (isAll) => this.#places(isAll),
      paint: (paper, wide, tall) => this.#paint(paper, wide, tall), picked: (mark) => this.#picked(mark),
    });
    fill(shell.main, make("header", { class: "view-head" }, make("h1", { text: t("nav.map") }), this.count), make("div", { class: "map" }, this.#ground.element, this.side));
    this.#ground.begin();
    this.#ends = [nodes.subscribe(() => this.#changed()), gateway.subscribe(() => this.#changed()), ...["linked", "again"].map((event) => live.on(event, () => this.#readWaysAgain()))];
    onKeys({ Escape: () => { if (route.id) this.#shut(); else if (this.#ways.cursor) this.#leaveWays(); else return false; return true; } });
    nodes.need();
  }

  close() {
    for (const end of this.#ends) end();
    this.#ground.close();
    this.list.close();
    this.#details?.close();
  }

  update() {
    this.#readWays();
    this.#changed();
    this.#showDetails();
  }

  get #shown() {
    const kind = route.get("kind");
    return nodes.list.filter((node) => (node.lat || node.lon) && Math.abs(node.lat) <= 90 && (!kind || kindOf(node) === kind));
  }

  #changed() {
    this.#drawLegend();
    this.#drawWays();
    // The first sight is of the ways, once they are known.
    if (!this.#ways.cursor || this.#ways.drawn || this.#ways.trouble) this.#ground.fit();
    const count = nodes.list.filter((node) => node.lat || node.lon).length;
    const words = nodes.isLoaded ? t("map.count", { count }) : nodes.trouble ? "" : t("loading");
    if (this.count.textContent !== words) this.count.textContent = words;
    showTrouble(this.empty, nodes.isLoaded ? null : nodes.trouble, () => nodes.load());
    if (nodes.isLoaded) fill(this.empty, !count ? make("div", { class: "empty" }, make("h2", { text: t("map.none") }), make("p", { class: "quiet", text: t("map.none-why") })) : null);
    this.#ground.draw();
  }

  #places(isAll) {
    const drawn = isAll ? [] : (this.#ways.drawn?.lines ?? []).flatMap((one) => [one.from, one.to]);
    return drawn.length ? drawn : [...this.#shown, ...(ownPosition() ? [ownPosition()] : [])];
  }

  // MARK: Ways of a message

  async #readWays(isAgain = false) {
    const cursor = route.get("message");
    if (cursor === this.#ways.cursor && !isAgain) return;
    const ways = { cursor, trouble: isAgain ? this.#ways.trouble : null };
    this.#ways = ways;
    if (!cursor) return;
    try {
      [ways.row] = await Promise.all([rowAt(cursor), nodes.need()]);
      ways.trouble = ways.row ? null : t("message.gone");
    } catch (trouble) { [ways.trouble, ways.isRefused] = [trouble.message, true]; }
    if (this.#ways === ways && this.note.isConnected) this.#changed();
  }

  /** What could not be read. */
  #readWaysAgain() {
    if (this.#ways.isRefused) this.#readWays(true);
  }

  #drawWays() {
    const ways = this.#ways;
    if (ways.row && nodes.isLoaded) {
      const isOwn = ways.row.direction === "sent";
      ways.drawn = lines(ways.row, { placeOf, begin: isOwn ? ownPosition() : placeOf(ways.row.sender), end: ownPosition() });
    }
    const version = JSON.stringify([ways.cursor, ways.drawn?.lines, ways.drawn?.unplaced, ways.trouble]);
    if (this.note.dataset.version === version) return;
    this.note.dataset.version = version;
    refill(this.note, ways.cursor ? waysNote(ways.drawn, { shut: () => this.#leaveWays(), trouble: ways.trouble, text: cut(ways.row?.text ?? "", 80) }) : null);
  }

  /** Back to the message, if one came from it. */
  #leaveWays() { route.back(route.with({ message: undefined })); }

  // MARK: Legend

  #drawLegend() {
    const kind = route.get("kind");
    const here = KINDS.filter((one) => nodes.list.some((node) => (node.lat || node.lon) && kindOf(node) === one));
    const version = `${here} ${kind}`;
    if (this.chips.dataset.version === version) return;
    this.chips.dataset.version = version;
    refill(this.chips, here.map((one) => make("button", { type: "button", class: "chip", "aria-pressed": String(kind === one), on: { click: () => route.set({ kind: kind === one ? undefined : one }) } }, kindMark(one))));
  }

  #picked(mark) {
    if (!mark) { if (route.id) this.#shut(); return; }
    if (mark.items.length > 1 && this.#ground.metres > 0.5) this.#ground.approach(mark.items[0]);
    else this.#choose(mark.items[0].key);
  }

  #choose(key) { route.go(`/map/${key}${location.search}`, { replace: Boolean(route.id) }); }
  #shut() { route.go(`/map${location.search}`, { replace: true }); }

  // MARK: Drawing

  #paint(paper, wide, tall) {
    const inside = this.#ground.inSight(this.#shown, wide, tall);
    this.#ground.marks = clusters(inside);
    const chosen = route.id ? nodes.get(route.id) : null;
    if (this.#ways.drawn) paintLines(paper, this.#ground, this.#ways.drawn.lines);
    if (chosen) this.#paintPath(paper, chosen);
    const names = [];
    for (const mark of this.#ground.marks) this.#paintMark(paper, mark, names, chosen);
    const own = ownPosition();
    if (own) {
      const [x, y] = this.#ground.xy(own);
      paper.globalAlpha = 1;
      paper.strokeStyle = this.#ground.inks.text;
      paper.lineWidth = 2;
      paper.beginPath();
      paper.arc(x, y, 9, 0, 7);
      paper.moveTo(x - 14, y); paper.lineTo(x + 14, y); paper.moveTo(x, y - 14); paper.lineTo(x, y + 14);
      paper.stroke();
    }
    this.#drawList(inside.map((one) => one.item));
  }

  /** The way to the one that is chosen, over those repeaters that can be told and have a position. */
  #paintPath(paper, node) {
    const own = ownPosition();
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
    paper.strokeStyle = this.#ground.inks.accent;
    paper.lineWidth = 2.5;
    paper.beginPath();
    stops.forEach((stop, index) => paper[index ? "lineTo" : "moveTo"](...this.#ground.xy(stop)));
    paper.stroke();
  }

  #paintMark(paper, mark, names, chosen) {
    const { x, y, items: here } = mark;
    const node = here[0];
    const isChosen = chosen && here.includes(chosen);
    if (here.length > 1) {
      const size = Math.min(22, 11 + Math.log2(here.length) * 1.5);
      paper.globalAlpha = 1;
      paper.fillStyle = this.#ground.inks.surface;
      paper.strokeStyle = isChosen ? this.#ground.inks.accent : this.#ground.inks.quiet;
      paper.lineWidth = isChosen ? 3 : 1.5;
      paper.beginPath();
      paper.arc(x, y, size, 0, 7);
      paper.fill();
      paper.stroke();
      paper.fillStyle = this.#ground.inks.text;
      paper.textBaseline = "middle";
      paper.fillText(number(here.length), x, y + 0.5);
      return;
    }
    paper.globalAlpha = isChosen ? 1 : opacity(node);
    paper.fillStyle = this.#ground.inks[INK[kindOf(node)]];
    paper.beginPath();
    const size = isChosen ? 9 : 7;
    if (node.type === "repeater") { paper.moveTo(x, y - size - 1); paper.lineTo(x + size + 1, y); paper.lineTo(x, y + size + 1); paper.lineTo(x - size - 1, y); }
    else if (node.type === "room") paper.rect(x - size + 1, y - size + 1, 2 * size - 2, 2 * size - 2);
    else if (node.type === "sensor") { paper.moveTo(x, y - size - 1); paper.lineTo(x + size, y + size - 1); paper.lineTo(x - size, y + size - 1); }
    else paper.arc(x, y, size - 0.5, 0, 7);
    paper.closePath();
    paper.fill();
    paper.globalAlpha = 1;
    if (isChosen) { paper.strokeStyle = this.#ground.inks.text; paper.lineWidth = 2; paper.stroke(); }
    // A name only where there is room for it.
    this.#ground.name(paper, cut(nodeName(node), 64) + nodes.digits(node), mark, names, isChosen, mark);
  }

  // MARK: List and details

  #drawList(inside) {
    inside.sort((a, b) => (b.last_heard ?? 0) - (a.last_heard ?? 0) || (a.key < b.key ? -1 : 1));
    this.list.set(inside.map((node) => ({ key: node.key, node, version: `${nodeName(node)}${nodes.digits(node)} ${node.last_heard} ${route.id === node.key}` })));
  }

  #row(node) {
    return make("div", { role: "listitem" }, make("button", { type: "button", class: "map-row", "aria-current": route.id === node.key ? "true" : null, on: { click: () => this.#choose(node.key) } },
      kindMark(node.type, true), make("span", { class: "name" }, named(nodeName(node)), make("span", { class: "quiet small", text: nodes.digits(node) })), make("span", { class: "quiet small" }, node.last_heard ? when(node.last_heard) : "–")));
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

/** Of the only node whose key begins so. */
function placeOf(key) {
  const node = key ? nodes.byPrefix(key) : null;
  return node && (node.lat || node.lon) && Math.abs(node.lat) <= 90 ? node : null;
}

function kindOf(node) { return KINDS.includes(node.type) ? node.type : "none"; }

/** What was not heard for long fades. */
function opacity(node) {
  const hours = (now() - (node.last_heard ?? node.first_seen ?? 0)) / 3_600_000;
  return hours < 1 ? 1 : hours < 24 ? 0.8 : hours < 168 ? 0.6 : 0.4;
}

// Which gateway hears which node: as a map, with the links of what is chosen, and as a matrix.
import { fill, icon, iconButton, make, showTrouble } from "../parts/page.js";
import { refill } from "../parts/held.js";
import { number } from "../parts/numbers.js";
import { now, when } from "../parts/times.js";
import { cut, named, seen } from "../parts/text.js";
import { t } from "../parts/words.js";
import { clusters, Ground } from "../parts/ground.js";
import { lines, paintLines, waysNote } from "../parts/ways.js";
import { kindMark } from "../parts/kinds.js";
import { Windowed } from "../parts/windowed.js";
import { onKeys } from "../shell/keys.js";
import { ask } from "../stores/api.js";
import { query } from "../stores/query.js";
import { route } from "../shell/route.js";
import { contactMark } from "./contact.js";
import { fleet, gatewayName, live } from "./live.js";
import { legendOfCoverage, openMark, paintGateway, paintMany, paintNode, placesOf } from "./marks.js";
import { howHeard, tellApart } from "./words.js";

/** Links that are kept in the page. */
const MOST_LINKS = 100_000;
/** Of one thing, in its details; and those that are drawn. */
const MOST_LISTED = 200;
const MOST_DRAWN = 3000;
const HOUR = 3_600_000;
const SPANS = { __proto__: null, day: 24 * HOUR, week: 7 * 24 * HOUR, all: 0 };
const ANEW_MS = 300_000;
/** Pixels of a column of the matrix, and of the names before it. */
const COLUMN = 64;
const INKS = ["companion", "repeater", "room", "sensor", "quiet", "text", "line", "accent", "surface", "good", "warn", "bad"];

export class View {
  #shell;
  #ends;
  #ground;
  #typed = 0;
  #frame = 0;
  #timer;
  #gateways = new Map();
  /** By key: `{key, name, digits?, kind, lat, lon, heard: [link]}`. */
  #nodes = new Map();
  #isLoaded = false;
  #isLoading = false;
  #isCutShort = false;
  #trouble = null;
  #loadedSince = null;
  /** The message whose ways are drawn: its position, what the hub has of it, why it cannot be read, and its lines. */
  #ways = { position: null };
  #columns = [];
  #from = 0;
  #count = 0;

  constructor(shell) {
    this.#shell = shell;
    this.#build();
    this.#ends = [live.on("hello", () => { this.#load(); this.#readWaysAgain(); }), live.on("again", () => { if (this.#trouble) this.#load(); this.#readWaysAgain(); }), fleet.subscribe(() => this.#later())];
    this.#timer = setInterval(() => { if (!document.hidden) this.#load(); }, ANEW_MS);
    onKeys({
      "/": () => this.field.focus(), j: () => this.#step(1), k: () => this.#step(-1),
      Escape: () => { if (route.id) this.#shut(); else if (this.#ways.position) this.#leaveWays(); else return false; return true; },
    });
  }

  close() {
    clearInterval(this.#timer);
    clearTimeout(this.#typed);
    cancelAnimationFrame(this.#frame);
    for (const end of this.#ends) end();
    this.observer.disconnect();
    this.#ground.close();
    this.list.close();
    this.rows.close();
  }

  #build() {
    this.field = make("input", {
      type: "search", class: "field", placeholder: t("coverage.find"), "aria-label": t("coverage.find"), value: route.get("find") ?? "",
      on: { input: () => { clearTimeout(this.#typed); this.#typed = setTimeout(() => route.set({ find: this.field.value, from: undefined }), 120); } },
    });
    this.chips = make("div", { class: "chips", role: "group", "aria-label": t("fleet.show") });
    this.count = make("p", { class: "quiet small", role: "status" });
    this.empty = make("div", { class: "map-empty" });
    this.note = make("div", { class: "map-note" });
    this.side = make("div", { class: "map-list" });
    this.list = new Windowed(this.side, { estimate: 44, role: "list", label: t("coverage.list"), render: ({ node }) => this.#sideRow(node) });
    this.#ground = new Ground({
      label: t("coverage.map-label"), tiles: this.#shell.tiles, inks: INKS, extras: [legendOfCoverage(), this.empty, this.note],
      places: (isAll) => this.#places(isAll),
      paint: (paper, wide, tall) => this.#paint(paper, wide, tall), picked: (mark) => this.#picked(mark),
    });
    this.map = make("div", { class: "map" }, this.#ground.element, this.side);
    this.scroller = make("div", { class: "table-scroll", tabindex: 0, role: "group", "aria-label": t("coverage.matrix") });
    this.headings = make("div", { role: "row", class: "matrix-row headings" });
    this.table = make("div", { role: "table", "aria-label": t("coverage.matrix"), class: "table matrix" }, make("div", { role: "rowgroup", class: "table-head" }, this.headings));
    this.scroller.append(this.table);
    this.rows = new Windowed(this.scroller, { estimate: 40, role: "rowgroup", render: ({ node }, index) => this.#matrixRow(node, index) });
    this.table.append(this.rows.inside);
    this.pager = make("div", { class: "row matrix-pager", hidden: true });
    fill(this.#shell.main, make("header", { class: "view-head" }, make("h1", { text: t("hub.coverage") }), this.count),
      make("div", { class: "filters" }, make("div", { class: "list-search" }, icon("search"), this.field), this.chips), this.pager, this.scroller, this.map);
    this.observer = new ResizeObserver(() => this.#later());
    this.observer.observe(this.scroller);
    this.#ground.begin();
  }

  get #isMatrix() { return route.get("show") === "matrix"; }
  get #span() { return SPANS[route.get("span")] === undefined ? "week" : route.get("span"); }

  update() {
    if (document.activeElement !== this.field) this.field.value = route.get("find") ?? "";
    if (this.#loadedSince !== this.#span) this.#load();
    this.#readWays();
    this.#draw();
    this.#showDetails();
  }

  /** What comes at once is drawn once. */
  #later() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => { this.#frame = 0; this.#draw(); this.#showDetails(); });
  }

  // MARK: Reading

  async #load() {
    if (this.#isLoading) return;
    this.#isLoading = true;
    const span = this.#span;
    const since = SPANS[span] ? now() - SPANS[span] : undefined;
    try {
      const [gateways, nodes] = [new Map(), new Map()];
      let [count, after] = [0, undefined];
      do {
        const page = await ask(query("/v1/coverage", { after, limit: 1000, since }));
        for (const one of page.gateways ?? []) if (!gateways.has(one.gateway)) gateways.set(one.gateway, { ...one, heard: [] });
        for (const link of page.links) {
          if (!gateways.has(link.gateway)) gateways.set(link.gateway, { gateway: link.gateway, name: link.gateway, heard: [] });
          gateways.get(link.gateway).heard.push(link);
          let node = nodes.get(link.node);
          if (!node) nodes.set(link.node, node = { key: link.node, name: "", kind: "none", at: 0, heard: [] });
          node.heard.push(link);
          // What was said last holds.
          if (link.at >= node.at) {
            node.at = link.at;
            node.name = link.name || node.name;
            if (link.kind) node.kind = link.kind;
            if (hasPlace(link)) [node.lat, node.lon] = [link.lat, link.lon];
          }
          count += 1;
        }
        after = page.next;
        if (!this.#isLoaded) this.count.textContent = t("coverage.loading", { count: number(count) });
      } while (after && count < MOST_LINKS && this.map.isConnected);
      tellApart(nodes.values());
      [this.#gateways, this.#nodes, this.#count, this.#isCutShort] = [gateways, nodes, count, Boolean(after)];
      [this.#isLoaded, this.#trouble, this.#loadedSince] = [true, null, span];
    } catch (trouble) {
      this.#trouble = trouble;
    } finally {
      this.#isLoading = false;
    }
    if (!this.map.isConnected) return;
    // Another span was chosen meanwhile.
    if (span !== this.#span) { this.#load(); return; }
    this.#stale = true;
    this.#draw();
    this.#showDetails();
  }

  #stale = true;
  #filtered = { version: null, gateways: [], nodes: [] };

  /** What fits the words: gateways' names narrow the columns, nodes' names the rows. Words that fit neither fit nothing. */
  #filter() {
    const words = (route.get("find") ?? "").trim().toLocaleLowerCase();
    if (!this.#stale && this.#filtered.version === words) return this.#filtered;
    this.#stale = false;
    const gateways = [...this.#gateways.values()].sort((a, b) => b.heard.length - a.heard.length || (a.gateway < b.gateway ? -1 : 1));
    const nodes = [...this.#nodes.values()].sort((a, b) => b.heard.length - a.heard.length || b.at - a.at);
    if (!words) return (this.#filtered = { version: words, gateways, nodes });
    const some = gateways.filter((one) => `${one.gateway}\n${one.name}`.toLocaleLowerCase().includes(words));
    const those = nodes.filter((one) => `${one.name}\n${one.key}`.toLocaleLowerCase().includes(words));
    const heardBy = new Set(some.map((one) => one.gateway));
    if (some.length && !those.length) return (this.#filtered = { version: words, gateways: some, nodes: nodes.filter((one) => one.heard.some((link) => heardBy.has(link.gateway))) });
    return (this.#filtered = { version: words, gateways: some.length ? some : those.length ? gateways : [], nodes: those });
  }

  get #gatewaysShown() { return this.#filter().gateways; }
  get #nodesShown() { return this.#filter().nodes; }

  // MARK: Drawing

  #draw() {
    const isMatrix = this.#isMatrix;
    this.scroller.hidden = !isMatrix;
    this.map.hidden = isMatrix;
    this.#drawChips();
    const words = this.#isLoaded && !this.#trouble ? [t("coverage.count", { count: this.#count, nodes: number(this.#nodes.size), gateways: number(this.#gateways.size) }), this.#isCutShort ? t("coverage.cut") : ""].filter(Boolean).join(" ") : this.#trouble?.message ?? this.count.textContent;
    if (this.count.textContent !== words) this.count.textContent = words;
    this.scroller.querySelector(".empty:not([role])")?.remove();
    showTrouble(isMatrix ? this.scroller : this.empty, this.#isLoaded ? null : this.#trouble, () => this.#load());
    const isEmpty = this.#isLoaded && (isMatrix ? !this.#nodesShown.length : ![...this.#gatewaysShown, ...this.#nodesShown].some(hasPlace));
    const empty = () => make("div", { class: "empty" }, make("h2", { text: t(this.#nodes.size ? (route.get("find") ? "fleet.no-match" : "coverage.no-place") : "coverage.none") }), make("p", { class: "quiet", text: t(this.#nodes.size ? (route.get("find") ? "coverage.no-match-why" : "coverage.no-place-why") : "coverage.none-why") }));
    if (this.#isLoaded) fill(this.empty, isEmpty && !isMatrix ? empty() : null);
    if (isMatrix) { this.#drawMatrix(); if (isEmpty) this.scroller.append(empty()); }
    else {
      this.pager.hidden = true;
      this.#drawWays();
      // The first sight is of the ways, once they are known.
      if (!this.#ways.position || this.#ways.drawn || this.#ways.trouble) this.#ground.fit();
      this.#ground.draw();
    }
  }

  #drawChips() {
    const version = `${this.#isMatrix} ${this.#span}`;
    if (this.chips.dataset.version === version) return;
    this.chips.dataset.version = version;
    const held = [...this.chips.children].indexOf(document.activeElement);
    const chip = (words, isPressed, values) => make("button", { type: "button", class: "chip", "aria-pressed": String(isPressed), text: words, on: { click: () => route.set(values, { replace: false }) } });
    fill(this.chips, chip(t("coverage.matrix"), this.#isMatrix, { show: this.#isMatrix ? undefined : "matrix", from: undefined }),
      Object.keys(SPANS).map((span) => chip(t(`coverage.span-${span}`), this.#span === span, { span: span === "week" ? undefined : span })));
    this.chips.children[held]?.focus();
  }

  // MARK: Matrix

  #drawMatrix() {
    const { gateways, nodes } = this.#filter();
    const narrow = this.scroller.clientWidth < 560;
    const column = narrow ? 60 : COLUMN;
    const room = Math.max(1, Math.floor((this.scroller.clientWidth - (narrow ? 144 : 244)) / column));
    const from = Math.max(0, Math.min(gateways.length - 1, Math.floor(Number(route.get("from")) || 0)));
    this.#columns = gateways.slice(from, from + room);
    this.#from = from;
    const template = `${narrow ? 120 : 220}px repeat(${this.#columns.length}, ${column}px)`;
    this.table.style.setProperty("--columns", template);
    this.table.setAttribute("aria-colcount", String(gateways.length + 1));
    this.table.setAttribute("aria-rowcount", String(nodes.length + 1));
    const version = this.#columns.map((one) => `${one.gateway} ${gatewayName(one.gateway)}`).join(" ") + from + location.search;
    if (this.headings.dataset.version !== version) {
      this.headings.dataset.version = version;
      refill(this.headings, make("span", { role: "columnheader", class: "cell quiet small", text: t("coverage.node") }),
        this.#columns.map((one, index) => make("span", { role: "columnheader", class: "cell matrix-gateway", "aria-colindex": from + index + 2 },
          make("a", { href: `/coverage/${encodeURIComponent(one.gateway)}${location.search}`, title: cut(one.gateway, 64) }, named(gatewayName(one.gateway))))));
    }
    this.rows.set(nodes.map((node) => ({ key: node.key, node, version: `${version} ${node.digits} ${node.at} ${node.heard.length} ${this.#loadedSince} ${node.key === route.id}` })));
    this.pager.hidden = gateways.length <= room;
    const pager = `${from} ${room} ${gateways.length}`;
    if (this.pager.hidden || this.pager.dataset.version === pager) return;
    this.pager.dataset.version = pager;
    const turn = (name, to, isThere) => make("button", { type: "button", class: "button small", disabled: !isThere, text: t(name), on: { click: () => route.set({ from: to || undefined }) } });
    refill(this.pager, turn("coverage.before", Math.max(0, from - room), from > 0),
      make("span", { class: "quiet small", text: t("coverage.columns", { first: number(from + 1), last: number(Math.min(gateways.length, from + room)), count: gateways.length }) }),
      turn("coverage.after", from + room, from + room < gateways.length));
  }

  #matrixRow(node, index) {
    const by = new Map(node.heard.map((link) => [link.gateway, link]));
    const from = this.#from;
    const cells = [];
    // What was not heard holds no element: a large matrix is mostly empty.
    this.#columns.forEach((one, column) => {
      const link = by.get(one.gateway);
      if (!link) return;
      const cell = make("span", { role: "cell", class: `cell matrix-cell heard-${strength(link)}`, "aria-colindex": from + column + 2, title: `${cut(gatewayName(one.gateway), 32)}: ${howHeard(link) || t("coverage.heard")}`,
        text: typeof link.snr === "number" ? number(link.snr) : link.hops === 0 ? t("coverage.direct") : typeof link.hops === "number" ? t("coverage.hops-brief", { count: link.hops }) : "•" });
      cell.style.gridColumn = String(column + 2);
      cells.push(cell);
    });
    return make("div", { role: "row", class: `matrix-row ${node.key === route.id ? "chosen" : ""}`, "aria-rowindex": index + 2 },
      make("span", { role: "rowheader", class: "cell name", "aria-colindex": 1 }, kindMark(node.kind, true), make("a", { class: "node-link", href: `/coverage/${encodeURIComponent(node.key)}${location.search}` }, named(node.name || node.key.slice(0, 12)), node.digits ? make("span", { class: "quiet small", text: node.digits }) : null)), cells);
  }

  // MARK: Map

  // MARK: Ways of a message

  async #readWays(isAgain = false) {
    const position = route.get("message");
    if (position === this.#ways.position && !isAgain) return;
    const ways = { position, trouble: isAgain ? this.#ways.trouble : null };
    this.#ways = ways;
    if (!position) return;
    try {
      ways.row = await ask(`/v1/messages/${encodeURIComponent(position)}`);
      ways.trouble = null;
    } catch (trouble) { [ways.trouble, ways.isRefused] = trouble.status === 404 ? [t("messages.gone"), false] : [trouble.message, true]; }
    if (this.#ways === ways && this.note.isConnected) this.#later();
  }

  /** What could not be read. */
  #readWaysAgain() {
    if (this.#ways.isRefused) this.#readWays(true);
  }

  /** Those of all gateways that heard it, each to its own place. */
  #drawWays() {
    const ways = this.#ways;
    if (ways.row && this.#isLoaded && ways.version !== this.#count) {
      ways.version = this.#count;
      const keys = [...this.#nodes.keys()].sort();
      const placeOf = (key) => onlyPlace(this.#nodes, keys, key);
      const isOnly = (hash) => !keys[first(keys, hash) + 1]?.startsWith(hash);
      ways.drawn = { lines: [], unplaced: 0 };
      let drawn;
      for (const one of ways.row.ways ?? []) ways.drawn = drawn = lines(one, { placeOf, isOnly, begin: null, end: placed(this.#gateways.get(one.gateway)) }, drawn);
    }
    const version = JSON.stringify([ways.position, ways.drawn?.lines.length, ways.trouble]);
    if (this.note.dataset.version === version) return;
    this.note.dataset.version = version;
    refill(this.note, ways.position ? waysNote(ways.drawn, { shut: () => this.#leaveWays(), trouble: ways.trouble, text: cut(ways.row?.body.text ?? "", 80) }) : null);
  }

  #leaveWays() { route.back(route.with({ message: undefined })); }

  /** The first sight is of what is chosen and of what it hears, or who hears it; or of the ways of a message. */
  #places(isAll) {
    const drawn = isAll ? [] : (this.#ways.drawn?.lines ?? []).flatMap((one) => [one.from, one.to]);
    if (drawn.length) return drawn;
    const chosen = isAll ? null : this.#gateways.get(route.id) ?? this.#nodes.get(route.id);
    const around = chosen && hasPlace(chosen) ? [chosen, ...chosen.heard.map((link) => (chosen.key ? this.#gateways.get(link.gateway) : this.#nodes.get(link.node)))].filter(hasPlace) : [];
    return around.length > 1 ? around : [...this.#gatewaysShown, ...this.#nodesShown].filter(hasPlace);
  }

  #picked(mark) {
    if (!mark) { if (route.id) this.#shut(); return; }
    openMark(this.#ground, mark, { open: (one) => this.#choose(idOf(one)), nameOf });
  }

  #choose(id) { route.go(`/coverage/${encodeURIComponent(id)}${location.search}`, { replace: Boolean(route.id) }); }
  #shut() { route.go(`/coverage${location.search}`); }

  #step(by) {
    const ids = this.#nodesShown.map((one) => one.key);
    const next = ids[Math.max(0, Math.min(ids.length - 1, ids.indexOf(route.id) + by))];
    if (!next) return;
    this.#choose(next);
    (this.#isMatrix ? this.rows : this.list).show(next);
  }

  #paint(paper, wide, tall) {
    const ground = this.#ground;
    const nodes = ground.inSight(this.#nodesShown.filter(hasPlace), wide, tall);
    const own = clusters(ground.inSight(this.#gatewaysShown.filter(hasPlace), wide, tall));
    // Under the mark of many gateways the number of nodes could not be read.
    const marks = clusters(nodes).filter((mark) => {
      const over = own.find((one) => one.items.length > 1 && Math.hypot(one.x - mark.x, one.y - mark.y) < 24);
      over?.items.push(...mark.items);
      return !over;
    });
    ground.marks = [...own, ...marks];
    const xy = placesOf(ground);
    this.#paintLinks(paper, xy);
    if (this.#ways.drawn) paintLines(paper, { inks: ground.inks, xy }, this.#ways.drawn.lines);
    const names = [];
    const chosen = (mark) => mark.items.some((one) => idOf(one) === route.id);
    for (const mark of marks) {
      if (mark.items.length > 1) paintMany(paper, ground, mark, { ink: "quiet", isChosen: chosen(mark) });
      else {
        paintNode(paper, ground, mark, mark.items[0], chosen(mark));
        ground.name(paper, nameOf(mark.items[0]), mark, names, chosen(mark), mark);
      }
    }
    for (const mark of own) {
      if (mark.items.length > 1) paintMany(paper, ground, mark, { ink: "accent", isChosen: chosen(mark), name: "down" });
      else {
        paintGateway(paper, ground, mark, chosen(mark));
        ground.name(paper, nameOf(mark.items[0]), mark, names, chosen(mark), mark);
      }
    }
    const listed = nodes.map((one) => one.item);
    this.list.set(listed.map((node) => ({ key: node.key, node, version: `${node.name}${node.digits} ${node.at} ${node.heard.length} ${route.id === node.key}` })));
  }

  /** Of what is chosen: the stronger the thicker, and what came over others as dashes. `xy(item)`: where its mark is. */
  #paintLinks(paper, xy) {
    const links = (this.#gateways.get(route.id) ?? this.#nodes.get(route.id))?.heard ?? [];
    const { inks } = this.#ground;
    for (const link of links.slice(0, MOST_DRAWN)) {
      const [from, to] = [this.#gateways.get(link.gateway), this.#nodes.get(link.node)];
      if (!from || !to || !hasPlace(from) || !hasPlace(to)) continue;
      const much = strength(link);
      paper.globalAlpha = 0.85;
      paper.strokeStyle = { strong: inks.good, fair: inks.warn, weak: inks.bad, far: inks.quiet }[much];
      paper.lineWidth = much === "strong" ? 3 : much === "fair" ? 2.25 : 1.5;
      paper.setLineDash(much === "far" ? [5, 5] : []);
      paper.beginPath();
      paper.moveTo(...xy(from));
      paper.lineTo(...xy(to));
      paper.stroke();
    }
    paper.setLineDash([]);
    paper.globalAlpha = 1;
  }

  #sideRow(node) {
    return make("div", { role: "listitem" }, make("button", { type: "button", class: "map-row", "aria-current": route.id === node.key ? "true" : null, on: { click: () => this.#choose(node.key) } },
      kindMark(node.kind, true), make("span", { class: "name" }, named(node.name || node.key.slice(0, 12)), node.digits ? make("span", { class: "quiet small", text: node.digits }) : null), make("span", { class: "quiet small", title: t("coverage.by", { count: node.heard.length }) }, make("span", { "aria-hidden": "true", text: number(node.heard.length) }), make("span", { class: "unseen", text: t("coverage.by", { count: node.heard.length }) }))));
  }

  // MARK: Details

  #detailsVersion = null;
  /** Of the one that is chosen: it stays where it was scrolled to. */
  #details = { id: null };

  #showDetails() {
    const id = route.id;
    if (!id) {
      this.#detailsVersion = null;
      this.#details = { id: null };
      this.#shell.showDetails(null);
      return;
    }
    const [gateway, node] = [this.#gateways.get(id), this.#nodes.get(id)];
    const version = `${id} ${this.#isLoaded} ${gateway?.heard.length} ${node?.heard.length} ${node?.at} ${this.#loadedSince}`;
    if (version === this.#detailsVersion) return;
    this.#detailsVersion = version;
    const row = gateway ? fleet.rows.get(id) : null;
    const links = [...(gateway ?? node)?.heard ?? []].sort((a, b) => (b.snr ?? -Infinity) - (a.snr ?? -Infinity) || (a.hops ?? 99) - (b.hops ?? 99) || b.at - a.at);
    if (this.#details.id !== id) this.#details = { id, inside: make("div", { class: "details-inside" }) };
    refill(this.#details.inside,
      make("div", { class: "details-head" }, make("h2", {}, named(gateway ? gatewayName(id) : seen(node?.name) || id.slice(0, 12))), iconButton("close", t("close"), () => this.#shut())),
      !this.#isLoaded ? make("p", { class: "quiet", text: t("loading") }) : !gateway && !node ? make("p", { class: "quiet", text: t("coverage.unknown") }) : [
        gateway ? make("p", { class: "row wrap" }, row ? contactMark(row) : null, make("a", { class: "button", href: `/fleet/${encodeURIComponent(id)}`, text: t("coverage.to-gateway") })) : make("p", {}, kindMark(node.kind)),
        node ? make("code", { class: "small break", text: cut(id, 64) }) : null,
        hasPlace(gateway ?? node) ? null : make("p", { class: "quiet small", text: t("coverage.placeless") }),
        make("h3", { text: gateway ? t("coverage.hears", { count: links.length }) : t("coverage.by", { count: links.length }) }),
        make("ul", { class: "lines" }, links.slice(0, MOST_LISTED).map((link) => make("li", {},
          make("a", { href: `/coverage/${encodeURIComponent(gateway ? link.node : link.gateway)}${location.search}` }, named(gateway ? seen(this.#nodes.get(link.node)?.name) || link.node.slice(0, 12) : gatewayName(link.gateway))),
          make("span", { class: "quiet small" }, howHeard(link), " ", when(link.at))))),
        links.length > MOST_LISTED ? make("p", { class: "quiet small", text: t("seen.more", { count: links.length - MOST_LISTED }) }) : null,
        links.length > MOST_DRAWN ? make("p", { class: "quiet small", text: t("coverage.undrawn", { count: links.length - MOST_DRAWN }) }) : null,
      ]);
    this.#shell.showDetails(this.#details.inside, () => this.#shut());
  }
}

/** 0, 0 is the sea. */
function hasPlace(one) { return Boolean(one?.lat || one?.lon) && Math.abs(one.lat) <= 90; }

function placed(one) { return hasPlace(one) ? one : null; }

/** The place of the first key that is not before this one. `keys`: in order. */
function first(keys, beginning) {
  let [low, high] = [0, keys.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (keys[middle] < beginning) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Where the only node is whose key begins so. */
function onlyPlace(nodes, keys, beginning) {
  const low = first(keys, beginning);
  if (!beginning || !keys[low]?.startsWith(beginning) || keys[low + 1]?.startsWith(beginning)) return null;
  return placed(nodes.get(keys[low]));
}

function idOf(item) { return item.gateway ?? item.key; }

function nameOf(item) { return cut(item.gateway ? gatewayName(item.gateway) : (item.name || item.key.slice(0, 8)) + (item.digits ?? ""), 64); }

/** In words of the style: LoRa is heard down to about −20 dB. What came over others is far, however well its last step was heard. */
function strength({ snr, hops }) {
  if (hops || hops === undefined && typeof snr !== "number") return "far";
  return typeof snr !== "number" || snr >= 0 ? "strong" : snr >= -10 ? "fair" : "weak";
}

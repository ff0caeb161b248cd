// The fleet: who is there, who is not, and who needs somebody. The table is the page; a map shows the same.
import { coded, fill, icon, make, showTrouble } from "../parts/page.js";
import { number, volts } from "../parts/numbers.js";
import { when } from "../parts/times.js";
import { cut, line, named } from "../parts/text.js";
import { has, t } from "../parts/words.js";
import { Windowed } from "../parts/windowed.js";
import { onKeys } from "../shell/keys.js";
import { route } from "../shell/route.js";
import { styled } from "../shell/styled.js";
import { contactMark } from "./contact.js";
import { contact, fleet, gatewayName, isWanting, live, needs } from "./live.js";

const COLUMNS = [
  { name: "gateway", of: (row) => gatewayName(row.gateway).toLocaleLowerCase(), isFirstUp: true },
  { name: "contact", of: (row) => (row.linked ? Infinity : row.last_seen) },
  { name: "radio", of: (row) => (row.radio ?? "").toLocaleLowerCase(), isFirstUp: true },
  { name: "battery", of: (row) => row.battery_mv ?? 1e9, isFirstUp: true },
  { name: "waiting", of: (row) => row.pending ?? -1 },
  { name: "nodes", of: (row) => row.nodes ?? 0 },
  { name: "message", of: (row) => row.last_message?.at ?? 0 },
  { name: "version", of: (row) => row.version ?? "", isFirstUp: true },
];

export class View {
  #shell;
  #ends;
  #typed = 0;
  #frame = 0;
  #map = null;
  #details = null;
  #shown = [];
  /** The day's lines and what has changed: they come behind the table. */
  #more = null;

  constructor(shell) {
    this.#shell = shell;
    this.#build();
    this.#ends = [fleet.subscribe(() => this.#later()), live.on("hello", () => this.#more?.load()), live.on("alert", () => this.#more?.load())];
    onKeys({
      "/": () => this.field.focus(), j: () => this.#step(1), k: () => this.#step(-1),
      Escape: () => { if (!route.id) return false; this.#shut(); return true; },
    });
  }

  async #need() {
    if (this.#more) return;
    this.#more = { day: () => null, update: () => {}, load: () => {} };
    const { FleetMore } = await styled("hub", import("./fleet-more.js"));
    this.#more = new FleetMore(this.news, () => this.#later(), () => this.scroller.focus());
    this.#more.load();
    this.#later();
  }

  close() {
    for (const end of this.#ends) end();
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#typed);
    this.list.close();
    this.#map?.close();
    this.#details?.close();
  }

  #build() {
    this.field = make("input", {
      type: "search", class: "field", placeholder: t("fleet.find"), "aria-label": t("fleet.find"), value: route.get("find") ?? "",
      on: { input: () => { clearTimeout(this.#typed); this.#typed = setTimeout(() => route.set({ find: this.field.value }), 120); } },
    });
    this.stats = make("ul", { class: "stats" });
    this.news = make("section", { class: "news", hidden: true });
    this.chips = make("div", { class: "chips", role: "group", "aria-label": t("fleet.show") });
    this.count = make("p", { class: "quiet small", role: "status" });
    this.headings = make("div", { role: "row", class: "fleet-row headings" }, COLUMNS.map(({ name }) => make("span", { role: "columnheader", class: `cell ${name}`, data: { column: name } },
      make("button", { type: "button", class: "sort", text: t(`fleet.${name}`), on: { click: () => this.#sort(name) } }))));
    this.scroller = make("div", { class: "table-scroll fleet-scroll", tabindex: 0, role: "group", "aria-label": t("hub.fleet") });
    this.table = make("div", { role: "table", "aria-label": t("hub.fleet"), class: "table" }, make("div", { role: "rowgroup", class: "table-head" }, this.headings));
    this.scroller.append(this.table);
    this.list = new Windowed(this.scroller, { estimate: 52, role: "rowgroup", render: (item, index) => this.#row(item.row, index) });
    this.table.append(this.list.inside);
    this.mapPlace = make("div", { class: "hub-map", hidden: true });
    fill(this.#shell.main, make("header", { class: "view-head" }, make("h1", { text: t("hub.fleet") }), this.count), this.stats, this.news,
      make("div", { class: "filters" }, make("div", { class: "list-search" }, icon("search"), this.field), this.chips), this.scroller, this.mapPlace);
  }

  #sort(name) {
    const first = COLUMNS.find((one) => one.name === name).isFirstUp;
    const isSame = route.get("by") === name;
    route.set({ by: name, order: isSame && route.get("order") === (first ? "up" : "down") ? (first ? "down" : "up") : (first ? "up" : "down") });
  }

  get #isMap() { return route.get("show") === "map"; }

  update() {
    if (document.activeElement !== this.field) this.field.value = route.get("find") ?? "";
    this.#draw();
    this.#showDetails();
  }

  /** Many gateways change at once: drawn once. */
  #later() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      if (!this.scroller.isConnected) return;
      this.#draw();
      this.#showDetails();
    });
  }

  /** Without a chosen order, what needs a person most is on top. */
  #chosen() {
    const wanted = (route.get("find") ?? "").trim().toLocaleLowerCase();
    const only = route.get("only");
    let found = [...fleet.rows.values()];
    if (only === "need") found = found.filter(isWanting);
    else if (only) found = found.filter((row) => contact(row) === only);
    if (wanted) found = found.filter((row) => `${row.gateway}\n${row.name ?? ""}\n${row.radio ?? ""}\n${(row.tags ?? []).join("\n")}\n${row.note ?? ""}\n${row.model ?? ""}\n${row.version ?? ""}`.toLocaleLowerCase().includes(wanted));
    const column = COLUMNS.find((one) => one.name === route.get("by"));
    const of = column?.of ?? ((row) => `${String(row.rank ?? 99).padStart(2, "0")}${gatewayName(row.gateway).toLocaleLowerCase()}`);
    const sign = column && route.get("order") === "down" ? -1 : 1;
    return found.map((row) => [of(row), row]).sort(([a, x], [b, y]) => (a < b ? -sign : a > b ? sign : x.gateway < y.gateway ? -1 : 1)).map(([, row]) => row);
  }

  #draw() {
    const by = route.get("by");
    for (const heading of this.headings.children) {
      if (heading.dataset.column === by) heading.setAttribute("aria-sort", route.get("order") === "down" ? "descending" : "ascending");
      else heading.removeAttribute("aria-sort");
    }
    this.#drawStats();
    this.#more?.update();
    this.scroller.querySelector(".empty:not([role])")?.remove();
    const isMap = this.#isMap && fleet.isLoaded;
    this.scroller.hidden = isMap;
    this.mapPlace.hidden = !isMap;
    const rows = this.#shown = this.#chosen();
    // A row's stamp changes with it, and its link leads to what is filtered now: times are told by themselves.
    if (!isMap) this.list.set(rows.map((row) => ({ key: row.gateway, version: `${row.stamp} ${row.gateway === route.id} ${location.search}`, row })));
    this.table.setAttribute("aria-rowcount", String(rows.length + 1));
    if (isMap) this.#drawMap();
    if (fleet.isLoaded) this.#need();
    showTrouble(this.scroller, fleet.isLoaded ? null : fleet.trouble, () => fleet.load());
    if (!fleet.isLoaded) {
      this.count.textContent = "";
      return;
    }
    const placed = isMap ? rows.filter((row) => row.position).length : rows.length;
    const counted = placed === rows.length ? t("fleet.count", { count: rows.length }) : t("fleet.count-placed", { shown: number(placed), count: rows.length });
    const words = [counted, fleet.wanting ? t("fleet.need", { count: fleet.wanting }) : ""].filter(Boolean).join(" · ");
    if (this.count.textContent !== words) this.count.textContent = words;
    if (!rows.length) this.scroller.append(make("div", { class: "empty" }, make("h2", { text: t(fleet.rows.size ? "fleet.no-match" : "fleet.none") }), make("p", { class: "quiet" }, coded(t(fleet.rows.size ? "fleet.no-match-why" : "fleet.none-why")))));
  }

  // MARK: Figures

  #drawStats() {
    let [linked, silent] = [0, 0];
    const need = fleet.wanting;
    for (const row of fleet.rows.values()) {
      const state = contact(row);
      if (state === "linked") linked += 1;
      else if (state === "silent") silent += 1;
    }
    const { alerts, messages_today: today } = fleet.summary ?? {};
    const figures = [
      { name: "linked", value: linked, href: "/fleet?only=linked" }, { name: "silent", value: silent, href: "/fleet?only=silent", isBad: silent > 0 },
      { name: "alerts", value: alerts, href: "/alerts", isBad: alerts > 0 }, { name: "messages", value: today, href: "/messages" },
    ].map((one) => ({ ...one, day: this.#more?.day(one.name) }));
    const version = JSON.stringify([figures.map((one) => [one.value, one.day]), need, route.get("only"), route.get("show"), fleet.isLoaded]);
    if (this.stats.dataset.version === version) return;
    this.stats.dataset.version = version;
    const focused = this.stats.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    fill(this.stats, figures.map(({ name, value, href, day, isBad }) => make("li", { class: `stat ${isBad ? "bad" : ""}` },
      make("a", { href, class: "stat-link" }, make("span", { class: "quiet small", text: t(`fleet.stat-${name}`) }), make("strong", { text: fleet.isLoaded && value !== undefined ? number(value) : "–" })),
      day ? this.#more.line(day, t(`fleet.stat-${name}`)) : null)));
    if (focused) this.stats.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
    const only = route.get("only");
    const chip = (words, isPressed, values) => make("button", { type: "button", class: "chip", "aria-pressed": String(isPressed), data: { chip: JSON.stringify(values) }, on: { click: () => route.set(values, { replace: false }) } }, words);
    const held = this.chips.contains(document.activeElement) ? [...this.chips.children].indexOf(document.activeElement) : -1;
    fill(this.chips,
      ["need", "silent", "linked"].map((name) => chip([t(`fleet.stat-${name}`), name === "need" && need ? make("span", { class: "quiet", text: number(need) }) : null], only === name, { only: only === name ? undefined : name })),
      chip([icon("map"), t("fleet.map")], this.#isMap, { show: this.#isMap ? undefined : "map", at: undefined }));
    this.chips.children[held]?.focus();
  }

  // MARK: Rows

  #row(row, index) {
    const found = needs(row);
    const cell = (name, ...content) => make("span", { role: "cell", class: `cell ${name}` }, content);
    return make("div", { role: "row", class: `fleet-row ${row.gateway === route.id ? "chosen" : ""}`, "aria-rowindex": index + 2 },
      cell("gateway", make("span", { class: "fleet-name" }, make("a", { class: "node-link", href: `/fleet/${encodeURIComponent(row.gateway)}${location.search}`, "aria-current": row.gateway === route.id ? "true" : null }, named(gatewayName(row.gateway))),
        (row.tags ?? []).slice(0, 4).map((tag) => make("span", { class: "tag" }, line(tag, 16)))),
      isWanting(row) ? make("span", { class: "needs bad-words small", text: [...found.map((one) => t(`need.${one}`)), row.alerts ? t("alerts.open-count", { count: row.alerts }) : ""].filter(Boolean).join(", ") }) : null),
      cell("contact", contactMark(row)),
      cell("radio", row.radio ? named(row.radio) : null, row.radio_state && row.radio_state !== "up" ? [" ", make("span", { class: "quiet small", text: has(`state.${row.radio_state}`) ? t(`state.${row.radio_state}`) : row.radio_state })] : null),
      cell("battery", row.battery_mv ? volts(row.battery_mv) : ""),
      cell("waiting", row.pending ? `${number(row.pending)}+` : ""),
      cell("nodes", row.nodes === undefined ? "–" : number(row.nodes)),
      cell("message", row.last_message ? [when(row.last_message.at), " ", line(row.last_message.text ?? "", 60)] : ""),
      cell("version", make("span", { class: "small", text: cut(row.version ?? "", 24) })));
  }

  #step(by) {
    const rows = this.#shown;
    const at = rows.findIndex((row) => row.gateway === route.id);
    const next = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
    if (!next) return;
    this.#open(next);
    if (!this.#isMap) this.list.show(next.gateway, "nearest");
  }

  #shut() { route.go(`/fleet${location.search}`); }

  async #drawMap() {
    if (this.#map) { this.#map.draw(this.#shown); return; }
    const { FleetMap } = await styled("hub", styled("map", import("./fleet-map.js")));
    if (this.#map || !this.mapPlace.isConnected) return;
    this.#map = new FleetMap(this.mapPlace, this.#shell.tiles, { open: (row) => this.#open(row), shut: () => { if (route.id) this.#shut(); } });
    this.#map.draw(this.#shown);
  }

  #open(row) { route.go(`/fleet/${encodeURIComponent(row.gateway)}${location.search}`, { replace: Boolean(route.id) }); }

  // MARK: Details

  async #showDetails() {
    const id = route.id;
    if (!id) {
      this.#details?.close();
      this.#details = null;
      this.#shell.showDetails(null);
      return;
    }
    if (this.#details?.gateway !== id) {
      const { GatewayDetails } = await styled("hub", import("./gateway.js"));
      if (route.view !== "fleet" || route.id !== id || this.#details?.gateway === id) return;
      this.#details?.close();
      this.#details = new GatewayDetails(id, this.#shell, () => this.#shut());
    }
    this.#details.update();
    this.#shell.showDetails(this.#details.element, () => this.#shut());
  }
}

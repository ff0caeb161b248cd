// The fleet: who is there, who is not, and who needs somebody. The table is the page.
import { fill, icon, iconButton, make } from "../parts/page.js";
import { number, volts, when } from "../parts/numbers.js";
import { line, named } from "../parts/text.js";
import { t } from "../parts/words.js";
import { Windowed } from "../parts/windowed.js";
import { onKeys } from "../shell/keys.js";
import { route } from "../shell/route.js";
import { contact, fleet, needs } from "./live.js";

const COLUMNS = [
  { name: "gateway", of: (row) => row.gateway.toLocaleLowerCase(), isFirstUp: true },
  { name: "contact", of: (row) => (row.linked ? Infinity : row.last_seen) },
  { name: "radio", of: (row) => (row.radio ?? "").toLocaleLowerCase(), isFirstUp: true },
  { name: "battery", of: (row) => row.battery_mv ?? 1e9, isFirstUp: true },
  { name: "nodes", of: (row) => row.nodes ?? 0 },
  { name: "message", of: (row) => row.last_message?.at ?? 0 },
  { name: "version", of: (row) => row.version ?? "", isFirstUp: true },
];

const HOUR = 3_600_000;

/** A state in a sign, a colour and a word. */
function contactMark(row) {
  const state = contact(row);
  return make("span", { class: "contact" }, make("span", { class: `dot ${state === "linked" ? "up" : state === "quiet" ? "connecting" : "down"}`, "aria-hidden": "true" }),
    make("span", {}, state === "linked" ? t("fleet.linked") : [t("fleet.seen"), " ", when(row.last_seen)]));
}

export class View {
  #shell;
  #ends;
  #typed = 0;

  constructor(shell) {
    this.#shell = shell;
    this.#build();
    this.#ends = [fleet.subscribe(() => this.#draw())];
    onKeys({
      "/": () => this.field.focus(), j: () => this.#step(1), k: () => this.#step(-1),
      Escape: () => { if (!route.id) return false; this.#shut(); return true; },
    });
  }

  close() {
    for (const end of this.#ends) end();
    this.list.close();
  }

  #build() {
    this.field = make("input", {
      type: "search", class: "field", placeholder: t("fleet.find"), "aria-label": t("fleet.find"), value: route.get("find") ?? "",
      on: { input: () => { clearTimeout(this.#typed); this.#typed = setTimeout(() => route.set({ find: this.field.value }), 120); } },
    });
    this.stats = make("ul", { class: "stats" });
    this.chips = make("div", { class: "chips", role: "group", "aria-label": t("fleet.show") });
    this.count = make("p", { class: "quiet small", role: "status" });
    this.headings = make("div", { role: "row", class: "fleet-row headings" }, COLUMNS.map(({ name }) => make("span", { role: "columnheader", class: `cell ${name}`, data: { column: name } },
      make("button", { type: "button", class: "sort", text: t(`fleet.${name}`), on: { click: () => this.#sort(name) } }))));
    this.scroller = make("div", { class: "table-scroll", tabindex: 0, role: "group", "aria-label": t("hub.fleet") });
    this.table = make("div", { role: "table", "aria-label": t("hub.fleet"), class: "table" }, make("div", { role: "rowgroup", class: "table-head" }, this.headings));
    this.scroller.append(this.table);
    this.list = new Windowed(this.scroller, { estimate: 52, role: "rowgroup", render: (item) => this.#row(item.row) });
    this.table.append(this.list.inside);
    fill(this.#shell.main, make("header", { class: "view-head" }, make("h1", { text: t("hub.fleet") }), this.count), this.stats,
      make("div", { class: "filters" }, make("div", { class: "list-search" }, icon("search"), this.field), this.chips), this.scroller);
  }

  #sort(name) {
    const first = COLUMNS.find((one) => one.name === name).isFirstUp;
    const isSame = route.get("by") === name;
    route.set({ by: name, order: isSame && route.get("order") === (first ? "up" : "down") ? (first ? "down" : "up") : (first ? "up" : "down") });
  }

  update() {
    if (document.activeElement !== this.field) this.field.value = route.get("find") ?? "";
    this.#draw();
    this.#showDetails();
  }

  /** Without a chosen order, what needs a person is on top. */
  #chosen() {
    const wanted = (route.get("find") ?? "").trim().toLocaleLowerCase();
    const only = route.get("only");
    let found = [...fleet.rows.values()];
    if (only === "need") found = found.filter((row) => needs(row).length);
    else if (only) found = found.filter((row) => contact(row) === only);
    if (wanted) found = found.filter((row) => `${row.gateway}\n${row.name ?? ""}\n${row.radio ?? ""}\n${(row.tags ?? []).join("\n")}\n${row.note ?? ""}\n${row.model ?? ""}\n${row.version ?? ""}`.toLocaleLowerCase().includes(wanted));
    const column = COLUMNS.find((one) => one.name === route.get("by"));
    const of = column?.of ?? ((row) => `${needs(row).length ? 0 : 1}${row.gateway.toLocaleLowerCase()}`);
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
    this.scroller.querySelector(".empty")?.remove();
    const rows = this.#chosen();
    // A row's version is what it shows: times are told by themselves.
    this.list.set(rows.map((row) => ({ key: row.gateway, version: JSON.stringify(row) + contact(row) + (row.gateway === route.id), row })));
    this.table.setAttribute("aria-rowcount", String(rows.length + 1));
    if (!fleet.isLoaded) {
      this.count.textContent = "";
      if (fleet.trouble) this.scroller.append(make("div", { class: "empty", role: "alert" }, make("p", { text: fleet.trouble.message }), make("button", { type: "button", class: "button", text: t("again"), on: { click: () => fleet.load() } })));
      return;
    }
    this.count.textContent = t("fleet.count", { count: rows.length });
    if (!rows.length) this.scroller.append(make("div", { class: "empty" }, make("h2", { text: t(fleet.rows.size ? "fleet.no-match" : "fleet.none") }), make("p", { class: "quiet", text: t(fleet.rows.size ? "fleet.no-match-why" : "fleet.none-why") })));
  }

  #drawStats() {
    const rows = [...fleet.rows.values()];
    const count = (state) => rows.filter((row) => contact(row) === state).length;
    const values = [["", rows.length], ["linked", count("linked")], ["silent", count("silent")], ["need", rows.filter((row) => needs(row).length).length]];
    fill(this.stats, values.map(([name, value]) => make("li", { class: `stat ${(name === "silent" || name === "need") && value ? "bad" : ""}` },
      make("span", { class: "quiet small", text: t(`fleet.stat-${name || "all"}`) }), make("strong", { text: fleet.isLoaded ? number(value) : "–" }))));
    const only = route.get("only");
    fill(this.chips, ["need", "silent", "linked"].map((name) => make("button", {
      type: "button", class: "chip", "aria-pressed": String(only === name), text: t(`fleet.stat-${name}`),
      on: { click: () => route.set({ only: only === name ? undefined : name }, { replace: false }) },
    })));
  }

  #row(row) {
    const found = needs(row);
    const cell = (name, ...content) => make("span", { role: "cell", class: `cell ${name}` }, content);
    return make("div", { role: "row", class: `fleet-row ${row.gateway === route.id ? "chosen" : ""}` },
      cell("gateway", make("a", { class: "node-link", href: `/fleet/${encodeURIComponent(row.gateway)}${location.search}` }, named(row.gateway)),
        found.length ? make("span", { class: "needs bad-words small", text: found.map((one) => t(`need.${one}`)).join(", ") }) : null),
      cell("contact", contactMark(row)),
      cell("radio", row.radio ? named(row.radio) : null, row.radio_state && row.radio_state !== "up" ? make("span", { class: "quiet small", text: row.radio_state }) : null),
      cell("battery", row.battery_mv ? volts(row.battery_mv) : ""),
      cell("nodes", number(row.nodes ?? 0)),
      cell("message", row.last_message ? [when(row.last_message.at), " ", line(row.last_message.text ?? "", 60)] : ""),
      cell("version", make("span", { class: "small", text: row.version ?? "" })));
  }

  #step(by) {
    const rows = this.#chosen();
    const at = rows.findIndex((row) => row.gateway === route.id);
    const next = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
    if (!next) return;
    route.go(`/fleet/${encodeURIComponent(next.gateway)}${location.search}`, { replace: Boolean(route.id) });
    this.list.show(next.gateway, "nearest");
  }

  #shut() { route.go(`/fleet${location.search}`); }

  #showDetails() {
    const row = route.id ? fleet.rows.get(route.id) : null;
    if (!route.id) return this.#shell.showDetails(null);
    const fact = (name, value) => (value === undefined || value === null || value === "" ? null : [make("dt", { text: t(name) }), make("dd", {}, value)]);
    const found = row ? needs(row) : [];
    const content = make("div", { class: "details-inside" },
      make("div", { class: "details-head" }, make("h2", {}, named(route.id)), iconButton("close", t("close"), () => this.#shut())),
      row ? [
        found.length ? make("ul", { class: "plain" }, found.map((one) => make("li", { class: "bad-words", text: t(`need.${one}-why`) }))) : null,
        make("dl", { class: "facts" },
          fact("fleet.contact", contactMark(row)),
          fact("fleet.seen", when(row.last_seen)),
          fact("fleet.radio", row.radio ? named(row.radio) : null),
          fact("fleet.model", row.model), fact("fleet.link", row.link), fact("fleet.sync", row.sync),
          fact("fleet.note", row.note ? line(row.note, 300) : null), fact("fleet.tags", row.tags?.length ? row.tags.map((tag) => [line(tag, 32), " "]) : null),
          fact("fleet.battery", row.battery_mv ? volts(row.battery_mv) : null), fact("fleet.pending", row.pending),
          fact("fleet.position", row.position && (row.position.lat || row.position.lon) ? `${number(row.position.lat, 4)}, ${number(row.position.lon, 4)}` : null),
          fact("fleet.nodes", number(row.nodes ?? 0)), fact("fleet.today", row.messages_today === undefined ? null : number(row.messages_today)), fact("fleet.events", number(row.events ?? 0)), fact("fleet.version", row.version),
          fact("fleet.error", row.error ?? row.store_error), fact("fleet.key", row.radio_key ? make("code", { text: row.radio_key }) : null)),
        row.last_message ? make("div", { class: "plain" }, make("h3", { text: t("fleet.message") }), make("p", {}, row.last_message.sender_name ? [named(row.last_message.sender_name), ": "] : null, line(row.last_message.text ?? "", 300))) : null,
        make("div", { class: "row wrap" },
          make("a", { class: "button", href: `/messages?gateway=${encodeURIComponent(row.gateway)}`, text: t("fleet.its-messages") }),
          this.#shell.mayChange ? make("a", { class: "button", href: `/commands?gateway=${encodeURIComponent(row.gateway)}`, text: t("fleet.command") }) : null),
      ] : make("p", { class: "quiet", text: fleet.isLoaded ? t("fleet.unknown") : t("loading") }));
    this.#shell.showDetails(content, () => this.#shut());
  }
}

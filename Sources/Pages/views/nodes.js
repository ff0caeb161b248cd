// All nodes as a table, sorted and filtered as one types; one of them opened beside it.
import { fill, icon, make, showTrouble } from "../parts/page.js";
import { busy } from "../parts/held.js";
import { distance, kilometres } from "../parts/distance.js";
import { number, volts } from "../parts/numbers.js";
import { when } from "../parts/times.js";
import { named } from "../parts/text.js";
import { t } from "../parts/words.js";
import { kindMark, KINDS } from "../parts/kinds.js";
import { Windowed } from "../parts/windowed.js";
import { gateway } from "../stores/gateway.js";
import { nodeName, nodes, ownPosition } from "../stores/nodes.js";
import { onKeys } from "../shell/keys.js";
import { route, to } from "../shell/route.js";

export function away(node) {
  const own = ownPosition();
  return own && (node.lat || node.lon) ? distance(own, node) : null;
}

const COLUMNS = [
  { name: "name", of: (node) => nodeName(node).toLocaleLowerCase(), isFirstUp: true },
  { name: "heard", of: (node) => node.last_heard ?? 0 },
  { name: "hops", of: (node) => node.hops ?? 99, isFirstUp: true },
  { name: "distance", of: (node) => away(node) ?? 1e9, isFirstUp: true },
  { name: "battery", of: (node) => nodes.battery(node.key)?.mv ?? 0, isFirstUp: true },
];

async function add() {
  const { openAdding } = await import("./contact.js");
  openAdding();
}

export class View {
  #shell;
  #ends;
  #details = null;
  #typed = 0;

  constructor(shell) {
    this.#shell = shell;
    this.#build();
    this.#ends = [nodes.subscribe(() => this.#draw()), gateway.subscribe(() => this.#draw())];
    nodes.need();
    onKeys({
      "/": () => this.field.focus(), j: () => this.#step(1), k: () => this.#step(-1),
      Escape: () => { if (!route.id) return false; this.#shut(); return true; },
    });
  }

  close() {
    for (const end of this.#ends) end();
    clearTimeout(this.#typed);
    this.list.close();
    this.#details?.close();
  }

  #build() {
    this.field = make("input", {
      type: "search", class: "field", placeholder: t("nodes.search"), "aria-label": t("nodes.search"), value: route.get("find") ?? "",
      on: {
        input: () => { clearTimeout(this.#typed); this.#typed = setTimeout(() => route.set({ find: this.field.value }), 120); },
        keydown: (event) => { if (event.key === "Escape") { if (this.field.value) route.set({ find: undefined }); this.field.value = ""; this.field.blur(); event.stopPropagation(); } },
      },
    });
    this.chips = make("div", { class: "chips", role: "group", "aria-label": t("nodes.kinds") });
    this.count = make("p", { class: "quiet small", role: "status" });
    this.headings = make("div", { role: "row", class: "node-row headings" }, COLUMNS.map(({ name }) => make("span", { role: "columnheader", class: `cell ${name}`, data: { column: name } },
      make("button", { type: "button", class: "sort", text: t(`nodes.${name}`), on: { click: () => this.#sort(name) } }))));
    this.scroller = make("div", { class: "table-scroll", tabindex: 0, role: "group", "aria-label": t("nav.nodes") });
    this.table = make("div", { role: "table", "aria-label": t("nav.nodes"), class: "table" });
    this.table.append(make("div", { role: "rowgroup", class: "table-head" }, this.headings));
    this.scroller.append(this.table);
    this.list = new Windowed(this.scroller, { estimate: 48, role: "rowgroup", render: (item, index) => this.#row(item.node, index) });
    this.table.append(this.list.inside);
    fill(this.#shell.main, make("header", { class: "view-head" }, make("h1", { text: t("nav.nodes") }), this.count,
      make("button", { type: "button", class: "button", text: t("contact.new"), data: { does: "add" }, on: { click: (event) => busy(event.currentTarget, add) } })),
      make("div", { class: "filters" }, make("div", { class: "list-search" }, icon("search"), this.field), this.chips), this.scroller);
  }

  get #sorted() { return { by: route.get("by") ?? "heard", isDown: route.get("order") ? route.get("order") === "down" : undefined }; }

  #sort(name) {
    const { by, isDown } = this.#sorted;
    const first = !COLUMNS.find((one) => one.name === name).isFirstUp;
    const next = by === name ? !(isDown ?? first) : first;
    route.set({ by: name, order: next ? "down" : "up" });
  }

  update() {
    if (document.activeElement !== this.field) this.field.value = route.get("find") ?? "";
    this.#draw();
    this.#showDetails();
  }

  #chosen() {
    const wanted = (route.get("find") ?? "").trim().toLocaleLowerCase();
    const kind = route.get("kind");
    let found = nodes.list;
    if (kind) found = found.filter((node) => (KINDS.includes(node.type) ? node.type : "none") === kind);
    if (wanted) found = found.filter((node) => `${node.alias ?? ""}\n${node.name}\n${node.key}\n${(node.tags ?? []).join("\n")}\n${node.note ?? ""}`.toLocaleLowerCase().includes(wanted));
    const { by, isDown } = this.#sorted;
    const column = COLUMNS.find((one) => one.name === by) ?? COLUMNS[1];
    const sign = (isDown ?? !column.isFirstUp) ? -1 : 1;
    const keyed = found.map((node) => [column.of(node), node]);
    keyed.sort(([a, x], [b, y]) => (a < b ? -sign : a > b ? sign : x.key < y.key ? -1 : 1));
    return keyed.map(([, node]) => node);
  }

  #draw() {
    const { by, isDown } = this.#sorted;
    for (const heading of this.headings.children) {
      const column = COLUMNS.find((one) => one.name === heading.dataset.column);
      if (column.name === by) heading.setAttribute("aria-sort", (isDown ?? !column.isFirstUp) ? "descending" : "ascending");
      else heading.removeAttribute("aria-sort");
    }
    this.scroller.querySelector(".empty:not([role]), .table-shapes")?.remove();
    showTrouble(this.scroller, nodes.isLoaded ? null : nodes.trouble, () => nodes.load());
    if (!nodes.isLoaded) {
      this.list.set([]);
      if (!nodes.trouble) this.scroller.append(make("div", { class: "table-shapes", "aria-hidden": "true" }, Array.from({ length: 12 }, () => make("div", { class: "shape" }, make("i"), make("b"), make("u")))));
      return;
    }
    const shown = this.#shown = this.#chosen();
    const all = nodes.list;
    this.table.setAttribute("aria-rowcount", shown.length + 1);
    this.list.set(shown.map((node) => ({ key: node.key, node, version: this.#version(node) })));
    const words = shown.length === all.length ? t("nodes.count", { count: all.length }) : t("nodes.count-of", { shown: number(shown.length), count: all.length });
    if (this.count.textContent !== words) this.count.textContent = words;
    this.#drawChips(all);
    if (!shown.length) {
      this.scroller.append(make("div", { class: "empty" }, make("h2", { text: t(all.length ? "nodes.no-match" : "nodes.none") }), make("p", { class: "quiet", text: t(all.length ? "nodes.no-match-why" : "nodes.none-why") })));
    }
  }

  #shown = [];

  #drawChips(all) {
    const counts = {};
    for (const node of all) counts[KINDS.includes(node.type) ? node.type : "none"] = (counts[KINDS.includes(node.type) ? node.type : "none"] ?? 0) + 1;
    const version = JSON.stringify([counts, route.get("kind")]);
    if (this.chips.dataset.version === version) return;
    this.chips.dataset.version = version;
    const focused = document.activeElement?.dataset?.kind;
    fill(this.chips, [...KINDS, "none"].filter((kind) => counts[kind]).map((kind) => make("button", {
      type: "button", class: "chip", "aria-pressed": String(route.get("kind") === kind), data: { kind }, on: { click: () => route.set({ kind: route.get("kind") === kind ? undefined : kind }) },
    }, kindMark(kind), make("span", { class: "quiet", text: number(counts[kind]) }))));
    if (focused) this.chips.querySelector(`[data-kind="${focused}"]`)?.focus();
  }

  #version(node) {
    return [node.name, node.alias, nodes.digits(node), node.key === gateway.identity?.key, node.type, node.last_heard, node.hops, away(node), nodes.battery(node.key)?.mv, node.favourite, node.may_command, node.on_radio, route.id === node.key].join("\u0001");
  }

  #row(node, index) {
    const battery = nodes.battery(node.key);
    const far = away(node);
    return make("div", { role: "row", class: `node-row${route.id === node.key ? " chosen" : ""}`, "aria-rowindex": index + 2, data: { key: node.key } },
      make("span", { role: "cell", class: "cell name" }, kindMark(node.type, true),
        make("a", { href: to("nodes", node.key), on: { click: (event) => this.#opened(event, node.key) }, class: "node-link", "aria-current": route.id === node.key ? "true" : null }, named(nodeName(node))), nodes.digits(node) && make("span", { class: "quiet small", text: nodes.digits(node) }),
        // Another radio of this gateway may have heard the one that it has now.
        node.key === gateway.identity?.key ? make("span", { class: "quiet small", text: ` ${t("here")}` }) : null,
        node.favourite ? make("span", { class: "star", title: t("nodes.favourite") }, icon("star"), make("span", { class: "unseen", text: t("nodes.favourite") })) : null,
        node.may_command ? make("span", { class: "warn-words small", title: t("node.may-command-why"), text: ` ${t("node.may-command")}` }) : null,
        node.alias ? named(node.name, { class: "name quiet small" }) : null),
      make("span", { role: "cell", class: "cell heard" }, node.last_heard ? when(node.last_heard) : make("span", { class: "quiet none", text: "–" })),
      make("span", { role: "cell", class: "cell hops", text: node.hops === undefined ? t("nodes.flood") : node.hops === 0 ? t("nodes.neighbour") : t("message.hops", { count: node.hops }) }),
      make("span", { role: "cell", class: "cell distance" }, far === null ? make("span", { class: "quiet none", text: "–" }) : kilometres(far)),
      make("span", { role: "cell", class: "cell battery" }, battery ? volts(battery.mv) : make("span", { class: "quiet none", text: "–" })));
  }

  /** With the filter and the order as they are now. */
  #opened(event, key) {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    route.go(to("nodes", key) + location.search, { replace: Boolean(route.id) });
  }

  #step(by) {
    const at = this.#shown.findIndex((node) => node.key === route.id);
    const next = this.#shown[at < 0 ? 0 : Math.max(0, Math.min(this.#shown.length - 1, at + by))];
    if (!next) return;
    route.go(to("nodes", next.key) + location.search, { replace: at >= 0 });
    this.list.show(next.key)?.querySelector("a")?.focus({ preventScroll: true });
  }

  #shut() { route.go(`/nodes${location.search}`, { replace: true }); }

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
      if (route.view !== "nodes" || route.id !== key || this.#details?.key === key) return;
      this.#details?.close();
      this.#details = new NodeDetails(key, { shut: () => this.#shut() });
    }
    this.#shell.showDetails(this.#details.element, () => this.#shut());
  }
}

// Messages of all gateways, each once, the newest first; who heard one, and how well.
import { fill, icon, iconButton, make } from "../parts/page.js";
import { decibels, when } from "../parts/numbers.js";
import { named, written } from "../parts/text.js";
import { t } from "../parts/words.js";
import { Windowed } from "../parts/windowed.js";
import { onKeys } from "../shell/keys.js";
import { ask, query } from "../stores/api.js";
import { route } from "../shell/route.js";
import { fleet, live } from "./live.js";

const PAGE = 60;

export class View {
  #shell;
  #ends;
  #rows = [];
  #next = null;
  #isLoading = false;
  #wanted = null;
  #trouble = null;
  #typed = 0;

  constructor(shell) {
    this.#shell = shell;
    this.#build();
    this.#ends = [live.on("message", (message) => this.#came(message)), live.on("hello", () => this.#load(true)), fleet.subscribe(() => this.#choices())];
    onKeys({ "/": () => this.field.focus(), Escape: () => { if (!route.id) return false; this.#shut(); return true; } });
    this.#loadChannels();
  }

  close() {
    for (const end of this.#ends) end();
    this.list.close();
  }

  #build() {
    const select = (name) => make("select", { class: "field", "aria-label": t(`messages.${name}`), on: { change: (event) => route.set({ [name]: event.target.value }, { replace: false }) } },
      make("option", { value: "", text: t(`messages.all-${name}`) }));
    this.field = make("input", {
      type: "search", class: "field", placeholder: t("messages.find"), "aria-label": t("messages.find"), value: route.get("q") ?? "",
      on: { input: () => { clearTimeout(this.#typed); this.#typed = setTimeout(() => route.set({ q: this.field.value }), 250); } },
    });
    this.channel = select("channel");
    this.gateway = select("gateway");
    this.scroller = make("div", { class: "table-scroll", tabindex: 0, role: "group", "aria-label": t("hub.messages") });
    this.list = new Windowed(this.scroller, { estimate: 64, role: "list", label: t("hub.messages"), render: (item) => this.#row(item.row), onEdge: (edge) => { if (edge !== "top") this.#load(); } });
    this.note = make("p", { class: "quiet small", role: "status" });
    fill(this.#shell.main, make("header", { class: "view-head" }, make("h1", { text: t("hub.messages") }), this.note),
      make("div", { class: "filters" }, make("div", { class: "list-search" }, icon("search"), this.field), this.channel, this.gateway), this.scroller);
    // Who scrolls near the end gets more, whatever the list says of its edges.
    this.scroller.addEventListener("scroll", () => {
      if (this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight < 1200) this.#load();
    });
  }

  async #loadChannels() {
    try {
      this.channels = (await ask("/v1/channels")).channels;
      this.#choices();
    } catch { /* without a list of channels the filter has those of the address */ }
  }

  #choices() {
    const offer = (place, name, values) => {
      const wanted = route.get(name) ?? "";
      if (wanted && !values.some(([value]) => value === wanted)) values.push([wanted, wanted.slice(0, 16)]);
      fill(place, make("option", { value: "", text: t(`messages.all-${name}`) }), values.map(([value, words]) => make("option", { value, text: words.slice(0, 60), selected: value === wanted })));
    };
    if (document.activeElement !== this.channel) offer(this.channel, "channel", (this.channels ?? []).map((one) => [one.channel, one.name ?? one.channel.slice(0, 12)]));
    if (document.activeElement !== this.gateway) offer(this.gateway, "gateway", [...fleet.rows.keys()].sort().map((id) => [id, id]));
  }

  get #filter() { return { channel: route.get("channel"), gateway: route.get("gateway"), q: route.get("q"), since: route.get("since"), until: route.get("until") }; }

  update() {
    if (document.activeElement !== this.field) this.field.value = route.get("q") ?? "";
    this.#choices();
    const wanted = JSON.stringify(this.#filter);
    if (wanted !== this.#wanted) {
      this.#wanted = wanted;
      this.#rows = [];
      this.#next = null;
      this.list.reset();
      this.#load(true);
    }
    this.#draw();
    this.#showDetails();
  }

  /** `isAfresh`: from the newest on. */
  async #load(isAfresh = false) {
    if (this.#isLoading || !isAfresh && this.#next === null) return;
    this.#isLoading = true;
    const wanted = this.#wanted;
    try {
      const page = await ask(query("/v1/messages", { ...this.#filter, order: "newest", limit: PAGE, before: isAfresh ? undefined : this.#next }));
      if (wanted !== this.#wanted) return;
      const known = new Set(page.messages.map((row) => row.position));
      const last = page.messages.at(-1)?.position ?? Infinity;
      // What was read before stays behind it, if it follows without a gap.
      if (isAfresh) this.#rows = this.#rows.some((row) => known.has(row.position)) ? [...page.messages, ...this.#rows.filter((row) => row.position < last && !known.has(row.position))] : page.messages;
      else this.#rows = [...this.#rows, ...page.messages.filter((row) => !this.#rows.some((one) => one.position === row.position))];
      if (!isAfresh || this.#next === null || this.#rows.length === page.messages.length) this.#next = page.next ?? null;
      this.#trouble = null;
      this.isLoaded = true;
    } catch (trouble) {
      this.#trouble = trouble;
    } finally {
      this.#isLoading = false;
      if (wanted === this.#wanted) this.#draw();
      else this.#load(true);
    }
    // A search looks through so many at a time: it goes on until a page is full.
    if (this.#next !== null && !this.#trouble && this.scroller.scrollHeight <= this.scroller.clientHeight + 1200) this.#load();
  }

  #came(message) {
    const { channel, gateway, q, until } = this.#filter;
    if (until || channel && message.body.channel !== channel || gateway && !message.heard.some((one) => one.gateway === gateway)) return;
    // Which words fit, the hub decides.
    if (q) { this.#load(true); return; }
    this.#rows = [message, ...this.#rows.filter((row) => row.position !== message.position)].sort((a, b) => b.position - a.position);
    this.#draw();
  }

  #draw() {
    this.scroller.querySelector(".empty")?.remove();
    this.list.set(this.#rows.map((row) => ({ key: String(row.position), version: `${row.heard.length}${String(row.position) === route.id}`, row })), this.#next !== null);
    this.note.textContent = this.#trouble ? this.#trouble.message : "";
    if (this.isLoaded && !this.#rows.length && this.#next === null) {
      const isFiltered = Object.values(this.#filter).some(Boolean);
      this.scroller.append(make("div", { class: "empty" }, make("h2", { text: t(isFiltered ? "messages.no-match" : "messages.none") }), make("p", { class: "quiet", text: t(isFiltered ? "messages.no-match-why" : "messages.none-why") })));
    }
  }

  #row(row) {
    const { body, heard } = row;
    const best = heard.reduce((most, one) => (one.snr !== undefined && one.snr !== null && (most === null || one.snr > most) ? one.snr : most), null);
    return make("article", { role: "listitem", class: `hub-message ${String(row.position) === route.id ? "chosen" : ""}` },
      make("div", { class: "hub-message-head" },
        make("span", { class: "hub-sender" }, named(body.sender_name || body.from_name || t("messages.nobody"))),
        body.channel_name ? make("span", { class: "quiet small" }, named(body.channel_name)) : null,
        make("span", { class: "quiet small hub-when" }, when(row.at))),
      written(body.text ?? "", { most: 1000 }),
      make("a", { class: "quiet small hub-heard", href: `/messages/${row.position}${location.search}` },
        t("messages.heard", { count: heard.length }), best === null ? null : ` · ${decibels(best)}`));
  }

  #shut() { route.go(`/messages${location.search}`); }

  async #showDetails() {
    const id = route.id;
    if (!id) return this.#shell.showDetails(null);
    const head = make("div", { class: "details-head" }, make("h2", { text: t("messages.one") }), iconButton("close", t("close"), () => this.#shut()));
    const inside = make("div", { class: "details-inside" }, head, make("p", { class: "quiet", text: t("loading") }));
    this.#shell.showDetails(inside, () => this.#shut());
    let row;
    try {
      row = await ask(`/v1/messages/${encodeURIComponent(id)}`);
    } catch (trouble) {
      if (route.id === id) fill(inside, head, make("p", { role: "alert", text: trouble.status === 404 ? t("messages.gone") : trouble.message }));
      return;
    }
    if (route.id !== id) return;
    fill(inside, head,
      make("p", {}, named(row.body.sender_name || t("messages.nobody")), row.body.channel_name ? [" · ", named(row.body.channel_name)] : null),
      written(row.body.text ?? ""),
      make("h3", { text: t("messages.heard", { count: row.heard.length }) }),
      make("ol", { class: "lines" }, row.heard.map((one) => make("li", {},
        make("a", { href: `/fleet/${encodeURIComponent(one.gateway)}` }, named(one.gateway)),
        make("span", { class: "quiet small" }, [one.snr === undefined || one.snr === null ? "" : decibels(one.snr), one.hops === undefined || one.hops === null ? "" : t("messages.hops", { count: one.hops })].filter(Boolean).join(" · "), " ", when(one.at))))));
  }
}

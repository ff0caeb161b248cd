// Messages of all gateways, each once, the newest first; who heard one, and how well. The hub gives them in the order in which they came, which is how
// nothing is missed; here they stand by when they were heard: what a gateway sends after a cut stands where it was said.
import { fill, icon, iconButton, make, showTrouble } from "../parts/page.js";
import "../parts/days.js";
import { refill } from "../parts/held.js";
import { late } from "../parts/late.js";
import { decibels, number } from "../parts/numbers.js";
import { dayOf, full, now, when } from "../parts/times.js";
import { cut, named } from "../parts/text.js";
import { written } from "../parts/written.js";
import { t } from "../parts/words.js";
import { hasHops, wayList } from "../parts/ways.js";
import { Windowed } from "../parts/windowed.js";
import { onKeys } from "../shell/keys.js";
import { ask } from "../stores/api.js";
import { query } from "../stores/query.js";
import { old, served } from "../stores/store.js";
import { route } from "../shell/route.js";
import { fleet, gatewayName, live } from "./live.js";
import { gatewayNames, howHeard } from "./words.js";

const PAGE = 60;
/** Names that are offered at once. */
const OFFERED = 30;
const HOUR = 3_600_000;
/** Of the address, and how long it is. */
const SPANS = { __proto__: null, hour: HOUR, day: 24 * HOUR, week: 7 * 24 * HOUR };
/** Rows that are kept while what is new comes at the top; who scrolls back further reads them again. */
const MOST_ROWS = 20_000;

export class View {
  #shell;
  #ends;
  /** As they came, the last first; and as they are shown. */
  #rows = [];
  #shown = [];
  #next = null;
  #isLoading = false;
  /** What the stream told while a page was read: the answer may be older. */
  #meanwhile = [];
  #isStale = false;
  #areChannelsRefused = false;
  #wanted = null;
  #trouble = null;
  #typed = 0;
  #asking = 0;
  since;
  until;
  /** Of the one that is chosen: it stays while it is read again. */
  #details = { id: null };

  constructor(shell) {
    this.#shell = shell;
    this.#build();
    this.#ends = [live.on("message", (message) => this.#came(message)), live.on("hello", () => { this.#load(true); if (!this.channels) this.#loadChannels(); }), live.on("again", () => { if (this.#trouble) this.#load(true); if (this.#areChannelsRefused) this.#loadChannels(); }), fleet.subscribe(() => this.#choices())];
    onKeys({ "/": () => this.field.focus(), j: () => this.#step(1), k: () => this.#step(-1), Escape: () => { if (!route.id) return false; this.#shut(); return true; } });
    this.#loadChannels();
    served.add(this);
  }

  close() {
    served.ended(this);
    served.delete(this);
    for (const end of this.#ends) end();
    clearTimeout(this.#typed);
    clearTimeout(this.#asking);
    this.list.close();
  }

  #build() {
    const select = (name) => make("select", { class: "field", "aria-label": t(`messages.${name}`), on: { change: (event) => route.set({ [name]: event.target.value }, { replace: false }) } },
      make("option", { value: "", text: t(`messages.all-${name}`) }));
    this.time = make("select", { class: "field", "aria-label": t("messages.time"), on: { change: (event) => this.#chooseTime(event.target.value) } },
      make("option", { value: "", text: t("messages.all-time") }), Object.keys(SPANS).map((name) => make("option", { value: name, text: t(`messages.within-${name}`) })), make("option", { value: "between", text: t("messages.between") }));
    const moment = (name) => make("input", { type: "datetime-local", class: "field", id: `messages-${name}`, on: { change: (event) => { const ms = new Date(event.target.value).getTime(); route.set({ [name]: Number.isFinite(ms) ? ms : undefined }, { replace: false }); } } });
    [this.since, this.until] = [moment("since"), moment("until")];
    this.between = make("div", { class: "between row wrap", hidden: true }, make("label", { for: "messages-since", text: t("messages.since") }), this.since, make("label", { for: "messages-until", text: t("messages.until") }), this.until);
    this.active = make("div", { class: "chips active-filters", role: "group", "aria-label": t("filter.active") });
    this.field = make("input", {
      type: "search", class: "field", placeholder: t("messages.find"), "aria-label": t("messages.find"), value: route.get("q") ?? "",
      on: { input: () => { clearTimeout(this.#typed); this.#typed = setTimeout(() => route.set({ q: this.field.value }), 250); } },
    });
    this.people = make("datalist", { id: "messages-people" });
    this.from = make("input", {
      type: "text", class: "field", list: "messages-people", maxlength: 64, autocomplete: "off", placeholder: t("messages.from"), "aria-label": t("messages.from"),
      on: { input: () => this.#offer(), change: () => route.set({ from: this.from.value.trim() }, { replace: false }) },
    });
    this.channel = select("channel");
    this.gateway = select("gateway");
    this.scroller = make("div", { class: "table-scroll", tabindex: 0, role: "group", "aria-label": t("hub.messages") });
    this.list = new Windowed(this.scroller, { estimate: 64, role: "list", label: t("hub.messages"), render: (item) => (item.row ? this.#row(item) : make("div", { role: "listitem", class: "day" }, when(item.at, "day"))), onEdge: (edge) => { if (edge === "end" && !this.#trouble) this.#load(); } });
    this.note = make("p", { class: "quiet small", role: "status" });
    fill(this.#shell.main, make("header", { class: "view-head" }, make("h1", { text: t("hub.messages") }), this.note),
      make("div", { class: "filters" }, make("div", { class: "list-search" }, icon("search"), this.field), this.from, this.people, this.channel, this.gateway, this.time), this.between, this.active, this.scroller);
    // Who scrolls near the end gets more, whatever the list says of its edges.
    this.scroller.addEventListener("scroll", () => {
      if (this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight < 1200) this.#load();
    });
  }

  async #loadChannels() {
    this.#areChannelsRefused = false;
    try {
      this.channels = (await ask("/v1/channels")).channels;
      this.#choices();
      this.#drawFilters();
    } catch {
      // Without a list of channels the filter has that of the address.
      this.#areChannelsRefused = true;
    }
  }

  #choices() {
    const offer = (place, name, values) => {
      const wanted = route.get(name) ?? "";
      if (wanted && !values.some(([value]) => value === wanted)) values.push([wanted, wanted.slice(0, 16)]);
      fill(place, make("option", { value: "", text: t(`messages.all-${name}`) }), values.map(([value, words]) => make("option", { value, text: words.slice(0, 60), selected: value === wanted })));
    };
    if (document.activeElement !== this.channel) offer(this.channel, "channel", (this.channels ?? []).map((one) => [one.channel, one.name ?? one.channel.slice(0, 12)]));
    if (document.activeElement !== this.gateway) offer(this.gateway, "gateway", gatewayNames());
  }

  /** Senders of what is here at once, and nodes that are called so a moment later. */
  #offer() {
    const typed = this.from.value.trim();
    const offer = (names) => fill(this.people, [...new Set(names)].slice(0, OFFERED).map((name) => make("option", { value: name })));
    const senders = this.#rows.map((row) => row.body.sender_name).filter((name) => name && isIn(name, typed));
    offer(senders);
    clearTimeout(this.#asking);
    if (typed.length < 2) return;
    this.#asking = setTimeout(async () => {
      const { nodes } = await ask(query("/v1/nodes", { q: typed, limit: OFFERED })).catch(() => ({ nodes: [] }));
      if (this.from.value.trim() === typed) offer([...senders, ...nodes.map((node) => node.name).filter((name) => isIn(name, typed))]);
    }, 250);
  }

  /** Of all gateways, what came by the stream, too. */
  get kept() {
    if (old.at !== null || Object.values(this.#filter).some((one) => one !== null)) return null;
    const messages = this.#rows.slice(0, 200);
    return [query("/v1/messages", { order: "newest", limit: PAGE }), { messages, next: messages.length < this.#rows.length ? messages.at(-1).position : this.#next }];
  }

  get #filter() { return { from: route.get("from"), channel: route.get("channel"), gateway: route.get("gateway"), q: route.get("q"), within: SPANS[route.get("within")] ? route.get("within") : null, since: moment(route.get("since")), until: moment(route.get("until")) }; }

  /** As the hub is asked: spans are from now on backwards. */
  get #asked() {
    const { within, ...rest } = this.#filter;
    return within ? { ...rest, since: now() - SPANS[within], until: null } : rest;
  }

  #isBetween = false;

  #chooseTime(value) {
    this.#isBetween = value === "between";
    route.set({ within: SPANS[value] ? value : undefined, ...(this.#isBetween ? {} : { since: undefined, until: undefined }) }, { replace: false });
    this.#drawFilters();
    if (this.#isBetween) this.since.focus();
  }

  /** What is filtered by, each to be taken away. */
  #drawFilters() {
    const { from, channel, gateway, q, within, since, until } = this.#filter;
    if (document.activeElement !== this.from) this.from.value = from ?? "";
    const isBetween = !within && (this.#isBetween || since !== null || until !== null);
    if (document.activeElement !== this.time) this.time.value = within ?? (isBetween ? "between" : "");
    this.between.hidden = !isBetween;
    for (const [field, ms] of [[this.since, since], [this.until, until]]) if (document.activeElement !== field) field.value = ms === null ? "" : local(ms);
    const held = [...this.active.children].indexOf(document.activeElement);
    const chip = (value, ...words) => (value ? make("button", { type: "button", class: "chip", "aria-pressed": "true", on: { click: () => { if ("since" in value) this.#isBetween = false; route.set(value, { replace: false }); } } }, words, make("span", { "aria-hidden": "true", text: "×" }), make("span", { class: "unseen", text: t("filter.off") })) : null);
    const name = (this.channels ?? []).find((one) => one.channel === channel)?.name ?? channel;
    fill(this.active, chip(from && { from: undefined }, `${t("messages.from")} `, make("bdi", { text: cut(from ?? "", 40) })), chip(channel && { channel: undefined }, named(name ?? "")), chip(gateway && { gateway: undefined }, icon("antenna"), named(gatewayName(gateway ?? ""))),
      chip(q && { q: undefined }, icon("search"), make("bdi", { text: cut(q ?? "", 40) })),
      chip(within && { within: undefined }, within ? t(`messages.within-${within}`) : ""),
      chip(since !== null && !within && { since: undefined }, t("messages.since"), " ", since === null ? "" : full(since)), chip(until !== null && !within && { until: undefined }, t("messages.until"), " ", until === null ? "" : full(until)));
    if (held >= 0) (this.active.children[Math.min(held, this.active.children.length - 1)] ?? this.scroller).focus();
  }

  update() {
    if (document.activeElement !== this.field) this.field.value = route.get("q") ?? "";
    this.#choices();
    this.#drawFilters();
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
    if (this.#isLoading) this.#isStale ||= isAfresh;
    if (this.#isLoading || !isAfresh && this.#next === null) return;
    this.#isLoading = true;
    const wanted = this.#wanted;
    try {
      const page = await ask(query("/v1/messages", { ...this.#asked, order: "newest", limit: PAGE, before: isAfresh ? undefined : this.#next }));
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
      const meanwhile = this.#meanwhile.splice(0);
      const isStale = this.#isStale || wanted !== this.#wanted || meanwhile.length && (this.#filter.q || this.#filter.from);
      this.#isStale = false;
      if (isStale) this.#load(true);
      else for (const message of meanwhile) this.#came(message);
      this.#draw();
    }
    // A search looks through so many at a time: it goes on until a page is full.
    if (this.#next !== null && !this.#trouble && this.scroller.isConnected && this.scroller.scrollHeight <= this.scroller.clientHeight + 1200) this.#load();
  }

  #came(message) {
    if (this.#isLoading) this.#meanwhile.push(message);
    const { from, channel, gateway, q, until, since } = this.#asked;
    if (message.at < (since ?? -Infinity) || message.at > (until ?? Infinity) || channel && message.body.channel !== channel || gateway && !message.heard.some((one) => one.gateway === gateway)) return;
    // Which words fit, the hub decides.
    if (q || from) { this.#load(true); return; }
    this.#rows = [message, ...this.#rows.filter((row) => row.position !== message.position)].sort((a, b) => b.position - a.position);
    if (this.#rows.length > MOST_ROWS) {
      this.#rows.length = MOST_ROWS;
      this.#next = this.#rows.at(-1).position;
    }
    this.#draw();
  }

  #draw() {
    this.scroller.querySelector(".empty:not([role])")?.remove();
    const items = [];
    let day = null;
    for (const { row, at } of timed(this.#rows)) {
      const date = dayOf(at);
      if (date !== day) items.push({ key: `day ${row.position}`, version: dayOf(now()), isLoose: true, at });
      day = date;
      items.push({ key: String(row.position), version: `${row.heard.length}${String(row.position) === route.id}`, row, at });
    }
    this.#shown = items.flatMap(({ row }) => row ?? []);
    this.list.set(items, this.#next !== null);
    const isEmpty = !this.#rows.length;
    const words = this.#trouble && !isEmpty ? this.#trouble.message : "";
    if (this.note.textContent !== words) this.note.textContent = words;
    showTrouble(this.scroller, isEmpty ? this.#trouble : null, () => this.#load(true));
    if (!this.#trouble && this.isLoaded && isEmpty && this.#next === null) {
      const isFiltered = Object.values(this.#filter).some((one) => one !== null);
      this.scroller.append(make("div", { class: "empty" }, make("h2", { text: t(isFiltered ? "messages.no-match" : "messages.none") }), make("p", { class: "quiet", text: t(isFiltered ? "messages.no-match-why" : "messages.none-why") })));
    }
  }

  #row({ row, at }) {
    const { body, heard } = row;
    const best = heard.reduce((most, one) => (one.snr !== undefined && one.snr !== null && (most === null || one.snr > most) ? one.snr : most), null);
    // Late is what no gateway heard in time, or what the first report of came late. A clock that was not set says nothing of the latter.
    const report = row.at === at && row.arrived ? (row.arrived - at) / 1000 : 0;
    const delay = heard.length > 0 && late(Math.min(...heard.map((one) => one.age_s ?? 0)) + report);
    return make("article", { role: "listitem", class: `hub-message ${String(row.position) === route.id ? "chosen" : ""}` },
      make("div", { class: "hub-message-head" },
        make("span", { class: "hub-sender" }, named(body.sender_name || body.from_name || t("messages.nobody"))),
        body.channel_name ? make("span", { class: "quiet small" }, named(body.channel_name)) : null,
        make("span", { class: "quiet small hub-when" }, when(row.at))),
      written(body.text ?? "", { most: 1000 }),
      make("a", { class: "quiet small hub-heard", href: `/messages/${row.position}${location.search}` },
        t("messages.heard", { count: heard.length }), best === null ? null : ` · ${decibels(best)}`, delay ? ` · ${delay}` : null));
  }

  #step(by) {
    const at = this.#shown.findIndex((row) => String(row.position) === route.id);
    const next = this.#shown[at < 0 ? 0 : Math.max(0, Math.min(this.#shown.length - 1, at + by))];
    if (!next) return;
    route.go(`/messages/${next.position}${location.search}`, { replace: at >= 0 });
    this.list.show(String(next.position));
  }

  #shut() { route.go(`/messages${location.search}`); }

  async #showDetails() {
    const id = route.id;
    if (!id) {
      this.#details = { id: null };
      this.#shell.showDetails(null);
      return;
    }
    const head = make("div", { class: "details-head" }, make("h2", { text: t("messages.one") }), iconButton("close", t("close"), () => this.#shut()));
    if (this.#details.id !== id) this.#details = { id, inside: make("div", { class: "details-inside" }, head, make("p", { class: "quiet", text: t("loading") })) };
    const { inside } = this.#details;
    this.#shell.showDetails(inside, () => this.#shut());
    let row;
    try {
      row = await ask(`/v1/messages/${encodeURIComponent(id)}`);
    } catch (trouble) {
      if (route.id !== id) return;
      refill(inside, head, trouble.status === 404 ? make("p", { role: "alert", text: t("messages.gone") }) : null);
      if (trouble.status !== 404) showTrouble(inside, trouble, () => this.#showDetails());
      return;
    }
    if (route.id !== id) return;
    refill(inside, head,
      make("p", {}, named(row.body.sender_name || t("messages.nobody")), row.body.channel_name ? [" · ", named(row.body.channel_name)] : null),
      written(row.body.text ?? ""),
      make("p", { class: "quiet small" }, row.body.sender_time ? [t("messages.said"), " ", when(row.body.sender_time * 1000)] : null),
      make("h3", { text: t("messages.heard", { count: row.heard.length }) }),
      make("ol", { class: "lines heard-order" }, inOrder(row.heard).map((one, index, [first]) => make("li", {},
        make("span", {}, make("a", { href: `/fleet/${encodeURIComponent(one.gateway)}` }, named(gatewayName(one.gateway))), bar(one.snr)),
        one.channel_name && one.channel_name !== row.body.channel_name ? make("span", { class: "quiet small" }, named(one.channel_name)) : null,
        make("span", { class: "quiet small" }, howHeard(one), " ", index ? later(one.at - first.at) : when(one.at))))),
      row.ways?.length ? [make("h3", { text: t("way.title") }),
        row.ways.map((one) => make("section", { class: "ways", "aria-label": gatewayName(one.gateway) }, make("h4", {}, named(gatewayName(one.gateway))), wayList(one))),
        row.ways_more ? make("p", { class: "quiet small", text: t("way.more-gateways", { count: row.ways_more }) }) : null,
        row.ways.some(hasHops) ? make("p", {}, make("a", { class: "button", href: `/coverage?message=${encodeURIComponent(id)}` }, icon("map"), t("way.on-map"))) : null,
        make("p", { class: "quiet small", text: t("way.why") })] : null);
  }
}

/** Before this no clock was right that is told here: an unset one shows May 2024 or 1970. */
const FIRST_MS = Date.UTC(2025, 0, 1);

/** The newest first. */
export function byTime(rows) { return timed(rows).map(({ row }) => row); }

/** The newest first, each with its time. What a clock that was not set says counts as heard with what came before it. */
function timed(rows) {
  const latest = now() + HOUR;
  let before = FIRST_MS;
  const times = new Map();
  for (const row of [...rows].sort((a, b) => a.position - b.position)) {
    if (row.at >= FIRST_MS && row.at <= latest) before = row.at;
    times.set(row.position, before);
  }
  return rows.map((row) => ({ row, at: times.get(row.position) })).sort((a, b) => b.at - a.at || b.row.position - a.row.position);
}

/** Who heard it first is first. */
function inOrder(heard) { return [...heard].sort((a, b) => a.at - b.at); }

function later(ms) { return t("messages.later", { seconds: number(Math.max(0, ms) / 1000, 1) }); }

/** How well, in four steps; the number is beside it. */
function bar(snr) {
  if (typeof snr !== "number") return null;
  const steps = Math.max(1, Math.min(4, Math.round((snr + 20) / 8) + 1));
  return make("span", { class: `snr snr-${steps}`, "aria-hidden": "true" }, [1, 2, 3, 4].map((step) => make("i", { class: step <= steps ? "on" : null })));
}

/** Whether a name has all the words. */
function isIn(name, words) { return words.toLocaleLowerCase().split(/\s+/).every((word) => name.toLocaleLowerCase().includes(word)); }

/** Milliseconds of the address; `null`: there are none. */
function moment(text) {
  const ms = Number(text);
  return text && Number.isFinite(ms) && Math.abs(ms) < 8.64e15 ? Math.round(ms) : null;
}

/** As a field for date and time wants it: the time here. */
function local(ms) {
  const date = new Date(ms);
  const two = (value) => String(value).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}T${two(date.getHours())}:${two(date.getMinutes())}`;
}

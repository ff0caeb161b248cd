// What a search is narrowed by, in the address: who said it, in which conversation, between which days. And a day to go to.
import { fill, make } from "../parts/page.js";
import { busy } from "../parts/held.js";
import { formatter, t } from "../parts/words.js";
import { allRows } from "../stores/api.js";
import { conversations, shownName } from "../stores/conversations.js";
import { nodeName, nodes } from "../stores/nodes.js";
import { query } from "../stores/query.js";
import { route } from "../shell/route.js";

/** Names that are offered at once. */
const OFFERED = 30;
const KEY = /^[0-9a-f]{64}$/;

/** When a day of a field begins here, or the one behind it; `null`: it is none. While a year is typed it is one of the first centuries. */
function begin(day, later = 0) {
  const [, year, month, date] = /^([1-9]\d{3})-(\d\d)-(\d\d)$/.exec(day ?? "") ?? [];
  return year ? new Date(Number(year), Number(month) - 1, Number(date) + later).getTime() : null;
}

/** As a node is offered: another may be called the same. */
function labelOf(node) { return nodeName(node) + nodes.digits(node); }

export class Narrow {
  #ends;
  #isClosed = false;
  /** A value's name in the address: the list's search may be there beside a conversation's. */
  #name;
  since;
  until;

  constructor(conversation) {
    this.conversation = conversation;
    const list = conversation ? "chat" : "list";
    this.#name = (name) => (conversation ? name : `find-${name}`);
    const field = (name, attributes) => make("input", { class: "field", id: `${list}-${name}`, ...attributes });
    const days = ({ target }, name) => { if (!target.value || begin(target.value) !== null) this.#set({ [name]: target.value }); };
    const day = (name) => field(name, { type: "date", on: { change: (event) => days(event, name) } });
    this.people = make("datalist", { id: `${list}-people` });
    this.from = field("from", {
      type: "text", list: `${list}-people`, autocomplete: "off", maxlength: 64,
      on: { focus: () => nodes.need(), input: () => this.#offer(), change: () => this.#choose() },
    });
    this.in = conversation ? null : make("select", { class: "field", id: "list-in", on: { change: () => this.#set({ in: this.in.value }) } });
    [this.since, this.until] = [day("since"), day("until")];
    const labelled = (name) => (this[name] ? make("div", {}, make("label", { for: this[name].id, text: t(`search.by-${name}`) }), this[name]) : null);
    this.note = make("p", { class: "quiet small", role: "status" });
    this.clear = make("button", { type: "button", class: "link", hidden: true, text: t("search.clear"), on: { click: () => this.#take() } });
    this.element = make("details", { class: "narrow" }, make("summary", { text: t(conversation ? "search.narrow-here" : "search.narrow") }),
      make("div", { class: "narrow-fields" }, ["from", "in", "since", "until"].map(labelled), this.people), this.note, this.clear);
    this.#ends = [nodes.subscribe(() => { this.#offer(); this.update(); }), conversations.subscribe(() => this.update())];
  }

  close() {
    this.#isClosed = true;
    for (const end of this.#ends) end();
  }

  #get(name) { return route.get(this.#name(name)) || null; }

  #set(values) { route.set(Object.fromEntries(Object.entries(values).map(([name, value]) => [this.#name(name), value])), { replace: false }); }

  /** All away, and the button with them: who pressed it has the place above it. */
  #take() {
    this.element.firstChild.focus();
    this.#set({ from: "", in: "", since: "", until: "" });
  }

  get isSet() { return ["from", "in", "since", "until"].some((name) => this.#get(name)); }

  /** As the gateway is asked. Who is no node is found by the name, in texts as well. */
  get asked() {
    const [from, end] = [this.#get("from"), begin(this.#get("until"), 1)];
    return {
      q: !from || KEY.test(from) ? null : `"${from.replaceAll('"', " ")}"`, from: KEY.test(from) ? from : null,
      conversation: this.conversation ?? this.#get("in"), since: begin(this.#get("since")), until: end === null ? null : end - 1,
    };
  }

  /** What the address says, where nobody is typing. */
  update() {
    const from = this.#get("from");
    const isKey = KEY.test(from);
    if (isKey && !nodes.isLoaded && !nodes.isReading && !nodes.trouble) nodes.need();
    const node = isKey ? nodes.get(from) : null;
    const wanted = { from: node ? labelOf(node) : from, since: this.#get("since"), until: this.#get("until") };
    for (const [name, value] of Object.entries(wanted)) if (document.activeElement !== this[name]) this[name].value = value ?? "";
    if (this.in && document.activeElement !== this.in) this.#places();
    const words = from && !isKey ? t("search.no-node") : "";
    if (this.note.textContent !== words) this.note.textContent = words;
    if (this.isSet && this.clear.hidden) this.element.open = true;
    this.clear.hidden = !this.isSet;
  }

  #places() {
    const chosen = this.#get("in");
    const all = conversations.list.map((one) => [one.conversation, `${shownName(one)}${conversations.digits(one)}`]);
    if (chosen && !conversations.get(chosen)) all.unshift([chosen, chosen]);
    fill(this.in, make("option", { value: "", text: t("search.everywhere") }),
      all.map(([id, name]) => make("option", { value: id, text: name.slice(0, 64), selected: id === chosen })));
  }

  #offer() {
    const words = this.from.value.toLocaleLowerCase().match(/\S+/g) ?? [];
    const labels = new Set();
    for (const node of nodes.list) {
      const label = labelOf(node);
      if (labels.size < OFFERED && words.every((word) => label.toLocaleLowerCase().includes(word))) labels.add(label);
    }
    fill(this.people, [...labels].map((label) => make("option", { value: label })));
  }

  async #choose() {
    const typed = this.from.value.trim();
    if (!typed) { this.#set({ from: "" }); return; }
    // Else a name that is typed at once is nobody's.
    await nodes.need();
    // Who has left the search meanwhile has another address.
    if (this.#isClosed || this.from.value.trim() !== typed) return;
    const wanted = typed.toLocaleLowerCase();
    const like = nodes.list.filter((node) => [labelOf(node), nodeName(node), node.name, node.key].some((one) => one?.toLocaleLowerCase() === wanted));
    this.#set({ from: like.length === 1 ? like[0].key : typed });
  }
}

/** A day of a conversation to go to: its first message, else the next one. */
export function dayField(conversation, goTo) {
  const field = make("input", { type: "date", class: "field", id: "chat-day", required: true });
  const told = make("p", { class: "quiet small", role: "status" });
  const named = (ms) => formatter(Intl.DateTimeFormat, { dateStyle: "full" }).format(ms);
  const go = make("button", { class: "button", text: t("search.go") });
  const find = async () => {
    const [since, end] = [begin(field.value), begin(field.value, 1)];
    if (since === null) return;
    told.textContent = t("search.looking");
    try {
      const [row] = await allRows(query("/v1/messages", { conversation, direction: "both", since, after: 0, limit: 1 }));
      if (row) goTo(row.cursor);
      const day = named(since);
      told.textContent = !row ? t("search.day-none", { day }) : row.received_at < end ? "" : t("search.day-next", { day, next: named(row.received_at) });
    } catch (trouble) {
      told.textContent = trouble.message;
    }
  };
  return make("form", { class: "day-field", on: { submit: (event) => { event.preventDefault(); busy(go, find); } } },
    make("div", { class: "row wrap" }, make("label", { for: "chat-day", text: t("search.day") }), field, go), told);
}

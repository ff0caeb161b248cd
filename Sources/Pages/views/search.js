// Messages that hold words, newest first; further ones by a button. Across all conversations also nodes to write to that are in none of them.
import { fill, make, showTrouble } from "../parts/page.js";
import { refill, say } from "../parts/held.js";
import { when } from "../parts/times.js";
import { cut, line, named } from "../parts/text.js";
import { t } from "../parts/words.js";
import { allRows } from "../stores/api.js";
import { conversations, shownName } from "../stores/conversations.js";
import { gateway } from "../stores/gateway.js";
import { nodeName, nodes } from "../stores/nodes.js";
import { query } from "../stores/query.js";
import { route, to } from "../shell/route.js";
import { dayField, Narrow } from "./narrow.js";

const PAGE = 30;
/** Nodes that are listed; the view of nodes has all. */
const MOST_NODES = 8;

export class Search {
  #ending = new AbortController();
  #narrow;
  #count = 0;
  #asked = null;
  #wait = 0;
  #ends;

  /** `conversation`: only in this one, where `goTo(cursor)` shows a message. */
  constructor(conversation, goTo) {
    this.#narrow = new Narrow(conversation);
    this.list = make("ul", { class: "hits" });
    this.more = make("div", { class: "hits-more quiet" });
    this.nodes = make("div", {});
    const above = conversation ? dayField(conversation, goTo) : [this.nodes, make("h2", { class: "list-title", text: t("search.messages") })];
    this.element = make("div", { class: "search" }, above, this.#narrow.element, this.list, this.more);
    this.#ends = [route.subscribe(() => this.look(this.words))];
  }

  close() {
    for (const end of this.#ends) end();
    this.#narrow.close();
    clearTimeout(this.#wait);
    this.#ending.abort();
  }

  /** For these words from now on, in what the address narrows it to. */
  look(words) {
    this.words = words;
    if (!this.#narrow.conversation) this.#findNodes();
    this.#narrow.update();
    const { q, ...rest } = this.#narrow.asked;
    const values = { ...rest, q: [asTyped(words), q].filter(Boolean).join(" "), direction: "both", limit: PAGE };
    const asked = query("/v1/messages", values);
    if (asked === this.#asked) return;
    this.#asked = asked;
    clearTimeout(this.#wait);
    this.#ending.abort();
    this.#ending = new AbortController();
    this.#count = 0;
    fill(this.list);
    fill(this.more);
    if (words.length < 2 && !this.#narrow.isSet) return;
    fill(this.more, t("search.looking"));
    // A moment later: what is typed on is not searched for.
    this.#wait = setTimeout(() => this.#page(values), 200);
  }

  #findNodes() {
    if (this.#ends.length === 1) {
      for (const store of [nodes, conversations]) this.#ends.push(store.subscribe(() => this.#drawNodes()));
      nodes.need();
    }
    this.#drawNodes();
  }

  /** Companions and rooms; the list above has those that have written, or were written to. */
  #drawNodes() {
    if (this.words.length < 2) return fill(this.nodes);
    const wanted = this.words.toLocaleLowerCase().split(/\s+/);
    const isOther = (one) => ["chat", "room"].includes(one.type) && one.key !== gateway.identity?.key && !conversations.get(chatOf(one));
    const isCalled = (name) => wanted.every((word) => name.includes(word));
    const found = nodes.list.filter((one) => isOther(one) && isCalled(`${one.alias ?? ""}\n${one.name}`.toLocaleLowerCase()));
    const sorted = found.sort((a, b) => (b.last_heard ?? 0) - (a.last_heard ?? 0)).slice(0, MOST_NODES);
    const shown = sorted.map((one) => [one.key, nodeName(one), one.on_radio, nodes.digits(one)]);
    const version = JSON.stringify([this.words, found.length, shown, nodes.isLoaded || nodes.trouble?.message]);
    if (this.nodes.dataset.version === version && this.nodes.firstChild) return;
    this.nodes.dataset.version = version;
    const all = make("a", { class: "button", href: to("nodes", null, { find: this.words }), text: t("search.nodes-all", { count: found.length }) });
    refill(this.nodes, sorted.length ? [make("h2", { class: "list-title", text: t("search.nodes") }),
      make("ul", { class: "hits" }, sorted.map((one) => make("li", {}, make("a", { class: "hit", href: to("conversations", chatOf(one)) },
        make("span", { class: "hit-head" }, named(nodeName(one)), make("span", { class: "quiet", text: nodes.digits(one) })),
        make("span", { class: "hit-text quiet", text: t(`search.${one.type}`) + (one.on_radio ? "" : ` · ${t("list.off-radio")}`) }))))),
      found.length > sorted.length ? make("p", { class: "hits-more" }, all) : null] : null);
    showTrouble(this.nodes, nodes.isLoaded ? null : nodes.trouble, () => nodes.load());
  }

  async #page(values, before) {
    const { signal } = this.#ending;
    const isPressed = this.more.contains(document.activeElement);
    // No button while it is read: the same page would be there twice.
    fill(this.more, t("search.looking"));
    try {
      const rows = await allRows(query("/v1/messages", { ...values, before }), { signal });
      if (signal.aborted) return;
      rows.reverse();
      const hits = rows.map((row) => make("li", {}, this.#hit(row)));
      this.list.append(...hits);
      // The button is gone: who pressed it goes on where it was, unless elsewhere by now.
      if (isPressed && document.activeElement === document.body) hits[0]?.firstChild.focus({ preventScroll: true });
      this.#count += rows.length;
      if (!before) say(t("search.count", { count: this.#count }));
      if (rows.length < PAGE) fill(this.more, this.#count ? null : this.#narrow.isSet ? t("search.no-match") : t("search.none", { words: this.words }));
      else fill(this.more, make("button", { type: "button", class: "button", text: t("search.older"), on: { click: () => this.#page(values, rows.at(-1).cursor) } }));
    } catch (trouble) {
      if (signal.aborted) return;
      fill(this.more, make("span", { class: "bad-words", role: "alert", text: trouble.message }), " ",
        make("button", { type: "button", class: "button", text: t("again"), on: { click: () => this.#page(values, before) } }));
    }
  }

  #hit(row) {
    const id = row.conversation ?? this.#narrow.conversation;
    const where = conversations.get(id);
    const who = row.direction === "sent" ? t("you") : row.sender_alias ?? row.author_name ?? row.sender_name ?? row.sender ?? "";
    return make("a", { class: "hit", href: to("conversations", id, { at: row.cursor }) },
      make("span", { class: "hit-head" }, named(who), !this.#narrow.conversation && where ? [make("span", { class: "quiet", text: ` ${t("search.in")} ` }), named(shownName(where), { class: "name quiet" })] : null, when(row.received_at, "brief")),
      make("span", { class: "hit-text" }, row.filtered === "blocked" ? "…" : around(row.text ?? "", this.words)));
  }
}

/** The conversation with a node. */
function chatOf(node) { return `node:${node.key.slice(0, 12)}`; }

/** The last word as the beginning of one, since it may be typed on. One of less than three letters the gateway looks for as it is. */
export function asTyped(words) {
  const last = /(?:^|\s)([^\s"*-][^\s"*]*[\p{L}\p{N}\p{M}])$/u.exec(words)?.[1] ?? "";
  const isQuoted = words.split('"').length % 2 === 0;
  return isQuoted || [...last].length < 3 ? words : `${words}*`;
}

/** A line of the text, with what was looked for in it marked. */
function around(text, words) {
  const plain = text.toLocaleLowerCase();
  const first = words.toLocaleLowerCase().split(/\s+/).find((word) => plain.includes(word));
  const at = first ? plain.indexOf(first) : -1;
  // Lower case may be longer than what it is of: then nothing is marked.
  if (at < 0 || plain.length !== text.length) return line(text, 160);
  const start = Math.max(0, at - 40);
  const place = make("bdi", { class: "line" }, start ? "…" : "", cut(text.slice(start, at), 40), make("mark", { text: cut(text.slice(at, at + first.length), 120) }), cut(text.slice(at + first.length, at + 120), 120));
  return place;
}

// Messages that hold words, newest first; further ones as one scrolls.
import { fill, make } from "../parts/page.js";
import { when } from "../parts/times.js";
import { cut, line, named } from "../parts/text.js";
import { t } from "../parts/words.js";
import { allRows } from "../stores/api.js";
import { conversations, shownName } from "../stores/conversations.js";
import { query } from "../stores/query.js";
import { to } from "../shell/route.js";

const PAGE = 30;

/** `conversation`: only in this one. */
export class Search {
  #ending = new AbortController();
  #conversation;
  #onCount;
  #count = 0;

  constructor(words, { conversation, onCount = () => {} } = {}) {
    this.words = words;
    this.#conversation = conversation;
    this.#onCount = onCount;
    this.list = make("ul", { class: "hits" });
    this.more = make("div", { class: "hits-more quiet", text: t("search.looking") });
    this.element = make("div", { class: "search" }, this.list, this.more);
    // A moment later: what is typed on is not searched for.
    this.wait = setTimeout(() => this.#page(), 200);
  }

  close() {
    clearTimeout(this.wait);
    this.#ending.abort();
  }

  async #page(before) {
    // No button while it is read: the same page would be there twice.
    fill(this.more, t("search.looking"));
    try {
      const rows = await allRows(query("/v1/messages", { q: this.words, conversation: this.#conversation, direction: "both", limit: PAGE, before }), { signal: this.#ending.signal });
      rows.reverse();
      this.list.append(...rows.map((row) => make("li", {}, this.#hit(row))));
      this.#count += rows.length;
      if (!before) this.#onCount(this.#count);
      if (rows.length < PAGE) fill(this.more, this.#count ? null : t("search.none", { words: this.words }));
      else fill(this.more, make("button", { type: "button", class: "button", text: t("search.older"), on: { click: () => this.#page(rows.at(-1).cursor) } }));
    } catch (trouble) {
      if (this.#ending.signal.aborted) return;
      fill(this.more, make("span", { class: "bad-words", role: "alert", text: trouble.message }), " ",
        make("button", { type: "button", class: "button", text: t("again"), on: { click: () => this.#page(before) } }));
    }
  }

  #hit(row) {
    const id = row.conversation ?? this.#conversation;
    const where = conversations.get(id);
    const who = row.direction === "sent" ? t("you") : row.sender_alias ?? row.author_name ?? row.sender_name ?? row.sender ?? "";
    return make("a", { class: "hit", href: to("conversations", id, { at: row.cursor }) },
      make("span", { class: "hit-head" }, named(who), !this.#conversation && where ? [make("span", { class: "quiet", text: ` ${t("search.in")} ` }), named(shownName(where), { class: "name quiet" })] : null, when(row.received_at, "brief")),
      make("span", { class: "hit-text" }, around(row.text ?? "", this.words)));
  }
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

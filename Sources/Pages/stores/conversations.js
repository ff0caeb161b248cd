import { allRows } from "./api.js";
import { gist } from "../parts/text.js";
import { compare } from "./cursor.js";
import { gateway } from "./gateway.js";
import { live } from "./live.js";
import { ServedStore } from "./store.js";

/** All conversations, newest first, with what is unread. */
class Conversations extends ServedStore {
  #all = new Map();
  #called = null;

  constructor() {
    super();
    live.on("afresh", (isFirst) => {
      if (isFirst) setTimeout(() => this.anew(), live.catchUpMs); else this.anew();
    });
    live.on("again", () => { if (this.isWanting) this.anew(); });
    live.on("linked", () => {
      // What could not be read is not told again by a stream that goes on.
      if (this.isBehind) this.anew();
    });
    live.on("message", (row) => this.told(() => this.#came(row)));
    live.on("read", ({ conversation, ...news }) => this.told(() => this.update(conversation, news)));
    live.on("journal", ({ kind, body }) => {
      if (kind === "channel" || kind === "document") this.anew();
      else if (kind === "contact" || kind === "advert") this.told(() => this.update(`node:${body.key.slice(0, 12)}`, { name: body.name, on_radio: body.on_radio }));
      else if (kind === "contact_removed") this.told(() => this.update(`node:${body.key.slice(0, 12)}`, { on_radio: false }));
    });
  }

  async read(options) {
    const found = await allRows("/v1/conversations", options);
    this.#all = new Map(found.map((one) => [one.conversation, one]));
    this.#called = null;
  }

  get kept() { return ["/v1/conversations", [...this.#all.values()]]; }

  get(id) { return this.#all.get(id) ?? null; }

  get list() {
    return [...this.#all.values()].sort((a, b) => (b.newest?.received_at ?? 0) - (a.newest?.received_at ?? 0) || rank(a) - rank(b) || shownName(a).localeCompare(shownName(b)));
  }

  /** The beginning of its key, if another is called the same; else nothing. */
  digits(one) {
    this.#called ??= Map.groupBy(this.#all.values(), (other) => gist(shownName(other)));
    return this.#called.get(gist(shownName(one)))?.length > 1 ? ` ${one.conversation.split(":")[1].slice(0, 6)}` : "";
  }

  /** That concern somebody. */
  get unread() {
    let count = 0;
    for (const one of this.#all.values()) count += one.unread ?? 0;
    return count;
  }

  /** What is known of one, by name. */
  update(id, changes) {
    const known = this.#all.get(id);
    if (!known || Object.entries(changes).every(([name, value]) => known[name] === value)) return;
    this.#all.set(id, { ...known, ...changes });
    this.#called = null;
    this.changed();
  }

  #came(row) {
    const known = this.#all.get(row.conversation);
    if (!known) { if (this.isLoaded) this.load(); return; }
    const isNew = !known.newest || compare(row.cursor, known.newest.cursor) > 0;
    const changes = {};
    if (isNew || row.cursor === known.newest?.cursor) changes.newest = row;
    if (isNew && row.direction === "received" && !row.filtered && compare(row.cursor, known.read) > 0) {
      changes.unread = (known.unread ?? 0) + 1;
      if (row.mentions?.includes(gateway.name)) changes.mentioned = true;
    }
    this.update(row.conversation, changes);
  }
}

/** Empty ones: channels first, then people, then rooms. */
function rank(one) { return { channel: 0, direct: 1, room: 2 }[one.kind] ?? 3; }

/** As we call it, else as it calls itself. */
export function shownName(one) { return one.alias || one.name || one.conversation.replace(/^\w+:/, ""); }

export const conversations = new Conversations();

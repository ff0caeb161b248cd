import { FIRST_ROWS } from "../first.js";
import { allRows } from "./api.js";
import { compare, parts } from "./cursor.js";
import { live } from "./live.js";
import { outbox } from "./outbox.js";
import { passed } from "./passed.js";
import { query } from "./query.js";
import { old, ServedStore } from "./store.js";

const PAGE = 60;
/** More rows than anybody looks at; further away is read again when it is scrolled to. */
const MOST = 4000;
/** Of so many the browser keeps what they are. */
const MOST_KEPT = 200;

/**
 * A stretch of one conversation, as far as it was read: rows by their cursor, oldest first. `hasOlder`, `hasNewer`: there is more.
 */
export class Chat extends ServedStore {
  rows = [];
  hasOlder = false;
  hasNewer = false;
  /** The place around which nothing could be read yet. */
  wanted = null;
  #id;
  #ends = [];
  #isClosed = false;

  constructor(id) {
    super();
    this.#id = id;
    this.#ends = [
      live.on("message", (row) => { if (row.conversation === id) this.told(() => this.#came(row)); }),
      live.on("journal", ({ kind, body }) => { if (kind === "reaction") this.told(() => this.#reacted(body)); }),
      // After the first reading a moment later, when the first view is there.
      live.on("afresh", (isFirst) => { if (isFirst) setTimeout(() => this.#missed(), live.catchUpMs); else this.#missed(); }),
      live.on("linked", () => { if (this.isBehind) this.#missed(); }),
      live.on("again", () => { if (this.isWanting) this.#missed(); }),
    ];
  }

  close() {
    this.end();
    for (const end of this.#ends) end();
    this.#isClosed = true;
  }

  #path(values) { return query("/v1/messages", { conversation: this.#id, direction: "both", limit: PAGE, ...values }); }

  #page(values, options = { isLive: true }) { return allRows(this.#path(values), options); }

  get kept() { return this.hasNewer ? null : [this.#path({ limit: FIRST_ROWS }), this.rows.slice(-MOST_KEPT)]; }

  /** Behind a reading that is under way: that is of another stretch. */
  async #next(part) {
    while (this.isReading) await this.load();
    return this.load(part);
  }

  newest() {
    this.wanted = null;
    return this.#next();
  }

  async read(options) {
    const rows = await this.#page({ limit: FIRST_ROWS }, options);
    this.rows = rows;
    this.hasOlder = rows.length >= FIRST_ROWS;
    this.hasNewer = false;
    for (const waiting of [outbox, passed]) waiting.seen(rows);
  }

  /** The stream has not told all: neither what came, nor what became of what is here. */
  async #missed() {
    if (this.#isClosed || !(this.isLoaded || this.isReading || this.trouble)) return;
    await this.#next(() => (this.wanted ? this.#readAround(this.wanted) : this.rows.length ? this.#readAgain() : this.read()));
    this.isBehind = this.trouble !== null;
    if (!this.isBehind) old.set(this);
  }

  /** The same stretch as it is now: up to its last row, or to the newest where it has that. */
  async #readAgain() {
    const [message, outgoing] = parts(this.rows.at(-1).cursor);
    const limit = Math.max(FIRST_ROWS, this.rows.length);
    const rows = await this.#page({ limit, before: this.hasNewer ? `${message}.${outgoing + 1}` : undefined });
    if (!rows.length) { await this.read(); return; }
    this.hasOlder = rows.length >= limit && (this.hasOlder || compare(rows[0].cursor, this.rows[0].cursor) > 0);
    this.rows = rows;
    for (const waiting of [outbox, passed]) waiting.seen(rows);
  }

  /** The stretch around a row. */
  async around(cursor) {
    this.wanted = cursor;
    await this.#next(() => this.#readAround(cursor));
    this.isBehind ||= this.wanted !== null;
  }

  async #readAround(cursor) {
    const before = await this.#page({ before: cursor });
    const after = await this.#page({ after: before.at(-1)?.cursor ?? "0" });
    this.rows = merge(before, after);
    this.hasOlder = before.length >= PAGE;
    this.hasNewer = after.length >= PAGE;
    if (this.wanted === cursor) this.wanted = null;
  }

  /** Somebody has gone elsewhere meanwhile. */
  leave() {
    this.wanted = null;
    this.changed();
  }

  older() {
    if (!this.hasOlder || !this.rows.length || this.isResting) return null;
    return this.load(async () => {
      const rows = await this.#page({ before: this.rows[0].cursor });
      this.hasOlder = rows.length >= PAGE && compare(rows[0].cursor, this.rows[0].cursor) < 0;
      this.rows = merge(rows, this.rows);
      if (this.rows.length > MOST) {
        this.rows = this.rows.slice(0, MOST);
        this.hasNewer = true;
      }
    });
  }

  newer() {
    if (!this.hasNewer || !this.rows.length || this.isResting) return null;
    return this.load(async () => {
      const last = this.rows.at(-1).cursor;
      const rows = await this.#page({ after: last });
      this.hasNewer = rows.length >= PAGE && compare(rows.at(-1).cursor, last) > 0;
      this.rows = merge(this.rows, rows);
      if (this.rows.length > MOST) {
        this.rows = this.rows.slice(-MOST);
        this.hasOlder = true;
      }
    });
  }

  find(cursor) { return this.rows.find((row) => row.cursor === cursor) ?? null; }

  #came(row) {
    if (!this.isLoaded) return;
    const at = this.rows.findIndex((one) => one.cursor === row.cursor);
    if (at >= 0) this.rows = this.rows.with(at, row);
    else if (this.hasNewer) return;
    else if (this.rows.length && compare(row.cursor, this.rows[0].cursor) < 0 && this.hasOlder) return;
    else this.rows = merge(this.rows, [row]);
    this.changed();
  }

  #reacted({ emoji, sender, ours = false, target, target_outgoing: sent }) {
    const id = target ?? (sent === undefined ? undefined : -sent);
    const at = id === undefined ? -1 : this.rows.findIndex((row) => row.id === id);
    if (at < 0) return;
    const row = this.rows[at];
    if (row.reactions?.some((one) => one.emoji === emoji && one.sender === sender && Boolean(one.ours) === ours)) return;
    this.rows = this.rows.with(at, { ...row, reactions: [...(row.reactions ?? []), { emoji, sender, ours }] });
    this.changed();
  }
}

/** Two stretches as one, each row once: the one of `b` where both have it. */
function merge(a, b) {
  if (!a.length || !b.length || compare(a.at(-1).cursor, b[0].cursor) < 0) return [...a, ...b];
  const all = new Map([...a, ...b].map((row) => [row.cursor, row]));
  return [...all.values()].sort((x, y) => compare(x.cursor, y.cursor));
}

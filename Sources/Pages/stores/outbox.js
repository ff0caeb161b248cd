import { Kept } from "./kept.js";
import { live } from "./live.js";
import { Store } from "./store.js";

/** Until it is tried again while the stream goes on, which says when the line is back, but not when a host that was busy is not. */
const AGAIN_MS = 10_000;

/**
 * What was written and is not at the gateway yet. Each has an id of its own, under which it may be posted any number of times and is one
 * message: a page that is closed, a line that is cut in the middle, or two tabs that share this storage send nothing twice. Entries: sending.js.
 */
class Outbox extends Store {
  #kept = new Kept("outbox", []);
  /** What the storage had no room for: it goes with this page. */
  #unkept = [];
  /** Taken by the gateway; their rows have not come yet. */
  #taken = new Set();
  #isSending = false;
  #again = 0;

  constructor() {
    super();
    live.on("linked", () => this.flush());
    live.on("message", (row) => { if (row.outgoing) this.#arrived(row.outgoing); });
    addEventListener("storage", (event) => { if (event.key === "meshpost.outbox") { this.changed(); this.later(); } });
    addEventListener("beforeunload", (event) => { if (!this.#unkept.every((entry) => this.isKept(entry))) event.preventDefault(); });
  }

  get #all() { return [...this.#kept.value, ...this.#unkept]; }

  get #ours() { return this.#all.filter((entry) => !entry.gateway || entry.gateway === live.gateway); }

  /** Those of all conversations, also of one that has begun with it and is in no list yet. */
  get all() { return this.#ours; }

  of(conversation) { return this.#ours.filter((entry) => entry.conversation === conversation); }

  get count() { return this.#ours.filter((entry) => !entry.trouble).length; }

  /** How many are in this browser alone, also those that were refused, and those of other gateways. */
  get unsent() { return this.#all.filter(({ id }) => !this.#taken.has(id)).length; }

  /** Whether it outlasts this page. */
  isKept({ id }) { return this.#taken.has(id) || !this.#unkept.some((entry) => entry.id === id); }

  add(entry) {
    this.#unkept.push(entry);
    this.#keep();
    this.flush();
  }

  /** All in one order: there may be room again for what had none. */
  #keep() {
    if (this.#unkept.length && this.#kept.store(this.#all)) this.#unkept = [];
    this.changed();
  }

  #change(change) {
    this.#kept.value = change(this.#kept.value);
    this.#unkept = change(this.#unkept);
    this.#keep();
  }

  set(id, values) { this.#change((all) => all.map((entry) => (entry.id === id ? { ...entry, ...values } : entry))); }

  discard(id) { this.#change((all) => all.filter((entry) => entry.id !== id)); }

  /** Once more what was refused. */
  retry(id, changes = {}) {
    this.set(id, { ...changes, trouble: undefined });
    this.flush();
  }

  clear() {
    this.#kept.clear();
    this.#unkept = [];
    this.changed();
  }

  #arrived(outgoing) {
    const id = outgoing.split("/")[0];
    this.#taken.delete(id);
    if (this.#all.some((entry) => entry.id === id)) this.discard(id);
  }

  /** A page of rows was read: what is among them has arrived. */
  seen(rows) { for (const row of rows) if (row.outgoing) this.#arrived(row.outgoing); }

  /** Also what a tab wrote that is closed by then. */
  later() {
    clearTimeout(this.#again);
    this.#again = setTimeout(() => { if (live.isLinked) this.flush(); }, AGAIN_MS);
  }

  /** It is on the gateway's disk. Its row takes its place as soon as it comes; were that missed, it goes all the same. */
  took(id) {
    this.#taken.add(id);
    this.changed();
    setTimeout(() => this.#arrived(id), 4000);
  }

  /** The one that goes next. */
  get next() { return this.#ours.find((one) => !one.trouble && !this.#taken.has(one.id)); }

  /** What sends is loaded when something waits. */
  async flush() {
    if (this.#isSending || !this.next) return;
    this.#isSending = true;
    try {
      await (await import("./sending.js")).send();
    } catch {
      this.later();
    }
    this.#isSending = false;
  }
}

export const outbox = new Outbox();

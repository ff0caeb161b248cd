import { freshID, order } from "./api.js";
import { Kept } from "./kept.js";
import { live } from "./live.js";
import { Store } from "./store.js";

/** Until it is tried again while the stream goes on, which says when the line is back, but not when a host that was busy is not. */
const AGAIN_MS = 10_000;

/**
 * What was written and is not at the gateway yet. Each has an id of its own, under which it may be posted any number of times and is one
 * message: a page that is closed, a line that is cut in the middle, or two tabs that share this storage send nothing twice.
 *
 * An entry is for the gateway at which it was written, if that was known, and waits for that when this address leads to another. `{id, gateway, conversation, text, split, at, region?, trouble?: {words, remedy, code}, unsure?}`, `unsure`: the status of an answer that was not the gateway's. It goes when its message comes by the stream.
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
    addEventListener("storage", (event) => { if (event.key === "meshpost.outbox") { this.changed(); this.#later(); } });
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

  write(conversation, text, split = false, region = "") {
    this.#unkept.push({ id: freshID(), gateway: live.gateway, conversation, text, split, at: Date.now(), ...(region ? { region } : {}) });
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

  #set(id, values) { this.#change((all) => all.map((entry) => (entry.id === id ? { ...entry, ...values } : entry))); }

  discard(id) { this.#change((all) => all.filter((entry) => entry.id !== id)); }

  /** Once more what was refused. */
  retry(id, changes = {}) {
    this.#set(id, { ...changes, trouble: undefined });
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
  #later() {
    clearTimeout(this.#again);
    this.#again = setTimeout(() => { if (live.isLinked) this.flush(); }, AGAIN_MS);
  }

  /** In the order in which it was written; stops at a cut. */
  async flush() {
    if (this.#isSending) return;
    this.#isSending = true;
    try {
      for (;;) {
        const entry = this.#ours.find((one) => !one.trouble && !this.#taken.has(one.id));
        if (!entry) return;
        try {
          // By the channel's digest or the key's first digits, which no name is taken for.
          await order("/v1/send", { to: entry.conversation.replace(/^(channel|node):/, ""), text: entry.text, id: entry.id, ...(entry.split ? { split: true } : {}), ...(entry.region ? { region: entry.region } : {}) });
          this.#taken.add(entry.id);
          this.changed();
          // It is on the gateway's disk. Its row takes its place as soon as it comes; were that missed, it goes all the same.
          setTimeout(() => this.#arrived(entry.id), 4000);
        } catch (trouble) {
          if (trouble.isCut || trouble.status === 401) {
            // Nobody knows whether it is there. Under its id it is asked for again; who does not want to wait can take it away.
            if (trouble.isForeign && entry.unsure !== trouble.status) this.#set(entry.id, { unsure: trouble.status });
            live.retry();
            this.#later();
            return;
          }
          const { message: words, remedy, code } = trouble;
          this.#set(entry.id, { trouble: { words, remedy, code }, unsure: undefined });
        }
      }
    } finally {
      this.#isSending = false;
    }
  }
}

export const outbox = new Outbox();

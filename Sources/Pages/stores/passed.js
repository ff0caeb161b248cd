// What another tab has sent while the line of this one is cut: it is gone from the storage that they share before this one sees its row.
import { live } from "./live.js";
import { Store } from "./store.js";

/** So long after the line is back, the stream has told what it missed: what has no row by then was taken away by somebody. */
const TOLD_MS = 4000;

function read(text) { try { return JSON.parse(text) ?? []; } catch { return []; /* not what we wrote */ } }

class Passed extends Store {
  #all = [];

  constructor() {
    super();
    addEventListener("storage", ({ key, oldValue, newValue }) => {
      if (key !== "meshpost.outbox" || live.isLinked) return;
      const kept = new Set(read(newValue).map(({ id }) => id));
      this.#all = this.#all.filter(({ id }) => !kept.has(id));
      this.#all.push(...read(oldValue).filter((entry) => !kept.has(entry.id) && !entry.trouble && (!entry.gateway || entry.gateway === live.gateway)));
      this.changed();
    });
    live.on("message", (row) => this.seen([row]));
    live.on("linked", () => {
      const all = this.#all;
      setTimeout(() => this.#keep((entry) => !all.includes(entry)), TOLD_MS);
    });
  }

  of(conversation) { return this.#all.filter((entry) => entry.conversation === conversation); }

  /** @param {(entry: any) => boolean} isKept */
  #keep(isKept) {
    if (this.#all.every(isKept)) return;
    this.#all = this.#all.filter(isKept);
    this.changed();
  }

  discard(id) { this.#keep((entry) => entry.id !== id); }

  /** Rows that have come. */
  seen(rows) {
    const ids = new Set(rows.map((row) => row.outgoing?.split("/")[0]));
    this.#keep(({ id }) => !ids.has(id));
  }
}

export const passed = new Passed();

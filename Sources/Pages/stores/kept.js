// What this browser keeps: drafts, and what was written while the line was cut. Nothing secret.

/** A value in the browser's storage; without one (private windows) it lasts as long as the page. */
export class Kept {
  #name;
  #empty;
  #memory = null;
  /** What is in memory could not be stored. */
  #isNewer = false;

  constructor(name, empty) {
    this.#name = `meshpost.${name}`;
    this.#empty = empty;
  }

  get value() {
    if (this.#isNewer) return this.#memory;
    try {
      const text = localStorage.getItem(this.#name);
      if (text !== null) return JSON.parse(text);
    } catch { /* not to be read, or not what we wrote: as if there were nothing */ }
    return structuredClone(this.#empty);
  }

  set value(value) {
    this.#memory = value;
    this.#isNewer = !this.store(value);
  }

  /** Whether it outlasts this page. */
  get isKept() { return !this.#isNewer; }

  /** Whether the storage has taken it, which may be full or forbidden. */
  store(value) {
    try { localStorage.setItem(this.#name, JSON.stringify(value)); } catch { return false; }
    this.#isNewer = false;
    return true;
  }

  clear() {
    this.#memory = null;
    this.#isNewer = false;
    try { localStorage.removeItem(this.#name); } catch { /* there was none */ }
  }
}

export const drafts = new Kept("drafts", {});

export function draftOf(conversation) { return drafts.value[conversation] ?? ""; }

// What this browser keeps: drafts, and what was written while the line was cut. Nothing secret.

/** A value in the browser's storage; without one (private windows) it lasts as long as the page. */
export class Kept {
  #name;
  #empty;
  #memory = null;

  constructor(name, empty) {
    this.#name = `meshpost.${name}`;
    this.#empty = empty;
  }

  get value() {
    try {
      const text = localStorage.getItem(this.#name);
      return text === null ? this.#memory ?? structuredClone(this.#empty) : JSON.parse(text);
    } catch {
      // Not to be read, or not what we wrote: as if there were nothing.
      return this.#memory ?? structuredClone(this.#empty);
    }
  }

  set value(value) {
    this.#memory = value;
    try { localStorage.setItem(this.#name, JSON.stringify(value)); } catch { /* full or forbidden: it is in memory */ }
  }

  clear() {
    this.#memory = null;
    try { localStorage.removeItem(this.#name); } catch { /* there was none */ }
  }
}

const drafts = new Kept("drafts", {});

export function draftOf(conversation) { return drafts.value[conversation] ?? ""; }

export function keepDraft(conversation, text) {
  const all = drafts.value;
  if (text.trim()) all[conversation] = text.slice(0, 4000);
  else delete all[conversation];
  drafts.value = all;
}

export function forgetDrafts() { drafts.clear(); }

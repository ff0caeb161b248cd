/** After a reading that failed. */
const REST_MS = 3000;

/** Something that changes, and whoever wants to know. What changes in one turn is told once. */
export class Store {
  #listeners = new Set();
  #isTold = true;

  /** Calls `heard` after each change, until what is returned is called. */
  subscribe(heard) {
    this.#listeners.add(heard);
    return () => this.#listeners.delete(heard);
  }

  changed() {
    if (!this.#isTold) return;
    this.#isTold = false;
    queueMicrotask(() => {
      this.#isTold = true;
      for (const heard of [...this.#listeners]) heard();
    });
  }
}

/** What is heard of somebody else, by name. */
export class Stream extends Store {
  #heard = new Map();

  /** Until what is returned is called. */
  on(event, heard) {
    if (!this.#heard.has(event)) this.#heard.set(event, new Set());
    this.#heard.get(event).add(heard);
    return () => this.#heard.get(event).delete(heard);
  }

  tell(event, value) { for (const heard of [...(this.#heard.get(event) ?? [])]) heard(value); }
}

/** What is shown and may be older than what the host has: since when, by who shows it. */
export const old = new (class extends Store {
  #all = new Map();
  get at() { return this.#all.size ? Math.min(...this.#all.values()) : null; }
  has(key) { return this.#all.has(key); }

  set(key, at) {
    if (at ? this.#all.set(key, at) : this.#all.delete(key)) this.changed();
  }
})();

/** All that are open. keeping.js hears of one that ends. */
export const served = Object.assign(new Set(), { ended(_store) {} });

/**
 * What a server has: read as a whole by the subclass's `read(options)`, which asks with these, and kept up to date by the server's stream. `isLoaded`: it was read once;
 * `trouble`: why the last reading failed; `isResting`: that was just now, and what one scrolls to is not asked for again at once;
 * `isBehind`: the whole is still to be read.
 */
export class ServedStore extends Store {
  isLoaded = false;
  trouble = null;
  isResting = false;
  isBehind = false;
  #reading = null;
  #meanwhile = [];
  #isStale = false;

  get isReading() { return this.#reading !== null; }

  constructor() {
    super();
    served.add(this);
  }

  end() {
    served.ended(this);
    served.delete(this);
    old.set(this);
  }

  /** All is to be read, and nobody does. */
  get isWanting() { return this.isBehind && !this.isResting && !this.isReading; }

  /** One reading at a time: who asks meanwhile gets that one. `part()`: reads it in place of the whole. */
  load(part) {
    this.#reading ??= this.#run(part ?? ((options) => this["read"](options)), !part);
    return this.#reading;
  }

  /** For who has missed something: one more where a reading is under way, as that may have begun before. */
  anew() {
    if (this.#reading) this.#isStale = true;
    else this.load();
  }

  /** A change that the stream tells of: made at once, and again to what a reading that is under way brings, as that may be older. */
  told(change) {
    if (this.#reading) this.#meanwhile.push(change);
    change();
  }

  async #run(read, isWhole) {
    try {
      const options = { late: new Map(), isLive: this.isLoaded };
      await read(options);
      this.isLoaded = true;
      if (options.late.size) {
        old.set(this, options.at);
        this.changed();
        options.isLive = true;
        await Promise.all(options.late.values());
        await read(options);
      }
      if (isWhole) old.set(this);
      this.trouble = null;
      if (isWhole) this.isBehind = false;
    } catch (trouble) {
      this.trouble = trouble;
      this.isBehind ||= isWhole;
      this.isResting = true;
      setTimeout(() => { this.isResting = false; this.changed(); }, REST_MS);
    }
    this.#reading = null;
    for (const change of this.#meanwhile.splice(0)) change();
    if (this.#isStale) {
      this.#isStale = false;
      this.load();
    }
    this.changed();
  }
}

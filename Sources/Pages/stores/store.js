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

// As much of a browser as the stores of the pages use, with a clock that goes on only as far as it is told, and a storage.
const timers = new Map();
let [now, count] = [1_700_000_000_000, 0];

/** Each seed is another course of events, and the same one each time (mulberry32). */
export function randomOf(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return { is: (share) => next() < share, upTo: (most) => Math.floor(next() * most), of: (all) => all[Math.floor(next() * all.length)] };
}

const settled = globalThis.setImmediate;
const after = (ms, call, every = 0) => { timers.set(++count, { at: now + Math.max(0, ms ?? 0), call, every }); return count; };

/** Lets the clock go on by so many milliseconds. */
export async function pass(ms) {
  const end = now + ms;
  for (;;) {
    // What promises have to do is done before the next timer.
    await new Promise((done) => { settled(done); });
    const [id, due] = [...timers].filter(([, { at }]) => at <= end).sort(([a, x], [b, y]) => x.at - y.at || a - b)[0] ?? [];
    if (!due) break;
    now = Math.max(now, due.at);
    if (due.every) due.at += due.every; else timers.delete(id);
    due.call();
  }
  now = end;
}

/** How a request is answered: `(method, path, body)` to `{status, text}`, later; `null`: not at all. */
export const host = { answer: async () => null };

class Storage {
  all = new Map();
  isFull = false;
  getItem(name) { return this.all.get(name) ?? null; }
  /** A full one takes what is no longer than before. */
  setItem(name, value) {
    if (this.isFull && value.length > (this.all.get(name) ?? "").length) throw new Error("full");
    this.all.set(name, value);
  }

  removeItem(name) { this.all.delete(name); }
}

Object.defineProperty(globalThis, "navigator", { value: { languages: ["en"] }, configurable: true });
Date.now = () => now;
// Of newer browsers than node 18.
Array.prototype.with ??= function other(at, item) { return Object.assign([...this], { [at]: item }); };
const element = () => ({ append() {}, setAttribute() {} });
Object.assign(globalThis, {
  setTimeout: (call, ms) => after(ms, call),
  setInterval: (call, ms) => after(ms, call, ms),
  clearTimeout: (id) => { timers.delete(id); },
  clearInterval: (id) => { timers.delete(id); },
  location: { pathname: "/", search: "", hash: "#none", origin: "http://gateway" },
  document: { querySelector: () => null, documentElement: { dataset: {}, lang: "en" }, head: element(), createElement: element, hidden: false, addEventListener() {} },
  localStorage: new Storage(),
  addEventListener() {},
  async fetch(path, { method = "GET", body, signal } = {}) {
    const cut = new Error("cut");
    const given = await Promise.race([host.answer(method, path, body && JSON.parse(body)), new Promise((_, no) => { signal?.addEventListener?.("abort", () => no(cut)); })]);
    if (!given) throw cut;
    return new Response(given.text, { status: given.status ?? 200 });
  },
});
AbortSignal.timeout = (ms) => {
  const ending = new AbortController();
  after(ms, () => ending.abort());
  return ending.signal;
};

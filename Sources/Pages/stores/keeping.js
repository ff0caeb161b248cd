// What known.js reads is written here, behind the first view: answers as they come, and what the stream made of them when the page is left.
import { answers, MARK } from "./api.js";
import { all, forgetKept, KEPT, named, write } from "./known.js";
import { old, served } from "./store.js";

/** Characters of all that is kept; the oldest go first. One answer has half of it at most. */
const MOST = 2 << 20;

/** Takes away what `is(path)`. */
export function drop(is) {
  for (const path of [...all.keys()]) if (is(path)) { all.delete(path); write((store) => store.delete(path)); }
}

export function keep(path, text, at) {
  try {
    // Somebody has left, maybe in another tab.
    if (!localStorage.getItem(MARK)) forgetKept();
    localStorage.setItem(MARK, "1");
  } catch { return; /* nothing is kept here */ }
  const one = { path: named(path), at, text };
  if (text.length > MOST / 2) { drop((path) => path === one.path); return; }
  // The newest last.
  all.delete(one.path);
  all.set(one.path, one);
  write((store) => store.put(one));
  let sum = 0;
  for (const each of [...all.values()].reverse()) if ((sum += each.text.length) > MOST) drop((path) => path === each.path);
}

/** `at`: when it was so. What is older than the host's own is kept already, with its time. */
function keepState(store, at) {
  const [path, value] = store.isLoaded && !store.isBehind && !old.has(store) && store.kept || [];
  if (path) keep(path, Array.isArray(value) ? value.map((one) => JSON.stringify(one)).join("\n") : JSON.stringify(value), at);
}

async function take({ path, answer, at }) {
  try {
    if (!KEPT.test(path)) { await answer.body?.cancel(); return; }
    const era = answers.era;
    const text = await answer.text();
    if (era !== answers.era || path === "/session" && !JSON.parse(text).signed_in) return;
    keep(path, text, at);
    if (path !== "/v1/conversations") return;
    // Of one that is gone, nothing stays.
    const there = new Set(text.split("\n").filter(Boolean).map((one) => JSON.parse(one).conversation));
    drop((one) => { const id = /conversation=([^&]+)/.exec(one)?.[1]; return id && !there.has(decodeURIComponent(id)); });
  } catch { /* it broke off, or is not ours */ }
}

/** `live`: the host's stream. */
export function startKeeping(live) {
  answers.take = take;
  answers.came.splice(0).forEach(take);
  // As who looks for them loads it: a file of its own.
  import("./known.js").catch(() => { /* when it is wanted */ });
  served.ended = (store) => keepState(store, live.since ?? Date.now());
  document.addEventListener("visibilitychange", () => { if (document.hidden) [...served].forEach(served.ended); });
}

// What the host answered last, kept in this browser: shown, with its age, while an answer is late or the line is cut (docs/pages.md). keeping.js writes it.

import { isAnyKept } from "./api.js";
import { old, served } from "./store.js";

/** After so long, an answer is late. */
const LATE_MS = 250;
/** Which answers: what views begin with. Pages get no secrets. */
export const KEPT = /^\/(session|v1\/(conversations|status|contacts|readings\?newest=1|messages\?(conversation=[^&]+&direction=both&limit=30|order=newest&limit=60)|fleet.*|coverage.*|channels|airtime|doctor|outbox|alerts.*|commands\?limit=100))$/;
/** As long as an unused session. */
const LONGEST_MS = 30 * 86_400_000;

/** By path: `{path, at, text}`, the newest last. */
export const all = new Map();
let base = null;

const opened = new Promise((resolve) => {
  try {
    const opening = indexedDB.open("meshpost", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("known", { keyPath: "path" });
    opening.onsuccess = () => {
      base = opening.result;
      const reading = base.transaction("known").objectStore("known").getAll();
      reading.onsuccess = () => { for (const one of reading.result.sort((a, b) => a.at - b.at)) all.set(one.path, one); resolve(); };
      reading.onerror = resolve;
    };
    opening.onerror = resolve;
  } catch { resolve(); /* forbidden here: as long as the page lasts */ }
});

export function write(change) {
  opened.then(() => change(base.transaction("known", "readwrite").objectStore("known"))).catch(() => { /* there is no place to keep it */ });
}

/** A page that was late itself need not wait for its answers, too. */
function lateIn() { return performance.now() < 1500 ? Math.max(50, LATE_MS - performance.now()) : LATE_MS; }

/** Of a span until now, its length counts. */
export function named(path) { return path.replace(/since=(\d+)/, (_, ms) => `since=${Math.round((Date.now() - ms) / 3_600_000)}h`); }

/** `{at, text}`, if there is one. */
export async function known(path) {
  if (!KEPT.test(path) || !isAnyKept()) return null;
  await opened;
  const found = all.get(named(path));
  return Date.now() - found?.at < LONGEST_MS ? found : null;
}

/**
 * What is sent, or what was answered before: where the line is cut and, with `options.late`, where the answer is late. That is a map of what was not answered, for
 * who asks again with the same options and `isLive` once it is; `options.at`: how old the oldest of these is; `options.before`: what was kept.
 */
export async function either(sent, path, options) {
  const isQuick = sent.then(() => true, (trouble) => !trouble.isCut);
  const kept = await known(path);
  options.before = kept;
  if (!kept || await Promise.race([isQuick, ...(options.late ? [new Promise((resolve) => { setTimeout(resolve, lateIn()); })] : [])])) return sent;
  if (options.late) options.late.set(path, sent);
  else old.set("line", kept.at);
  options.at = Math.min(options.at ?? Infinity, kept.at);
  return new Response(kept.text);
}

// What only the stream tells is shown as it was, where that is late.
opened.then(() => setTimeout(() => {
  for (const store of served) {
    const kept = store.take && !store.isLoaded && all.get(store.kept[0]);
    if (!kept) continue;
    store.take(JSON.parse(kept.text));
    old.set(store, kept.at);
  }
}, LATE_MS));

export function forgetKept() {
  all.clear();
  write((store) => store.clear());
}

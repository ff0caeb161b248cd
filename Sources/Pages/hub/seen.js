// What has changed since one looked last: this browser keeps what it showed of each gateway when somebody said that they have seen it.
import { now } from "../parts/times.js";
import { Kept } from "../stores/kept.js";
import { contact, needs } from "./live.js";

/** A browser keeps 5 MB for all; a fleet that is larger than this is not compared. */
const MOST = 5000;
const kept = new Kept("fleet-seen", null);
/** As it was kept: read once, because a large fleet is a long text. */
let known;

function digest(row) {
  return { c: contact(row) === "silent" ? 1 : 0, v: row.version ?? "", n: needs(row).filter((one) => one !== "silent").join(" ") };
}

/** As they are now, they have been seen. Whether that outlasts this page: the storage may be full. */
export function see(rows) {
  if (rows.size > MOST) return true;
  kept.value = known = { at: now(), rows: Object.fromEntries([...rows.values()].map((row) => [row.gateway, digest(row)])) };
  return kept.isKept;
}

/** `{at, changes: [{gateway, what, before?, after?}]}`; `null`: nobody has looked yet, here. `what`: a word of the catalogue. */
export function changes(rows) {
  const seen = known ??= kept.value;
  if (!seen || typeof seen.rows !== "object" || rows.size > MOST) return null;
  const found = [];
  const before = new Map(Object.entries(seen.rows));
  for (const row of rows.values()) {
    const was = before.get(row.gateway);
    before.delete(row.gateway);
    if (!was) { found.push({ gateway: row.gateway, what: "new" }); continue; }
    const is = digest(row);
    if (is.c !== was.c) found.push({ gateway: row.gateway, what: is.c ? "silent" : "back" });
    const old = new Set(String(was.n).split(" ").filter(Boolean));
    for (const one of is.n.split(" ").filter(Boolean)) if (!old.delete(one)) found.push({ gateway: row.gateway, what: `need-${one}` });
    for (const one of old) found.push({ gateway: row.gateway, what: `over-${one}` });
    if (is.v !== was.v && is.v) found.push({ gateway: row.gateway, what: was.v ? "version" : "version-first", before: String(was.v), after: is.v });
  }
  for (const gateway of before.keys()) found.push({ gateway, what: "gone" });
  return { at: Number(seen.at) || 0, changes: found };
}

export function forgetSeen() {
  known = undefined;
  kept.clear();
}

// Notifications that were chosen in this browser go on with a new session.
try { if (localStorage.getItem("meshpost.notify")) import("./notify.js").then(({ renew }) => renew()).catch(() => { /* with the next load */ }); } catch { /* nothing is kept here */ }

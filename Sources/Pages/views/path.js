// Paths: which repeaters, where that can be told; found anew, forgotten, and how well the last messages came over them.
import { chart, newestOnly } from "../parts/chart.js";
import { fill, make, showTrouble } from "../parts/page.js";
import { decibels, number } from "../parts/numbers.js";
import { named } from "../parts/text.js";
import { t } from "../parts/words.js";
import { nodeName, nodes } from "../stores/nodes.js";
import { allRows, order } from "../stores/api.js";
import { query } from "../stores/query.js";
import { to } from "../shell/route.js";
import { busy } from "../parts/held.js";
import { told } from "./marks.js";

/** More messages than a small chart can show. */
const MOST_HEARD = 200;

/** An answer comes from as far as the node is, and is asked for again once. */
const PATIENCE_MS = 180_000;

/**
 * Buttons that ask the node for a path, or forget the one that is known; the mesh answers, or it is said why not. Made once for a
 * node: what an answer changes redraws the node's details, and its words stay.
 */
export function pathActions(key) {
  const state = make("p", { class: "small", role: "status" });
  const does = (name, doing) => make("button", { type: "button", class: "button small", text: t(`path.${name}`), data: { path: name }, on: { click: (event) => busy(event.currentTarget, async () => {
    state.className = "small quiet";
    state.textContent = t("ask.asked");
    try {
      await doing();
      state.textContent = t(`path.${name}-done`);
      state.className = "small good-words";
      told(t(`path.${name}-done`));
    } catch (trouble) {
      state.textContent = trouble.message;
      state.className = "small bad-words";
    }
  }) } });
  const discover = does("discover", () => order("/v1/contacts/path", { contact: key, discover: true }, { patience: PATIENCE_MS }));
  const reset = does("reset", () => order("/v1/contacts/path", { contact: key, reset: true }));
  return {
    element: make("div", { class: "plain" }, make("div", { class: "row wrap" }, discover, reset), state),
    /** What can be done with the node as it is now. */
    show(node) {
      discover.hidden = !node.on_radio;
      reset.hidden = !node.on_radio || node.path === undefined;
    },
  };
}

/** How its last messages were heard: signal and hops over time, into `place`. */
export async function showHeard(node, place) {
  let rows;
  try { rows = await allRows(query("/v1/messages", { from: node.key, limit: MOST_HEARD })); } catch (trouble) {
    place.hidden = false;
    showTrouble(place, trouble, () => showHeard(node, place));
    return;
  }
  const points = (field) => rows.filter((row) => typeof row[field] === "number").map((row) => ({ at: row.received_at, value: row[field] }));
  const [snr, hops] = [points("snr"), points("hops")];
  place.hidden = !snr.length;
  fill(place, make("h3", { text: t("heard.title") }), snr.length ? chart("SNR", snr, decibels) : null, hops.length ? chart(t("nodes.hops"), hops, (value) => number(value)) : null, newestOnly(rows.length, MOST_HEARD));
}

/** A path as its repeaters: names where only one node fits, else the digits. */
export function pathOf(node) {
  if (!node.hops) return [make("span", { text: t("nodes.neighbour") })];
  const digits = node.path.length / node.hops;
  const hops = Number.isInteger(digits) && digits >= 2 ? Array.from({ length: node.hops }, (_, index) => node.path.slice(index * digits, (index + 1) * digits)) : [node.path];
  return make("span", { class: "path" }, make("span", { text: t("here") }), hops.map((hop) => [make("span", { class: "quiet", "aria-hidden": "true", text: " › " }), nodeOf(hop)]),
    make("span", { class: "quiet", "aria-hidden": "true", text: " › " }), named(nodeName(node)));
}

/** The repeater whose key begins so, if only one does; else the digits. */
export function nodeOf(prefix) {
  const repeaters = nodes.list.filter((one) => one.key.startsWith(prefix) && (prefix.length > 4 || one.type === "repeater"));
  return repeaters.length === 1 ? make("a", { href: to("nodes", repeaters[0].key) }, named(nodeName(repeaters[0])), make("code", { class: "quiet small", text: ` ${prefix.slice(0, 12)}` })) : make("code", { text: prefix });
}

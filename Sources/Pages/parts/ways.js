// The ways by which copies of a message came: as lines of text, and as lines on a map. A hop is known by a hash that several nodes can share, so each is
// shown with all nodes that it may mean.
import { iconButton, make } from "./page.js";
import { decibels, number } from "./numbers.js";
import { when } from "./times.js";
import { named } from "./text.js";
import { t } from "./words.js";

/** One item for each copy. `told`: an object with `ways` or `heard_by`, and `way_nodes`. */
export function wayList(told) {
  const hop = (hash) => {
    const known = nodesOf(told, hash);
    const names = (known?.nodes ?? []).flatMap((one, place) => [place ? ` ${t("way.or")} ` : "", named(one.name || one.key)]);
    return [make("code", { text: hash }), names.length ? [" (", names, known.more ? ` ${t("way.more", { count: known.more })}` : "", "?)"] : ""];
  };
  return make("ol", { class: "plain lines" }, waysOf(told).map((one) =>
    make("li", {}, make("span", {}, when(one.at, "clock"), " ", isAhead(one) ? `${t("way.known-path")} ` : "",
      one.path.length ? one.path.flatMap((hash, place) => [place ? " › " : "", hop(hash)]) : isAhead(one) ? "" : t("message.direct"),
      one.hops > one.path.length ? ` … ${t("message.hops", { count: one.hops })}` : ""),
    make("span", { class: "quiet" }, [one.snr === undefined ? null : decibels(one.snr), one.rssi === undefined ? null : `${number(one.rssi)} dBm`].filter(Boolean).join(" "), one.region ? [" · ", make("bdi", { text: one.region })] : "", one.guess ? ` · ${t("way.guess")}` : ""))),
  told.ways_more ? make("li", { class: "quiet", text: t("way.not-kept", { count: told.ways_more }) }) : null);
}

/** What was routed names the hops that were still ahead: by whom it came is unknown. */
function isAhead(way) { return way.route === "direct"; }

/** Whether a map can show by whom a copy came. */
export function hasHops(told) { return waysOf(told).some((one) => one.path.length && !isAhead(one)); }

export function waysOf(told) { return told.ways ?? told.heard_by ?? []; }

function nodesOf(told, hash) { return told.way_nodes?.find((one) => one.hash === hash); }

/**
 * Lines from hop to hop: `{lines: [{from, to, isSure}], unplaced}`. `placeOf(key)`: a node's position by the beginning of its key, or `null`; `end`: where
 * the copies were heard; `begin`: where the message was sent. A line is sure if each of its ends can be one known node only, in all copies that draw it,
 * and they are surely of this message; `unplaced`: hops without a position, which interrupt a way. `isOnly(hash)`: whether the reader knows no second
 * node with the hash. `drawn`: what was found for other gateways, which is added to.
 */
export function lines(told, { placeOf, begin, end, isOnly = (_hash) => true }, drawn = { found: new Map(), unknown: new Set() }) {
  const { found, unknown } = drawn;
  for (const way of waysOf(told)) {
    if (isAhead(way)) continue;
    let before = begin ? { places: [begin], isSure: !way.guess } : null;
    for (const hash of way.path) {
      const known = nodesOf(told, hash);
      const places = (known?.nodes ?? []).map((one) => placeOf(one.key)).filter(Boolean);
      const here = places.length ? { places, isSure: !way.guess && known.nodes.length === 1 && !known.more && isOnly(hash) } : null;
      if (!here) unknown.add(hash);
      join(found, before, here);
      before = here;
    }
    const isCut = way.hops > way.path.length;
    if (!isCut && end) join(found, before, { places: [end], isSure: !way.guess });
  }
  return { ...drawn, lines: [...found.values()], unplaced: unknown.size };
}

function join(found, before, here) {
  if (!before || !here) return;
  for (const from of before.places) {
    for (const to of here.places) {
      if (from.lat === to.lat && from.lon === to.lon) continue;
      const name = [from, to].map((one) => `${one.lat} ${one.lon}`).sort().join(" ");
      const isSure = before.isSure && here.isSure;
      const known = found.get(name);
      if (known) known.isSure &&= isSure;
      else found.set(name, { from, to, isSure });
    }
  }
}

/** Sure ones are full, others dashed. */
export function paintLines(paper, ground, all) {
  paper.strokeStyle = ground.inks.accent;
  for (const { from, to, isSure } of all) {
    paper.globalAlpha = isSure ? 1 : 0.8;
    paper.lineWidth = isSure ? 2.5 : 1.75;
    paper.setLineDash(isSure ? [] : [6, 5]);
    paper.beginPath();
    paper.moveTo(...ground.xy(from));
    paper.lineTo(...ground.xy(to));
    paper.stroke();
  }
  paper.setLineDash([]);
  paper.globalAlpha = 1;
}

/** What is on the map, in words, and a way back. `drawn`: as of `lines`, or `null` while it is read; `trouble`: why it cannot be. */
export function waysNote(drawn, { shut, trouble, text }) {
  const [sure, unsure] = [true, false].map((isSure) => (drawn?.lines ?? []).filter((one) => one.isSure === isSure).length);
  return make("div", { class: "map-ways", role: "group", "aria-label": t("way.title") },
    make("div", { role: "status" }, text ? make("p", { class: "map-ways-text" }, make("bdi", { text })) : null,
      trouble ? make("p", { text: trouble }) : !drawn ? make("p", { class: "quiet", text: t("loading") }) : [
        sure ? make("p", { class: "small map-line", text: t("way.sure", { count: sure }) }) : null,
        unsure ? make("p", { class: "small map-line dashed", text: t("way.unsure", { count: unsure }) }) : null,
        !sure && !unsure ? make("p", { class: "small", text: t("way.none-placed") }) : null,
        drawn.unplaced ? make("p", { class: "quiet small", text: t("way.unplaced", { count: drawn.unplaced }) }) : null,
        make("p", { class: "quiet small", text: t("way.why") })]),
    iconButton("close", t("close"), shut));
}

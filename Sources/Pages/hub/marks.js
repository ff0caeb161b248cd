// What stands on the hub's maps: each kind has a shape of its own, as in the legend; links end at the mark that has their end inside.
import { kindMark, KINDS } from "../parts/kinds.js";
import { number } from "../parts/numbers.js";
import { make } from "../parts/page.js";
import { cut } from "../parts/text.js";
import { t } from "../parts/words.js";
import { styled } from "../shell/styled.js";

const INK = { chat: "companion", repeater: "repeater", room: "room", sensor: "sensor", none: "quiet" };

/** The outlines of shapes around 0, 0, at the size 1; a circle has none. */
const OUTLINES = { __proto__: null, diamond: [[0, -1.15], [1.15, 0], [0, 1.15], [-1.15, 0]], square: [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]], up: [[0, -1.1], [1, 0.9], [-1, 0.9]], down: [[0, 1.1], [-1, -0.9], [1, -0.9]] };
const SHAPE = { __proto__: null, repeater: "diamond", room: "square", sensor: "up" };

/** The path of a shape, to be filled and drawn. */
export function shape(paper, name, x, y, size) {
  paper.beginPath();
  if (OUTLINES[name]) for (const [dx, dy] of OUTLINES[name]) paper.lineTo(x + dx * size, y + dy * size);
  else paper.arc(x, y, size, 0, 7);
  paper.closePath();
}

/** Many as one: their number, in an outline. */
export function paintMany(paper, ground, { x, y, items }, { ink, isChosen, name = "circle" }) {
  const size = Math.min(22, 10 + Math.log2(items.length) * 1.5) * (name === "down" ? 1.25 : 1);
  paper.globalAlpha = 1;
  paper.fillStyle = ground.inks.surface;
  paper.strokeStyle = isChosen && ink !== "accent" ? ground.inks.accent : ground.inks[ink];
  paper.lineWidth = isChosen ? 3 : 1.75;
  shape(paper, name, x, y, size);
  paper.fill();
  paper.stroke();
  paper.fillStyle = ground.inks.text;
  paper.textBaseline = "middle";
  paper.fillText(number(items.length), x, name === "down" ? y - size * 0.3 : y + 0.5);
}

/** A gateway: what hears. */
export function paintGateway(paper, ground, { x, y }, isChosen) {
  paper.globalAlpha = 1;
  paper.fillStyle = ground.inks.accent;
  paper.strokeStyle = isChosen ? ground.inks.text : ground.inks.surface;
  paper.lineWidth = isChosen ? 3 : 1.5;
  shape(paper, "down", x, y, 10);
  paper.fill();
  paper.stroke();
}

/** A node, by its kind: one of no known kind is hollow. */
export function paintNode(paper, ground, { x, y }, { kind }, isChosen) {
  const known = KINDS.includes(kind) ? kind : "none";
  paper.globalAlpha = 1;
  paper.fillStyle = known === "none" ? ground.inks.surface : ground.inks[INK[known]];
  shape(paper, SHAPE[known], x, y, isChosen ? 8 : 6);
  paper.fill();
  if (!isChosen && known !== "none") return;
  paper.strokeStyle = isChosen ? ground.inks.text : ground.inks.quiet;
  paper.lineWidth = 2;
  paper.stroke();
}

/** Where something stands on the map: at the mark that has it inside, else at its own place. */
export function placesOf(ground) {
  const places = new Map();
  for (const { x, y, items } of ground.marks) for (const one of items) places.set(one, [x, y]);
  return (one) => places.get(one) ?? ground.xy(one);
}

/** `[shape, words]` of each. */
export function legend(kinds) {
  return make("ul", { class: "map-legend map-kinds small", "aria-label": t("coverage.legend") }, kinds.map((one) => make("li", {}, one)));
}

export function legendOfCoverage() {
  return legend([make("span", { class: "kind gateway" }, make("span", { class: "kind-shape", "aria-hidden": "true", text: "▼" }), make("span", { class: "kind-word", text: t("fleet.gateway") })), ...[...KINDS, "none"].map((kind) => kindMark(kind))]);
}

/** What was pointed at: one is opened; many are seen from nearer, or listed if they are at one place. `open(item)`, `nameOf(item)`. */
export async function openMark(ground, { items }, { open, nameOf }) {
  if (items.length === 1) { open(items[0]); return; }
  const isOnePlace = items.every((one) => one.lat === items[0].lat && one.lon === items[0].lon);
  if (!isOnePlace && ground.metres > 0.5) { ground.approach(items[0]); return; }
  const { openDialog } = await styled("later", import("../shell/dialog.js"));
  const dialog = openDialog(t("coverage.one-place", { count: items.length }), make("ul", { class: "plain" }, items.map((one) => make("li", {},
    make("button", { type: "button", class: "map-row", on: { click: () => { dialog.close(); open(one); } } }, one.kind ? kindMark(one.kind, true) : make("span", { class: "kind gateway" }, make("span", { class: "kind-shape", "aria-hidden": "true", text: "▼" })),
      make("bdi", { class: "name", text: cut(nameOf(one), 64) }))))));
}

// Kinds of nodes: each has a shape and a colour.
import { make } from "./page.js";
import { t } from "./words.js";

export const KINDS = ["chat", "repeater", "room", "sensor"];
const SHAPES = { __proto__: null, chat: "●", repeater: "◆", room: "■", sensor: "▲" };

/** A kind: a shape and a colour, and a word for who sees neither. */
export function kindMark(type, isQuiet = false) {
  const known = KINDS.includes(type) ? type : "none";
  return make("span", { class: `kind ${known}` }, make("span", { class: "kind-shape", "aria-hidden": "true", text: SHAPES[known] ?? "○" }), make("span", { class: isQuiet ? "unseen" : "kind-word", text: t(`kind.${known}`) }));
}

// Text from the mesh. Whoever has a radio writes it: it is shown as it is, isolated from what is around it, and never does anything.
import { make } from "./page.js";

export const segmenter = new Intl.Segmenter(undefined, { granularity: "grapheme" });

/** Marks that one letter may carry. What has more is drawn across the lines around it, so the rest is left out. */
const MARKS = 8;

/** The first `most` letters as a reader counts them, with an ellipsis where there are more. Control characters become visible. What is no text, as a
 *  gateway may tell it, is empty. */
export function cut(text, most) {
  if (typeof text !== "string") return "";
  let out = "";
  let count = 0;
  // Ten kilobytes are enough to fill any place in these pages, and take no time to go through.
  for (const { segment } of segmenter.segment(text.slice(0, 20_000))) {
    if (count === most) return `${out}…`;
    out += segment.length > MARKS * 2 ? [...segment].slice(0, MARKS).join("") : segment;
    count += 1;
  }
  // deno-lint-ignore no-control-regex
  return out.replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, (one) => String.fromCodePoint(one === "\u007f" ? 0x2421 : 0x2400 + one.codePointAt(0)));
}

/** What names share that look alike; empty: nothing is seen. */
export function gist(name) {
  return name.normalize("NFKC").replace(/[\s\p{Cc}\p{Cf}\p{DI}\u2800\ufffd]/gu, "").toLocaleLowerCase();
}

/** The name, if something of it is seen. */
export function seen(name) {
  return name && gist(name) ? name : "";
}

/** A name, isolated: what it does to the direction of letters ends with it. */
export function named(name, attributes = {}) {
  return make("bdi", { class: "name", ...attributes, text: cut(name, 64) });
}

/** Who is meant, as MeshCore's clients write it. */
export const MENTION = /@\[([^\]\n]{1,64})\]/g;

/** One line of a message's text, for a list. */
export function line(text, most = 120) {
  return make("bdi", { class: "line", text: typeof text === "string" ? cut(text.replace(MENTION, "@$1").replace(/\s+/g, " "), most) : "" });
}

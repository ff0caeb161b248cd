// Text from the mesh. Whoever has a radio writes it: it is shown as it is, isolated from what is around it, and never does anything.
import { make } from "./page.js";

const segmenter = new Intl.Segmenter(undefined, { granularity: "grapheme" });
const encoder = new TextEncoder();

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

/** The first letter of a name, for its picture. */
export function initial(name) {
  const first = segmenter.segment(name.replace(/^[#@\s]+/, "")).containing(0)?.segment ?? "";
  return /[\p{L}\p{N}\p{Extended_Pictographic}]/u.test(first) ? cut(first, 1).toLocaleUpperCase() : "·";
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

/** Which of the twelve colours of names: always the same for a key, however much of it is known, or for the same name where there is no key. */
export function hue(who) {
  let hash = 0x811c9dc5;
  for (const byte of encoder.encode(who.slice(0, /^[0-9a-f]{8,64}$/.test(who) ? 8 : 64))) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return hash % 12;
}

const REACTION = /^(\S{1,16}?)(?:@\[[^\]\n]{1,64}\])?\n[0-9a-z]{8}$/u;

/** Whether it is a reaction of ours, as it goes over the air: a sign, who is meant, and a hash of the message. */
export function isReaction(row) {
  const sign = row.direction === "sent" && REACTION.exec(row.text ?? "")?.[1];
  return Boolean(sign) && /\p{Extended_Pictographic}|\p{RI}/u.test(sign);
}

// Who writes, as a list and a chat show it.
import { cut, segmenter } from "./text.js";

const encoder = new TextEncoder();

/** The first letter of a name, for its picture. */
export function initial(name) {
  const first = segmenter.segment(name.replace(/^[#@\s]+/, "")).containing(0)?.segment ?? "";
  return /[\p{L}\p{N}\p{Extended_Pictographic}]/u.test(first) ? cut(first, 1).toLocaleUpperCase() : "·";
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

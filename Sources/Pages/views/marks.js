// What has become of a message, how well it was heard, and what others think of it.
import { coded, icon, make } from "../parts/page.js";
import { say } from "../parts/held.js";
import { late } from "../parts/late.js";
import { decibels } from "../parts/numbers.js";
import { t } from "../parts/words.js";
import { order } from "../stores/api.js";
import { freshID } from "../stores/fresh.js";

const DRAWINGS = { __proto__: null, pending: "clock", sending: "arrow", sent: "tick", delivered: "ticks", failed: "bang", retrying: "arrow", held_for_recipient: "clock" };

export function drawingOf(state) { return DRAWINGS[state] ?? "clock"; }

/** The state of a message of ours, as a button that opens the rest. */
export function mark(row, opened) {
  const words = row.state === "sent" && row.heard ? t("state-of.heard", { count: row.heard }) : t(`state-of.${row.state}`);
  return make("button", { type: "button", class: `mark ${row.state}`, title: t(`state-long.${row.state}`), on: { click: opened } },
    icon(drawingOf(row.state)), make("span", { text: words }));
}

/** How a message came: hops, how well the last of them was heard, and how late. */
export function signal(row) {
  const words = [];
  if (row.direct) words.push(t("message.direct"));
  else if (row.hops !== undefined) words.push(t("message.hops", { count: row.hops }));
  if (row.snr !== undefined) words.push(decibels(row.snr));
  words.push(late(row.age_s));
  return make("span", { class: "signal", text: words.filter(Boolean).join(" · ") });
}

/** Who thinks what of it: each sign once, with its number. A touch adds ours. */
export function reactions(row) {
  if (!row.reactions?.length) return null;
  const by = new Map();
  for (const one of row.reactions) by.set(one.emoji, [...(by.get(one.emoji) ?? []), one]);
  return make("div", { class: "reactions" }, [...by].map(([emoji, all]) => {
    // Anybody may have any name.
    const isOurs = all.some((one) => one.ours);
    const names = all.map((one) => (one.ours ? t("you") : one.sender)).join(", ");
    return make("button", {
      type: "button", class: `reaction${isOurs ? " ours" : ""}`, title: names.slice(0, 200), "aria-label": t("react.label", { emoji, names: names.slice(0, 200) }), "aria-pressed": String(isOurs),
      on: { click: () => { if (!isOurs) sendReaction(row, emoji); } },
    }, make("bdi", { text: emoji }), all.length > 1 ? make("span", { text: String(all.length) }) : null);
  }));
}

/** Reactions that the gateway has not answered, and their ids: a second touch, also after a cut, sends no second message. */
const sending = new Map();

async function sendReaction(row, emoji) {
  const name = `${row.cursor} ${emoji}`;
  const known = sending.get(name);
  if (known?.isUnderWay) return;
  const one = { id: known?.id ?? freshID(), isUnderWay: true };
  sending.set(name, one);
  try {
    await order("/v1/react", { ...(row.direction === "sent" ? { outgoing: row.outgoing } : { message: row.id }), emoji, id: one.id });
    sending.delete(name);
    say(t("react.sent", { emoji }));
  } catch (trouble) {
    // Without an answer it may be sent all the same.
    if (trouble.isCut) one.isUnderWay = false; else sending.delete(name);
    tell(trouble);
  }
}

const SIGNS = ["👍", "❤️", "😂", "😮", "😢", "🙏", "👏", "🎉", "✅", "❌", "👀", "📻"];

export async function react(row) {
  const { openDialog } = await import("../shell/dialog.js");
  const choose = (emoji) => { dialog.close(); sendReaction(row, emoji); };
  const dialog = openDialog(t("react.title"),
    make("div", { class: "signs" }, SIGNS.map((emoji) => make("button", { type: "button", class: "sign", text: emoji, "aria-label": t("react.with", { emoji }), on: { click: () => choose(emoji) } }))));
}

/** Once more what failed. */
export function retry(row) { return change(row, "retry"); }

export function cancel(row) { return change(row, "cancel"); }

/** Messages that are being changed: a second press is none, also at another button. */
const changing = new Set();

async function change({ outgoing }, what) {
  if (changing.has(outgoing)) return;
  changing.add(outgoing);
  try { await order(`/v1/outgoing/${what}?id=${encodeURIComponent(outgoing)}`); } catch (trouble) { tell(trouble); }
  changing.delete(outgoing);
}

/** Says why something could not be done, where it cannot be said in its place. */
export function tell(trouble) {
  const old = document.querySelector(".toast");
  old?.remove();
  const toast = make("div", { class: "toast", role: "alert" }, make("div", {}, make("p", { text: trouble.message, lang: trouble.answer?.error ? "en" : null }), trouble.remedy ? make("p", { class: "quiet", lang: "en" }, coded(trouble.remedy)) : null),
    make("button", { type: "button", class: "link", text: t("close"), on: { click: () => toast.remove() } }));
  document.body.append(toast);
}

/** Something was done. */
export function told(words) {
  say(words);
  const old = document.querySelector(".toast");
  old?.remove();
  const toast = make("div", { class: "toast fine" }, make("p", { text: words }));
  document.body.append(toast);
  setTimeout(() => toast.remove(), 4000);
}


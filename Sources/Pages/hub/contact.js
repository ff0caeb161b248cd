// What the hub's views share in showing.
import { make } from "../parts/page.js";
import { decibels, when } from "../parts/numbers.js";
import { t } from "../parts/words.js";
import { contact } from "./live.js";

/** A state in a sign, a colour and a word. */
export function contactMark(row) {
  const state = contact(row);
  return make("span", { class: "contact" }, make("span", { class: `dot ${state === "linked" ? "up" : state === "quiet" ? "connecting" : "down"}`, "aria-hidden": "true" }),
    make("span", {}, state === "linked" ? t("fleet.linked") : [t("fleet.seen"), " ", when(row.last_seen)]));
}

/** How well something was heard: decibels, hops, or what is known of both. */
export function howHeard({ snr, hops }) {
  return [typeof snr === "number" ? decibels(snr) : "", typeof hops === "number" ? (hops ? t("messages.hops", { count: hops }) : t("coverage.direct")) : ""].filter(Boolean).join(" · ");
}

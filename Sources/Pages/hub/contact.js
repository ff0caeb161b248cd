// What the hub's views share in showing.
import { make } from "../parts/page.js";
import { decibels, when } from "../parts/numbers.js";
import { t } from "../parts/words.js";
import { ask, query } from "../stores/api.js";
import { contact } from "./live.js";

const DAY = 86_400_000;

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

/** Alerts of the last day; `null`: this hub has none. */
export async function counted() {
  try {
    const { alerts } = await ask(query("/v1/alerts", { state: "all", limit: 1000 }));
    return alerts.filter((one) => (one.ended_at ?? Infinity) > Date.now() - DAY);
  } catch {
    return null;
  }
}

// What the hub's views share in showing.
import { make } from "../parts/page.js";
import { when } from "../parts/times.js";
import { t } from "../parts/words.js";
import { contact } from "./live.js";

/** A state in a sign, a colour and a word. */
export function contactMark(row) {
  const state = contact(row);
  return make("span", { class: "contact" }, make("span", { class: `dot ${state === "linked" ? "up" : state === "quiet" ? "connecting" : "down"}`, "aria-hidden": "true" }),
    make("span", {}, state === "linked" ? t("fleet.linked") : [t("fleet.seen"), " ", when(row.last_seen)]));
}

// What several of the hub's views say, and the first one does not.
import { decibels } from "../parts/numbers.js";
import { t } from "../parts/words.js";
import { fleet, gatewayName } from "./live.js";

/** Ids of all gateways and what they are called, by name. */
export function gatewayNames() {
  return [...fleet.rows.keys()].map((id) => [id, gatewayName(id)]).sort(([a, x], [b, y]) => (x.toLocaleLowerCase() < y.toLocaleLowerCase() ? -1 : x.toLocaleLowerCase() > y.toLocaleLowerCase() ? 1 : a < b ? -1 : 1));
}

/** How well something was heard: decibels, hops, or what is known of both. */
export function howHeard({ snr, hops }) {
  return [typeof snr === "number" ? decibels(snr) : "", typeof hops === "number" ? (hops ? t("messages.hops", { count: hops }) : t("coverage.direct")) : ""].filter(Boolean).join(" · ");
}

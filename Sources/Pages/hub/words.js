// What several of the hub's views say, and the first one does not.
import { late } from "../parts/late.js";
import { decibels } from "../parts/numbers.js";
import { gist } from "../parts/text.js";
import { t } from "../parts/words.js";
import { fleet, gatewayName } from "./live.js";

/** Ids of all gateways and what they are called, by name. */
export function gatewayNames() {
  return [...fleet.rows.keys()].map((id) => [id, gatewayName(id)]).sort(([a, x], [b, y]) => (x.toLocaleLowerCase() < y.toLocaleLowerCase() ? -1 : x.toLocaleLowerCase() > y.toLocaleLowerCase() ? 1 : a < b ? -1 : 1));
}

/** Gives `digits` to nodes that are called the same: the beginning of their keys. */
export function tellApart(nodes) {
  for (const [name, all] of Map.groupBy(nodes, (node) => gist(String(node.name)))) if (name && all.length > 1) for (const node of all) node.digits = ` ${node.key.slice(0, 6)}`;
}

/** How something was heard: decibels, hops, and how late; or what is known of them. */
export function howHeard({ snr, hops, age_s: age }) {
  return [typeof snr === "number" ? decibels(snr) : "", typeof hops === "number" ? (hops ? t("messages.hops", { count: hops }) : t("coverage.direct")) : "", late(age)].filter(Boolean).join(" · ");
}

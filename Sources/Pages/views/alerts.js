// What wants a person, as the gateway's rules say it: open ones on top, each to be acknowledged.
import { busy, refill } from "../parts/held.js";
import { icon, make } from "../parts/page.js";
import { number } from "../parts/numbers.js";
import { sentence } from "../parts/sentence.js";
import { when } from "../parts/times.js";
import { byWeight } from "../parts/weight.js";
import { has, t } from "../parts/words.js";
import { order } from "../stores/api.js";
import { tell } from "./marks.js";

/** More that are over than anybody reads here. */
const MOST_OVER = 10;

/** `alerts`: of `GET /v1/alerts`, newest first; `changed`: reads them anew. */
export function showAlerts(place, alerts, changed) {
  const open = alerts.filter((one) => !one.ended_at).sort(byWeight);
  const over = alerts.filter((one) => one.ended_at);
  place.hidden = !alerts.length;
  const wanting = open.filter((one) => !one.acknowledged_at);
  const row = (one) => make("li", { class: `finding ${one.ended_at ? "ok" : one.acknowledged_at ? "warning" : "failed"}`, data: { alert: one.id } }, icon(one.ended_at ? "tick" : "bang"), make("div", {},
    make("p", {}, has(`rule.${one.rule}`) ? [make("strong", { text: t(`rule.${one.rule}`) }), ": "] : null, sentence(one)),
    make("p", { class: "quiet small" }, when(one.began_at), one.ended_at ? [" – ", when(one.ended_at)] : null,
      one.acknowledged_at ? [" · ", t("alert.seen", { who: one.acknowledged_by ?? "" })] : null, one.note ? [" · ", make("bdi", { text: one.note })] : null),
    one.ended_at || one.acknowledged_at ? null : make("button", { type: "button", class: "button small", text: t("alert.acknowledge"), on: { click: (event) => busy(event.currentTarget, async () => {
      try { await order("/v1/alerts/acknowledge", { id: one.id }); } catch (trouble) { tell(trouble); }
      changed();
    }) } })));
  refill(place, make("header", { class: "card-head" }, make("h2", { id: "alerts-title", text: t("alert.title") }),
    make("span", { class: `word ${wanting.length ? "bad" : open.length ? "warn" : "good"}`, text: open.length ? t("alert.open", { count: open.length }) : t("alert.none") })),
  make("ul", { class: "findings" }, open.map(row)),
  over.length ? make("details", { class: "more", open: place.querySelector("details")?.open }, make("summary", { text: t("alert.over", { count: over.length, number: number(over.length) }) }), make("ul", { class: "findings" }, over.slice(0, MOST_OVER).map(row)),
    over.length > MOST_OVER ? make("p", { class: "quiet", text: t("letters.first", { count: MOST_OVER, number: number(MOST_OVER) }) }) : null) : null);
}

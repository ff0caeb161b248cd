// Behind the fleet's table: a line of the last day for each figure, and what has changed since one looked last.
import { draw, fill, make } from "../parts/page.js";
import { refill } from "../parts/held.js";
import { number } from "../parts/numbers.js";
import { now, when } from "../parts/times.js";
import { cut, named } from "../parts/text.js";
import { t, tn } from "../parts/words.js";
import { ask } from "../stores/api.js";
import { query } from "../stores/query.js";
import { inTurn } from "../stores/turn.js";
import { fleet, gatewayName } from "./live.js";
import { changes, see } from "./seen.js";

const HOUR = 3_600_000;
const MOST_CHANGES = 50;

export class FleetMore {
  #news;
  #changed;
  #seen;
  /** Of the last day; `null`: the hub has none. */
  #alerts = null;

  /** `news`: where changes are told; `changed()`: there is more to draw; `seen()`: somebody has seen them. */
  constructor(news, changed, seen) {
    [this.#news, this.#changed, this.#seen] = [news, changed, seen];
    news.setAttribute("aria-label", t("seen.title"));
  }

  /** Many alerts at once are read once. */
  load = inTurn(() => this.#load());

  async #load() {
    try {
      const { alerts } = await ask(query("/v1/alerts", { state: "all", limit: 1000 }));
      this.#alerts = alerts.filter((one) => (one.ended_at ?? Infinity) > now() - 24 * HOUR);
    } catch {
      // A hub without alerts has no line of them.
      this.#alerts = null;
    }
    this.#changed();
  }

  /** A number for each hour; `null`: not known. */
  day(name) {
    const hours = fleet.summary?.hours ?? [];
    if (hours.length && hours.every((hour) => Number.isFinite(hour[name]))) return hours.map((hour) => hour[name]);
    if (!this.#alerts || name !== "alerts" && name !== "silent") return null;
    const some = name === "alerts" ? this.#alerts : this.#alerts.filter((one) => one.rule === "gateway_silent");
    return hours.map(({ at }) => some.filter((one) => one.began_at < at + HOUR && (one.ended_at ?? Infinity) > at).length);
  }

  /** A day in a line: what it says is said in words. */
  line(values, title) {
    const [low, most] = [Math.min(...values), Math.max(...values)];
    const x = (index) => ((index / Math.max(1, values.length - 1)) * 96 + 2).toFixed(1);
    const y = (value) => (22 - (value / Math.max(1, most)) * 20).toFixed(1);
    const path = values.map((value, index) => `${index ? "L" : "M"}${x(index)} ${y(value)}`).join("");
    return draw("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": t("fleet.day", { title, low: number(low), high: number(most) }) },
      draw("path", { class: "spark-area", d: `${path}L98 24L2 24Z` }), draw("path", { class: "spark-line", d: path, "vector-effect": "non-scaling-stroke" }));
  }

  /** What has changed, as the fleet is now. */
  update() {
    if (!fleet.isLoaded) return;
    const found = changes(fleet.rows);
    if (!found) { see(fleet.rows); this.#news.hidden = true; return; }
    const version = JSON.stringify(found);
    if (this.#news.dataset.version === version) return;
    this.#news.dataset.version = version;
    this.#news.hidden = !found.changes.length;
    if (!found.changes.length) { fill(this.#news); return; }
    const isOpen = this.#news.querySelector("details")?.open ?? false;
    refill(this.#news, make("details", { open: isOpen },
      make("summary", {}, tn("seen.since", { count: found.changes.length, time: when(found.at) })),
      make("ul", { class: "plain" }, found.changes.slice(0, MOST_CHANGES).map((one) => make("li", {},
        make("a", { href: `/fleet/${encodeURIComponent(one.gateway)}` }, named(gatewayName(one.gateway))), " ", t(`seen.${one.what}`, { before: cut(one.before ?? "", 32), after: cut(one.after ?? "", 32) }))),
      found.changes.length > MOST_CHANGES ? make("li", { class: "quiet", text: t("seen.more", { count: found.changes.length - MOST_CHANGES }) }) : null)),
    make("button", { type: "button", class: "button small", text: t("seen.verb"), on: { click: () => this.#see() } }));
  }

  #see() {
    const isKept = see(fleet.rows);
    this.update();
    if (!isKept) {
      fill(this.#news, make("p", { class: "bad-words small", role: "alert", text: t("seen.not-kept") }));
      this.#news.hidden = false;
    }
    this.#seen();
  }
}

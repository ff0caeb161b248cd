// What was kept of the own radio, an hour each: its battery, and the noise that it hears.
import { fill, make } from "../parts/page.js";
import { chart, newestOnly } from "../parts/chart.js";
import { number, volts } from "../parts/numbers.js";
import { t } from "../parts/words.js";

/** Three weeks. */
export const MOST_HOURS = 500;

/** Draws readings of kind node_status into a card; without any, it is hidden. */
export function showOwnRadio(card, readings) {
  const series = [
    [t("nodes.battery"), "battery_mv", volts],
    [t("node.noise"), "noise_floor_dbm", (value) => `${number(value)} dBm`],
  ].map(([name, field, show]) => [name, readings.filter(({ body }) => body[field]).map(({ at, body }) => ({ at, value: body[field] })), show]);
  const drawn = series.filter(([, points]) => points.length);
  card.hidden = !drawn.length;
  fill(card, make("header", { class: "card-head" }, make("h2", { id: "own-title", text: t("own.title") })),
    make("div", { class: "cards" }, drawn.map(([name, points, show]) => chart(name, points, show))), newestOnly(readings.length, MOST_HOURS));
}

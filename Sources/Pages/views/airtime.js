// What the air time of a day was used for, and how much of the channel others use.
import { fill, make } from "../parts/page.js";
import { number, percent } from "../parts/numbers.js";
import { meter } from "../parts/meter.js";
import { t } from "../parts/words.js";
import { facts } from "./details.js";

const PURPOSES = ["message", "retry", "relayed", "hook", "request", "login", "poll", "advert", "client"];

/** Draws the answer of /v1/airtime into a card. A bar is a purpose's share of what a day of the allowance would be. */
export function showAirtime(card, { hours, used_ms: used, limit_ms: limit, channel_use_percent: use, busy_percent: busy, waits }) {
  const sums = new Map(PURPOSES.map((name) => [name, { ms: 0, packets: 0 }]));
  for (const one of hours.flatMap((hour) => hour.purposes)) {
    const sum = sums.get(one.purpose);
    if (sum) { sum.ms += one.ms; sum.packets += one.packets; }
  }
  const sent = hours.reduce((all, hour) => all + hour.sent_ms, 0);
  const heard = hours.reduce((all, hour) => all + hour.heard_ms, 0);
  const seconds = (ms) => `${number(ms / 1000, 1)} s`;
  card.hidden = false;
  fill(card, make("header", { class: "card-head" }, make("h2", { id: "airtime-title", text: t("airtime.title") }),
    make("span", { class: `word ${waits ? "warn" : "good"}`, text: t(waits ? "airtime.waits" : "airtime.calm") })),
  make("p", { class: "quiet", text: t("airtime.why", { use: number(use, 1), busy: number(busy) }) }),
  make("dl", { class: "lanes" }, [...sums].filter(([, { packets }]) => packets).map(([name, { ms, packets }]) => [make("dt", { text: t(`airtime.${name}`) }),
    make("dd", {}, meter(ms / (limit * 24), t(`airtime.${name}`)), make("span", { text: `${seconds(ms)} · ${t("airtime.packets", { count: packets, number: number(packets) })}` }))])),
  facts([
    [t("airtime.hour"), `${seconds(used)} · ${percent(used / limit)}`],
    [t("airtime.sent"), seconds(sent)],
    [t("airtime.heard"), `${seconds(heard)} · ${percent(heard / 86_400_000)}`],
  ]));
}

// Which silent gateways fell silent together: that is one outage, of a line or a power supply, and no outage of each.

/** They were heard last within so many milliseconds of each other. */
const WITHIN_MS = 300_000;
/** Fewer are none, and neither are fewer than a tenth of those that were heard until then. */
const LEAST = 3;
const SHARE = 10;

/** Lists of alerts, in the order of these: those of one outage stand together where its first stands, others alone. `gateways`: how many there are. */
export function outages(alerts, gateways) {
  let silent = alerts.filter((one) => one.rule === "gateway_silent" && one.gateway && !one.ended_at).sort((a, b) => a.began_at - b.began_at);
  const groups = new Map();
  while (silent.length) {
    let [first, most, end] = [0, 0, 0];
    for (let begin = 0; begin < silent.length; begin += 1) {
      while (end < silent.length && silent[end].began_at - silent[begin].began_at <= WITHIN_MS) end += 1;
      if (end - begin > most) [first, most] = [begin, end - begin];
    }
    const group = silent.slice(first, first + most);
    // Those of the other groups were not heard any more.
    if (most < LEAST || most * SHARE < gateways - groups.size - silent.length + most) break;
    for (const one of group) groups.set(one.id, group);
    silent = silent.filter((one) => !group.includes(one));
  }
  const told = new Set();
  return alerts.flatMap((one) => {
    const group = groups.get(one.id);
    if (!group) return [[one]];
    if (told.has(group)) return [];
    told.add(group);
    return [group];
  });
}

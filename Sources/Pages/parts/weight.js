// Which alert stands above which: what stops messages first, what makes them late or wrong then, then the rest; of the same weight the newest.
const RULES = ["hub_store_lost", "hub_database", "gateway_silent", "radio_lost", "messages_stuck", "region_stuck", "store_lost", "disk_full", "hub_disk_full", "journal_loss", "journal_conflict", "gateway_conflict", "gateways_refused", "radio_queue_full", "battery_low", "supply_low", "backlogged", "dead_letters", "contacts_full", "remote_commands", "configuration_wrong", "retention_held", "clock_wrong", "node_silent", "node_unanswering", "node_battery_low", "node_battery_falling", "node_restarted", "node_clock_wrong", "node_noisy"];

/** Among these rules stands what a gateway needs. */
const NEEDS = { silent: "gateway_silent", radio: "radio_lost", store: "disk_full", power: "battery_low", clock: "clock_wrong" };

const weight = (rule) => (RULES.includes(rule) ? RULES.indexOf(rule) : RULES.length);

export function byWeight(a, b) { return weight(a.rule) - weight(b.rule) || b.began_at - a.began_at; }

/** Rows of the fleet: those whose worst trouble is worst come first, then by name, those without trouble last. */
export function worstFirst(rows, nameOf) {
  const worst = ({ needs = [], alert_rules: rules = [] }) => Math.min(RULES.length + 1, ...needs.map((one) => weight(NEEDS[one])), ...rules.map(weight));
  return rows.map((row) => [worst(row), nameOf(row), row])
    .sort(([a, x, one], [b, y, other]) => a - b || (x < y ? -1 : x > y ? 1 : one.gateway < other.gateway ? -1 : 1)).map(([, , row]) => row);
}

// Which alert stands above which, as AlertRule.byWeight has it: what stops messages first, what makes them late or wrong then, then the rest; of the same weight the newest.
export const RULES = ["hub_store_lost", "hub_database", "gateway_silent", "radio_lost", "messages_stuck", "region_stuck", "store_lost", "disk_full", "hub_disk_full", "journal_loss", "journal_conflict", "gateway_conflict", "gateways_refused", "radio_queue_full", "battery_low", "supply_low", "backlogged", "dead_letters", "contacts_full", "remote_commands", "configuration_wrong", "retention_held", "clock_wrong", "node_silent", "node_unanswering", "node_battery_low", "node_battery_falling", "node_restarted", "node_clock_wrong", "node_noisy"];

export function byWeight(a, b) {
  const weight = (one) => (RULES.includes(one.rule) ? RULES.indexOf(one.rule) : RULES.length);
  return weight(a) - weight(b) || b.began_at - a.began_at;
}

// What the hub says at first: its shell and its fleet.
import all from "./en.js";

export default { ...all, words: { ...all.words,
  "loading": "Loading…", "trouble.cut": "There is no connection to the hub.", "trouble.silent": "The hub did not answer in time.",
  "hub.title": "Hub", "hub.none": "Not found", "hub.fleet": "Fleet", "hub.messages": "Messages", "hub.coverage": "Coverage", "hub.alerts": "Alerts", "hub.short-fleet": "Fleet", "hub.short-messages": "Messages", "hub.short-coverage": "Coverage", "hub.short-alerts": "Alerts", "hub.short-commands": "Cmds", "hub.short-people": "People", "hub.commands": "Commands", "hub.people": "People",
  "role.view": "May view", "role.operate": "May operate", "role.administer": "May administer", "role.undefined": "",
  "fleet.find": "Find a gateway", "fleet.show": "Show only", "fleet.gateway": "Gateway", "fleet.contact": "Contact", "fleet.radio": "Radio", "fleet.battery": "Battery", "fleet.nodes": "Nodes", "fleet.message": "Last message", "fleet.waiting": "Waiting", "fleet.version": "Version", "fleet.linked": "linked", "fleet.seen": "Last seen", "fleet.count": { one: "{count} gateway", other: "{count} gateways" },
  "fleet.need": { one: "{count} gateway needs attention", other: "{count} gateways need attention" }, "fleet.stat-linked": "Linked", "fleet.stat-silent": "Silent", "fleet.stat-need": "Need attention", "fleet.stat-alerts": "Open alerts", "fleet.stat-messages": "Messages today", "fleet.map": "Map", "fleet.count-placed": { one: "{shown} of {count} gateway has a position", other: "{shown} of {count} gateways have a position" }, "fleet.none": "No gateways yet",
  "fleet.none-why": "A gateway appears when it first sends something: `meshpost upstream add` on the gateway.", "fleet.no-match": "No gateway fits", "fleet.no-match-why": "Ids, radios, tags, notes, models and versions are searched.",
  "need.silent": "silent", "need.radio": "radio lost", "need.store": "cannot store", "need.power": "battery low", "need.clock": "clock not set",
  "alerts.open-count": { one: "{count} open alert", other: "{count} open alerts" },
} };

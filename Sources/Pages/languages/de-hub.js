// Was der Hub zuerst sagt: sein Rahmen und seine Flotte.
import all from "./de.js";

export default { ...all, words: { ...all.words,
  "loading": "Wird geladen…", "trouble.cut": "Es besteht keine Verbindung zum Hub.", "trouble.silent": "Der Hub hat nicht rechtzeitig geantwortet.",
  "hub.title": "Hub", "hub.none": "Nicht gefunden", "hub.fleet": "Flotte", "hub.messages": "Nachrichten", "hub.coverage": "Abdeckung", "hub.alerts": "Alarme", "hub.short-fleet": "Flotte", "hub.short-messages": "Nachr.", "hub.short-coverage": "Abdeck.", "hub.short-alerts": "Alarme", "hub.short-commands": "Befehle", "hub.short-people": "Leute", "hub.commands": "Befehle", "hub.people": "Personen",
  "role.view": "Darf ansehen", "role.operate": "Darf bedienen", "role.administer": "Darf verwalten", "role.undefined": "",
  "fleet.find": "Gateway suchen", "fleet.show": "Nur zeigen", "fleet.gateway": "Gateway", "fleet.contact": "Kontakt", "fleet.radio": "Funkgerät", "fleet.battery": "Akku", "fleet.nodes": "Knoten", "fleet.message": "Letzte Nachricht", "fleet.waiting": "Wartet", "fleet.version": "Version", "fleet.linked": "verbunden", "fleet.seen": "Zuletzt", "fleet.count": { one: "{count} Gateway", other: "{count} Gateways" },
  "fleet.need": { one: "{count} Gateway braucht jemanden", other: "{count} Gateways brauchen jemanden" }, "fleet.stat-linked": "Verbunden", "fleet.stat-silent": "Still", "fleet.stat-need": "Brauchen jemanden", "fleet.stat-alerts": "Offene Alarme", "fleet.stat-messages": "Nachrichten heute", "fleet.map": "Karte", "fleet.count-placed": { one: "{shown} von {count} Gateway hat eine Position", other: "{shown} von {count} Gateways haben eine Position" }, "fleet.none": "Noch keine Gateways",
  "fleet.none-why": "Ein Gateway erscheint, sobald es etwas sendet: `meshpost upstream add` auf dem Gateway.", "fleet.no-match": "Kein Gateway passt", "fleet.no-match-why": "Durchsucht werden Kennungen, Funkgeräte, Schlagwörter, Notizen, Modelle und Versionen.",
  "need.silent": "still", "need.radio": "ohne Funkgerät", "need.store": "speichert nicht", "need.power": "Akku schwach", "need.clock": "Uhr nicht gestellt",
  "alerts.open-count": { one: "{count} offener Alarm", other: "{count} offene Alarme" },
} };

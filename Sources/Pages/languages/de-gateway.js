import all from "./de.js";

export default { ...all, words: { ...all.words,
  "nav.conversations": "Gespräche", "nav.nodes": "Knoten", "nav.map": "Karte", "nav.air": "Funk", "nav.gateway": "Gateway", "nav.short-conversations": "Chats", "nav.short-nodes": "Knoten",
  "nav.short-map": "Karte", "nav.short-air": "Funk", "nav.short-gateway": "Gateway", "nav.unread": { one: "{count} ungelesen", other: "{count} ungelesen" },
  "nav.troubles": { one: "{count} Sache braucht Aufmerksamkeit", other: "{count} Sachen brauchen Aufmerksamkeit" }, you: "Du",
  "cut.waiting": { one: "{count} Nachricht wartet.", other: "{count} Nachrichten warten." }, "list.search": "Finden oder suchen", "list.none": "Noch keine Gespräche.",
  "list.none-why": "Sie erscheinen, sobald das Funkgerät einen Kanal hat oder jemand ihm schreibt.", "list.no-match": "Kein Gespräch heißt „{words}“.",
  "list.channel-empty": "Noch nichts gesagt", "list.direct-empty": "Noch nichts gesagt", "list.room-empty": "Ein Raum zum Lesen und Schreiben", "list.mentioned": "Du wirst erwähnt",
  "list.off-radio": "nicht im Funkgerät", "list.reacted": "mit {emoji} reagiert", "chat.choose": "Wähle ein Gespräch",
  "chat.choose-why": "{key} und {other} gehen sie durch, {help} zeigt alle Tasten.", "message.data": "Daten", "state-of.refused": "nicht gesendet", "list.muted": "Stumm",
} };

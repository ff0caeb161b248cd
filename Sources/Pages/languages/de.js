export default {
  name: "Deutsch",
  direction: "ltr",
  isWhole: true,
  words: {
    "nav.label": "Ansichten", skip: "Zum Inhalt", menu: "Menü", details: "Einzelheiten", close: "Schließen", again: "Noch einmal versuchen", gateway: "Gateway",
    cut: "Keine Verbindung seit {time}. Zu sehen ist, was da war; es wird weiter versucht.", "cut.old": "Keine Verbindung. Zu sehen ist, was da war (Stand {at}); es wird weiter versucht.",
    late: "Zu sehen ist, was da war (Stand {at}); das Neueste ist unterwegs.", "cut.none": "Keine Verbindung. In diesem Browser ist nichts davon gespeichert; es wird weiter versucht.",
    "cut.retry": "Jetzt versuchen", "trouble.cut": "Es besteht keine Verbindung zu den Seiten des Gateways.", "trouble.silent": "Die Seiten des Gateways haben nicht rechtzeitig geantwortet.",
    "trouble.status": "Die Antwort war ein Fehler ({status}).", "trouble.page": "Diese Seite konnte nicht gezeigt werden.", "trouble.view": "Diese Ansicht konnte nicht geladen werden.",
    "state.up": "verbunden", "state.syncing": "gleicht ab", "state.down": "getrennt", "state.connecting": "verbindet", "state.handshaking": "verbindet", "state.unknown": "nicht bekannt",
    "ago.now": "jetzt", "list.draft": "Entwurf: ",
  },
};

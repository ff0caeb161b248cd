export default {
  name: "English",
  direction: "ltr",
  isWhole: true,
  words: {
    "nav.label": "Views", skip: "Skip to content", menu: "Menu", details: "Details", close: "Close", again: "Try again", gateway: "Gateway",
    cut: "No connection since {time}. Showing what was there; trying again.", "cut.old": "No connection. What was there at {at}; trying again.",
    late: "What was there at {at}; the newest is on its way.", "cut.none": "No connection. Nothing of this is kept in this browser; trying again.", "cut.retry": "Try now",
    "trouble.cut": "There is no connection to the gateway's pages.", "trouble.silent": "The gateway's pages did not answer in time.", "trouble.status": "The answer was an error ({status}).",
    "trouble.page": "This page could not be shown.", "trouble.view": "This view could not be loaded.", "state.up": "up", "state.syncing": "syncing", "state.down": "down",
    "state.connecting": "connecting", "state.handshaking": "connecting", "state.unknown": "not known", "ago.now": "now", "list.draft": "Draft: ",
  },
};

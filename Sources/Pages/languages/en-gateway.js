// What a gateway's pages say at first: their tabs and the list.
import all from "./en.js";

export default { ...all, words: { ...all.words,
  "nav.conversations": "Conversations", "nav.nodes": "Nodes", "nav.map": "Map", "nav.air": "Air", "nav.gateway": "Gateway", "nav.short-conversations": "Chats", "nav.short-nodes": "Nodes",
  "nav.short-map": "Map", "nav.short-air": "Air", "nav.short-gateway": "Gateway", "nav.unread": { one: "{count} unread", other: "{count} unread" },
  "nav.troubles": { one: "{count} thing wants attention", other: "{count} things want attention" }, you: "You", "cut.waiting": { one: "{count} message waits.", other: "{count} messages wait." },
  "list.search": "Find or search", "list.none": "No conversations yet.", "list.none-why": "They appear when your radio has a channel, or somebody writes to it.",
  "list.no-match": "No conversation is called “{words}”.", "list.channel-empty": "Nothing was said yet", "list.direct-empty": "Nothing was said yet",
  "list.room-empty": "A room to read and post in", "list.mentioned": "You are mentioned", "list.off-radio": "not on the radio", "list.reacted": "reacted with {emoji}",
  "chat.choose": "Choose a conversation", "chat.choose-why": "{key} and {other} step through them, {help} lists all keys.", "message.data": "Data", "state-of.refused": "not sent",
  "list.muted": "Muted",
} };

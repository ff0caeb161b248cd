// How far conversations were read, for the gateway to know.
import { order } from "./api.js";
import { conversations } from "./conversations.js";
import { compare } from "./cursor.js";
import { live } from "./live.js";

const marking = new Map();
/** What was read without a line. */
const unmarked = new Map();

// Of another journal, it may be another message's place.
live.on("afresh", () => unmarked.clear());
live.on("linked", () => {
  for (const [id, cursor] of unmarked) if (!marking.has(id)) { marking.set(id, cursor); mark(id); }
  unmarked.clear();
});

/** Read up to and including this row. Of many in a row, as one scrolls, the last counts. */
export function markRead(id, cursor) {
  const known = conversations.get(id);
  if (!known || compare(cursor, known.read) <= 0) return;
  const isUnderWay = marking.has(id);
  marking.set(id, cursor);
  conversations.update(id, { read: cursor, ...(known.newest && compare(cursor, known.newest.cursor) >= 0 ? { unread: 0, mentioned: false } : {}) });
  if (!isUnderWay) mark(id);
}

async function mark(id) {
  // A little later: a burst is one request.
  await new Promise((resolve) => setTimeout(resolve, 300));
  const cursor = marking.get(id);
  try {
    await order("/v1/conversations/read", { conversation: id, cursor });
  } catch (trouble) {
    // Else it stays unread at the gateway.
    if (trouble.isCut || trouble.status >= 500) unmarked.set(id, cursor);
  }
  const last = marking.get(id);
  marking.delete(id);
  if (last !== cursor) { marking.set(id, last); mark(id); }
}

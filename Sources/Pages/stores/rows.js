// A single message, with what is known of it beside its text.
import { allRows } from "./api.js";
import { parts } from "./cursor.js";

/** The row that begins behind the place in front of it; `undefined`: it is gone. */
export async function rowAt(cursor, options) {
  const [message, outgoing] = parts(cursor);
  const after = outgoing ? `${message}.${outgoing - 1}` : `${message - 1}`;
  const rows = await allRows(`/v1/messages?direction=both&upstreams=1&ways=1&limit=50&after=${after}`, options);
  return rows.find((one) => one.cursor === cursor);
}

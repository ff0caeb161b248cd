// Why a message of ours waits, in words: all that `meshpost sent` says of it.
import { clock, dayOf, now } from "./times.js";
import { cut } from "./text.js";
import { formatter, t } from "./words.js";

/** When something is going to be: the time, with the date if that is another day. */
function due(ms) {
  return dayOf(ms) === dayOf(now()) ? clock(ms) : formatter(Intl.DateTimeFormat, { dateStyle: "medium", timeStyle: "short" }).format(ms);
}

/**
 * `row`: of /v1/outgoing; one of /v1/messages or of the stream says less. `state`: the radio's, in a word; `isBusy`: the channel is.
 * Empty: it does not wait.
 */
export function whyItWaits(row, { state = "", isBusy = false } = {}) {
  if (row.ended || row.state === "sent" && row.kind === "channel") return "";
  if (row.held_for) return t("wait.other-radio", { name: cut(row.held_for, 64) });
  const name = row.recipient_name ? cut(row.recipient_name, 64) : t("wait.recipient");
  const isAway = ["down", "connecting", "handshaking"].includes(state);
  const next = row.next_attempt_at && !isAway ? due(row.next_attempt_at) : "";
  const words = isAway ? [t("wait.radio")] : [];
  if (row.refusals) words.push(t("wait.refused", { count: row.refusals }), next ? t("wait.next", { time: next }) : "");
  else if (["channel", "place", "airtime"].includes(row.waits_for)) words.push(t(`wait.${row.waits_for}`));
  if (row.state === "held_for_recipient") words.push(t("wait.held", { name }), next && !row.refusals ? t("wait.latest", { time: next }) : "");
  else if (row.state === "sent") words.push(t("wait.acknowledgement", { name }));
  else if (!words.length) words.push(t(`state-long.${row.state}`), isBusy && row.state === "pending" ? t("wait.busy") : "");
  return words.filter(Boolean).join(" ");
}

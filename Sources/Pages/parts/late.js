// How late a message came.
import { span } from "./numbers.js";
import { t } from "./words.js";

/** Seconds between sending and hearing that nobody need be told of. */
const LATE_S = 600;

/** In words; empty: in time, or not known. */
export function late(seconds) { return seconds > LATE_S ? t("message.late", { time: span(seconds) }) : ""; }

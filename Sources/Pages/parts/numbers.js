// Numbers, by the reader's language.
import { formatter, t } from "./words.js";

export function number(value, digits = 0) {
  return formatter(Intl.NumberFormat, { maximumFractionDigits: digits }).format(value).replace("-", "−");
}

export function percent(part) {
  return formatter(Intl.NumberFormat, { style: "percent", maximumFractionDigits: 0 }).format(part);
}

export function decibels(value) {
  return `${number(value, 0)} dB`;
}

/** What was measured, with all its digits: a thousandth tells how a battery goes. */
export function measured(value) { return number(value, 6); }

export function volts(millivolts) {
  return `${formatter(Intl.NumberFormat, { minimumFractionDigits: 2, maximumFractionDigits: 3 }).format(millivolts / 1000)} V`;
}

export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
  return `${number(bytes, unit && bytes < 10 ? 1 : 0)} ${units[unit]}`;
}

/** A span in its largest two units: `2 h 5 min`. */
export function span(seconds) {
  seconds = Math.max(0, Math.round(seconds));
  if (seconds < 60) return t("span.seconds", { count: seconds });
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return t("span.minutes", { count: minutes });
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return t("span.hours", { hours, minutes: minutes % 60 });
  return t("span.days", { count: Math.floor(hours / 24), hours: hours % 24 });
}

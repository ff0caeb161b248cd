// Times, by the reader's language. One that is shown knows itself when it was, and is told anew as time passes.
import { formatter, t } from "./words.js";
import { make } from "./page.js";

export function clock(ms) {
  return formatter(Intl.DateTimeFormat, { hour: "2-digit", minute: "2-digit" }).format(ms);
}

/** The whole of it, for who wants to know exactly. */
export function full(ms) {
  return formatter(Intl.DateTimeFormat, { dateStyle: "medium", timeStyle: "medium" }).format(ms);
}

const DAY = 86_400_000;

/** Dates end there, by the language's own rules. */
const isTime = (ms) => Number.isFinite(ms) && Math.abs(ms) <= 8.64e15;

/** The host's time, and what both clocks here showed then; `null`: not told yet. */
let told = null;

/** Milliseconds by the host's clock: this browser's may be wrong. Nobody sets `performance.now()`, but it stands still while a machine sleeps. */
export function now() { return told ? Math.round(told.host + Math.max(performance.now() - told.steady, Date.now() - told.local)) : Date.now(); }

/** What the host's clock shows; an older host does not tell it. */
export function setNow(ms) {
  if (!Number.isFinite(ms)) return;
  told = { host: ms, steady: performance.now(), local: Date.now() };
  tellTimesAnew();
}

/** The calendar's day, as something to compare. */
export function dayOf(ms) {
  const date = new Date(ms);
  return date.getFullYear() * 10_000 + date.getMonth() * 100 + date.getDate();
}

/** For a list: the time today, the day this week, else the date. */
export function brief(ms) {
  const age = now() - ms;
  if (dayOf(ms) === dayOf(now())) return clock(ms);
  if (age < 6 * DAY && age >= 0) return formatter(Intl.DateTimeFormat, { weekday: "short" }).format(ms);
  return formatter(Intl.DateTimeFormat, { day: "numeric", month: "short", year: age > 300 * DAY ? "2-digit" : undefined }).format(ms);
}

/** How long ago, under a day; else when. */
export function ago(ms) {
  const seconds = (now() - ms) / 1000;
  const format = formatter(Intl.RelativeTimeFormat, { numeric: "auto", style: "short" });
  if (seconds < 45) return t("ago.now");
  if (seconds < 3600) return format.format(-Math.max(1, Math.round(seconds / 60)), "minute");
  if (seconds < 86_400) return format.format(-Math.round(seconds / 3600), "hour");
  return brief(ms);
}

/** Further ones: days.js. */
export const forms = { ago, brief, clock };

/** A `<time>`, with the full one on hover. What is no time that there is, as a faulty gateway may tell it, is a dash. */
export function when(ms, form = "ago") {
  if (!isTime(ms)) return make("span", { text: "–" });
  return make("time", { datetime: new Date(ms).toISOString(), title: full(ms), data: { form, ms }, text: forms[form](ms) });
}

/** Tells what is shown anew. */
export function tellTimesAnew() {
  for (const element of document.querySelectorAll("time[data-form]")) {
    const words = forms[element.dataset.form]?.(Number(element.dataset.ms));
    if (words && words !== element.textContent) element.textContent = words;
  }
}

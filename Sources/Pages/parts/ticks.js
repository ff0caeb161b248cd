// Where an axis of time has marks: at whole minutes, hours, days or months of the reader's calendar.
import { clock } from "./times.js";
import { formatter } from "./words.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const MONTH = 30 * DAY;

/** At most so many pauses: then the labels have room on the narrowest page. */
const MOST = 4;

/** No two follow each other so far apart that a chart could be without a mark. */
const STEPS = [
  ...[1, 2, 5, 10, 15, 30].map((count) => count * MINUTE), ...[1, 2, 3, 6, 12].map((count) => count * HOUR),
  ...[1, 2, 4, 7, 14].map((count) => count * DAY), ...[1, 2, 4, 6, 12].map((count) => count * MONTH),
];

/** `{at, words}` of each. Hours count from midnight, also on a day that has 23 or 25. */
export function ticks(first, last) {
  const step = STEPS.find((one) => (last - first) / one <= MOST) ?? Math.ceil((last - first) / MOST / 12 / MONTH) * 12 * MONTH;
  const [begin, found] = [new Date(first), []];
  const [year, month, day] = [begin.getFullYear(), begin.getMonth(), begin.getDate()];
  const take = (date, words) => { if (date >= first && date <= last) found.push({ at: Number(date), words: words(date) }); };
  if (step < DAY) {
    const midnight = new Date(year, month, day);
    for (let at = Number(midnight) + Math.floor((first - Number(midnight)) / step) * step; at <= last + HOUR; at += step) {
      const date = new Date(at);
      // Shorter pauses go over the change to summer time as they are.
      if (step > HOUR) date.setTime(at + (date.getTimezoneOffset() - midnight.getTimezoneOffset()) * MINUTE);
      take(date, (one) => (one.getHours() + one.getMinutes() ? clock(one) : dayIn(one)));
    }
  } else if (step < MONTH) {
    for (let date = new Date(year, month, day), index = 0; date <= last; index += 1, date = new Date(year, month, day + index)) {
      if (Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) / DAY % (step / DAY) === 0) take(date, dayIn);
    }
  } else {
    const months = step / MONTH;
    for (let date = new Date(year, 0, 1), index = 0; date <= last; index += 1, date = new Date(year, index * months, 1)) take(date, monthIn);
  }
  return found;
}

function dayIn(date) { return formatter(Intl.DateTimeFormat, { day: "numeric", month: "short" }).format(date); }

/** January tells which year it is. */
function monthIn(date) {
  return formatter(Intl.DateTimeFormat, date.getMonth() ? { month: "short" } : { year: "numeric" }).format(date);
}

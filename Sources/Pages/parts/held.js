// Who works by keyboard keeps the place when a part of the page is made anew, and while something is under way.
import { fill } from "./page.js";

const REACHED = "a[href], button:enabled, summary, input:enabled, select, textarea, [tabindex]";

/** What it is known by; several may be called the same. */
function nameOf(one) { return `${one.localName} ${one.id || one.dataset.does || one.getAttribute("href") || one.getAttribute("aria-label") || one.textContent}`; }

/** As `fill`. What has the focus in `place` has it afterwards; if it is gone, what is called the same or stands there by then. */
export function refill(place, ...children) {
  const held = place.contains(document.activeElement) ? document.activeElement : null;
  // What is folded away cannot have the focus.
  const all = () => [...place.querySelectorAll(REACHED)].filter((one) => one.checkVisibility());
  const like = () => all().filter((one) => nameOf(one) === nameOf(held));
  const [at, before] = held ? [all().indexOf(held), like()] : [-1, []];
  fill(place, ...children);
  if (!held) return;
  const [reached, after] = [all(), like()];
  let next = held.isConnected ? held : after[before.indexOf(held)] ?? after.at(-1) ?? reached[at] ?? reached.at(-1) ?? place.closest("[tabindex]");
  // An Enter that is held down deletes one, and not those behind it.
  if (next !== held && after.length < before.length && next?.matches(".danger")) {
    next = reached.slice(0, reached.indexOf(next)).findLast((one) => !one.matches(".danger")) ?? place.closest("[tabindex]");
  }
  next?.focus({ preventScroll: true });
}

/** What a button does, once at a time. It is not `disabled` meanwhile: that takes the focus away. */
export async function busy(button, work) {
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true");
  try { await work(); } finally { button.removeAttribute("aria-disabled"); }
}

/** Says something to a screen reader, without moving anything. */
export function say(words) {
  const place = document.getElementById("said");
  if (place) place.textContent = words;
}

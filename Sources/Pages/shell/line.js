// The bar of a line that is cut or slow.
import { fill, make } from "../parts/page.js";
import { clock, dayOf, full, now } from "../parts/times.js";
import { t } from "../parts/words.js";
import { old } from "../stores/store.js";

/** `isLoaded`: something is shown; `more`: further words. */
export function tellLine(bar, live, isLoaded, more = "") {
  const [{ since }, { at }] = [live, old];
  bar.hidden = since === null && at === null;
  bar.parentElement?.toggleAttribute("data-cut", since !== null);
  const words = bar.hidden ? "" : t(since === null ? "late" : at !== null ? "cut.old" : isLoaded ? "cut" : "cut.none", { time: clock(since), at: (dayOf(at) === dayOf(now()) ? clock : full)(at) }) + more;
  if (bar.textContent.startsWith(words) && words) return;
  fill(bar, make("span", { text: words }), since === null ? null : make("button", { type: "button", class: "link", text: t("cut.retry"), on: { click: () => live.retry() } }));
}

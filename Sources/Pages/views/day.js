// The day of what is being read, at the top of a chat, while somebody is further up. Day lines say it by themselves where they are in sight.
import { fill, make } from "../parts/page.js";
import { dayOf, when } from "../parts/times.js";

/** Of the rows of `list` in `scroller`. */
export function showDay(scroller, list) {
  const place = make("div", { class: "day-now", "aria-hidden": "true", hidden: true });
  scroller.parentElement.append(place);
  let shown = null;
  const tell = () => {
    const top = scroller.getBoundingClientRect().top;
    let at = null;
    for (const item of list.isAtBottom ? [] : list.items.slice(list.first, list.end)) {
      const box = list.element(item.key)?.getBoundingClientRect();
      if (!box || box.bottom <= top + 4) continue;
      if (at !== null && box.top > top + 44) break;
      // It would lie over the line.
      if (item.kind === "day") { at = null; break; }
      at ??= item.row?.received_at ?? null;
    }
    place.hidden = at === null;
    if (at === null || dayOf(at) === shown) return;
    shown = dayOf(at);
    fill(place, when(at, "day"));
  };
  scroller.addEventListener("scroll", tell, { passive: true });
  tell();
}

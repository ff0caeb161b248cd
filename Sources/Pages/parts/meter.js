import { percent } from "./numbers.js";
import { make } from "./page.js";

/** A part of a whole as a bar, which is full from nine tenths on. */
export function meter(part, label) {
  const value = Math.max(0, Math.min(1, part));
  const inside = make("span", { class: `meter-part${value > 0.9 ? " full" : ""}` });
  inside.style.inlineSize = `${(value * 100).toFixed(1)}%`;
  return make("span", { class: "meter", role: "img", "aria-label": `${label}: ${percent(value)}` }, inside);
}


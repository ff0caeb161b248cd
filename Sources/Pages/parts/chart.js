import { draw, make } from "./page.js";
import { number } from "./numbers.js";
import { brief, full, when } from "./times.js";
import { ticks } from "./ticks.js";
import { t } from "./words.js";

const WIDTH = 280;
const HEIGHT = 64;

/** A pause of so many usual ones is a gap. */
const GAP = 8;

/** A small line of readings over time. `points`: `{at, value}`, oldest first; `show(value)`: with its unit. Pointing at it tells one. Where nothing was read for long, there is no line. */
export function chart(title, points, show = (value) => number(value, 1)) {
  const first = points[0];
  const last = points.at(-1);
  let [low, high] = [Infinity, -Infinity];
  for (const { value } of points) { low = Math.min(low, value); high = Math.max(high, value); }
  const wide = Math.max(1, last.at - first.at);
  const tall = high - low || 1;
  const x = (at) => (first === last ? WIDTH / 2 : 4 + ((at - first.at) / wide) * (WIDTH - 8));
  const y = (value) => (high === low ? HEIGHT / 2 : HEIGHT - 6 - ((value - low) / tall) * (HEIGHT - 12));
  const parts = unbroken(points, wide);
  // One alone is a point.
  const line = (part) => `M${part.map(({ at, value }) => `${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("L")}${part.length > 1 ? "" : "h.01"}`;
  const dot = draw("circle", { class: "chart-dot", cx: x(last.at).toFixed(1), cy: y(last.value).toFixed(1), r: 3 });
  const words = make("span", { class: "chart-value", text: show(last.value) });
  const time = make("span", { class: "quiet small", text: brief(last.at) });
  const label = t("chart.label", { title, low: show(low), high: show(high), last: show(last.value), count: points.length });
  const marks = first === last ? [] : ticks(first.at, last.at);
  const drawing = draw("svg", { class: "chart-line", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    draw("path", { class: "chart-area", d: parts.map((part) => `${line(part)}L${x(part.at(-1).at).toFixed(1)} ${HEIGHT}L${x(part[0].at).toFixed(1)} ${HEIGHT}Z`).join("") }),
    draw("path", { class: "chart-ticks", "vector-effect": "non-scaling-stroke", d: marks.map(({ at }) => `M${x(at).toFixed(1)} 0V${HEIGHT}`).join("") }),
    draw("path", { class: "chart-path", d: parts.map(line).join(""), "vector-effect": "non-scaling-stroke" }), dot);
  const tell = (point) => {
    dot.setAttribute("cx", x(point.at).toFixed(1));
    dot.setAttribute("cy", y(point.value).toFixed(1));
    words.textContent = show(point.value);
    time.textContent = brief(point.at);
    time.title = full(point.at);
  };
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const at = first.at + ((event.clientX - box.left) / box.width) * wide;
    tell(points.reduce((best, one) => (Math.abs(one.at - at) < Math.abs(best.at - at) ? one : best)));
  });
  drawing.addEventListener("pointerleave", () => tell(last));
  return make("figure", { class: "chart" }, make("figcaption", {}, make("span", { class: "quiet", text: title }), words, time), drawing,
    marks.length ? axis(marks, (at) => x(at) / WIDTH) : null,
    make("div", { class: "chart-ends quiet small" }, first === last ? null : when(first.at, "brief"),
      make("span", { "aria-hidden": "true", text: low === high ? t("chart.always", { value: show(low) }) : `${show(low)} – ${show(high)}` }), when(last.at, "brief")));
}

/** Labels of times, but for those that would go beyond an edge or into another on a phone's chart, in a wide font. `part(at)`: how far along the chart. */
function axis(marks, part) {
  const shown = [];
  let end = 0;
  for (const { at, words } of marks) {
    const place = part(at);
    const half = (4 * words.length + 2) / 264;
    if (place - half < end || place + half > 1) continue;
    end = place + half;
    const label = make("span", { text: words });
    label.style.left = `${(place * 100).toFixed(2)}%`;
    shown.push(label);
  }
  return make("div", { class: "chart-axis quiet", "aria-hidden": "true" }, shown);
}

/** The points between one gap and the next. */
function unbroken(points, wide) {
  const pauses = points.slice(1).map(({ at }, index) => at - points[index].at).sort((a, b) => a - b);
  // What is too short to be seen breaks no line.
  const most = Math.max(GAP * (pauses[(pauses.length - 1) >> 1] ?? 0), wide / 24);
  const parts = [];
  points.forEach((point, index) => {
    if (!index || point.at - points[index - 1].at > most) parts.push([]);
    parts.at(-1).push(point);
  });
  return parts;
}

/** Beneath charts of the newest `most` rows: that there may be older ones. */
export function newestOnly(count, most) {
  return count < most ? null : make("p", { class: "quiet small", text: t("chart.newest", { number: number(most) }) });
}

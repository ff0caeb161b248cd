// Distances on the ground.
import { number } from "./numbers.js";

/** Metres between two positions on the ground. */
export function distance(a, b) {
  const radians = Math.PI / 180;
  const x = Math.sin(((b.lat - a.lat) * radians) / 2) ** 2
    + Math.cos(a.lat * radians) * Math.cos(b.lat * radians) * Math.sin(((b.lon - a.lon) * radians) / 2) ** 2;
  return 2 * 6_371_000 * Math.asin(Math.min(1, Math.sqrt(x)));
}

export function kilometres(metres) {
  return metres < 1000 ? `${number(Math.round(metres / 10) * 10)} m` : `${number(metres / 1000, metres < 20_000 ? 1 : 0)} km`;
}

// A whole message, as it is written and read.
import { make } from "./page.js";
import { cut, MENTION } from "./text.js";

export function bytesOf(text) {
  return new TextEncoder().encode(text).length;
}

/** A message's text, with its mentions; `own`: the name that is ours. */
export function written(text, { own = null, most = 2000 } = {}) {
  const place = make("bdi", { class: "written" });
  const shown = cut(text, most);
  let at = 0;
  for (const match of shown.matchAll(MENTION)) {
    place.append(shown.slice(at, match.index));
    place.append(make("bdi", { class: match[1] === own ? "mention own" : "mention", text: `@${match[1]}` }));
    at = match.index + match[0].length;
  }
  place.append(shown.slice(at));
  return place;
}

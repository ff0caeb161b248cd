// What the first view wants is asked for here, before the modules that use it are there: a slow line is never idle. Needs nothing but the list of languages.
import languages from "./languages/index.js";

/** Rows of a chat that are read first: a tall window of them. */
export const FIRST_ROWS = 30;

/** Where it is kept which language was chosen. */
export const KEPT = "meshpost.language";

/** Which catalogue: what was chosen here, else the first of the browser's that there is. */
export const language = (() => {
  let kept = null;
  try { kept = localStorage.getItem(KEPT); } catch { /* forbidden: the browser's own */ }
  if (languages[kept]) return kept;
  return (navigator.languages ?? []).map((one) => one.toLowerCase().split("-")[0]).find((one) => languages[one]) ?? "en";
})();

/** Packed files have other names, and the page says which (`deploy/pages/pack`): each its own, then those of what it imports. */
const packed = JSON.parse(document.querySelector("meta[name=files]")?.getAttribute("content") ?? "{}");

/** The addresses of a file of the pages, and of what it imports where that is known. */
function filesOf(name) { return (packed[name] ?? [name]).map((one) => `/pages/${one}`); }

/** The address of a file of the pages. */
export function fileOf(name) { return filesOf(name)[0]; }

const early = new Map();

/** The answer to what was asked for early, once; `null`: it was not, or nobody answered. */
export function earlyAnswer(path) {
  const answer = early.get(path);
  early.delete(path);
  return answer ?? null;
}

/** The stream has begun: what is asked for from now on is asked anew, since what was answered before may lack what came in between. */
export function forgetEarly() { early.clear(); }

function need(...names) {
  for (const href of new Set(names.flatMap(filesOf))) {
    document.head.append(Object.assign(document.createElement("link"), href.endsWith(".css") ? { rel: "preload", as: "style" } : { rel: "modulepreload" }, { href }));
  }
}

function askEarly(...paths) {
  // Without a session it is refused, and asked for again by whoever signs in.
  for (const path of paths) early.set(path, fetch(path, { cache: "no-store", signal: AbortSignal["timeout"](30_000) }).catch(() => null));
}

const [view, ...rest] = location.pathname.split("/").filter(Boolean);
const later = ["later.css", "parts/drawings.js"];
const words = (...ends) => ends.map((end) => `languages/${language}${end}.js`);
if (document.documentElement.dataset.host === "hub") hubFirst();
else gatewayFirst();

function hubFirst() {
  // Its fleet is what most views are about.
  askEarly("/session", "/v1/fleet?limit=1000", "/v1/fleet/summary");
  need(...words("-hub"));
  if (!["messages", "coverage", "alerts", "commands", "people"].includes(view)) return;
  need(`hub/${view}.js`, ...later, "hub/views.css", ...words("-more", "-hub-views"));
  if (view === "coverage") need("views/map.css", ...words("-views"));
}

function gatewayFirst() {
  if (!location.hash) askEarly("/session", "/v1/conversations");
  need(...words("-gateway"));
  if (view === "conversations" && rest.length) {
    need("views/chat.js", ...later, "views/chat.css", ...words("-more"));
    if (!location.hash && !location.search) askEarly(`/v1/messages?conversation=${rest[0].replaceAll(":", "%3A")}&direction=both&limit=${FIRST_ROWS}`);
  } else if (["nodes", "map", "air", "gateway"].includes(view)) need(`views/${view}.js`, ...later, `views/${view}.css`, ...(view === "nodes" && rest.length ? ["views/node.js"] : []), ...words("-more", "-views"));
}

// What the first view wants is asked for here, before the modules that use it are there: a slow line is never idle. Needs nothing but the list of languages.
import languages from "./languages/index.js";

/** Rows of a chat that are read first: a tall window of them. */
export const FIRST_ROWS = 30;

const KEPT = "meshpost.language";

/** Which catalogue: what was chosen here, else the first of the browser's that there is. */
export const language = (() => {
  let kept = null;
  try { kept = localStorage.getItem(KEPT); } catch { /* forbidden: the browser's own */ }
  if (languages[kept]) return kept;
  return (navigator.languages ?? []).map((one) => one.toLowerCase().split("-")[0]).find((one) => languages[one]) ?? "en";
})();

export function keepLanguage(code) { localStorage.setItem(KEPT, code); }

/** What each view is made of, besides what all need. Without a prototype, as all tables in which words from outside are looked up: `/constructor` is no view. */
const PARTS = {
  __proto__: null,
  conversations: ["views/conversations.js"], chat: ["views/chat.js", "stores/chat.js", "views/composer.js", "views/marks.js", "views/chat.css"],
  nodes: ["views/nodes.js", "stores/nodes.js", "parts/kinds.js", "views/nodes.css", "views/table.css"], map: ["views/map.js", "stores/nodes.js", "parts/ground.js", "parts/tiles.js", "parts/kinds.js", "views/map.css"],
  air: ["views/air.js", "views/nodes.js", "stores/nodes.js", "views/packet.js", "views/air.css"], gateway: ["views/gateway.js", "views/details.js", "views/marks.js", "views/gateway.css"],
};

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
  for (const name of names) {
    const isStyle = name.endsWith(".css");
    document.head.append(Object.assign(document.createElement("link"), isStyle ? { rel: "preload", as: "style" } : { rel: "modulepreload" }, { href: `/pages/${name}` }));
  }
}

function askEarly(...paths) {
  // Without a session it is refused, and asked for again by whoever signs in.
  for (const path of paths) early.set(path, fetch(path, { cache: "no-store" }).catch(() => null));
}

const [view, ...rest] = location.pathname.split("/").filter(Boolean);
need(`languages/${language}.js`);
if (document.documentElement.dataset.host === "hub") hubFirst();
else gatewayFirst();

function hubFirst() {
  // Its fleet is what most views are about.
  askEarly("/session", "/v1/fleet?limit=1000", "/v1/fleet/summary");
  const parts = { __proto__: null, messages: ["hub/messages.js"], coverage: ["hub/coverage.js", "parts/ground.js", "parts/tiles.js", "parts/kinds.js", "views/map.css", `languages/${language}-views.js`], alerts: ["hub/alerts.js"], commands: ["hub/commands.js"], people: ["hub/people.js"] };
  need(`languages/${language}-hub.js`, "hub/contact.js", ...(parts[view] ? [...parts[view], "hub/views.css", `languages/${language}-more.js`, `languages/${language}-hub-views.js`] : ["hub/fleet.js"]));
}

function gatewayFirst() {
  if (!location.hash) askEarly("/session", "/v1/conversations");
  if (view === "conversations" && rest.length) {
    need(...PARTS.chat, ...PARTS.conversations);
    if (!location.hash && !location.search) askEarly(`/v1/messages?conversation=${rest[0].replaceAll(":", "%3A")}&direction=both&limit=${FIRST_ROWS}`);
  } else need(...(PARTS[view] ?? PARTS.conversations));
  if (view && view !== "conversations" || rest.length) need("later.css", `languages/${language}-more.js`);
  if (view && view !== "conversations") need(`languages/${language}-views.js`);
}

// The service worker: the pages' own files, so that they open without a line. Nothing of /v1/ or /session is ever kept.
const CACHE = "meshpost-pages-4";
// Of both hosts, of gateways, of hubs: all files that there are, as a test sees to.
const BOTH = [
  "/", "/pages/app.css", "/pages/app.js", "/pages/first.js", "/pages/icon.svg", "/pages/languages/de-more.js", "/pages/languages/de-views.js",
  "/pages/languages/de.js", "/pages/languages/en-more.js", "/pages/languages/en-views.js", "/pages/languages/en.js", "/pages/languages/index.js",
  "/pages/later.css", "/pages/parts/ground.js", "/pages/parts/kinds.js", "/pages/parts/numbers.js", "/pages/parts/page.js", "/pages/parts/text.js",
  "/pages/parts/tiles.js", "/pages/parts/weight.js", "/pages/parts/windowed.js", "/pages/parts/words.js", "/pages/shell/dialog.js", "/pages/shell/keys.js",
  "/pages/shell/route.js", "/pages/shell/styled.js", "/pages/stores/api.js", "/pages/stores/kept.js", "/pages/stores/store.js",
  "/pages/views/map.css", "/pages/views/nodes.css", "/pages/views/signin.js", "/pages/views/table.css",
];
const GATEWAY = [
  "/pages/parts/chart.js", "/pages/parts/meter.js", "/pages/shell/shell.js", "/pages/stores/chat.js", "/pages/stores/conversations.js", "/pages/stores/cursor.js",
  "/pages/stores/gateway.js", "/pages/stores/live.js", "/pages/stores/nodes.js", "/pages/stores/outbox.js", "/pages/views/air.css",
  "/pages/views/air.js", "/pages/views/alerts.js", "/pages/views/chat.css", "/pages/views/chat.js", "/pages/views/composer.js", "/pages/views/conversations.js",
  "/pages/views/details.js", "/pages/views/gateway.css", "/pages/views/gateway.js", "/pages/views/list.js", "/pages/views/map.js",
  "/pages/views/marks.js", "/pages/views/node.js", "/pages/views/nodes.js", "/pages/views/packet.js", "/pages/views/path.js", "/pages/views/search.js", "/pages/views/settings.js",
];
const HUB = [
  "/pages/hub/alerts.js", "/pages/hub/commands.js", "/pages/hub/contact.js", "/pages/hub/coverage.js", "/pages/hub/documents.js",
  "/pages/hub/fleet-map.js", "/pages/hub/fleet-more.js", "/pages/hub/fleet.js", "/pages/hub/gateway.js", "/pages/hub/hub.css", "/pages/hub/live.js",
  "/pages/hub/messages.js", "/pages/hub/people.js", "/pages/hub/seen.js", "/pages/hub/shell.js", "/pages/hub/views.css",
  "/pages/languages/de-hub-views.js", "/pages/languages/de-hub.js", "/pages/languages/en-hub-views.js", "/pages/languages/en-hub.js",
];
const SHELL = [...BOTH, ...(new URL(location).searchParams.get("host") === "hub" ? HUB : GATEWAY)];

self.addEventListener("install", (event) => {
  // After the first view, so that it does not compete with it; a file that is missing does not stop the rest.
  event.waitUntil(caches.open(CACHE).then((cache) => Promise.allSettled(SHELL.map((path) => cache.add(new Request(path, { cache: "no-cache" }))))).then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  event.waitUntil(caches.keys().then((names) => Promise.all(names.filter((name) => name !== CACHE).map((name) => caches.delete(name)))).then(() => self.clients.claim()));
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const { origin, pathname } = new URL(request.url);
  if (request.method !== "GET" || origin !== location.origin || pathname.startsWith("/v1/") || pathname === "/session") return;
  if (request.mode !== "navigate" && !pathname.startsWith("/pages/")) return;
  event.respondWith(fromHost(request, event));
});

/** The host's own, which says in a moment that nothing has changed; what is kept, where it is not reached. */
async function fromHost(request, event) {
  const kept = request.mode === "navigate" ? "/" : request;
  const cache = await caches.open(CACHE);
  try {
    const answer = await fetch(request);
    // Beside the answer, and where the browser has no room for it, without it.
    if (answer.ok) event.waitUntil(cache.put(kept, answer.clone()).catch(() => undefined));
    return answer;
  } catch (error) {
    const known = await cache.match(kept, { ignoreSearch: true });
    if (known) return known;
    throw error;
  }
}

// The service worker: the pages' own files, so that they open without a line. Nothing of /v1/ or /session is ever kept.
// Packed pages have all their files here, by host (`deploy/pages/pack` sets PACKED); of others those are kept that were asked for.
const worker = /** @type {any} */ (self);
const FILES = typeof PACKED === "undefined" ? [] : PACKED[new URL(location.href).searchParams.get("host") ?? "gateway"];
const CACHE = "meshpost-pages-5";
/** Addresses of views: the page. */
const VIEWS = /^\/((conversations|nodes|map|air|gateway|fleet|messages|coverage|alerts|commands|people)(\/.*)?)?$/;
/** After so long the page that is kept opens, with its own files. Of a newer version it tells by itself. */
const LATE_MS = 250;

worker.addEventListener("install", (event) => {
  // After the first view, so that it does not compete with it; a file that is missing does not stop the rest.
  event.waitUntil(caches.open(CACHE).then((cache) => Promise.allSettled(["/", ...FILES].map((path) => keep(cache, path)))).then(() => worker.skipWaiting()));
});

async function keep(cache, path) {
  if (!isFixed(path) || !await cache.match(path)) await cache.add(new Request(path, { cache: isFixed(path) ? "default" : "no-cache" }));
}

worker.addEventListener("activate", (event) => {
  event.waitUntil(forgetOld().then(() => worker.clients.claim()));
});

async function forgetOld() {
  for (const name of await caches.keys()) if (name !== CACHE) await caches.delete(name);
  const cache = await caches.open(CACHE);
  for (const { url } of await cache.keys()) {
    const { pathname } = new URL(url);
    if (isFixed(pathname) && !FILES.includes(pathname)) await cache.delete(url);
  }
}

worker.addEventListener("fetch", (event) => {
  const { request } = event;
  const { origin, pathname } = new URL(request.url);
  if (request.method !== "GET" || origin !== location.origin || pathname.startsWith("/v1/") || pathname === "/session") return;
  if (request.mode !== "navigate" && !pathname.startsWith("/pages/")) return;
  event.respondWith(isFixed(pathname) ? fromCache(request, event) : fromHost(request, event));
});

/** Such a file is named by what is in it. */
function isFixed(path) { return path.startsWith("/pages/packed/"); }

async function fromCache(request, event) {
  return await (await caches.open(CACHE)).match(request) ?? fromHost(request, event);
}

/** The host's own, which says in a moment that nothing has changed; what is kept, where it is not reached. */
async function fromHost(request, event) {
  const kept = request.mode === "navigate" ? "/" : request;
  const cache = await caches.open(CACHE);
  const known = () => cache.match(kept, { ignoreSearch: true });
  const answer = fetch(request).then((answer) => {
    // Beside the answer, and where the browser has no room for it, without it. Not all that one can open is the page.
    if (answer.ok && (request.mode !== "navigate" || answer.headers.get("Content-Type")?.startsWith("text/html"))) event.waitUntil(cache.put(kept, answer.clone()).catch(() => undefined));
    return answer;
  });
  event.waitUntil(answer.catch(() => undefined));
  const isPage = FILES.length && request.mode === "navigate" && VIEWS.test(new URL(request.url).pathname);
  try {
    if (isPage && await Promise.race([answer.then(() => false), new Promise((resolve) => { setTimeout(() => resolve(true), LATE_MS); })])) return await known() ?? await answer;
    return await answer;
  } catch (error) {
    const found = await known();
    if (found) return found;
    throw error;
  }
}

// A push of the host, decrypted by the browser (docs/pages.md). Browsers want each one shown.
worker.addEventListener("push", (event) => { event.waitUntil(tell(event.data)); });

async function tell(data) {
  let said = {};
  try { said = data.json(); } catch { /* of a newer host: something is new */ }
  const { topic: tag = "news", number = 0, count = 1, title = "Meshpost", text = "", path = "/", rule } = said;
  const shown = await worker.registration.getNotifications({ tag });
  // The same once more, after a lost answer of the push service: it makes no sound again.
  const isKnown = shown.some((one) => one.data?.number === number);
  const body = [await named(rule) ?? String(text), count > 1 ? `+${count - 1}` : ""].filter(Boolean).join("\n");
  const options = { body, tag, renotify: !isKnown, silent: isKnown, icon: "/pages/icon.svg", data: { path: String(path), number } };
  await worker.registration.showNotification(String(title), options);
}

// The page tells what rules of alerts are called in the reader's language. English has the sentences themselves.
worker.addEventListener("message", (event) => {
  const { rules } = event.data ?? {};
  if (rules) event.waitUntil(caches.open(CACHE).then((cache) => cache.put("/rules", new Response(JSON.stringify(rules)))));
});

/** The name of a rule of alerts; `undefined`: it has none here. */
async function named(rule) {
  if (!rule) return undefined;
  const kept = await (await caches.open(CACHE)).match("/rules");
  const rules = kept ? await kept.json() : {};
  return Object.hasOwn(rules, rule) ? rules[rule] : undefined;
}

worker.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data?.path ?? "/"));
});

/** In a tab that is there, if there is one. */
async function open(path) {
  const address = new URL(path, location.origin);
  if (address.origin !== location.origin) return;
  const tab = (await worker.clients.matchAll({ type: "window" }))[0];
  try {
    await tab.focus();
    await tab.navigate(address.href);
  } catch {
    // None, or one that this worker does not control.
    await worker.clients.openWindow(address.href);
  }
}

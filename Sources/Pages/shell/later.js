// What the first view does not wait for, and a cut line must not keep from anybody. Loaded once that is there.
import { make } from "../parts/page.js";
import { needWords, t } from "../parts/words.js";
import { startKeeping } from "../stores/keeping.js";
import { styled } from "./styled.js";

let isOld = false;

/** Of a newer version, the host has other files: this page may lack some that it never asked for. It goes on, says so, and what one opens next is the new version. */
async function lookForNewer() {
  const { pathname } = new URL(document.querySelector("script[src]").getAttribute("src"), location.href);
  const page = await fetch("/", { cache: "no-cache" }).then((answer) => (answer.ok ? answer.text() : "")).catch(() => "");
  if (isOld || !page.includes("<script") || page.includes(pathname)) return;
  isOld = true;
  document.addEventListener("click", (event) => { if (event.target.closest?.("a[href]")?.origin === location.origin) event.stopPropagation(); }, true);
  await needWords("more");
  document.querySelector(".app > .bar")?.before(make("div", { class: "bar", role: "status" }, make("span", { text: t("newer") }), make("button", { type: "button", class: "link", text: t("reload"), on: { click: () => location.reload() } })));
}

/** The service worker fetches all files; what the page has before it goes through it once more. */
function keepShell(worker) {
  if (!("serviceWorker" in navigator)) return;
  navigator.serviceWorker.addEventListener("controllerchange", () => {
    for (const { name } of performance.getEntriesByType("resource")) if (name.startsWith(`${location.origin}/pages/`)) fetch(name).catch(() => { /* not kept */ });
  }, { once: true });
  navigator.serviceWorker.register(worker, { scope: "/" }).catch(() => { /* it works without */ });
}

/** `live`: the host's stream; `worker`: the address of its service worker; `event`: what it tells when the line is back; `more`: what else is loaded. */
export function later({ live, worker, event = "linked", more }) {
  startKeeping(live);
  keepShell(worker);
  document.head.append(make("link", { rel: "manifest", href: "/manifest.webmanifest" }));
  live.on(event, () => {
    lookForNewer();
    // A view that failed has said so. A browser may keep that a module was not there until the page is loaded anew: the line is back, and nothing is in the view that could be lost.
    const isCut = document.getElementById("app").hasAttribute("data-cut");
    if (isCut && [...document.querySelectorAll("#main [role=alert]")].some((one) => one.textContent.startsWith(t("trouble.view")))) location.reload();
  });
  // As of a file that is gone.
  addEventListener("unhandledrejection", lookForNewer);
  Promise.all([styled("later", import("./dialog.js")), more?.()]).catch(() => { /* when it is wanted */ });
}

// What the first view does not wait for, and a cut line must not keep from anybody. Loaded once that is there.
import { make } from "../parts/page.js";
import { t } from "../parts/words.js";
import { styled } from "./styled.js";

/** `live`: the host's stream; `event`: what it tells when the line is back; `more`: what else is loaded. */
export function later({ live, event = "linked", more }) {
  document.head.append(make("link", { rel: "manifest", href: "/manifest.webmanifest" }));
  // A view that failed has said so. A browser may keep that a module was not there until the page is loaded anew: the line is back, and nothing is in the view that could be lost.
  live.on(event, () => {
    const isCut = document.getElementById("app").hasAttribute("data-cut");
    if (isCut && [...document.querySelectorAll("#main [role=alert]")].some((one) => one.textContent.startsWith(t("trouble.view")))) location.reload();
  });
  Promise.all([styled("later", import("./dialog.js")), more?.()]).catch(() => { /* when it is wanted */ });
}

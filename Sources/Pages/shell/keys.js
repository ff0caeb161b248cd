// One key does one thing everywhere. A view says what its keys do; letters that are typed into a field are letters.
import { route } from "./route.js";
import { styled } from "./styled.js";

let handlers = {};
let began = 0;

/** What the view that is shown does on `j`, `k`, `r`, `/`, `Enter`, `Escape`; each returns false if it is not for it. */
export function onKeys(view) { handlers = view; }

let go = { c: "conversations", n: "nodes", m: "map", a: "air", g: "gateway" };

let words = "nav";

/** The keys behind `g`, and what each view is called in the catalogue. */
export function keysOfViews() { return Object.entries(go).map(([key, view]) => [`g ${key}`, `${words}.${view}`]); }

/** `views`: of which the keys behind `g` open which, in place of the gateway's; `named`: where the catalogue has their names. */
export function startKeys(views = go, named = words) {
  [go, words] = [views, named];
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (document.querySelector("dialog[open]")) return;
    if (isTyping && event.key !== "Escape") return;
    const key = event.key;
    // What has the focus does what it says.
    if ((key === "Enter" || key === " ") && event.target.closest?.("button, a[href], summary")) return;
    if (began && event.timeStamp - began < 1500 && go[key]) {
      began = 0;
      event.preventDefault();
      if (document.querySelector(`[data-tab="${go[key]}"]`)) route.go(`/${go[key]}`);
      return;
    }
    began = 0;
    if (key === "g") { began = event.timeStamp; return; }
    if (key === "?") { event.preventDefault(); styled("later", import("./dialog.js")).then(({ showKeys }) => showKeys()); return; }
    const handler = handlers[key];
    if (handler && handler(event) !== false) event.preventDefault();
  });
}

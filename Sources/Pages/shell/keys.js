// One key does one thing everywhere. A view says what its keys do; letters that are typed into a field are letters.
import { t } from "../parts/words.js";
import { make, fill } from "../parts/page.js";
import { route } from "./route.js";

let handlers = {};
let began = 0;

/** What the view that is shown does on `j`, `k`, `r`, `/`, `Enter`, `Escape`; each returns false if it is not for it. */
export function onKeys(view) { handlers = view; }

const GO = { c: "conversations", n: "nodes", m: "map", a: "air", g: "gateway" };

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (document.querySelector("dialog[open]")) return;
    if (isTyping && event.key !== "Escape") return;
    const key = event.key;
    if (began && Date.now() - began < 1500 && GO[key]) {
      began = 0;
      event.preventDefault();
      if (document.querySelector(`[data-tab="${GO[key]}"]`)) route.go(`/${GO[key]}`);
      return;
    }
    began = 0;
    if (key === "g") { began = Date.now(); return; }
    if (key === "?") { event.preventDefault(); showKeys(); return; }
    const handler = handlers[key];
    if (handler && handler(event) !== false) event.preventDefault();
  });
}

/** The list of them. */
export function showKeys() {
  const list = [["/", "keys.search"], ["g c", "nav.conversations"], ["g n", "nav.nodes"], ["g m", "nav.map"], ["g a", "nav.air"], ["g g", "nav.gateway"], ["j", "keys.next"],
    ["k", "keys.previous"], ["Enter", "keys.open"], ["r", "keys.reply"], ["Esc", "keys.back"], ["?", "keys.list"]]
    .filter(([keys]) => !GO[keys[2]] || document.querySelector(`[data-tab="${GO[keys[2]]}"]`));
  openDialog(t("keys.title"), make("dl", { class: "keys" },
    list.map(([keys, words]) => make("div", {}, make("dt", {}, keys.split(" ").map((one) => make("kbd", { text: one }))), make("dd", { text: t(words) })))));
}

/** Something that wants an answer, or to be read, before anything else. Closed by Escape, by its button or beside it. */
export function openDialog(title, ...children) {
  const dialog = make("dialog", { class: "dialog", "aria-labelledby": "dialog-title", on: {
    close: () => dialog.remove(),
    click: (event) => { if (event.target === dialog) dialog.close(); },
  } });
  fill(dialog, make("div", { class: "dialog-inside" },
    make("h2", { id: "dialog-title", text: title }), children,
    make("div", { class: "dialog-ends" }, make("button", { type: "button", class: "button", text: t("close"), on: { click: () => dialog.close() } }))));
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Asks before something that cannot be taken back. */
export function confirmed(title, words, verb) {
  return new Promise((resolve) => {
    let answer = false;
    const dialog = openDialog(title, make("p", {}, words));
    dialog.querySelector(".dialog-ends").prepend(make("button", {
      type: "button", class: "button danger", text: verb, on: { click: () => { answer = true; dialog.close(); } },
    }));
    dialog.addEventListener("close", () => resolve(answer));
  });
}

// What wants an answer, or to be read, before anything else: loaded when it is first needed.
import { KEPT } from "../first.js";
import { fill, make } from "../parts/page.js";
import { language, t } from "../parts/words.js";
import languages from "../languages/index.js";
import { remove } from "../stores/change.js";
import { countDrafts, forgetDrafts } from "../stores/drafts.js";
import { keysOfViews } from "./keys.js";
import { styled } from "./styled.js";

/** Closed by Escape, by its button or beside it. */
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

/** The list of keys. */
export function showKeys() {
  const list = [["/", "keys.search"], ...keysOfViews(), ["j", "keys.next"], ["k", "keys.previous"], ["Enter", "keys.open"], ["r", "keys.reply"], ["Esc", "keys.back"], ["?", "keys.list"]];
  openDialog(t("keys.title"), make("dl", { class: "keys" },
    list.map(([keys, words]) => [make("dt", {}, keys.split(" ").map((one) => make("kbd", { text: one }))), make("dd", { text: t(words) })])));
}

/** Language, keys, signing out. `version`: the host's; `outbox`: what was written and is not there yet; `forget()`: what this browser is not to keep in any case. */
export function openMenu(session, { version = null, outbox = null, forget = null } = {}) {
  const choose = make("select", { id: "language", class: "field", on: { change: () => {
    try { localStorage.setItem(KEPT, choose.value); location.reload(); } catch (error) { trouble.textContent = `${t("not-saved")} ${error.message}`; }
  } } },
    Object.entries(languages).map(([code, name]) => make("option", { value: code, text: name, selected: code === language })));
  // A browser's storage may be full.
  const trouble = make("p", { class: "bad-words small", role: "alert" });
  const dialog = openDialog(t("menu"),
    make("label", { for: "language", text: t("menu.language") }), choose, trouble,
    make("div", { class: "row wrap" },
      // Of a gateway alone: a hub sends nothing.
      outbox ? make("a", { class: "button", href: "/gateway/waiting", text: t("wait.title"), on: { click: () => dialog.close() } }) : null,
      // Of a hub alone: a gateway pushes nothing.
      session.host === "hub" && session.signed_in && !session.isUnreached ? make("button", { type: "button", class: "button", text: t("notify.title"), on: { click: () => { dialog.close(); openNotifications(session); } } }) : null,
      make("button", { type: "button", class: "button", text: t("keys.title"), on: { click: () => { dialog.close(); showKeys(); } } }),
      session.signed_in && !session.isUnreached ? make("button", { type: "button", class: "button", text: t("signout"), on: { click: () => { dialog.close(); signOut(session, outbox, forget); } } }) : null),
    make("p", { class: "quiet small", text: version ? t("menu.version", { version }) : "" }));
}

async function openNotifications(session) {
  try {
    (await styled("hub", import("../hub/notify.js"))).openNotifications(session);
  } catch (error) {
    console.error(error);
    openDialog(t("notify.title"), make("p", { role: "alert", text: t("trouble.view") }));
  }
}

/** Of what is in this browser alone: whether it is kept for the next sign-in; `null`: one stays signed in. */
function isToBeKept(unsent, written, why) {
  return new Promise((resolve) => {
    const counted = [unsent ? t("signout.unsent", { count: unsent }) : "", written ? t("signout.drafts", { count: written }) : ""].filter(Boolean).join(" ");
    const dialog = openDialog(t("signout"), make("p", { text: counted }), make("p", { text: why }));
    const end = (kind, words, answer) => make("button", { type: "button", class: `button ${kind}`, text: words, on: { click: () => { resolve(answer); dialog.close(); } } });
    dialog.querySelector(".dialog-ends").prepend(end("primary", t("signout.keep"), true), end("danger", t("discard"), false));
    dialog.addEventListener("close", () => resolve(null));
  });
}

async function signOut({ host, person }, outbox, forget) {
  const [unsent, written] = [outbox?.unsent ?? 0, countDrafts(person)];
  const isKept = unsent || written ? await isToBeKept(unsent, written, outbox ? t("signout.why") : t("signout.why-hub")) : true;
  if (isKept === null) return;
  try {
    await remove("/session");
  } catch (trouble) {
    // The host has not ended the session, and scripts cannot: the browser would be signed in again with the line.
    openDialog(t("signout.failed"), make("p", { role: "alert", text: trouble.message }));
    return;
  }
  forget?.();
  if (host === "hub") await import("../hub/notify.js").then(({ silence }) => silence()).catch(() => { /* the hub has ended it with the session */ });
  if (!isKept) {
    outbox?.clear();
    forgetDrafts(person);
  }
  location.assign("/");
}

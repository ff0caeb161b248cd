// Notifications by Web Push: what this browser asks the hub for, and which browsers have asked. Opened from the menu.
import { make, showTrouble } from "../parts/page.js";
import { busy, refill } from "../parts/held.js";
import { when } from "../parts/times.js";
import { named } from "../parts/text.js";
import { RULES } from "../parts/weight.js";
import { has, needWords, t } from "../parts/words.js";
import { language } from "../first.js";
import { openDialog } from "../shell/dialog.js";
import { ask, order } from "../stores/api.js";
import { remove } from "../stores/change.js";
import { Kept } from "../stores/kept.js";

const EVERY = "*";
const MOST_CHANNELS = 32;
/** `{person, device, alerts, channels, id, session, endpoint}`: chosen in this browser, for the subscription that takes this one's place after a new sign-in or key. */
const chosen = new Kept("notify", null);

/** Why this browser gets none; empty: it can. */
function obstacle() {
  if (!isSecureContext) return t("notify.insecure");
  if ("PushManager" in window && "Notification" in window && "serviceWorker" in navigator) return "";
  // Safari of an iPhone has it in an app on the home screen alone.
  return navigator.standalone === false ? t("notify.home") : t("notify.none");
}

const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0));
const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

/** The worker comes some seconds after the page. */
async function manager() {
  await navigator.serviceWorker.register("/worker.js?host=hub", { scope: "/" });
  const own = await navigator.serviceWorker.ready;
  // Pushes come in English.
  if (language !== "en") await needWords("more");
  const rules = language === "en" ? [] : RULES.filter((rule) => has(`rule.${rule}`)).map((rule) => [rule, t(`rule.${rule}`)]);
  own.active.postMessage({ rules: Object.fromEntries(rules) });
  return own.pushManager;
}

const isWith = (own, key) => own !== null && text(own.options.applicationServerKey ?? new ArrayBuffer(0)) === key;

/** Subscribes with this key, anew if it was another one; and tells the hub: `{id, session, endpoint}`. */
async function subscribe(key, { device, alerts, channels }) {
  const pushes = await manager();
  let own = await pushes.getSubscription();
  if (own && !isWith(own, key)) { await own.unsubscribe(); own = null; }
  own ??= await pushes.subscribe({ userVisibleOnly: true, applicationServerKey: bytes(key) });
  const { id, session } = await order("/v1/push", { endpoint: own.endpoint, key: text(own.getKey("p256dh")), auth: text(own.getKey("auth")), device, alerts, channels });
  return { id, session, endpoint: own.endpoint };
}

/** Ends it in the browser, and then at the hub, which would learn of it from the push service. */
async function unsubscribe(id) {
  await silence();
  await remove(`/v1/push/${encodeURIComponent(id)}`);
}

/** After a load: the subscription ended with the last session, or the hub has another key. What was chosen here goes on; nobody is asked. */
export async function renew() {
  const choice = chosen.value;
  if (!choice || obstacle() || Notification.permission !== "granted") return;
  const { person } = await ask("/session");
  // Somebody else is here now: what waits at the push service for who was here before is not shown to them.
  if (person && person !== choice.person) await end();
  if (person !== choice.person) return;
  const [{ key, session, devices }, own] = [await ask("/v1/push"), await (await manager()).getSubscription()];
  if (!key || isWith(own, key) && devices.some((one) => one.id === choice.id)) return;
  // Within its session it ended because somebody wanted it, or because the push service did not take its pushes.
  if (isWith(own, key) && own.endpoint === choice.endpoint && session === choice.session) { await silence(); return; }
  chosen.value = { ...choice, ...await subscribe(key, choice) };
}

/** No push comes to this browser any more, also none that waits. */
async function end() {
  const own = await (await navigator.serviceWorker?.getRegistration())?.pushManager?.getSubscription();
  await own?.unsubscribe();
}

/** When one has signed out: whoever comes next at this browser gets nothing of this person. */
export async function silence() {
  chosen.clear();
  await end();
}

/** A browser of a list, with a button that ends its notifications. */
export function row(one, isHere, end) {
  const told = one.error ? make("span", { class: "bad-words", text: t("notify.failing", { why: one.error }) })
    : one.pushed_at ? [t("notify.last"), " ", when(one.pushed_at)] : t("notify.never");
  return make("li", {},
    make("span", { class: "grow" }, named(one.device), isHere ? ` (${t("here")})` : "", " ", make("span", { class: "quiet small" }, told)),
    make("button", {
      type: "button", class: "button danger", "aria-label": t("notify.end-of", { name: one.device }), text: t("notify.end"), on: { click: end },
    }));
}

/** What is chosen here, and the person's browsers. */
export function openNotifications(session) {
  const trouble = make("p", { class: "bad-words small", role: "alert" });
  const form = make("form", { class: "command-form", on: { submit: (event) => { event.preventDefault(); begin(); } } });
  const list = make("ul", { class: "hub-list", "aria-label": t("notify.devices") });
  const place = make("div", {}, make("p", { class: "quiet", text: t("loading") }));
  openDialog(t("notify.title"), place, trouble);
  let key = null;

  async function attempt(button, work) {
    await busy(button, async () => {
      trouble.textContent = "";
      let isDone = false;
      try { await work(); isDone = button.form === form; } catch (error) { trouble.textContent = error.message; }
      await load(isDone);
    });
  }

  function begin() {
    const button = form.querySelector("[type=submit]");
    const [all, alerts] = ["all", "alerts"].map((name) => form.elements[name].checked);
    const channels = all ? [EVERY] : [...form.querySelectorAll("[name=channel]:checked")].map((one) => one.value);
    const choice = { person: session.person, device: form.elements.device.value.trim() || t("notify.browser"), alerts, channels };
    attempt(button, async () => {
      // Within the click, as browsers want it.
      if (await Notification.requestPermission() !== "granted") throw new Error(t("notify.denied"));
      chosen.value = { ...choice, ...await subscribe(key, choice) };
    });
  }

  function choice(name, value, words, isChecked) {
    return make("label", { class: "row choice" }, make("input", { type: "checkbox", name, value, checked: isChecked }), make("span", {}, words));
  }

  /** `isDone`: what was chosen is at the hub; else it stays as somebody has left it. */
  async function load(isDone) {
    let answers;
    try {
      answers = await Promise.all([ask("/v1/push"), ask("/v1/channels")]);
    } catch (error) {
      if (place.contains(list)) { trouble.textContent = error.message; return; }
      place.querySelector(".quiet")?.remove();
      showTrouble(place, error, () => load());
      return;
    }
    const [{ key: told, devices }, { channels }] = answers;
    key = told ?? null;
    const why = key ? obstacle() || (Notification.permission === "denied" ? t("notify.denied") : "") : t("notify.off");
    const own = devices.find((one) => one.id === chosen.value?.id && chosen.value.person === session.person);
    if (!form.firstChild || isDone && own) refill(form,
      choice("alerts", "", t("notify.alerts"), own ? own.alerts : true),
      choice("all", "", t("notify.all"), own?.channels.includes(EVERY)),
      make("fieldset", { class: "choices" }, make("legend", { text: t("notify.channels") }), channels.filter((one) => one.name).slice(0, MOST_CHANNELS)
        .map((one) => choice("channel", one.channel, named(one.name), own?.channels.includes(one.channel)))),
      make("label", { for: "notify-device", text: t("notify.name") }),
      make("input", { id: "notify-device", name: "device", class: "field", maxlength: 20, value: own?.device ?? "", placeholder: t("notify.browser") }),
      make("div", { class: "row wrap" }, make("button", { type: "submit", class: "button primary", text: t(own ? "notify.change" : "notify.begin") })));
    refill(list, devices.map((one) => row(one, one.id === own?.id, (event) => {
      attempt(event.target, () => (one.id === own?.id ? unsubscribe(one.id) : remove(`/v1/push/${encodeURIComponent(one.id)}`)));
    })));
    if (place.contains(list)) return;
    refill(place, why ? make("p", { text: why }) : [make("p", { class: "quiet small", text: t("notify.why") }), form],
      make("h3", { text: t("notify.devices") }), list);
  }

  load();
}

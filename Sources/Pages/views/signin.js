// Who may come in: by a password, or by the secret that `meshpost web` prints.
import { coded, fill, make } from "../parts/page.js";
import { t, tn } from "../parts/words.js";
import { ask, order } from "../stores/api.js";

let isSigningIn = false;

/** Asks until `done(session)`; whoever wants it meanwhile waits for the same. */
export async function signIn(place, session, done) {
  if (isSigningIn) return;
  isSigningIn = true;
  if (!session.ways) {
    try { session = { ...session, ...(await ask("/session")) }; } catch { session = { ...session, ways: ["password"] }; }
  }
  show(place, session, (signed) => {
    isSigningIn = false;
    return done(signed);
  });
}

function show(place, session, done) {
  const isPassword = session.ways?.includes("password");
  document.title = `${t("signin.title")} – Meshpost`;
  const field = make("input", {
    id: "signin-field", name: isPassword ? "password" : "secret", type: "password", required: true, class: "field",
    autocomplete: isPassword ? "current-password" : "off", "aria-describedby": "signin-why signin-trouble", autocapitalize: "none", spellcheck: "false",
  });
  // At a hub everybody has a name.
  const isHub = document.documentElement.dataset.host === "hub";
  const person = isHub ? make("input", { id: "signin-person", name: "username", required: true, class: "field", autocomplete: "username", autocapitalize: "none", spellcheck: "false" }) : null;
  const trouble = make("p", { id: "signin-trouble", class: "trouble-line", role: "alert" });
  const button = make("button", { class: "button primary", type: "submit", text: t("signin.verb") });
  const say = (words) => { trouble.textContent = words ?? ""; field.toggleAttribute("aria-invalid", Boolean(words)); };
  const ending = new AbortController();
  const enter = (signed) => {
    if (ending.signal.aborted) return;
    ending.abort();
    done(signed);
  };
  // The session is the whole browser's: it may have begun in another tab.
  const look = async () => {
    if (document.hidden) return;
    try {
      const found = await ask("/session");
      if (found.signed_in) enter(found);
    } catch { /* nobody answers: the card stays */ }
  };
  addEventListener("focus", look, { signal: ending.signal });
  document.addEventListener("visibilitychange", look, { signal: ending.signal });
  // In this page's own address line, what `meshpost web` prints is another `#` alone, with which a browser loads nothing.
  addEventListener("hashchange", () => location.reload(), { signal: ending.signal });
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    say("");
    // The whole address may be pasted as well.
    const given = isPassword ? field.value : /secret=([^&\s]+)/.exec(field.value)?.[1] ?? field.value.trim();
    try {
      enter(await order("/session", isHub ? { person: person.value.trim(), password: given } : isPassword ? { password: given } : { secret: given }));
    } catch (error) {
      const wait = error.answer?.retry_after_s;
      say(wait ? t("signin.wait", { seconds: wait }) : error.status === 403 ? t(isHub ? "signin.wrong-person" : isPassword ? "signin.wrong" : "signin.spent") : error.message);
      field.select();
      field.focus();
    } finally {
      button.disabled = false;
    }
  };
  place.dataset.state = "signin";
  fill(place, make("main", { class: "signin", id: "main" }, make("form", { class: "signin-card", on: { submit } },
    make("img", { src: "/pages/icon.svg", alt: "", width: 56, height: 56 }),
    make("h1", { text: t(isHub ? "signin.title-hub" : "signin.title") }),
    make("p", { id: "signin-why", class: "quiet" }, isHub ? t("signin.why-hub") : isPassword ? coded(t("signin.why-password")) : tn("signin.why-secret", { command: make("code", { text: "meshpost web" }) })),
    isHub ? [make("label", { for: "signin-person", text: t("signin.person") }), person] : null,
    make("label", { for: "signin-field", text: t(isPassword ? "signin.password" : "signin.secret") }),
    field, trouble, button,
    isHub && session.ways?.includes("oidc") ? make("a", { class: "button", target: "_self", href: `/oidc/start?back=${encodeURIComponent(location.pathname + location.search)}`, text: t("signin.oidc") }) : null)));
  if (session.refusal) say(session.refusal.status === 403 ? t("signin.spent") : session.refusal.message);
  (person ?? field).focus();
}

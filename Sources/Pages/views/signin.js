// Who may come in: by a password, or by the secret that `meshpost web` prints.
import { fill, make } from "../parts/page.js";
import { t, tn } from "../parts/words.js";
import { order } from "../stores/api.js";

/** Asks until `done(session)`. */
export function showSignIn(place, session, done) {
  const isPassword = session.ways?.includes("password");
  document.title = `${t("signin.title")} – Meshpost`;
  const field = make("input", {
    id: "signin-field", name: isPassword ? "password" : "secret", type: "password", required: true, class: "field",
    autocomplete: isPassword ? "current-password" : "off", "aria-describedby": "signin-why signin-trouble", autocapitalize: "none", spellcheck: "false",
  });
  const trouble = make("p", { id: "signin-trouble", class: "trouble-line", role: "alert" });
  const button = make("button", { class: "button primary", type: "submit", text: t("signin.verb") });
  const say = (words) => { trouble.textContent = words ?? ""; field.toggleAttribute("aria-invalid", Boolean(words)); };
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    say("");
    // The whole address may be pasted as well.
    const given = isPassword ? field.value : /secret=([^&\s]+)/.exec(field.value)?.[1] ?? field.value.trim();
    try {
      done(await order("/session", isPassword ? { password: given } : { secret: given }));
    } catch (error) {
      const wait = error.answer?.retry_after_s;
      say(wait ? t("signin.wait", { seconds: wait }) : error.status === 403 ? t(isPassword ? "signin.wrong" : "signin.spent") : error.message);
      field.select();
      field.focus();
    } finally {
      button.disabled = false;
    }
  };
  place.dataset.state = "signin";
  fill(place, make("main", { class: "signin", id: "main" }, make("form", { class: "signin-card", on: { submit } },
    make("img", { src: "/pages/icon.svg", alt: "", width: 56, height: 56 }),
    make("h1", { text: t("signin.title") }),
    make("p", { id: "signin-why", class: "quiet" }, isPassword ? t("signin.why-password") : tn("signin.why-secret", { command: make("code", { text: "meshpost web" }) })),
    make("label", { for: "signin-field", text: t(isPassword ? "signin.password" : "signin.secret") }),
    field, trouble, button)));
  if (session.refusal) say(session.refusal.status === 403 ? t("signin.spent") : session.refusal.message);
  field.focus();
}

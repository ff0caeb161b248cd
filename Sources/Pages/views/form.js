// A form that has one thing done, and says at its field what became of it.
import { busy } from "../parts/held.js";
import { coded, fill, make } from "../parts/page.js";
import { t } from "../parts/words.js";

/** A radio answers slowly while it sends. */
export const PATIENCE_MS = 60_000;

/** A field with its name above and what it means below. */
export function labelled(control, label, why) {
  if (why) control.setAttribute("aria-describedby", `${control.id}-why`);
  return make("div", { class: "setting plain" }, make("label", { for: control.id, text: label }), control,
    why ? make("p", { class: "quiet small", id: `${control.id}-why`, text: why }) : null);
}

/** What was sent is done: a field that holds something else by now keeps it. */
export function empty(control, sent) { if (control.value === sent) control.value = ""; }

/**
 * `doing()`: has it done, and resolves with the words for it; what it throws is said, and what was typed stays. `control`: what a refusal is about.
 * `name`: of what the button is for, where several are called the same.
 */
export function form(control, rows, verb, doing, { name = null } = {}) {
  const state = make("p", { class: "small", role: "status" });
  const done = async () => {
    [state.className, state.textContent] = ["small quiet", t("loading")];
    control.removeAttribute("aria-invalid");
    try {
      const words = await doing();
      [state.className, state.textContent] = ["small good-words", words ?? ""];
    } catch (trouble) {
      control.setAttribute("aria-invalid", "true");
      state.className = "small bad-words";
      fill(state, make("span", { text: trouble.message, lang: trouble.answer?.error ? "en" : null }),
        trouble.remedy ? make("span", { lang: "en" }, " ", coded(trouble.remedy)) : null);
    }
  };
  const button = make("button", { type: "submit", class: "button", text: verb, "aria-label": name ? `${verb}: ${name}` : null });
  const submit = (event) => {
    event.preventDefault();
    busy(button, done);
  };
  return make("form", { class: "plain", on: { submit } }, rows, make("div", { class: "row" }, button), state);
}

// Notes that are edited in their place: each is saved when one leaves its field.
import { make } from "./page.js";
import { t } from "./words.js";

export class Editable {
  #place;
  #saving = 0;

  /** `place`: where the fields are. */
  constructor(place) { this.#place = place; }

  /** What one writes, what is on its way, and what was not taken stay. */
  get isInUse() { return this.#saving > 0 || this.#place.contains(document.activeElement) || this.#place.querySelector("[aria-invalid]") !== null; }

  /** `save(given)`: a text, or tags; resolves when it is saved, with words that are to be shown, if any. */
  field(name, { id, label, value, hint, most, save }) {
    const state = make("span", { class: "quiet small", role: "status" });
    const field = make(name === "note" ? "textarea" : "input", {
      class: "field", id, name, value, placeholder: hint, maxlength: most, rows: name === "note" ? 2 : null, dir: "auto", autocomplete: "off",
      on: {
        keydown: (event) => {
          if (event.key === "Enter" && name !== "note" && !event.isComposing) field.blur();
          else if (event.key === "Escape") {
            field.value = value;
            field.removeAttribute("aria-invalid");
            state.textContent = "";
            field.blur();
            event.stopPropagation();
          }
        },
        change: async () => {
          const text = field.value.trim();
          this.#saving += 1;
          let more = null;
          try {
            more = await save(name === "tags" ? text.split(",").map((one) => one.trim()).filter(Boolean) : text);
          } catch (trouble) {
            field.setAttribute("aria-invalid", "true");
            state.textContent = `${t("not-saved")} ${trouble.message}`;
            return;
          } finally {
            this.#saving -= 1;
          }
          value = text;
          state.textContent = more ? `${t("saved")} ${more}` : t("saved");
          field.removeAttribute("aria-invalid");
        },
      },
    });
    return make("div", { class: "editable" }, make("label", { for: id, text: label }), field, state);
  }
}

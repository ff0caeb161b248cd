// Notes that are edited in their place: each is saved when one leaves its field. What could not be saved is kept, and tried again.
import { make } from "./page.js";
import { t } from "./words.js";
import { areDraftsKept, documentDraft, keepDocument } from "../stores/drafts.js";

/** What waits to be saved, also once its view is left: by its draft's name. */
const waiting = new Map();
const streams = new WeakSet();
let isTrying = false;
/** After an attempt that has left something, the next one waits: longer each time, up to a minute. Something in between may refuse for good. */
let [restMs, restsUntil] = [0, 0];

addEventListener("beforeunload", (event) => { if (!areDraftsKept()) event.preventDefault(); });

/** In turn, as often as the stream says that there is a line. */
async function tryAgain() {
  if (isTrying || performance.now() < restsUntil) return;
  isTrying = true;
  try { for (const again of [...waiting.values()]) await again(); } finally { isTrying = false; }
  restMs = waiting.size ? Math.min(60_000, restMs * 2 + 1000) : 0;
  restsUntil = performance.now() + restMs;
}

export class Editable {
  #place;
  #fields = new Map();

  /** `place`: where the fields are; `live`: the host's stream. */
  constructor(place, live) {
    this.#place = place;
    if (streams.has(live)) return;
    streams.add(live);
    live.on("again", tryAgain);
  }

  /** Whether its fields are shown. */
  get isShown() { return this.#place.querySelector(".editable") !== null; }

  /** Values as they are by now, by the field's name. What one writes stays. `whose(name)`: resolves with words that say who has changed it. */
  update(values, whose) { for (const [name, value] of Object.entries(values)) this.#fields.get(name)?.show(value, whose); }

  /** The view is left: what is written is saved, also where nobody has left its field. */
  close() { for (const { close } of this.#fields.values()) close(); }

  /** `draft()`: its name by now; `save(given)`: a text, or tags; resolves when it is saved, with words that are to be shown, if any. */
  field(name, { id, label, value, hint, most, draft, save }) {
    const tagsOf = (text) => text.split(",").map((one) => one.trim()).filter(Boolean);
    const written = () => (name === "tags" ? tagsOf(field.value).join(", ") : field.value.trim());
    const state = make("span", { class: "quiet small", role: "status" });
    // The newest attempt, and how many are under way; what was saved here last.
    let [turn, saving, saved] = [0, 0, null];
    // What is kept is over another text than the one that is there by now.
    let isOlder = false;
    // Under the name that it had then: a draft of another gateway waits for that.
    let waits = null;
    const wait = () => { waits = draft(); waiting.set(waits, again); };
    const settle = () => { for (const one of [waits, draft()]) waiting.delete(one); };
    const forget = () => { keepDocument(draft(), null); settle(); isOlder = false; };
    // By the host, meanwhile.
    const told = { value: null, whose: null };
    // Who has changed it is said as soon as that is known, if nothing else is by then.
    const tellWhose = async (whose, now) => {
      const said = state.textContent;
      const words = await whose?.(name).catch(() => null);
      if (words && value === now && state.textContent === said) state.textContent = `${said} ${words}`;
    };
    const tellNewer = () => {
      settle();
      isOlder = true;
      state.textContent = t("edit.newer", { text: value.slice(0, 80) || "–" });
    };
    const mark = (isInvalid) => { if (isInvalid) field.setAttribute("aria-invalid", "true"); else field.removeAttribute("aria-invalid"); };

    const commit = async () => {
      const text = written();
      const mine = turn += 1;
      const kept = draft();
      keepDocument(kept, { text, was: value });
      saving += 1;
      [told.value, isOlder] = [null, false];
      let more = null;
      try {
        more = await save(name === "tags" ? tagsOf(text) : text);
      } catch (trouble) {
        if (mine !== turn) return;
        const isLater = trouble.isCut || trouble.status === 401;
        if (isLater) wait();
        else settle();
        mark(!isLater);
        state.textContent = `${t(isLater ? "edit.later" : "not-saved")} ${trouble.message}`;
        if (told.value !== null) queueMicrotask(() => show(told.value, told.whose));
        return;
      } finally {
        saving -= 1;
      }
      value = saved = text;
      if (mine !== turn) return;
      settle();
      mark(false);
      state.textContent = more ? `${t("saved")} ${more}` : t("saved");
      // What was written while it was saved is still to be.
      if (written() !== text) {
        keepDocument(draft(), { text: field.value, was: text });
        if (document.activeElement !== field) commit();
        return;
      }
      // The view may have been opened anew meanwhile, and more is written there by now.
      if ([text, field.value].includes(documentDraft(kept)?.text)) keepDocument(kept, null);
      if (told.value !== null) show(told.value, told.whose);
    };

    /** Another tab may have saved or discarded it, and who writes is not disturbed. */
    const again = async () => {
      if (![field.value, written()].includes(documentDraft(draft())?.text)) settle();
      else if (document.activeElement !== field && !saving) await commit();
    };

    const show = (now, whose) => {
      Object.assign(told, { value: now, whose });
      if (saving || now === value) return;
      value = now;
      const isOurs = now === saved || now === written();
      if (documentDraft(draft()) && now !== written()) { tellNewer(); tellWhose(whose, now); return; }
      forget();
      field.value = now;
      mark(false);
      state.textContent = t(isOurs ? "saved" : "edit.replaced");
      if (!isOurs) tellWhose(whose, now);
    };

    const leave = () => { if (documentDraft(draft()) && written() !== value && !saving) commit(); };
    // Nobody has looked at what is newer.
    const close = () => { if (!isOlder) leave(); };

    const field = make(name === "note" ? "textarea" : "input", {
      class: "field", id, name, value, placeholder: hint, maxlength: most, rows: name === "note" ? 2 : null, dir: "auto", autocomplete: "off",
      on: {
        keydown: (event) => {
          if (event.key === "Enter" && name !== "note" && !event.isComposing) field.blur();
          else if (event.key === "Escape") {
            forget();
            field.value = value;
            mark(false);
            state.textContent = "";
            field.blur();
            event.stopPropagation();
          }
        },
        input: () => {
          if (written() === value) forget();
          else keepDocument(draft(), { text: field.value, was: value });
        },
        change: () => {
          if (saving || written() !== value) { commit(); return; }
          mark(false);
          state.textContent = "";
        },
        // A draft from before is no change.
        blur: () => { if (document.hasFocus()) leave(); },
      },
    });
    const kept = documentDraft(draft());
    if (kept) {
      field.value = kept.text;
      if (written() === value) {
        forget();
        field.value = value;
      } else if (kept.was !== value) tellNewer();
      else {
        state.textContent = t("edit.kept");
        wait();
      }
    }
    this.#fields.set(name, { show, close });
    return make("div", { class: "editable" }, make("label", { for: id, text: label }), field, state);
  }
}

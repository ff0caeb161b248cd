// What of the gateway may be changed here: the radio's settings, each with what it means, and the documents that stand in place of the configuration's. And
// what may not, with the command that does it.
import { coded, fill, make } from "../parts/page.js";
import { busy } from "../parts/held.js";
import { number } from "../parts/numbers.js";
import { t, tn } from "../parts/words.js";
import { ask, order } from "../stores/api.js";
import { gateway } from "../stores/gateway.js";
import { live } from "../stores/live.js";
import { inTurn } from "../stores/turn.js";
import { confirmed } from "../shell/dialog.js";

/** A radio answers slowly while it sends. */
const PATIENCE_MS = 60_000;

/** The radio's settings that people change; the rest is `meshpost radio set`. */
const FIELDS = [
  { name: "name", kind: "text", most: 31 },
  { name: "position", kind: "text", most: 40, pattern: "\\s*-?\\d+(\\.\\d+)?\\s*,\\s*-?\\d+(\\.\\d+)?\\s*", shown: (value) => value.split(",").map(Number).join(", ") },
  { name: "location-policy", kind: "choice", options: ["0", "1"] },
  { name: "power", kind: "number", least: -9, most: 30 },
  { name: "preset", kind: "preset" },
  { name: "telemetry", kind: "choice", options: ["deny", "contacts", "all"] },
];

const DOCUMENTS = [
  { name: "log_level", kind: "choice", options: ["", "error", "warning", "notice", "info", "debug"] },
  { name: "messages_from_hub", kind: "choice", options: ["", "true", "false"] },
  { name: "airtime_per_hour_s", kind: "number", least: 1, most: 3600 },
];

export class Settings {
  #ends;
  #radio = null;
  /** The radio as the status tells it: where that changes, a setting may have. */
  #identity = JSON.stringify(gateway.identity);
  #presets = [];
  #documents = null;
  #readRadio = inTurn(() => this.#askRadio());
  #readDocuments = inTurn(() => this.#askDocuments());

  constructor(place) {
    this.radio = make("section", { class: "card wide", "aria-labelledby": "settings-title" }, make("h2", { id: "settings-title", text: t("settings.radio") }));
    this.documents = make("section", { class: "card wide", "aria-labelledby": "documents-title" }, make("h2", { id: "documents-title", text: t("settings.documents") }));
    this.backup = make("section", { class: "card wide", "aria-labelledby": "backup-title" });
    fill(place, make("h2", { class: "section", text: t("settings.title") }), this.radio, this.documents, this.backup);
    this.#drawBackup();
    // Others change them as well: programs that share the radio, `meshpost`, a hub.
    this.#ends = [
      gateway.subscribe(() => {
        const identity = JSON.stringify(gateway.identity);
        if (identity === this.#identity) return;
        this.#identity = identity;
        this.#readRadio();
      }),
      live.on("linked", () => this.#read()),
      live.on("journal", ({ kind, body }) => { if (kind === "document" && body.key.startsWith("settings/")) this.#readDocuments(); }),
    ];
    // Not all of the radio's settings are in its status.
    const look = () => { if (!document.hidden) this.#read(); };
    document.addEventListener("visibilitychange", look);
    this.#ends.push(() => document.removeEventListener("visibilitychange", look));
    this.#read();
  }

  close() { for (const end of this.#ends) end(); }

  #read() {
    this.#readRadio();
    this.#readDocuments();
  }

  async #askRadio() {
    const head = make("h2", { id: "settings-title", text: t("settings.radio") });
    const isFirst = this.#radio === null;
    try {
      [this.#radio, { presets: this.#presets }] = await Promise.all([ask("/v1/radio"), ask("/v1/radio/presets")]);
      if (isFirst) fill(this.radio, head, make("p", { class: "quiet small", text: t("settings.radio-why") }), make("div", { class: "settings-fields" }, FIELDS.map((field) => this.#field(field))));
      else for (const field of FIELDS) this.#renew(`set-${field.name}`, () => this.#field(field));
    } catch (trouble) {
      if (isFirst) fill(this.radio, head, make("p", { class: "quiet", text: trouble.message }), trouble.remedy ? make("p", { class: "quiet small", lang: "en" }, coded(trouble.remedy)) : null,
        make("button", { type: "button", class: "button", text: t("again"), on: { click: () => this.#read() } }));
    }
  }

  async #askDocuments() {
    const head = make("h2", { id: "documents-title", text: t("settings.documents") });
    const isFirst = this.#documents === null;
    try {
      const { documents } = await ask("/v1/documents?prefix=settings/");
      this.#documents = new Map(documents.map((one) => [one.key, one]));
    } catch (trouble) {
      // What was shown stays.
      if (isFirst) fill(this.documents, head, make("p", { class: "quiet", text: trouble.message }),
        make("button", { type: "button", class: "button", text: t("again"), on: { click: () => this.#readDocuments() } }));
      return;
    }
    if (isFirst) fill(this.documents, head, make("p", { class: "quiet small", text: t("settings.documents-why") }),
      make("div", { class: "settings-fields" }, DOCUMENTS.map((field) => this.#document(field))));
    else for (const field of DOCUMENTS) this.#renew(`document-${field.name}`, () => this.#document(field));
  }

  #drawBackup() {
    fill(this.backup, make("h2", { id: "backup-title", text: t("backup.title") }), make("p", { text: t("backup.why") }),
      make("p", { class: "quiet small" }, tn("backup.how", { command: make("code", { text: "meshpost backup FILE" }), remote: make("code", { text: "meshpost --host ssh://USER@GATEWAY backup FILE" }) })),
      make("p", { class: "quiet small" }, tn("backup.radio", { command: make("code", { text: "meshpost radio backup FILE --private-key" }) })));
  }

  // MARK: One setting

  #control(field, value, id) {
    const common = { id, class: "field", "aria-describedby": `${id}-why`, name: field.name };
    if (field.kind === "choice" || field.kind === "preset") {
      const options = field.kind === "preset" ? this.#presets.map((one) => one.name) : field.options;
      const chosen = field.kind === "preset" ? this.#radio.stats?.presets?.[0] ?? "" : String(value ?? "");
      const words = (one) => (field.kind === "preset" ? one || t("settings.preset-own") : t(`settings.${field.name}.${one || "none"}`));
      return make("select", common, (options.includes(chosen) ? options : [chosen, ...options]).map((one) => make("option", { value: one, selected: one === chosen, text: words(one) })));
    }
    return make("input", { ...common, type: field.kind === "number" ? "number" : "text", value: String(value ?? ""), min: field.least, max: field.kind === "number" ? field.most : null,
      maxlength: field.kind === "text" ? field.most : null, pattern: field.pattern, dir: field.kind === "text" ? "auto" : null, autocomplete: field.kind === "text" ? "off" : null });
  }

  /** A field with a button that changes it, what it means, and what has become of it. `change(value)` resolves when it is so. */
  #row(field, id, value, change) {
    const control = this.#control(field, value, id);
    const state = make("p", { class: "small", role: "status" });
    const before = control.dataset.before = control.value;
    const submit = async (event) => {
      event.preventDefault();
      if (control.value === before) return;
      const warning = field.kind === "preset" ? this.#warning(control.value) : null;
      if (warning && !await confirmed(t("settings.preset-title"), warning, t("settings.preset-verb"))) return;
      const button = event.submitter ?? control.form.querySelector("button");
      await busy(button, changed);
    };
    const changed = async () => {
      [state.className, state.textContent] = ["small quiet", t("loading")];
      try {
        await change(control.value.trim());
      } catch (trouble) {
        control.setAttribute("aria-invalid", "true");
        [state.className, state.textContent] = ["small bad-words", `${t("not-saved")} ${trouble.message}`];
      }
    };
    return make("form", { class: "setting", data: { setting: field.name }, on: { submit } }, make("label", { for: id, text: t(`settings.${field.name}`) }),
      make("div", { class: "row" }, control, make("button", { type: "submit", class: "button", text: t("settings.set"), "aria-label": t("settings.set-what", { name: t(`settings.${field.name}`) }) })),
      make("p", { class: "quiet small", id: `${id}-why`, text: t(`settings.${field.name}-why`, { most: this.#radio?.stats?.max_power_dbm ?? "" }) }), state);
  }

  #field(field) {
    const { settings } = this.#radio;
    const most = field.name === "power" ? this.#radio.stats?.max_power_dbm ?? field.most : field.most;
    const value = field.shown ? field.shown(String(settings[field.name] ?? "")) : settings[field.name];
    return this.#row({ ...field, most }, `set-${field.name}`, value, async (given) => {
      this.#radio = await order("/v1/radio/set", { [field.name]: given }, { patience: PATIENCE_MS });
      this.#drawAgain(`set-${field.name}`, () => this.#field(field), given);
      gateway.load();
    });
  }

  /** What a change of the preset means, in figures. */
  #warning(name) {
    const preset = this.#presets.find((one) => one.name === name);
    const { frequency, bandwidth, sf } = this.#radio.settings;
    if (!preset) return null;
    const words = (one) => `${number(one.frequency, 3)} MHz, ${number(one.bandwidth, 1)} kHz, SF${one.sf}`;
    return t("settings.preset-warning", { before: words({ frequency, bandwidth, sf }), after: words(preset) });
  }

  #document(field) {
    const key = `settings/${field.name}`;
    const known = this.#documents.get(key);
    return this.#row(field, `document-${field.name}`, known?.value ?? "", async (given) => {
      const value = given === "" ? undefined : field.kind === "number" ? Number(given) : given === "true" ? true : given === "false" ? false : given;
      await order("/v1/documents", { key, ...(value === undefined ? {} : { value }) });
      this.#documents.set(key, { value });
      this.#drawAgain(`document-${field.name}`, () => this.#document(field), given);
    });
  }

  /** Where it is another value now, unless somebody is about to change it here. */
  #renew(id, drawn) {
    const old = /** @type {HTMLInputElement} */ (document.getElementById(id));
    if (!old || old.value !== old.dataset.before || old === document.activeElement) return;
    const fresh = drawn();
    if (fresh.querySelector(".field").value !== old.value) this.#replace(old.form, fresh);
  }

  #replace(old, fresh) {
    const hadFocus = old.contains(document.activeElement);
    old.replaceWith(fresh);
    if (hadFocus) fresh.querySelector("button").focus();
  }

  /** As it is after the change to `given`. What was typed meanwhile stays. */
  #drawAgain(id, drawn, given) {
    const control = /** @type {HTMLInputElement} */ (document.getElementById(id));
    if (!control) return;
    const old = control.form;
    const [typed, isTyping] = [control.value, control === document.activeElement];
    const fresh = drawn();
    const isOther = typed.trim() !== given;
    if (isOther) fresh.querySelector(".field").value = typed;
    [fresh.querySelector("[role=status]").className, fresh.querySelector("[role=status]").textContent] = ["small good-words", t("saved")];
    this.#replace(old, fresh);
    if (isOther && isTyping) fresh.querySelector(".field").focus();
  }
}

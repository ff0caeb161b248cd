// A gateway's documents: notes of nodes, channels that are exchanged, and settings. Both ends may edit them; the last one holds.
import { fill, make } from "../parts/page.js";
import { refill } from "../parts/held.js";
import { when } from "../parts/times.js";
import { cut, line, named } from "../parts/text.js";
import { has, t } from "../parts/words.js";
import { ask } from "../stores/api.js";
import { put, remove } from "../stores/change.js";
import { documentDraft, keepDocument, ofDocument } from "../stores/drafts.js";
import { query } from "../stores/query.js";
import { route } from "../shell/route.js";
import { fleet } from "./live.js";
import { gatewayNames } from "./words.js";

/** Settings that gateways have, with what each may be. Source: docs/documents.md. */
const SETTINGS = {
  "settings/log_level": ["error", "warning", "notice", "info", "debug"],
  "settings/messages_from_hub": [true, false],
  "settings/airtime_per_hour_s": 0,
};

export class Documents {
  #shell;
  #rows = [];
  #gateway = null;
  #next = null;
  /** The newest request: what an older one brings is not shown. */
  #turn = 0;
  #names = new Map();
  isRefused = false;

  constructor(shell, place) {
    this.#shell = shell;
    this.gateway = make("select", { id: "documents-gateway", class: "field narrow", on: { change: () => route.set({ gateway: this.gateway.value }, { replace: false }) } });
    this.trouble = make("p", { class: "trouble-line", role: "alert" });
    this.list = make("ul", { class: "hub-list", "aria-label": t("commands.documents") });
    this.more = make("button", { type: "button", class: "button", text: t("more-of"), hidden: true, on: { click: () => this.load(true) } });
    this.added = make("div", {});
    fill(place, make("p", { class: "quiet small", text: t("documents.why") }), make("div", { class: "row wrap" }, make("label", { for: "documents-gateway", text: t("messages.gateway") }), this.gateway), this.trouble, this.list, this.more, this.added);
    this.offer();
  }

  offer() {
    const names = gatewayNames();
    if (!names.length || document.activeElement === this.gateway) return;
    const wanted = route.get("gateway") ?? this.#gateway ?? names[0][0];
    if (!names.some(([id]) => id === wanted)) names.push([wanted, wanted]);
    if (this.gateway.dataset.version !== names.join(" ")) {
      this.gateway.dataset.version = names.join(" ");
      fill(this.gateway, names.map(([id, name]) => make("option", { value: id, text: cut(name, 60) })));
    }
    this.gateway.value = wanted;
    this.#choose(wanted);
  }

  /** What is shown, and written, is of the last one: nothing of it is saved at another. */
  #choose(gateway) {
    if (gateway === this.#gateway) return;
    this.#gateway = gateway;
    this.#rows = [];
    this.#next = null;
    this.more.hidden = true;
    for (const place of [this.list, this.added]) fill(place);
    this.load();
  }

  update() {
    if (route.get("gateway") && this.gateway.dataset.version) this.gateway.value = route.get("gateway");
    const wanted = route.get("gateway") ?? this.gateway.value;
    if (wanted && this.gateway.dataset.version) this.#choose(wanted);
    this.offer();
  }

  /** Of a document that is written as a text. */
  #draft(key) { return ofDocument(`${encodeURIComponent(this.#gateway)}/${pathOf(key)}`, this.#shell.session.person); }

  get #path() { return `/v1/gateways/${encodeURIComponent(this.#gateway)}`; }

  async load(isMore = false) {
    const gateway = this.#gateway;
    if (!gateway) return;
    const turn = this.#turn += 1;
    this.isRefused = false;
    try {
      const page = await ask(query(`${this.#path}/documents`, { after: isMore ? this.#next : undefined, limit: 200 }));
      if (turn !== this.#turn) return;
      const documents = page.documents.filter((one) => one.value !== null);
      this.#rows = isMore ? [...this.#rows, ...documents] : documents;
      this.#next = page.next ?? null;
      this.trouble.textContent = "";
    } catch (trouble) {
      // What was shown stays.
      if (turn === this.#turn) { this.isRefused = true; if (this.trouble.textContent !== trouble.message) this.trouble.textContent = trouble.message; }
      return;
    }
    await this.#nameNodes(gateway);
    if (turn === this.#turn) this.#draw();
  }

  /** Keys say nothing to people. */
  async #nameNodes(gateway) {
    this.#names.set(fleet.rows.get(gateway)?.radio_key, fleet.rows.get(gateway)?.radio);
    if (!this.#rows.some((one) => one.key.startsWith("node/") && !this.#names.has(one.key.slice(5, 69)))) return;
    try {
      for (const node of (await ask(query(`${this.#path}/contacts`, { limit: 1000 }))).contacts) this.#names.set(node.key, node.name);
    } catch { /* then the keys are shown */ }
  }

  #draw() {
    // What one writes stays.
    if (this.list.querySelector("form")) return;
    this.more.hidden = this.#next === null;
    refill(this.list, this.#rows.length ? this.#rows.map((one) => this.#row(one)) : make("li", { class: "quiet", text: t("documents.none") }));
    const missing = Object.keys(SETTINGS).filter((key) => !this.#rows.some((one) => one.key === key));
    fill(this.added, this.#shell.mayChange && missing.length ? make("div", { class: "row wrap" }, missing.map((key) => make("button", { type: "button", class: "button small", text: t("documents.set", { name: t(`document.${key.slice(9)}`) }), on: { click: () => { const place = make("li", {}); this.list.append(place); this.#edit({ key, value: SETTINGS[key] === 0 ? 60 : SETTINGS[key][0] }, place); } } }))) : null);
  }

  #row(one) {
    const place = make("li", {});
    const [kind, key, field] = one.key.split("/");
    const draft = this.#shell.mayChange ? documentDraft(this.#draft(one.key)) : null;
    const setting = kind === "settings" && has(`document.${key}`);
    fill(place, make("span", { class: "grow" }, setting ? make("strong", { text: t(`document.${key}`) }) : kind === "node" ? [make("strong", {}, named(this.#names.get(key) || key.slice(0, 12))), " ", has(`fleet.${field}`) ? t(`fleet.${field}`) : cut(field ?? "", 20)] : make("code", { class: "break", text: cut(one.key, 120) }), ": ", line(told(one.value), 300),
        draft ? [" · ", make("span", { class: "draft", text: t("list.draft") }), line(draft.text, 120), " ", make("span", { class: "quiet small", text: t("edit.kept") })] : null),
      make("span", { class: "quiet small" }, t(one.by_hub ? "documents.by-hub" : "documents.by-gateway"), " · ", when(one.updated_at)),
      // As it told last: nobody tells what it permitted when this was written.
      one.by_hub && one.permitted === false ? make("span", { class: "trouble-line small break", text: t("documents.unpermitted-now", { line: one.permits }) }) : null,
      this.#shell.mayChange ? [make("button", { type: "button", class: "button small", text: t("documents.edit"), data: { key: one.key }, on: { click: () => this.#edit(one, place) } }),
        make("button", { type: "button", class: "button small danger", text: t("documents.delete"), on: { click: () => this.#change(() => remove(`${this.#path}/documents/${pathOf(one.key)}`), { draft: this.#draft(one.key) }) } })] : null);
    return place;
  }

  #edit(one, place) {
    const [draft, was] = [this.#draft(one.key), Array.isArray(one.value) ? one.value.join(", ") : String(one.value)];
    const choices = SETTINGS[one.key] ?? (typeof one.value === "boolean" ? [true, false] : null);
    const field = Array.isArray(choices) ? make("select", { class: "field narrow", "aria-label": cut(one.key, 120) }, choices.map((value) => make("option", { value: JSON.stringify(value), text: told(value), selected: value === one.value })))
      : make(typeof one.value === "string" && one.value.length > 60 ? "textarea" : "input", { class: "field", type: typeof one.value === "number" ? "number" : null, min: typeof one.value === "number" ? 1 : null, max: typeof one.value === "number" ? 3600 : null, maxlength: 2000, dir: "auto", autocomplete: "off", "aria-label": cut(one.key, 120), value: documentDraft(draft)?.text ?? was, on: { input: () => keepDocument(draft, field.value.trim() === was ? null : { text: field.value, was }) } });
    const back = () => { keepDocument(draft, null); form.remove(); this.#draw(); this.#focusOn(one.key); };
    const form = make("form", { class: "row wrap grow", on: {
      keydown: (event) => { if (event.key === "Escape") { event.stopPropagation(); back(); } },
      submit: (event) => {
        event.preventDefault();
        const value = Array.isArray(choices) ? JSON.parse(field.value) : Array.isArray(one.value) ? field.value.split(",").map((part) => part.trim()).filter(Boolean) : typeof one.value === "number" ? Number(field.value) : field.value.trim();
        this.#change(() => put(`${this.#path}/documents/${pathOf(one.key)}`, { value }), { form, key: one.key, draft });
      } } },
    make("span", { class: "small break", text: has(`document.${one.key.slice(9)}`) ? t(`document.${one.key.slice(9)}`) : cut(one.key, 120) }), make("span", { class: "grow" }, field),
    make("button", { type: "submit", class: "button primary", text: t("documents.save") }), make("button", { type: "button", class: "button", text: t("cancel"), on: { click: back } }));
    fill(place, form);
    field.focus();
  }

  /** Where it was edited from. */
  #focusOn(key) {
    const place = this.list.querySelector(`button[data-key="${CSS.escape(key)}"]`) ?? this.list.querySelector("button") ?? this.list.closest("[tabindex]");
    place?.focus({ preventScroll: true });
  }

  async #change(work, { form = null, key = null, draft = null } = {}) {
    const gateway = this.#gateway;
    const written = draft && documentDraft(draft)?.text;
    try {
      const edited = await work();
      // What was written meanwhile is still to be saved.
      if (draft && documentDraft(draft)?.text === written) keepDocument(draft, null);
      // Another one was chosen meanwhile.
      if (gateway !== this.#gateway) return;
      const hadFocus = form?.contains(document.activeElement);
      form?.remove();
      this.trouble.textContent = "";
      await this.load();
      if (hadFocus && document.activeElement === document.body) this.#focusOn(key);
      // What was deleted has no row that could say so.
      if (edited.value === null && edited.permitted === false && !this.isRefused) this.trouble.textContent = t("documents.unpermitted", { line: edited.permits });
    } catch (trouble) {
      if (gateway === this.#gateway) this.trouble.textContent = trouble.message;
    }
  }
}

function pathOf(key) { return key.split("/").map(encodeURIComponent).join("/"); }

function told(value) {
  if (value === true) return t("yes");
  if (value === false) return t("no");
  return Array.isArray(value) ? value.join(", ") : String(value);
}

// Who may use these pages, and which tokens programs have.
import { fill, make } from "../parts/page.js";
import { refill } from "../parts/held.js";
import { when } from "../parts/times.js";
import { named } from "../parts/text.js";
import { has, t } from "../parts/words.js";
import { onKeys } from "../shell/keys.js";
import { ask } from "../stores/api.js";
import { put, remove } from "../stores/change.js";
import { live } from "./live.js";
import { row } from "./notify.js";

const ROLES = ["view", "operate", "administer"];

export class View {
  #ends;
  #isRefused = false;
  #refusal = null;

  constructor(shell) {
    this.people = make("ul", { class: "hub-list", "aria-label": t("hub.people") });
    this.tokens = make("ul", { class: "hub-list", "aria-label": t("people.tokens") });
    this.devices = make("ul", { class: "hub-list", "aria-label": t("notify.devices") });
    this.trouble = make("p", { class: "trouble-line", role: "alert" });
    this.name = make("input", { id: "person-name", class: "field", required: true, maxlength: 64, pattern: "[A-Za-z0-9._\\-]+", autocomplete: "off", autocapitalize: "none" });
    this.password = make("input", { id: "person-password", class: "field", type: "password", required: true, minlength: 8, autocomplete: "new-password" });
    this.role = make("select", { id: "person-role", class: "field" }, ROLES.map((role) => make("option", { value: role, text: t(`role.${role}`) })));
    fill(shell.main, make("header", { class: "view-head" }, make("h1", { text: t("hub.people") })),
      make("div", { class: "hub-scroll", tabindex: 0, role: "group", "aria-label": t("hub.people") }, this.trouble, this.people,
        make("form", { class: "command-form", on: { submit: (event) => { event.preventDefault(); this.#add(); } } },
          make("h2", { text: t("people.add") }),
          make("label", { for: "person-name", text: t("people.name") }), this.name,
          make("label", { for: "person-password", text: t("people.password") }), this.password,
          make("label", { for: "person-role", text: t("people.role") }), this.role,
          make("div", { class: "row" }, make("button", { class: "button primary", type: "submit", text: t("people.add") }))),
        make("h2", { text: t("people.tokens") }), make("p", { class: "quiet small", text: t("people.tokens-why") }), this.tokens,
        make("h2", { text: t("notify.devices") }), this.devices));
    this.#ends = ["hello", "again"].map((event) => live.on(event, () => { if (this.#isRefused) { this.#isRefused = false; this.#load(); } }));
    onKeys({});
    this.#load();
  }

  close() { for (const end of this.#ends) end(); }

  async #change(work) {
    this.trouble.textContent = "";
    let words = "";
    try { await work(); } catch (trouble) { words = trouble.message; }
    await this.#load();
    if (words) this.trouble.textContent = words;
  }

  async #add() {
    await this.#change(async () => {
      const [name, password] = [this.name.value, this.password.value];
      await put(`/v1/people/${encodeURIComponent(name)}`, { role: this.role.value, password });
      // Who is written next, meanwhile, stays.
      if (this.name.value === name && this.password.value === password) this.name.value = this.password.value = "";
    });
  }

  /** In its row: their sessions end with the old one. */
  #password(person, place) {
    place.querySelector("form")?.remove();
    // Back at the button that has opened it.
    const shut = () => { form.remove(); place.querySelector("button")?.focus({ preventScroll: true }); };
    const field = make("input", { class: "field", type: "password", required: true, minlength: 8, autocomplete: "new-password", "aria-label": t("people.password-of", { name: person.name }) });
    const form = make("form", { class: "row wrap grow", on: {
      keydown: (event) => { if (event.key === "Escape") { event.stopPropagation(); shut(); } },
      submit: (event) => { event.preventDefault(); const password = field.value; shut(); this.#change(() => put(`/v1/people/${encodeURIComponent(person.name)}`, { password })); },
    } }, make("span", { class: "grow" }, field), make("button", { type: "submit", class: "button primary", text: t("people.set-password") }));
    place.append(form);
    field.focus();
  }

  async #load() {
    // What one writes stays.
    if (this.people.querySelector("form")) return;
    try {
      const [{ people }, { tokens }, { devices }] = await Promise.all(["/v1/people", "/v1/tokens", "/v1/push/all"].map((path) => ask(path)));
      if (this.trouble.textContent === this.#refusal) this.trouble.textContent = "";
      refill(this.people, people.map((person) => make("li", {},
        make("span", { class: "grow" }, named(person.name), " ", make("span", { class: "quiet small" }, person.last_used ? [t("people.used"), " ", when(person.last_used)] : t("people.never"))),
        has(`way.${person.way}`) ? make("span", { class: "quiet small", text: t(`way.${person.way}`) }) : null,
        make("select", { class: "field narrow", "aria-label": t("people.role-of", { name: person.name }), on: { change: (event) => this.#change(() => put(`/v1/people/${encodeURIComponent(person.name)}`, { role: event.target.value })) } },
          ROLES.map((role) => make("option", { value: role, text: t(`role.${role}`), selected: role === person.role }))),
        person.way === "oidc" ? null : make("button", { type: "button", class: "button", text: t("people.new-password"), on: { click: (event) => this.#password(person, event.target.closest("li")) } }),
        make("button", { type: "button", class: "button danger", text: t("people.remove"), on: { click: () => this.#remove(person) } }))));
      fill(this.tokens, tokens.map((token) => make("li", {},
        make("span", { class: "grow" }, named(token.name), " ", make("span", { class: "quiet small", text: [has(`access.${token.access}`) ? t(`access.${token.access}`) : token.access, token.gateway === "*" ? t("people.every") : token.gateway].join(" · ") })),
        make("span", { class: "quiet small" }, token.last_used ? when(token.last_used) : t("people.never")))));
      refill(this.devices, devices.map((one) => row({ ...one, device: `${one.person} · ${one.device}` }, false, () => this.#change(() => remove(`/v1/push/all/${encodeURIComponent(one.id)}`)))));
    } catch (trouble) {
      [this.#isRefused, this.#refusal] = [true, trouble.message];
      if (this.trouble.textContent !== trouble.message) this.trouble.textContent = trouble.message;
    }
  }

  async #remove(person) {
    const { confirmed } = await import("../shell/dialog.js");
    if (await confirmed(t("people.remove"), t("people.remove-why", { name: person.name }), t("people.remove"))) await this.#change(() => remove(`/v1/people/${encodeURIComponent(person.name)}`));
  }
}

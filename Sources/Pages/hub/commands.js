// What gateways were told to do, and who did what at the hub.
import { fill, make } from "../parts/page.js";
import { when } from "../parts/numbers.js";
import { line, named } from "../parts/text.js";
import { has, t } from "../parts/words.js";
import { ask, freshID, order, query } from "../stores/api.js";
import { route } from "../shell/route.js";
import { fleet } from "./live.js";

export class View {
  #shell;
  #ends;
  #timer;

  constructor(shell) {
    this.#shell = shell;
    this.#build();
    this.#ends = [fleet.subscribe(() => this.#offer())];
    // Commands have no stream of their own.
    this.#timer = setInterval(() => { if (!document.hidden) this.#load(); }, 5000);
    this.#offer();
    this.#load();
  }

  close() {
    clearInterval(this.#timer);
    for (const end of this.#ends) end();
  }

  #build() {
    const field = (name, attributes = {}) => make("input", { id: `command-${name}`, name, class: "field", autocomplete: "off", required: true, ...attributes });
    this.gateway = make("select", { id: "command-gateway", class: "field", required: true });
    this.to = field("to", { maxlength: 200 });
    this.text = field("text", { maxlength: 1000 });
    this.button = make("button", { class: "button primary", type: "submit", text: t("commands.send") });
    this.answer = make("p", { class: "trouble-line", role: "status" });
    this.form = !this.#shell.mayChange ? null : make("form", { class: "command-form", on: { submit: (event) => this.#send(event) } },
      make("h2", { text: t("commands.new") }),
      make("label", { for: "command-gateway", text: t("commands.gateway") }), this.gateway,
      make("label", { for: "command-to", text: t("commands.to") }), this.to,
      make("label", { for: "command-text", text: t("commands.text") }), this.text,
      make("div", { class: "row" }, this.button), this.answer);
    this.commands = make("ul", { class: "hub-list", "aria-label": t("hub.commands") });
    this.deeds = make("ul", { class: "hub-list", "aria-label": t("commands.deeds") });
    fill(this.#shell.main, make("header", { class: "view-head" }, make("h1", { text: t("hub.commands") })),
      make("div", { class: "hub-scroll", tabindex: 0, role: "group", "aria-label": t("hub.commands") }, this.form, make("h2", { text: t("commands.list") }), this.commands, make("h2", { text: t("commands.deeds") }), this.deeds));
  }

  #offer() {
    if (!this.form || document.activeElement === this.gateway) return;
    const wanted = this.gateway.value || route.get("gateway");
    fill(this.gateway, [...fleet.rows.keys()].sort().map((id) => make("option", { value: id, text: id, selected: id === wanted })));
  }

  async #send(event) {
    event.preventDefault();
    this.button.disabled = true;
    this.answer.textContent = t("commands.under-way");
    this.id ??= freshID();
    try {
      // The id stays until the hub has answered: sent again after a cut it is the same command.
      const state = await order(`/v1/gateways/${encodeURIComponent(this.gateway.value)}/commands?wait_s=10`, { id: this.id, command: "send", to: this.to.value, text: this.text.value }, { patience: 40_000 });
      this.id = undefined;
      this.answer.textContent = state.answer?.error ?? t(`commands.${state.state}`);
      if (state.state !== "refused") this.text.value = "";
    } catch (trouble) {
      if (!trouble.isCut) this.id = undefined;
      this.answer.textContent = trouble.message;
    } finally {
      this.button.disabled = false;
      this.#load();
    }
  }

  async #load() {
    try {
      const [commands, deeds] = await Promise.all([ask(query("/v1/commands", { limit: 100 })), ask(query("/v1/audit", { limit: 100 }))]);
      fill(this.commands, commands.commands.length ? commands.commands.map((one) => make("li", {},
        make("span", { class: `state-word ${one.state === "refused" || one.state === "expired" ? "bad-words" : ""}`, text: t(`commands.${one.state}`) }),
        make("span", { class: "grow" }, make("code", { text: String(one.command ?? "") }), " ", one.body?.to ? line(String(one.body.to), 60) : null, " ", one.body?.text ? line(String(one.body.text), 120) : null,
          one.answer?.error ? make("span", { class: "bad-words small break" }, " ", line(String(one.answer.error), 200)) : null),
        make("span", { class: "quiet small" }, named(one.gateway), " · ", named(one.author), " · ", when(one.created_at)))) : make("li", { class: "quiet", text: t("commands.none") }));
      fill(this.deeds, deeds.audit.map((one) => make("li", {},
        make("span", { class: "grow" }, named(one.who), " ", has(`deed.${one.what}`) ? t(`deed.${one.what}`) : one.what, " ", line(Object.values(one.detail ?? {}).filter((value) => typeof value === "string").join(" "), 120)),
        make("span", { class: "quiet small" }, one.gateway ? [named(one.gateway), " · "] : null, when(one.at)))));
    } catch (trouble) {
      if (!this.commands.children.length) fill(this.commands, make("li", { role: "alert", text: trouble.message }));
    }
  }
}

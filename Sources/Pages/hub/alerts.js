// What wants a person: open, seen by whom, over; and the rules by which it is told.
import { fill, make, showTrouble } from "../parts/page.js";
import { refill } from "../parts/held.js";
import { span } from "../parts/numbers.js";
import { when } from "../parts/times.js";
import { cut, line, named } from "../parts/text.js";
import { byWeight } from "../parts/weight.js";
import { has, t } from "../parts/words.js";
import { ask, order } from "../stores/api.js";
import { keepDraft, keepNotes, ofNote } from "../stores/drafts.js";
import { draftOf } from "../stores/kept.js";
import { query } from "../stores/query.js";
import { onKeys } from "../shell/keys.js";
import { route } from "../shell/route.js";
import { gatewayName, live } from "./live.js";

const PAGE = 100;

export class View {
  #shell;
  #ends;
  #alerts = null;
  #next = null;
  #wanted = null;
  #trouble = null;
  #isLoading = false;
  #isStale = false;
  #isMissing = false;
  #areRulesWanted = false;
  #timer = 0;

  constructor(shell) {
    this.#shell = shell;
    this.count = make("p", { class: "quiet small", role: "status" });
    this.chips = make("div", { class: "chips", role: "group", "aria-label": t("fleet.show") });
    this.place = make("div", { class: "alerts" });
    this.rules = make("section", { class: "plain" });
    fill(shell.main, make("header", { class: "view-head" }, make("h1", { text: t("hub.alerts") }), this.count),
      make("div", { class: "filters" }, this.chips),
      make("div", { class: "hub-scroll", tabindex: 0, role: "group", "aria-label": t("hub.alerts") }, this.place, this.rules));
    this.#ends = [live.on("alert", () => this.#soon()), live.on("hello", () => this.#soon()), live.on("again", () => { if (this.#trouble && !this.#isMissing) this.#soon(); if (this.#areRulesWanted) this.#loadRules(); })];
    onKeys({});
    this.#loadRules();
  }

  close() {
    for (const end of this.#ends) end();
    clearTimeout(this.#timer);
  }

  get #filter() { return { state: route.get("show") === "over" ? "all" : "open", gateway: route.get("gateway") ?? undefined }; }

  update() {
    this.#drawChips();
    const wanted = JSON.stringify(this.#filter);
    if (wanted !== this.#wanted) {
      this.#wanted = wanted;
      this.#alerts = null;
      this.place.dataset.version = "";
      this.#load();
    }
    this.#draw();
  }

  /** Many at once are read once. */
  #soon() {
    this.#timer ||= setTimeout(() => { this.#timer = 0; this.#load(); }, 300);
  }

  #drawChips() {
    const isOver = route.get("show") === "over";
    const gateway = route.get("gateway");
    refill(this.chips,
      make("button", { type: "button", class: "chip", "aria-pressed": String(isOver), text: t("alerts.show-over"), on: { click: () => route.set({ show: isOver ? undefined : "over" }, { replace: false }) } }),
      gateway ? make("button", { type: "button", class: "chip", "aria-pressed": "true", on: { click: () => route.set({ gateway: undefined }, { replace: false }) } }, named(gatewayName(gateway)), make("span", { "aria-hidden": "true", text: "×" }), make("span", { class: "unseen", text: t("filter.off") })) : null);
  }

  async #load(isMore = false) {
    if (this.#isLoading) { this.#isStale ||= !isMore; return; }
    this.#isLoading = true;
    const wanted = this.#wanted;
    try {
      const page = await ask(query("/v1/alerts", { ...this.#filter, limit: PAGE, before: isMore ? this.#next : undefined }));
      if (wanted === this.#wanted) {
        this.#alerts = isMore ? [...this.#alerts, ...page.alerts.filter((one) => !this.#alerts.some((other) => other.id === one.id))] : page.alerts;
        this.#next = page.next ?? null;
        this.#trouble = null;
        this.#isMissing = false;
        // One that is over is not shown here, and its draft would be asked about when somebody signs out.
        if (!isMore && this.#next === null && !this.#filter.gateway) keepNotes(page.alerts.map((one) => String(one.id)), this.#shell.session.person);
      }
    } catch (trouble) {
      this.#trouble = trouble;
      // An older hub: it has none.
      this.#isMissing = trouble.status === 404;
    } finally {
      this.#isLoading = false;
    }
    if (this.#isStale || wanted !== this.#wanted) { this.#isStale = false; this.#load(); }
    this.#draw();
  }

  async #loadRules() {
    this.#areRulesWanted = false;
    try {
      const { rules } = await ask("/v1/alerts/rules");
      const sentence = (rule) => (typeof rule === "string" ? rule : rule.sentence ?? rule.text ?? "");
      fill(this.rules, rules.length ? [make("h2", { text: t("alerts.rules") }), make("ul", { class: "hub-list" }, rules.map((rule) => make("li", {},
        has(`rule.${rule.rule}`) ? make("strong", { text: t(`rule.${rule.rule}`) }) : rule.rule ? named(rule.rule) : null, make("span", { class: "grow", lang: "en", text: cut(sentence(rule), 600) })))), make("p", { class: "quiet small", text: t("alerts.rules-why") })] : null);
    } catch (trouble) {
      // A hub without alerts has no rules.
      this.#areRulesWanted = trouble.status !== 404;
    }
  }

  #draw() {
    const shown = this.#alerts ?? [];
    if (this.#isMissing) {
      fill(this.place, make("div", { class: "empty" }, make("h2", { text: t("alerts.missing") }), make("p", { class: "quiet", text: t("alerts.missing-why") }), make("a", { class: "button", href: "/fleet?only=need", text: t("alerts.to-fleet") })));
      this.count.textContent = "";
      return;
    }
    if (!this.#alerts) {
      if (!this.#trouble) fill(this.place, make("p", { class: "quiet", text: t("loading") }));
      else if (this.place.firstChild?.role !== "alert") fill(this.place);
      showTrouble(this.place, this.#trouble, () => this.#load());
      return;
    }
    const groups = { open: shown.filter((one) => !one.ended_at && !one.acknowledged_at).sort(byWeight), seen: shown.filter((one) => !one.ended_at && one.acknowledged_at).sort(byWeight), over: shown.filter((one) => one.ended_at) };
    const version = JSON.stringify([shown, this.#next, this.#trouble?.message]);
    const words = t("alerts.open-count", { count: groups.open.length + groups.seen.length });
    if (this.count.textContent !== words) this.count.textContent = words;
    // What one writes stays.
    if (this.place.dataset.version === version || this.place.querySelector("form")) return;
    this.place.dataset.version = version;
    const focused = this.place.contains(document.activeElement) ? document.activeElement.dataset.alert : null;
    refill(this.place,
      shown.length ? null : make("div", { class: "empty" }, make("h2", { text: t("alerts.none") }), make("p", { class: "quiet", text: t("alerts.none-why") })),
      Object.entries(groups).filter(([, list]) => list.length).map(([name, list]) => [make("h2", { text: t(`alerts.${name}`, { count: list.length }) }), make("ul", { class: "hub-list" }, list.map((one) => this.#row(one)))]),
      this.#trouble ? make("p", { class: "bad-words", role: "alert", text: this.#trouble.message }) : null,
      this.#next === null ? null : make("button", { type: "button", class: "button", text: t("more-of"), on: { click: () => this.#load(true) } }));
    if (focused) this.place.querySelector(`[data-alert="${CSS.escape(focused)}"]`)?.focus();
  }

  #row(one) {
    const isOpen = !one.ended_at && !one.acknowledged_at;
    const mayNote = isOpen && this.#shell.mayChange;
    const draft = draftOf(this.#noteOf(one));
    // Nobody can add it any more.
    if (draft && !isOpen) keepDraft(this.#noteOf(one), "");
    const place = make("li", { class: `alert ${isOpen ? "open" : ""}` },
      make("span", { class: `dot ${one.ended_at ? "" : isOpen ? "down" : "connecting"}`, "aria-hidden": "true" }),
      make("span", { class: "grow" },
        make("span", { class: "alert-head" }, one.gateway ? make("a", { href: `/fleet/${encodeURIComponent(one.gateway)}` }, named(gatewayName(one.gateway))) : null, " ",
          make("strong", { text: has(`rule.${one.rule}`) ? t(`rule.${one.rule}`) : cut(String(one.rule ?? ""), 64) }), one.subject ? [" ", named(/^[0-9a-f]{64}$/.test(one.subject) ? one.subject.slice(0, 12) : one.subject, { class: "name quiet" })] : null),
        make("span", { class: "alert-text" }, make("bdi", { text: cut(String(one.text ?? ""), 600), lang: "en" })),
        make("span", { class: "quiet small" }, t("alerts.since"), " ", when(one.began_at),
          one.ended_at ? [" · ", t("alerts.lasted", { time: span((one.ended_at - one.began_at) / 1000) }), " ", when(one.ended_at)] : null,
          one.acknowledged_at ? [" · ", t("alerts.seen-by"), " ", named(one.acknowledged_by ?? ""), " ", when(one.acknowledged_at)] : null,
          one.note ? [" · ", make("bdi", { text: cut(one.note, 500) })] : null,
          mayNote && draft ? [" · ", make("span", { class: "draft", text: t("list.draft") }), line(draft)] : null)));
    if (mayNote) place.append(make("button", { type: "button", class: "button small", data: { alert: String(one.id) }, text: t("alerts.acknowledge"), on: { click: () => this.#acknowledge(one, place) } }));
    return place;
  }

  #noteOf(one) { return ofNote(one.id, this.#shell.session.person); }

  /** With a note, for who looks after it; or without. What is written stays a draft until then. */
  #acknowledge(one, place) {
    place.querySelector("button")?.remove();
    const name = this.#noteOf(one);
    let isUnderWay = false;
    const shut = () => {
      const hadFocus = form.contains(document.activeElement);
      form.remove();
      this.place.dataset.version = "";
      this.#draw();
      // Where it was opened, or at the list if it is not there any more.
      if (hadFocus) (this.place.querySelector(`[data-alert="${CSS.escape(String(one.id))}"]`) ?? this.place.parentElement)?.focus({ preventScroll: true });
    };
    const note = make("input", { class: "field", maxlength: 400, dir: "auto", placeholder: t("alerts.note-why"), "aria-label": t("alerts.note"), autocomplete: "off", value: draftOf(name),
      on: { input: () => keepDraft(name, note.value), keydown: (event) => { if (event.key === "Escape") { event.stopPropagation(); shut(); } } } });
    const state = make("span", { class: "bad-words small", role: "status" });
    const form = make("form", { class: "row wrap alert-form", on: { submit: async (event) => {
      event.preventDefault();
      if (isUnderWay) return;
      isUnderWay = true;
      state.textContent = "";
      try {
        const row = await order(`/v1/alerts/${encodeURIComponent(one.id)}/acknowledge`, note.value.trim() ? { note: note.value.trim() } : {});
        keepDraft(name, "");
        // What is shown until all are read again.
        this.#alerts = this.#alerts?.map((other) => (other.id === one.id ? { ...other, ...row } : other)) ?? null;
        shut();
        this.#soon();
      } catch (trouble) {
        state.textContent = trouble.message;
        isUnderWay = false;
      }
    } } }, note, make("button", { type: "submit", class: "button primary", text: t("alerts.acknowledge") }), state);
    place.append(form);
    note.focus();
  }
}

// What wants a person: open, seen by whom, over; and the rules by which it is told.
import { fill, make, showTrouble } from "../parts/page.js";
import { refill } from "../parts/held.js";
import { span } from "../parts/numbers.js";
import { sentence } from "../parts/sentence.js";
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
import { fleet, gatewayName, live } from "./live.js";
import { outages } from "./outages.js";
import { gatewayNames } from "./words.js";

/** One outage may be of many gateways. */
const PAGE = 500;

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
  #frame = 0;

  constructor(shell) {
    this.#shell = shell;
    this.count = make("p", { class: "quiet small", role: "status" });
    this.chips = make("div", { class: "chips", role: "group", "aria-label": t("fleet.show") });
    const select = (name, chosen) => make("select", { class: "field", "aria-label": t(`alerts.${name}`), on: { change: (event) => route.set(chosen(event.target.value), { replace: false }) } });
    this.rule = select("rule", (value) => ({ rule: value || undefined }));
    // A tag or a gateway, each with a letter before it.
    this.site = select("place", (value) => ({ tag: value[0] === "t" ? value.slice(1) : undefined, gateway: value[0] === "g" ? value.slice(1) : undefined }));
    this.place = make("div", { class: "alerts" });
    this.rules = make("section", { class: "plain" });
    fill(shell.main, make("header", { class: "view-head" }, make("h1", { text: t("hub.alerts") }), this.count),
      make("div", { class: "filters alert-filters" }, this.rule, this.site, this.chips),
      make("div", { class: "hub-scroll", tabindex: 0, role: "group", "aria-label": t("hub.alerts") }, this.place, this.rules));
    this.#ends = [fleet.subscribe(() => this.#later()), live.on("alert", () => this.#soon()), live.on("hello", () => this.#soon()), live.on("again", () => { if (this.#trouble && !this.#isMissing) this.#soon(); if (this.#areRulesWanted) this.#loadRules(); })];
    onKeys({});
    this.#loadRules();
  }

  close() {
    for (const end of this.#ends) end();
    clearTimeout(this.#timer);
    cancelAnimationFrame(this.#frame);
  }

  /** `gateway`: ids with commas between; empty: no gateway has the tag. */
  get #filter() {
    const tag = route.get("tag");
    const gateway = tag ? [...fleet.rows.values()].filter((row) => row.tags?.includes(tag)).map((row) => row.gateway).sort().join(",") : route.get("gateway") ?? undefined;
    return { state: route.get("show") === "over" ? "all" : "open", gateway, rule: route.get("rule") ?? undefined };
  }

  update() {
    this.#drawChips();
    // Who has a tag, the fleet tells.
    if (route.get("tag") && !fleet.isLoaded) { this.#draw(); return; }
    const wanted = JSON.stringify(this.#filter);
    if (wanted !== this.#wanted) {
      this.#wanted = wanted;
      this.#alerts = null;
      this.place.dataset.version = "";
      this.#load();
    }
    this.#draw();
  }

  /** Many gateways change at once: drawn once. */
  #later() { this.#frame ||= requestAnimationFrame(() => { this.#frame = 0; if (this.place.isConnected) this.update(); }); }

  /** Many at once are read once. */
  #soon() {
    this.#timer ||= setTimeout(() => { this.#timer = 0; this.#load(); }, 300);
  }

  #drawChips() {
    const isOver = route.get("show") === "over";
    const [gateway, tag, rule] = ["gateway", "tag", "rule"].map((name) => route.get(name));
    const rules = new Set([...fleet.rows.values()].flatMap((row) => row.alert_rules ?? []).concat(this.#alerts?.map((one) => one.rule) ?? [], rule ?? []));
    const tags = new Set([...fleet.rows.values()].flatMap((row) => row.tags ?? []).concat(tag ?? []));
    const choose = (place, name, chosen, options) => {
      const version = JSON.stringify([chosen, options]);
      if (place.dataset.version === version || document.activeElement === place) return;
      place.dataset.version = version;
      fill(place, make("option", { value: "", text: t(`alerts.all-${name}`) }), options.map(([value, words]) => make("option", { value, text: cut(words, 60), selected: value === chosen })));
    };
    choose(this.rule, "rule", rule, [...rules].map((one) => [one, nameOf(one)]).sort(([, a], [, b]) => (a < b ? -1 : 1)));
    choose(this.site, "place", tag ? `t${tag}` : gateway ? `g${gateway}` : "", [...[...tags].sort().map((one) => [`t${one}`, t("alerts.tagged", { tag: one })]), ...gatewayNames().concat(gateway && !fleet.rows.has(gateway) ? [[gateway, gateway]] : []).map(([id, name]) => [`g${id}`, name])]);
    const active = (values, words) => make("button", { type: "button", class: "chip", "aria-pressed": "true", on: { click: () => route.set(values, { replace: false }) } }, named(words), make("span", { "aria-hidden": "true", text: "×" }), make("span", { class: "unseen", text: t("filter.off") }));
    refill(this.chips,
      make("button", { type: "button", class: "chip", "aria-pressed": String(isOver), text: t("alerts.show-over"), on: { click: () => route.set({ show: isOver ? undefined : "over" }, { replace: false }) } }),
      rule ? active({ rule: undefined }, nameOf(rule)) : null, tag ? active({ tag: undefined }, tag) : null, gateway ? active({ gateway: undefined }, gatewayName(gateway)) : null);
  }

  async #load(isMore = false) {
    if (this.#isLoading) { this.#isStale ||= !isMore; return; }
    this.#isLoading = true;
    const wanted = this.#wanted;
    try {
      const page = this.#filter.gateway === "" ? { alerts: [] } : await ask(query("/v1/alerts", { ...this.#filter, limit: PAGE, before: isMore ? this.#next : undefined }));
      if (wanted === this.#wanted) {
        this.#alerts = isMore ? [...this.#alerts, ...page.alerts.filter((one) => !this.#alerts.some((other) => other.id === one.id))] : page.alerts;
        this.#next = page.next ?? null;
        this.#trouble = null;
        this.#isMissing = false;
        // One that is over is not shown here, and its draft would be asked about when somebody signs out.
        if (!isMore && this.#next === null && this.#filter.gateway === undefined && !this.#filter.rule) keepNotes(page.alerts.map((one) => String(one.id)), this.#shell.session.person);
      }
    } catch (trouble) {
      this.#trouble = trouble;
      // An older hub: it has none.
      this.#isMissing = trouble.status === 404;
    } finally {
      this.#isLoading = false;
    }
    if (this.#isStale || wanted !== this.#wanted) { this.#isStale = false; this.#load(); }
    // Its rules can be chosen.
    this.#drawChips();
    this.#draw();
  }

  async #loadRules() {
    this.#areRulesWanted = false;
    try {
      const { rules } = await ask("/v1/alerts/rules");
      const words = (rule) => (typeof rule === "string" ? rule : rule.sentence ?? rule.text ?? "");
      fill(this.rules, rules.length ? [make("h2", { text: t("alerts.rules") }), make("ul", { class: "hub-list" }, rules.map((rule) => make("li", {},
        has(`rule.${rule.rule}`) ? make("strong", { text: t(`rule.${rule.rule}`) }) : rule.rule ? named(rule.rule) : null, make("span", { class: "grow" }, sentence({ rule: "rules", text: words(rule) }))))), make("p", { class: "quiet small", text: t("alerts.rules-why") })] : null);
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
    const version = JSON.stringify([shown, this.#next, this.#trouble?.message, fleet.rows.size]);
    const open = [...groups.open, ...groups.seen];
    const counted = t(this.#next === null ? "alerts.open-count" : "alerts.open-more", { count: open.length });
    const gateways = new Set(open.flatMap((one) => one.gateway ?? [])).size;
    const words = gateways ? t("alerts.of", { alerts: counted, count: gateways }) : counted;
    if (this.count.textContent !== words) this.count.textContent = words;
    // What one writes stays.
    if (this.place.dataset.version === version || this.place.querySelector("form")) return;
    this.place.dataset.version = version;
    const focused = this.place.contains(document.activeElement) ? document.activeElement.dataset.alert : null;
    const opened = new Set([...this.place.querySelectorAll("details[open]")].map((one) => one.dataset.outage));
    refill(this.place,
      shown.length ? null : make("div", { class: "empty" }, make("h2", { text: t("alerts.none") }), make("p", { class: "quiet", text: t("alerts.none-why") })),
      Object.entries(groups).filter(([, list]) => list.length).map(([name, list]) => [make("h2", { text: t(`alerts.${name}`, { count: list.length }) }), make("ul", { class: "hub-list" }, outages(list, fleet.rows.size).map((all) => (all.length > 1 ? this.#outage(all, opened) : this.#row(all[0]))))]),
      this.#trouble ? make("p", { class: "bad-words", role: "alert", text: this.#trouble.message }) : null,
      this.#next === null ? null : make("button", { type: "button", class: "button", text: t("more-of"), on: { click: () => this.#load(true) } }));
    if (focused) this.place.querySelector(`[data-alert="${CSS.escape(focused)}"]`)?.focus();
  }

  /** Of many gateways that fell silent together: acknowledged by one press. */
  #outage(all, opened) {
    const [first] = all;
    const isOpen = !first.acknowledged_at;
    const place = make("li", { class: `alert outage ${isOpen ? "open" : ""}` },
      make("span", { class: `dot ${isOpen ? "down" : "connecting"}`, "aria-hidden": "true" }),
      make("details", { class: "grow", open: opened.has(String(first.id)), data: { outage: String(first.id) } },
        make("summary", { class: "outage-head" }, make("strong", { text: t("alerts.outage", { count: all.length }) }), " ",
          make("span", { class: "quiet small" }, t("alerts.since"), " ", when(first.began_at))),
        make("ul", { class: "hub-list" }, all.map((one) => this.#row(one)))));
    if (isOpen && this.#shell.mayChange) place.append(this.#button(all, place, t("alerts.acknowledge-all", { count: all.length })));
    return place;
  }

  #button(all, place, words) { return make("button", { type: "button", class: "button small", data: { alert: all.map((one) => one.id).join(" ") }, text: words, on: { click: () => this.#acknowledge(all, place) } }); }

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
          make("strong", { text: nameOf(String(one.rule ?? "")) }), one.subject ? [" ", named(/^[0-9a-f]{64}$/.test(one.subject) ? one.subject.slice(0, 12) : one.subject, { class: "name quiet" })] : null),
        make("span", { class: "alert-text" }, sentence(one, gatewayName)),
        make("span", { class: "quiet small" }, t("alerts.since"), " ", when(one.began_at),
          one.ended_at ? [" · ", t("alerts.lasted", { time: span((one.ended_at - one.began_at) / 1000) }), " ", when(one.ended_at)] : null,
          one.acknowledged_at ? [" · ", t("alerts.seen-by"), " ", named(one.acknowledged_by ?? ""), " ", when(one.acknowledged_at)] : null,
          one.note ? [" · ", make("bdi", { text: cut(one.note, 500) })] : null,
          mayNote && draft ? [" · ", make("span", { class: "draft", text: t("list.draft") }), line(draft)] : null)));
    if (mayNote) place.append(this.#button([one], place, t("alerts.acknowledge")));
    return place;
  }

  #noteOf(one) { return ofNote(one.id, this.#shell.session.person); }

  /** With a note, for who looks after it; or without. What is written stays a draft until then. */
  #acknowledge(all, place) {
    const [one] = all;
    const id = all.map((each) => each.id).join(" ");
    place.querySelector(":scope > button")?.remove();
    const name = this.#noteOf(one);
    let isUnderWay = false;
    const shut = () => {
      const hadFocus = form.contains(document.activeElement);
      form.remove();
      this.place.dataset.version = "";
      this.#draw();
      // Where it was opened, or at the list if it is not there any more.
      if (hadFocus) (this.place.querySelector(`[data-alert="${CSS.escape(id)}"]`) ?? this.place.parentElement)?.focus({ preventScroll: true });
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
        const said = note.value.trim() ? { note: note.value.trim() } : {};
        const done = all.length > 1 ? (await order("/v1/alerts/acknowledge", { ids: all.map((each) => each.id), ...said })).alerts : [await order(`/v1/alerts/${encodeURIComponent(one.id)}/acknowledge`, said)];
        keepDraft(name, "");
        // What is shown until all are read again.
        const rows = new Map(done.map((row) => [row.id, row]));
        this.#alerts = this.#alerts?.map((other) => ({ ...other, ...rows.get(other.id) })) ?? null;
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

/** A rule in words; one of a newer gateway as it is. */
function nameOf(rule) { return has(`rule.${rule}`) ? t(`rule.${rule}`) : cut(rule, 64); }

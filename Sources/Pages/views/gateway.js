// The gateway itself: what is well and what is not, with what to do about it; what waits where; what was refused.
import { coded, fill, icon, make, showTrouble } from "../parts/page.js";
import { busy, refill } from "../parts/held.js";
import { number, percent, size, span, volts } from "../parts/numbers.js";
import "../parts/days.js";
import { when } from "../parts/times.js";
import { meter } from "../parts/meter.js";
import { named } from "../parts/text.js";
import { has, t } from "../parts/words.js";
import { allRows, ask, order } from "../stores/api.js";
import { gateway } from "../stores/gateway.js";
import { live } from "../stores/live.js";
import { query } from "../stores/query.js";
import { inTurn } from "../stores/turn.js";
import { confirmed } from "../shell/dialog.js";
import { onKeys } from "../shell/keys.js";
import { route } from "../shell/route.js";
import { styled } from "../shell/styled.js";
import { facts } from "./details.js";
import { tell, told } from "./marks.js";

async function showLink(isWanted) {
  const { showOwnLink } = await import("./contact.js");
  await showOwnLink(isWanted);
}

export class View {
  #shell;
  #ends;
  #letters = null;
  #findings = null;
  #dead = "";
  #timer = 0;
  #isClosed = false;
  /** In the page's place. */
  #waiting = null;
  /** What was refused. */
  #wanting = new Set();
  #opened = new Set();
  // In turn: an older answer must not take the place of a newer one.
  #examine = inTurn(() => this.#askDoctor());
  #loadAlerts = inTurn(() => this.#askAlerts());
  #loadLetters = inTurn(() => this.#askLetters());

  constructor(shell) {
    this.#shell = shell;
    this.cards = make("div", { class: "cards" });
    this.doctor = make("section", { class: "card wide", "aria-labelledby": "doctor-title" });
    this.alerts = make("section", { class: "card wide alerts", "aria-labelledby": "alerts-title", hidden: true });
    this.channels = make("section", { class: "card wide", id: "channels", "aria-labelledby": "channels-title", hidden: true });
    this.settings = make("div", { class: "settings" });
    this.letters = make("section", { class: "card wide", id: "dead-letters", "aria-labelledby": "letters-title", hidden: true });
    this.upstreams = make("div", { class: "cards" });
    this.own = make("section", { class: "card wide", "aria-labelledby": "own-title", hidden: true });
    this.airtime = make("section", { class: "card wide", "aria-labelledby": "airtime-title", hidden: true });
    fill(this.doctor, make("h2", { id: "doctor-title", text: t("doctor") }), make("div", { class: "shape", "aria-hidden": "true" }, make("i"), make("b"), make("u")));
    this.page = make("div", { class: "page" },
      make("header", { class: "view-head" }, make("h1", { text: t("nav.gateway") }),
        make("div", { class: "row wrap" },
          make("button", { type: "button", class: "button", on: { click: (event) => this.#advert(event.currentTarget, false) } }, icon("antenna"), t("gateway.advert")),
          make("button", { type: "button", class: "button", text: t("gateway.advert-flood"), on: { click: (event) => this.#advert(event.currentTarget, true) } }),
          make("button", { type: "button", class: "button", text: t("contact.own"), data: { does: "link" }, on: { click: (event) => this.#do(event.currentTarget, () => showLink(() => this.page.isConnected)) } }))),
      this.alerts, this.cards, this.own, this.airtime, this.doctor, make("h2", { class: "section", text: t("upstreams") }), this.upstreams, this.letters, this.channels, this.settings);
    if (route.id !== "waiting") fill(shell.main, this.page);
    this.#ends = [gateway.subscribe(() => this.#draw()), live.on("linked", () => { this.#examine(); this.#loadAlerts(); this.#loadLetters(); }), live.on("journal", ({ kind }) => { if (kind === "alert" || kind === "power") this.#loadAlerts(); }), live.on("again", () => { for (const load of this.#wanting) { this.#wanting.delete(load); load(); } })];
    onKeys({ Escape: () => { if (!this.#waiting) return false; route.back("/gateway"); return true; } });
    this.#draw();
    this.#examine();
    this.#loadAlerts();
    this.#loadChannels();
    this.#loadSettings();
    this.#loadAirtime();
    this.#loadOwn();
    this.#timer = setInterval(() => { if (!document.hidden) { this.#examine(); this.#loadAirtime(); this.#loadOwn(); } }, 60_000);
  }

  close() {
    this.#isClosed = true;
    this.#waiting?.close();
    for (const end of this.#ends) end();
    clearInterval(this.#timer);
  }

  async update() {
    const { main } = this.#shell;
    const isFirst = !main.firstChild;
    this.#shell.showDetails(null);
    if (route.id === "waiting") {
      const { Waiting } = await import("./waiting.js");
      if (this.#isClosed || this.#waiting || route.id !== "waiting") return;
      this.#waiting = new Waiting();
      fill(main, this.#waiting.element);
    } else if (this.#waiting || !this.page.isConnected) {
      this.#waiting?.close();
      this.#waiting = null;
      fill(main, this.page);
    } else { return this.#toChannels(); }
    if (!isFirst) main.focus({ preventScroll: true });
    this.#toChannels();
  }

  // MARK: Cards

  #draw() {
    const { status } = gateway;
    if (!status) {
      if (!this.cards.firstChild) fill(this.cards, Array.from({ length: 4 }, () => make("div", { class: "card", "aria-hidden": "true" }, make("div", { class: "shape" }, make("i"), make("b"), make("u")))));
      return;
    }
    refill(this.cards, this.#radio(status), this.#sending(status), this.#store(status), this.#machine(status));
    refill(this.upstreams, status.upstreams.length ? status.upstreams.map((one) => this.#upstream(one))
      : make("div", { class: "card" }, make("p", { text: t("upstream.none") }), make("p", { class: "quiet", text: t("upstream.none-why") }), make("code", { class: "block", text: "meshpost upstream add hub https://…" })));
    const dead = status.upstreams.map((one) => one.dead_letters).join();
    if (dead !== this.#dead) {
      this.#dead = dead;
      this.#loadLetters();
    }
  }

  #card(title, state, word, stat, small, pairs) {
    return make("section", { class: "card" }, make("header", { class: "card-head" }, make("h2", { text: title }), make("span", { class: `word ${state}`, text: word })),
      make("p", { class: "stat" }, stat, small ? make("small", { class: "quiet" }, small) : null), facts(pairs));
  }

  #radio({ radio, sync, power }) {
    const identity = radio.identity ?? {};
    const state = radio.region_error || radio.state === "down" ? "bad" : radio.state !== "up" || sync.state === "failed" ? "warn" : "good";
    return this.#card(t("card.radio"), state, t(`state.${gateway.state}`), identity.name ? named(identity.name) : "–",
      radio.state === "up" ? [identity.model ? named(identity.model) : null, " ", identity.version] : sentence(radio.error), [
        [t("card.link"), make("bdi", { class: "break", text: radio.link })],
        [t("card.remedy"), radio.remedy ? make("span", { lang: "en" }, coded(radio.remedy)) : null],
        [t("card.region"), radio.region_error ? make("span", { class: "bad-words", text: radio.region_error, lang: "en" }) : null],
        [t("card.sync"), sync.state === "syncing" ? t("card.syncing", { phase: sync.phase ?? "", current: sync.current ?? 0, total: sync.total ?? "?" }) : sync.state === "failed" ? sentence(sync.reason) : sync.last_synced ? when(sync.last_synced) : t(`sync.${sync.state}`)],
        [t("card.air"), identity.frequency_khz ? `${number(identity.frequency_khz / 1000, 3)} MHz · ${number(identity.bandwidth_hz / 1000, 1)} kHz · SF${identity.spreading_factor} · ${number(identity.tx_power_dbm)} dBm` : null],
        [t("nodes.battery"), power?.battery_mv ? [volts(power.battery_mv), power.battery_low ? make("span", { class: "word bad", text: t("card.low") }) : null] : null],
        [t("card.advert"), radio.advert?.at ? [when(radio.advert.at), radio.advert.current ? null : ` ${t("card.advert-old")}`] : t("card.advert-none")],
        [t("card.unreadable"), radio.unreadable_frames ? number(radio.unreadable_frames) : null],
      ]);
  }

  #sending({ messaging }) {
    const used = messaging.airtime_used_ms / messaging.airtime_limit_ms;
    const waits = messaging.waiting + messaging.in_flight;
    return make("section", { class: "card" }, make("header", { class: "card-head" }, make("h2", { text: t("card.sending") }), make("span", { class: `word ${messaging.waits_for_airtime || messaging.waits_for_channel ? "warn" : "good"}`, text: t(messaging.waits_for_airtime ? "card.waits-air" : messaging.waits_for_channel ? "card.waits-channel" : waits ? "card.at-work" : "card.idle") })),
      make("p", { class: "stat" }, percent(used), make("small", { class: "quiet", text: t("card.airtime", { used: number(messaging.airtime_used_ms / 1000, 1), limit: number(messaging.airtime_limit_ms / 1000) }) })),
      meter(used, t("card.airtime-label")),
      facts([
        [t("card.waiting"), make("a", { href: "/gateway/waiting", "aria-label": `${t("wait.title")}: ${number(messaging.waiting)}`, text: number(messaging.waiting) })], [t("card.in-flight"), messaging.in_flight ? number(messaging.in_flight) : null], [t("card.held"), messaging.held ? number(messaging.held) : null],
        [t("card.delivered"), number(messaging.delivered)], [t("card.failed"), number(messaging.failed)], [t("card.channels"), number(messaging.sent_on_channels)],
      ]));
  }

  #store({ store }) {
    return this.#card(t("card.store"), store.error ? "bad" : "good", t(store.error ? "card.broken" : "card.fine"), number(store.messages), t("card.messages", { count: store.messages }), [
      [t("card.error"), sentence(store.error)], [t("card.remedy"), store.remedy ? make("span", { lang: "en" }, coded(store.remedy)) : null],
      [t("nav.nodes"), t("card.nodes", { all: number(store.contacts), radio: number(store.contacts_on_radio) })],
      [t("card.size"), size(store.size_bytes)], [t("card.journal"), t("card.events", { count: store.last_seq - store.oldest_seq + 1, number: number(store.last_seq - store.oldest_seq + 1) })],
      [t("card.given-up"), store.given_up ? number(store.given_up) : null], [t("card.set-aside"), store.set_aside],
      [t("card.loss"), store.loss ? make("span", { text: store.loss, lang: "en" }) : null],
    ]);
  }

  #machine(status) {
    const isLow = status.power?.supply_low;
    return this.#card(t("card.machine"), isLow || !status.clock_trusted ? "warn" : "good", t(isLow ? "card.supply-low" : status.clock_trusted ? "card.fine" : "card.no-clock"), span(status.uptime_s), t("card.uptime"), [
      [t("card.memory"), status.resident_kib ? size(status.resident_kib * 1024) : null],
      [t("card.version"), status.version], [t("card.gateway"), make("code", { text: status.gateway })],
      [t("card.proxies"), status.proxies?.length ? status.proxies.map((one) => `${one.name}: ${number(one.clients.length)}`).join(", ") : null],
    ]);
  }

  #upstream(one) {
    const kind = { idle: "good", sending: "good", waiting: "warn", paused: "quiet", stopped: "bad" }[one.state] ?? "warn";
    const isPaused = one.state === "paused";
    const does = (name, words, doing, attributes = {}) => make("button", { type: "button", class: "button small", text: words, data: { does: `${one.name} ${name}` }, on: { click: (event) => this.#do(event.currentTarget, doing) }, ...attributes });
    const q = `upstream=${encodeURIComponent(one.name)}`;
    return make("section", { class: "card", "aria-label": one.name }, make("header", { class: "card-head" }, make("h3", {}, named(one.name), make("span", { class: "quiet small", text: ` ${one.kind}` })),
      make("span", { class: `word ${kind}`, text: t(`upstream.${one.state}`) + (one.link === "live" ? ` · ${t("upstream.live")}` : "") })),
    make("p", { class: "stat" }, number(one.pending), make("small", { class: "quiet", text: t("upstream.pending", { count: one.pending }) })),
    one.reason ? make("p", { class: kind === "bad" ? "bad-words" : "warn-words", text: one.reason, lang: "en" }) : null,
    one.lanes && one.pending ? make("dl", { class: "lanes" }, Object.entries(one.lanes).filter(([, lane]) => lane.pending).map(([name, lane]) => [make("dt", { text: has(`lane.${name}`) ? t(`lane.${name}`) : name }),
      make("dd", {}, meter(lane.pending / Math.max(1, one.pending), t(`lane.${name}`)), make("span", { text: `${number(lane.pending)} · ${size(lane.pending_bytes)}${lane.seconds !== undefined ? ` · ${span(lane.seconds)}` : ""}` }))])) : null,
    facts([
      [t("upstream.url"), make("bdi", { class: "break", text: one.url })],
      [t("upstream.last"), one.last_success ? when(one.last_success) : t("upstream.no-success")],
      [t("upstream.sent"), t("upstream.sent-of", { bytes: size(one.bytes_sent), count: number(one.batches) })],
      [t("upstream.oldest"), one.age_s ? span(one.age_s) : null],
      [t("upstream.dead"), one.dead_letters ? make("a", { href: "#dead-letters", on: { click: (event) => { event.preventDefault(); this.letters.scrollIntoView({ block: "start" }); this.letters.querySelector("button")?.focus(); } }, text: number(one.dead_letters) }) : null],
      [t("upstream.lost"), one.given_up ? number(one.given_up) : null],
      [t("upstream.too-old"), one.too_old ? number(one.too_old) : null],
      [t("upstream.today"), one.allowance ? `${size(one.allowance.day_bytes)}${one.allowance.daily_bytes ? ` / ${size(one.allowance.daily_bytes)}` : ""}` : null],
      [t("upstream.certificate"), one.certificate_expires ? when(one.certificate_expires * 1000, "day") : null],
    ]),
    make("div", { class: "row wrap" },
      isPaused ? does("resume", t("upstream.resume"), () => order(`/v1/upstreams/resume?${q}`)) : does("pause", t("upstream.pause"), () => order(`/v1/upstreams/pause?${q}`)),
      does("test", t("upstream.test"), async () => { await order(`/v1/upstreams/test?${q}`, {}, { patience: 60_000 }); told(t("upstream.test-fine", { name: one.name })); }),
      ["waiting", "stopped"].includes(one.state) ? does("now", t("upstream.now"), () => order("/v1/outbox/resume")) : null));
  }

  async #do(button, doing) {
    await busy(button, async () => {
      try {
        await doing();
        await gateway.load();
      } catch (trouble) { tell(trouble); }
    });
  }

  async #advert(button, flood) {
    await this.#do(button, async () => {
      await order("/v1/radio/advert", { flood });
      told(t(flood ? "gateway.advert-flooded" : "gateway.adverted"));
    });
    this.#examine();
  }

  // MARK: Doctor

  async #askDoctor() {
    try {
      this.#findings = (await ask("/v1/doctor")).findings;
    } catch (trouble) {
      this.#wanting.add(this.#examine);
      if (this.#findings) return;
      this.doctor.querySelector(".shape")?.remove();
      showTrouble(this.doctor, trouble, this.#examine);
      return;
    }
    const rank = { failed: 0, warning: 1, ok: 2 };
    const sorted = [...this.#findings].sort((a, b) => rank[a.state] - rank[b.state]);
    const wanting = sorted.filter((one) => one.state !== "ok");
    const fine = sorted.filter((one) => one.state === "ok");
    const row = (one) => make("li", { class: `finding ${one.state}` }, icon(one.state === "ok" ? "tick" : "bang"),
      make("div", {}, make("p", {}, make("span", { class: "unseen", text: `${t(`doctor.${one.state}`)}: ` }), make("strong", { text: one.subject, lang: "en" }), " ", make("bdi", { text: one.words, lang: "en" })),
        one.remedy ? make("p", { class: "quiet", lang: "en" }, coded(one.remedy)) : null,
        one.subject === "advert" && one.state !== "ok" ? make("button", { type: "button", class: "button small", text: t("gateway.advert-flood"), on: { click: (event) => this.#advert(event.currentTarget, true) } }) : null));
    refill(this.doctor, make("header", { class: "card-head" }, make("h2", { id: "doctor-title", text: t("doctor") }),
      make("span", { class: `word ${wanting.some((one) => one.state === "failed") ? "bad" : wanting.length ? "warn" : "good"}`, text: wanting.length ? t("doctor.wanting") : t("doctor.well") })),
    make("ul", { class: "findings" }, wanting.map(row)),
    make("details", { class: "more", open: this.#opened.has("fine"), on: { toggle: (event) => { if (event.target.open) this.#opened.add("fine"); else this.#opened.delete("fine"); } } },
      make("summary", { text: t("doctor.fine", { count: fine.length }) }), make("ul", { class: "findings" }, fine.map(row))));
  }

  // MARK: Alerts and settings

  async #askAlerts() {
    let [open, newest] = [[], []];
    try {
      // By themselves: many newer ones that are over would push one that is open out of the list.
      [{ alerts: open = [] }, { alerts: newest = [] }] = await Promise.all([ask("/v1/alerts?state=open&limit=1000"), ask("/v1/alerts")]);
    } catch (trouble) {
      // A gateway without alerts answers 404, and then has none to show.
      if (trouble.status !== 404) this.#refused(this.alerts, "alert.title", trouble, this.#loadAlerts);
      return;
    }
    const { showAlerts } = await import("./alerts.js");
    showAlerts(this.alerts, [...open.filter((one) => !one.ended_at), ...newest.filter((one) => one.ended_at)], () => this.#loadAlerts());
  }

  async #loadAirtime() {
    let found;
    // It is asked again a minute later.
    try { found = await ask("/v1/airtime"); } catch { return; }
    const { showAirtime } = await import("./airtime.js");
    showAirtime(this.airtime, found);
  }

  async #loadChannels() {
    const { Channels } = await import("./channels.js");
    if (this.#isClosed) return;
    this.channels.hidden = false;
    const channels = new Channels(this.channels);
    this.#ends.push(() => channels.close());
    this.#toChannels();
  }

  /** `/gateway/channels`: from where channels are shown. */
  #toChannels() { if (route.id === "channels") this.channels.scrollIntoView({ block: "start" }); }

  async #loadOwn() {
    let found, module;
    // It is asked again a minute later.
    try {
      module = await styled("nodes", import("./own-radio.js"));
      const read = (limit) => allRows(query("/v1/readings", { node: "self", kind: "node_status", limit }));
      const known = this.own.dataset.newest;
      // A chart that is pointed at stays as it is until there is another reading: an hour later, and then all are read.
      if (known && String((await read(1)).at(-1)?.at) === known) return;
      found = await read(module.MOST_HOURS);
    } catch { return; }
    this.own.dataset.newest = String(found.at(-1)?.at);
    module.showOwnRadio(this.own, found.sort((a, b) => a.at - b.at));
  }

  async #loadSettings() {
    const { Settings } = await import("./settings.js");
    if (this.#isClosed) return;
    const settings = new Settings(this.settings);
    this.#ends.push(() => settings.close());
  }

  // MARK: Dead letters

  async #askLetters() {
    let outbox;
    try { outbox = await ask("/v1/outbox"); } catch (trouble) { this.#refused(this.letters, "letters.title", trouble, this.#loadLetters); return; }
    this.#letters = outbox.dead_letters;
    this.letters.hidden = !this.#letters.length;
    // The answer has the first ones; what is done to all is done to all.
    const waiting = outbox.upstreams.filter((one) => one.dead_letters > 0);
    const count = Math.max(this.#letters.length, waiting.reduce((sum, one) => sum + one.dead_letters, 0));
    refill(this.letters, make("header", { class: "card-head" }, make("h2", { id: "letters-title", text: t("letters.title") }), make("span", { class: "word bad", text: number(count) })),
      make("p", { class: "quiet", text: t("letters.why") }),
      make("ul", { class: "letters" }, this.#letters.map((one) => make("li", {},
        make("details", {}, make("summary", {}, named(one.upstream), " ", make("code", { text: `#${one.seq}` }), " ", one.kind, " · ", when(one.at), " · ", make("span", { class: "bad-words" }, `${one.status ? `${one.status} ` : ""}`, make("bdi", { text: one.reason }))),
          make("pre", {}, make("bdi", { text: JSON.stringify(one.body, null, 2) }))),
        make("div", { class: "row wrap" },
          make("button", { type: "button", class: "button small", text: t("retry"), on: { click: (event) => this.#letter(event.currentTarget, () => order(query("/v1/outbox/retry", { upstream: one.upstream, seq: one.seq }))) } }),
          make("button", { type: "button", class: "button small danger", text: t("letters.drop-verb"), "aria-label": t("letters.drop-one", { seq: one.seq, name: one.upstream }), on: { click: (event) => this.#letter(event.currentTarget, () => order(query("/v1/outbox/drop", { upstream: one.upstream, seq: one.seq }))) } }))))),
      count > this.#letters.length ? make("p", { class: "quiet", text: t("letters.first", { count: this.#letters.length, number: number(this.#letters.length) }) }) : null,
      make("div", { class: "row wrap" }, waiting.map(({ name }) => [
        make("button", { type: "button", class: "button", text: t("letters.retry-all", { name }), on: { click: (event) => this.#letter(event.currentTarget, async () => {
          const { kept_back: kept } = await order(`/v1/outbox/retry?upstream=${encodeURIComponent(name)}`);
          if (kept) told(t("letters.kept", { count: kept, number: number(kept) }));
        }) } }),
        make("button", { type: "button", class: "button danger", text: t("letters.drop", { name }), on: { click: async (event) => {
          const button = event.currentTarget;
          if (await confirmed(t("letters.drop", { name }), t("letters.drop-why"), t("letters.drop-verb"))) this.#letter(button, () => order(`/v1/outbox/drop?upstream=${encodeURIComponent(name)}`));
        } } })])));
  }

  /** What was there stays. */
  #refused(card, title, trouble, load) {
    this.#wanting.add(load);
    if (card.querySelector("header")) return;
    card.hidden = false;
    if (!card.firstChild) fill(card, make("h2", { id: card.getAttribute("aria-labelledby"), text: t(title) }));
    showTrouble(card, trouble, load);
  }

  async #letter(button, doing) {
    await this.#do(button, doing);
    this.#loadLetters();
  }
}

/** What the program says, which speaks English. */
function sentence(words) { return words ? make("span", { text: words, lang: "en" }) : null; }

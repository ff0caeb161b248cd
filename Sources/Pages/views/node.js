// One node: who it is, where, how it is reached, what it measures, what is noted of it, and what may be asked of it.
import { coded, fill, icon, make, showTrouble } from "../parts/page.js";
import { kilometres } from "../parts/distance.js";
import { decibels, measured, number, span, volts } from "../parts/numbers.js";
import { full, when } from "../parts/times.js";
import { named } from "../parts/text.js";
import { has, t } from "../parts/words.js";
import { chart, newestOnly } from "../parts/chart.js";
import { Editable } from "../parts/editable.js";
import { busy, refill } from "../parts/held.js";
import { allRows, order } from "../stores/api.js";
import { ofDocument } from "../stores/drafts.js";
import { gateway } from "../stores/gateway.js";
import { live } from "../stores/live.js";
import { conversations } from "../stores/conversations.js";
import { inTurn } from "../stores/turn.js";
import { nodeName, nodes } from "../stores/nodes.js";
import { to } from "../shell/route.js";
import { levelOf, nodeBlock } from "./concern.js";
import { contactActions } from "./contact.js";
import { copyable, detailsHead, facts } from "./details.js";
import { kindMark } from "../parts/kinds.js";
import { tell } from "./marks.js";
import { away } from "./nodes.js";
import { nodeOf, pathActions, pathOf, showHeard } from "./path.js";

/** A node may be many hops away, and is asked again once: so long an answer may take. */
const PATIENCE_MS = 180_000;

/** More readings than a small chart can show. */
const MOST_READINGS = 500;

const UNITS = { __proto__: null, voltage: "V", temperature: "°C", humidity: "%", pressure: "hPa", current: "A", power: "W", altitude: "m", distance: "m", illuminance: "lx", percentage: "%" };

/** Commands that were typed, newest last; of this page only, since replies may hold secrets. */
const typed = new Map();

export class NodeDetails {
  #ends;
  #shut;
  #isInChat;
  #version = "";
  #isAsked = false;
  #isRefused = false;
  #edits;

  constructor(key, { shut, isInChat = false }) {
    this.key = key;
    this.#shut = shut;
    this.#isInChat = isInChat;
    this.top = make("div", {});
    this.paths = pathActions(key);
    this.contact = contactActions(key);
    this.readings = make("section", { class: "readings", hidden: true });
    this.heard = make("section", { class: "readings", hidden: true });
    this.answers = make("div", { class: "answers" });
    this.asks = make("section", { class: "asks" });
    this.notes = make("section", { class: "notes" });
    this.block = make("div", { class: "plain" });
    this.level = isInChat ? levelOf(`node:${key.slice(0, 12)}`) : null;
    this.#edits = new Editable(this.notes, live);
    this.element = make("div", { class: "details-inside node-details" }, this.top, this.notes, this.level?.element ?? null, this.block, this.asks, this.heard, this.readings);
    this.#ends = [nodes.subscribe(() => this.#draw()), live.on("journal", ({ kind, body }) => { if (["telemetry", "node_status", "node_neighbours", "node_clock"].includes(kind) && body.node === key) this.#read(); }), live.on("linked", () => this.#read()), live.on("again", () => { if (this.#isRefused) this.#read(); })];
    if (this.level) this.#ends.push(conversations.subscribe(() => this.level.update()));
    this.#draw();
    nodes.need();
    this.#read();
  }

  close() {
    for (const end of this.#ends) end();
    this.#edits.close();
  }

  #draw() {
    const node = nodes.get(this.key);
    if (!node) {
      const words = nodes.isLoaded ? t("node.unknown") : nodes.trouble?.message ?? t("loading");
      fill(this.top, detailsHead(this.key.slice(0, 12), this.#shut), make("p", { class: "quiet", text: words }));
      return;
    }
    const version = JSON.stringify(node) + JSON.stringify(nodes.battery(this.key) ?? 0);
    if (version === this.#version) return;
    this.#version = version;
    const far = away(node);
    const battery = nodes.battery(this.key);
    const canTalk = ["chat", "room"].includes(node.type) && this.key !== gateway.identity?.key;
    refill(this.top, detailsHead(named(nodeName(node)), this.#shut),
      make("p", { class: "node-sub" }, kindMark(node.type), node.hops !== undefined ? [" · ", node.hops ? t("message.hops", { count: node.hops }) : t("nodes.neighbour")] : [" · ", t("nodes.flood")],
        node.favourite ? [" · ", make("span", { class: "star" }, icon("star"), t("nodes.favourite"))] : null, node.may_command ? [" · ", make("span", { class: "warn-words", title: t("node.may-command-why"), text: t("node.may-command") })] : null, node.on_radio ? null : [" · ", t("list.off-radio")]),
      make("div", { class: "row" },
        canTalk && !this.#isInChat ? make("a", { class: "button primary", href: to("conversations", `node:${node.key.slice(0, 12)}`), text: t("node.message") }) : null,
        this.#star(node)),
      facts([
        [t("node.name"), node.alias ? named(node.name) : null],
        [t("nodes.heard"), node.last_heard ? when(node.last_heard) : t("fact.never")],
        [t("node.first-seen"), node.first_seen ? when(node.first_seen) : null],
        [t("node.path"), node.path === undefined ? t("node.path-flood") : pathOf(node)],
        [t("nodes.distance"), far === null ? null : kilometres(far)],
        [t("node.position"), node.lat || node.lon ? `${number(node.lat, 5)}, ${number(node.lon, 5)}` : null],
        [t("nodes.battery"), battery ? [volts(battery.mv), " ", make("span", { class: "quiet" }, "(", when(battery.at), ")")] : null],
        [t("node.advert"), node.last_advert ? make("span", { title: t("node.own-clock"), text: full(node.last_advert * 1000) }) : null],
        [t("node.clock"), Math.abs(node.clock_offset_s ?? 0) >= 60 ? t(node.clock_offset_s < 0 ? "node.clock-behind" : "node.clock-ahead", { time: span(Math.abs(node.clock_offset_s)) }) : null],
        [t("fact.key"), copyable(node.key, t("fact.key"))],
      ]),
      this.paths.element, this.contact.element);
    this.paths.show(node);
    this.contact.show(node);
    this.#drawNotes(node);
    if (canTalk && !this.block.firstChild) fill(this.block, nodeBlock(this.key));
    if (!this.#isAsked) {
      this.#isAsked = true;
      showHeard(node, this.heard);
      this.#drawAsks(node);
    }
  }

  /** A full radio drops no favourites. */
  #star(node) {
    const isOn = Boolean(node.favourite);
    const toggle = async () => {
      try {
        await order("/v1/contacts/favourite", { contact: this.key, favourite: !isOn });
        node.favourite = !isOn;
        nodes.changed();
      } catch (trouble) {
        tell(trouble);
      }
    };
    return make("button", { type: "button", class: "button", "aria-pressed": String(isOn), title: t("node.favourite-why"), on: { click: toggle } }, icon("star"), t("nodes.favourite"));
  }

  // MARK: Notes

  #drawNotes(node) {
    const values = { alias: node.alias ?? "", note: node.note ?? "", tags: (node.tags ?? []).join(", ") };
    if (this.#edits.isShown) { this.#edits.update(values, async (name) => this.#whose(name)); return; }
    fill(this.notes, make("h3", { text: t("node.notes") }),
      this.#editable("alias", values.alias, 64), this.#editable("note", values.note, 1000), this.#editable("tags", values.tags, 512));
  }

  /** A gateway knows no persons. */
  #whose(name) {
    const via = nodes.get(this.key)?.changed?.[name];
    if (via === undefined) return null;
    return via ? t("edit.via", { name: via }) : t("edit.at-gateway");
  }

  #editable(name, value, most) {
    return this.#edits.field(name, { id: `node-${name}`, label: t(`node.${name}`), value, hint: t(`node.${name}-why`), most, draft: () => ofDocument(`${live.gateway}/node/${this.key}/${name}`), save: async (given) => {
      const told = () => JSON.stringify(nodes.get(this.key)?.[name]);
      const before = told();
      await order(`/v1/node/${name}`, { node: this.key, ...(given.length ? { value: given } : {}) });
      // Its document comes by the stream as well; without a line it is shown now. What that has told meanwhile is newer.
      const node = nodes.get(this.key);
      if (node && told() === before) node[name] = given.length ? given : undefined;
      nodes.changed();
    } });
  }

  // MARK: Readings

  /** In turn: an older answer must not take the place of a newer one. */
  #read = inTurn(() => this.#askReadings());

  async #askReadings() {
    let found;
    this.#isRefused = false;
    try { found = await allRows(`/v1/readings?node=${this.key}&limit=${MOST_READINGS}`); } catch (trouble) {
      this.#isRefused = true;
      // What was shown stays.
      if (!this.readings.querySelector("h3")) { this.readings.hidden = false; showTrouble(this.readings, trouble, this.#read); }
      return;
    }
    const series = new Map();
    const put = (name, at, value, show) => {
      if (typeof value !== "number") return;
      if (!series.has(name)) series.set(name, { points: [], show });
      series.get(name).points.push({ at, value });
    };
    found.sort((a, b) => a.at - b.at);
    for (const { at, kind, body } of found) {
      if (kind === "node_status") {
        if (body.battery_mv) put(t("nodes.battery"), at, body.battery_mv, volts);
        put(t("node.noise"), at, body.noise_floor_dbm, (value) => `${number(value)} dBm`);
        put("SNR", at, body.last_snr, decibels);
        put(t("node.queue"), at, body.queue, (value) => number(value));
      } else if (kind === "node_neighbours") put(t("ask.neighbours"), at, body.total, (value) => number(value));
      else if (kind === "node_clock") put(t("node.clock"), at, body.offset_s, (value) => `${number(value)} s`);
      else for (const { type, channel, value } of body.readings ?? []) {
        const name = (has(`reading.${type}`) ? t(`reading.${type}`) : type) + (channel > 1 ? ` ${channel}` : "");
        put(name, at, value, (one) => `${measured(one)} ${UNITS[type] ?? ""}`.trim());
      }
    }
    this.readings.hidden = !series.size;
    fill(this.readings, make("h3", { text: t("node.readings") }), [...series].map(([name, { points, show }]) => chart(name, points, show)), newestOnly(found.length, MOST_READINGS));
  }

  // MARK: Requests

  #drawAsks(node) {
    const isServer = ["repeater", "room", "sensor"].includes(node.type);
    const ask = (name, show) => make("button", { type: "button", class: "button", text: t(`ask.${name}`), on: { click: (event) => this.#ask(event.currentTarget, name, show) } });
    fill(this.asks, make("h3", { text: t("ask.title") }),
      isServer ? this.#login(node) : null,
      make("div", { class: "row wrap" },
        isServer ? ask("status", (answer) => this.#status(answer)) : null,
        ask("telemetry", (answer) => this.#telemetry(answer)),
        node.type === "repeater" ? ask("neighbours", (answer) => this.#neighbours(answer)) : null,
        ask("trace", (answer) => this.#trace(answer))),
      this.answers,
      isServer ? this.#commandLine() : null);
  }

  #login(node) {
    // A browser that ignores `off` would send the password of these pages over the mesh.
    const password = make("input", { id: "node-password", type: "password", class: "field", autocomplete: "new-password", "aria-label": t("ask.password"), placeholder: t("ask.password") });
    const state = make("p", { class: "small", role: "status" });
    const button = make("button", { type: "submit", class: "button", text: t("ask.login") });
    const submit = async (event) => {
      event.preventDefault();
      await busy(button, login);
    };
    const login = async () => {
      state.textContent = t("ask.asked");
      state.className = "small quiet";
      try {
        const given = password.value;
        const answer = await order("/v1/node/login", { node: node.key, password: given }, { patience: PATIENCE_MS });
        // What was typed meanwhile stays.
        if (password.value === given) password.value = "";
        state.textContent = t(answer.admin ? "ask.admin" : answer.read_only ? "ask.read-only" : "ask.guest");
        state.className = "small good-words";
      } catch (trouble) {
        state.textContent = trouble.message;
        state.className = "small bad-words";
      }
    };
    return make("form", { class: "login", on: { submit } }, make("div", { class: "row" }, password, button), state);
  }

  #ask(button, name, show) { return busy(button, () => this.#asked(name, show)); }

  async #asked(name, show) {
    const began = performance.now();
    const place = make("section", { class: "answer" }, make("h4", {}, t(`ask.${name}`), " ", make("span", { class: "quiet", role: "status", text: t("ask.asked") })));
    this.answers.querySelector(`[data-ask="${name}"]`)?.remove();
    place.dataset.ask = name;
    this.answers.prepend(place);
    try {
      const answer = await order(`/v1/node/${name}`, { node: this.key }, { patience: PATIENCE_MS });
      fill(place, make("h4", {}, t(`ask.${name}`), " ", make("span", { class: "quiet", text: t("ask.took", { time: span((performance.now() - began) / 1000) }) })), show(answer));
    } catch (trouble) {
      fill(place, make("h4", { text: t(`ask.${name}`) }), make("p", { class: "bad-words", role: "alert", text: trouble.message }), trouble.remedy ? make("p", { class: "quiet small", lang: "en" }, coded(trouble.remedy)) : null);
    }
  }

  #status(answer) {
    return facts([
      [t("nodes.battery"), answer.battery_mv ? volts(answer.battery_mv) : null],
      [t("status.uptime"), span(answer.uptime_s ?? 0)],
      [t("node.noise"), `${number(answer.noise_floor_dbm)} dBm`],
      [t("status.last"), `${number(answer.last_rssi_dbm)} dBm, ${decibels(answer.last_snr)}`],
      [t("status.received"), `${number(answer.received)} (${t("status.flood-direct", { flood: number(answer.received_flood), direct: number(answer.received_direct) })})`],
      [t("status.sent"), `${number(answer.sent)} (${t("status.flood-direct", { flood: number(answer.sent_flood), direct: number(answer.sent_direct) })})`],
      [t("status.airtime"), span(answer.airtime_s ?? 0)],
      [t("node.queue"), number(answer.queue)],
      [t("status.posts"), answer.posts_stored !== undefined ? number(answer.posts_stored) : null],
    ]);
  }

  #telemetry({ readings = [] }) {
    if (!readings.length) return make("p", { class: "quiet", text: t("ask.nothing") });
    return facts(readings.map(({ type, channel, value, values }) => [`${has(`reading.${type}`) ? t(`reading.${type}`) : type} ${channel}`,
      value !== undefined ? `${measured(value)} ${UNITS[type] ?? ""}` : (values ?? []).map((one) => measured(one)).join(", ")]));
  }

  #neighbours({ total, neighbours }) {
    if (!neighbours.length) return make("p", { class: "quiet", text: t("ask.no-neighbours") });
    return [make("ul", { class: "plain lines" }, neighbours.map((one) => make("li", {}, one.name ? named(one.name) : make("code", { text: one.key }),
      make("span", { class: "quiet", text: `${decibels(one.snr)} · ${t("ask.seconds-ago", { time: span(one.heard_s) })}` })))),
    total > neighbours.length ? make("p", { class: "quiet small", text: t("ask.more", { count: total - neighbours.length }) }) : null];
  }

  #trace({ hops, snr_here: here }) {
    return make("ol", { class: "plain lines" }, hops.map((hop) => make("li", {}, nodeOf(hop.node), make("span", { class: "quiet", text: decibels(hop.snr) }))),
      make("li", {}, t("here"), make("span", { class: "quiet", text: decibels(here) })));
  }

  #commandLine() {
    const history = typed.get(this.key) ?? [];
    typed.set(this.key, history);
    let at = history.length;
    const output = make("div", { class: "terminal-output", role: "log", "aria-label": t("cli.output"), tabindex: 0 });
    const field = make("input", { class: "field terminal-field", "aria-label": t("cli.label"), placeholder: "get radio", autocomplete: "off", autocapitalize: "none", spellcheck: "false", dir: "ltr" });
    const submit = async (event) => {
      event.preventDefault();
      const command = field.value.trim();
      if (!command) return;
      // A password that was typed is not offered again.
      if (!/password/i.test(command) && history.at(-1) !== command) history.push(command);
      at = history.length;
      field.value = "";
      const line = make("p", { class: "quiet", text: t("ask.asked") });
      output.append(make("p", {}, make("code", { text: `> ${command}` })), line);
      output.scrollTop = output.scrollHeight;
      try {
        const { reply } = await order("/v1/node/cli", { node: this.key, command }, { patience: PATIENCE_MS });
        fill(line, make("bdi", { text: reply }));
        line.className = "reply";
      } catch (trouble) {
        line.className = "bad-words";
        line.textContent = trouble.message;
      }
      output.scrollTop = output.scrollHeight;
    };
    field.addEventListener("keydown", (event) => {
      const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      at = Math.max(0, Math.min(history.length, at + by));
      field.value = history[at] ?? "";
    });
    return make("form", { class: "terminal", on: { submit } }, make("h4", { text: t("cli.title") }), output,
      make("div", { class: "row" }, field, make("button", { type: "submit", class: "button", text: t("cli.run") })));
  }
}

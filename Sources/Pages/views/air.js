// What the radio hears, packet by packet, newest on top; and how much of the air we use.
import { fill, icon, iconButton, make, showTrouble } from "../parts/page.js";
import { refill } from "../parts/held.js";
import { decibels, number, percent } from "../parts/numbers.js";
import { named } from "../parts/text.js";
import { t } from "../parts/words.js";
import { Windowed } from "../parts/windowed.js";
import { allRows, rows } from "../stores/api.js";
import { gateway } from "../stores/gateway.js";
import { live } from "../stores/live.js";
import { nodeName, nodes } from "../stores/nodes.js";
import { onKeys } from "../shell/keys.js";
import { route, to } from "../shell/route.js";
import { meter } from "../parts/meter.js";
import { decoded, airtime, KINDS } from "./packet.js";

const MOST = 2000;

export class View {
  #shell;
  #ends = [];
  #packets = [];
  #held = [];
  #isPaused = false;
  #count = 0;
  #ending = null;
  #channels = new Map();
  /** Names by the digits that packets tell, until another node is known. */
  #names = new Map();
  #trouble = null;
  #isListening = false;
  #again = 0;

  constructor(shell) {
    this.#shell = shell;
    this.pause = iconButton("pause", t("air.pause"), () => this.#toggle());
    this.field = make("input", { type: "search", class: "field", placeholder: t("air.search"), "aria-label": t("air.search"), value: route.get("find") ?? "", on: { input: () => route.set({ find: this.field.value }),
      keydown: (event) => { if (event.key === "Escape") { route.set({ find: undefined }); this.field.value = ""; this.field.blur(); event.stopPropagation(); } } } });
    this.chips = make("div", { class: "chips", role: "group", "aria-label": t("air.kinds") });
    this.count = make("p", { class: "quiet small" });
    this.budget = make("div", { class: "budget" });
    this.scroller = make("div", { class: "table-scroll", tabindex: 0, role: "group", "aria-label": t("air.packets") });
    this.table = make("div", { role: "table", "aria-label": t("air.packets"), class: "table" });
    this.table.append(make("div", { role: "rowgroup", class: "table-head" }, make("div", { role: "row", class: "air-row headings" },
      ["time", "kind", "from", "way", "snr", "rssi", "length", "airtime"].map((name) => make("span", { role: "columnheader", class: `cell ${name}`, text: t(`air.${name}`) })))));
    this.list = new Windowed(this.scroller, { estimate: 36, role: "rowgroup", render: (item) => this.#row(item.packet) });
    this.table.append(this.list.inside);
    this.scroller.append(this.table);
    fill(shell.main, make("header", { class: "view-head" }, make("h1", { text: t("nav.air") }), make("div", { class: "row wrap" }, this.count, this.pause)),
      this.budget, make("div", { class: "filters" }, make("div", { class: "list-search" }, icon("search"), this.field), this.chips), this.scroller);
    this.#ends = [gateway.subscribe(() => this.#drawBudget()), nodes.subscribe(() => { this.#names.clear(); this.#draw(); }), live.on("linked", () => this.#listen())];
    const leave = () => this.#ending?.abort();
    addEventListener("pagehide", leave);
    this.#ends.push(() => removeEventListener("pagehide", leave));
    onKeys({ "/": () => this.field.focus(), " ": () => this.#toggle() });
    nodes.need();
    this.#drawBudget();
    this.#knowChannels();
    this.#listen();
  }

  close() {
    for (const end of this.#ends) end();
    clearTimeout(this.#again);
    const ending = this.#ending;
    // One that is not the last does not begin again.
    this.#ending = null;
    ending?.abort();
    this.list.close();
  }

  update() {
    this.#shell.showDetails(null);
    if (document.activeElement !== this.field) this.field.value = route.get("find") ?? "";
    this.#draw();
  }

  async #knowChannels() {
    try {
      // A packet tells only the first byte of the channel's digest.
      for (const one of await allRows("/v1/channels")) if (one.channel) this.#channels.set(one.channel.slice(0, 2), one.name);
      this.#draw();
    } catch { /* their digits are shown in place of names */ }
  }

  async #listen() {
    clearTimeout(this.#again);
    this.#ending?.abort();
    const ending = new AbortController();
    this.#ending = ending;
    this.#isListening = true;
    this.#trouble = null;
    this.#draw();
    try {
      for await (const row of rows("/v1/packets", { signal: ending.signal })) {
        if (!row.raw) continue;
        this.#count += 1;
        const packet = { ...decoded(row), number: this.#count };
        if (this.#isPaused) this.#held.unshift(packet); else this.#packets.unshift(packet);
        if (this.#held.length > MOST) this.#held.length = MOST;
        if (this.#packets.length > MOST) this.#packets.length = MOST;
        this.#draw();
      }
    } catch (trouble) { if (!ending.signal.aborted) this.#trouble = trouble; }
    if (this.#ending !== ending) return;
    this.#isListening = false;
    this.#draw();
    // The line was cut, or too many listen: somebody may leave.
    const again = () => {
      if (document.hidden) this.#again = setTimeout(again, 3000);
      else if (live.isLinked) this.#listen();
    };
    this.#again = setTimeout(again, 3000);
  }

  #toggle() {
    this.#isPaused = !this.#isPaused;
    if (!this.#isPaused) {
      this.#packets = [...this.#held, ...this.#packets].slice(0, MOST);
      this.#held = [];
    }
    const next = iconButton(this.#isPaused ? "play" : "pause", t(this.#isPaused ? "air.play" : "air.pause"), () => this.#toggle(), { "aria-pressed": String(this.#isPaused) });
    const hadFocus = document.activeElement === this.pause;
    this.pause.replaceWith(next);
    this.pause = next;
    if (hadFocus) next.focus();
    this.#draw();
  }

  #drawBudget() {
    const messaging = gateway.status?.messaging;
    if (!messaging) return;
    const part = messaging.airtime_used_ms / messaging.airtime_limit_ms;
    fill(this.budget, make("span", { class: "quiet", text: t("card.airtime-label") }), meter(part, t("card.airtime-label")),
      make("span", { text: `${percent(part)} · ${t("air.budget", { used: number(messaging.airtime_used_ms / 1000, 1), limit: number(messaging.airtime_limit_ms / 1000), count: number(messaging.hour_messages), most: number(messaging.hour_messages_limit) })}` }));
  }

  #who(packet) {
    if (packet.channel) return this.#channels.get(packet.channel) ?? packet.channel;
    if (!packet.from) return "";
    if (!this.#names.has(packet.from)) {
      const node = nodes.byPrefix(packet.from);
      this.#names.set(packet.from, node ? nodeName(node) : null);
    }
    return this.#names.get(packet.from) ?? packet.name ?? packet.from.slice(0, 12);
  }

  #draw() {
    const kind = route.get("kind");
    const wanted = (route.get("find") ?? "").trim().toLocaleLowerCase();
    const shown = this.#packets.filter((one) => (!kind || one.kind === kind) && (!wanted || `${this.#who(one)} ${one.from} ${one.path.join(" ")} ${one.raw}`.toLocaleLowerCase().includes(wanted)));
    this.list.set(shown.map((packet) => ({ key: packet.number, packet, version: `${this.#who(packet)} ${gateway.identity?.frequency_khz}` })));
    const words = this.#isPaused ? t("air.held", { count: this.#held.length }) : this.#count > MOST ? t("air.count-newest", { count: number(this.#count), shown: number(MOST) }) : t("air.count", { count: this.#count });
    if (this.count.textContent !== words) this.count.textContent = words;
    const counts = {};
    for (const one of this.#packets) counts[one.kind] = (counts[one.kind] ?? 0) + 1;
    const version = `${Object.keys(counts).sort().join()} ${kind}`;
    if (this.chips.dataset.version !== version) {
      this.chips.dataset.version = version;
      refill(this.chips, KINDS.filter((one) => counts[one] || one === kind).map((one) => make("button", { type: "button", class: "chip", "aria-pressed": String(kind === one), text: t(`packet.${one}`), on: { click: () => route.set({ kind: kind === one ? undefined : one }) } })));
    }
    this.scroller.querySelector(".empty:not([role])")?.remove();
    showTrouble(this.scroller, shown.length ? null : this.#trouble, () => this.#listen());
    if (!shown.length && !this.#trouble) {
      this.scroller.append(make("div", { class: "empty" }, make("h2", { text: t(this.#packets.length ? "air.no-match" : this.#isListening ? "air.none" : "air.ended") }), make("p", { class: "quiet", text: t("air.none-why") })));
    }
  }

  #row(packet) {
    const who = this.#who(packet);
    const isNode = packet.from?.length === 64;
    const time = airtime(packet.bytes, gateway.identity ?? {});
    return make("div", { role: "row", class: "air-row" },
      make("span", { role: "cell", class: "cell time quiet", text: clockOf(packet.at) }),
      make("span", { role: "cell", class: "cell kind" }, make("span", { class: `packet-kind p-${packet.kind}`, text: t(`packet.${packet.kind}`) })),
      make("span", { role: "cell", class: "cell from" }, isNode ? make("a", { href: to("nodes", packet.from) }, named(who)) : who ? named(who) : make("span", { class: "quiet", text: "–" })),
      make("span", { role: "cell", class: "cell way" }, packet.isFlood ? t("air.flood") : t("air.direct"), packet.path.length ? [" ", make("code", { text: packet.path.join(" › ") })] : null),
      make("span", { role: "cell", class: "cell snr", text: packet.snr === undefined ? "" : decibels(packet.snr) }),
      make("span", { role: "cell", class: "cell rssi", text: packet.rssi === undefined ? "" : `${number(packet.rssi)} dBm` }),
      make("span", { role: "cell", class: "cell length", text: `${packet.bytes} B` }),
      make("span", { role: "cell", class: "cell airtime", text: time ? `${number(time)} ms` : "" }));
  }
}

function clockOf(ms) {
  const date = new Date(ms);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((one) => String(one).padStart(2, "0")).join(":") + `.${String(Math.floor(date.getMilliseconds() / 100))}`;
}

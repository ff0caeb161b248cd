// All that waits to be sent, of all conversations: to whom, since when, and why.
import { fill, make, showTrouble } from "../parts/page.js";
import { busy, refill } from "../parts/held.js";
import { when } from "../parts/times.js";
import { line, named } from "../parts/text.js";
import { t } from "../parts/words.js";
import { whyItWaits } from "../parts/waits.js";
import { allRows, order } from "../stores/api.js";
import { conversations, shownName } from "../stores/conversations.js";
import { gateway } from "../stores/gateway.js";
import { live } from "../stores/live.js";
import { nodeName, nodes } from "../stores/nodes.js";
import { outbox } from "../stores/outbox.js";
import { query } from "../stores/query.js";
import { inTurn } from "../stores/turn.js";
import { confirmed } from "../shell/dialog.js";
import { to } from "../shell/route.js";
import { tell, told } from "./marks.js";

/** The stream does not tell of refusals and of a next attempt. */
const AGAIN_MS = 20_000;

/** What `messaging` of the status says that changes what is shown. */
const COUNTS = ["waiting", "in_flight", "held", "held_for_recipients", "failed", "waits_for_airtime", "waits_for_channel"];

function button(does, kind, pressed) {
  const click = (event) => busy(event.currentTarget, pressed);
  return make("button", { type: "button", class: `button small ${kind}`, text: t(does), data: { does }, on: { click } });
}

export class Waiting {
  #rows = null;
  #ends;
  #timer;
  #isRefused = false;
  #state = "";
  /** By id: what is shown, and of which version. */
  #shown = new Map();
  #load = inTurn(() => this.#ask());

  constructor() {
    this.count = make("span", { class: "quiet", role: "status" });
    this.list = make("ul", { class: "plain waiting", "aria-label": t("wait.title") });
    this.rest = make("div", {});
    this.element = make("div", { class: "page" },
      make("header", { class: "view-head" }, make("h1", { text: t("wait.title") }), this.count,
        make("a", { class: "button", href: "/gateway", text: t("nav.gateway") })),
      this.rest, this.list);
    this.#ends = [
      gateway.subscribe(() => this.#look()), outbox.subscribe(() => this.#draw()), conversations.subscribe(() => this.#draw()), nodes.subscribe(() => this.#draw()),
      live.on("message", (row) => { if (row.direction === "sent") this.#load(); }), live.on("linked", () => this.#load()),
      live.on("again", () => { if (this.#isRefused) this.#load(); }),
    ];
    this.#timer = setInterval(() => { if (!document.hidden) this.#load(); }, AGAIN_MS);
    fill(this.rest, make("p", { class: "quiet", text: t("loading") }));
    this.#draw();
    this.#load();
  }

  close() {
    for (const end of this.#ends) end();
    clearInterval(this.#timer);
  }

  /** Not at each status: it tells of much else. */
  #look() {
    const { radio, messaging = {} } = gateway.status ?? {};
    const state = JSON.stringify([radio?.state, ...COUNTS.map((name) => messaging[name])]);
    if (state === this.#state) return;
    this.#state = state;
    this.#load();
  }

  async #ask() {
    try {
      // All that have not ended, and the newest.
      this.#rows = (await allRows("/v1/outgoing?limit=1")).filter((row) => !row.ended);
      this.#isRefused = false;
    } catch (trouble) {
      this.#isRefused = true;
      if (!this.#rows) fill(this.rest);
      showTrouble(this.rest, trouble, () => this.#load());
      return;
    }
    fill(this.rest);
    this.#draw();
  }

  #draw() {
    // What the gateway has taken meanwhile is told once.
    const known = new Set((this.#rows ?? []).map(({ id }) => id.split("/")[0]));
    const items = [...outbox.all.filter(({ id }) => !known.has(id)).map((entry) => this.#own(entry)), ...(this.#rows ?? []).map((row) => this.#row(row))];
    const kept = new Map();
    refill(this.list, items.map(({ id, version, make: made }) => {
      const old = this.#shown.get(id);
      const shown = old?.version === version ? old : { version, element: made() };
      kept.set(id, shown);
      return shown.element;
    }));
    this.#shown = kept;
    if (!this.#rows) return;
    this.count.textContent = items.length ? t("wait.count", { count: items.length }) : "";
    if (!this.#isRefused) fill(this.rest, items.length ? null : make("p", { text: t("wait.none") }));
  }

  /** `words`: attributes of `why`. */
  #card({ id, name, at, text, conversation, why, words = {} }, ...buttons) {
    return make("li", { class: "card", data: { waits: id } },
      make("header", { class: "card-head" }, make("h2", {}, make("a", { href: to("conversations", conversation) }, named(name))),
        make("span", { class: "quiet small" }, when(at))),
      line(text, 160), make("p", words, why), make("div", { class: "row wrap" }, buttons));
  }

  /** In this browser alone. */
  #own({ id, conversation, at, text, trouble }) {
    const name = this.#nameOf(conversation);
    const [why, words] = trouble ? [trouble.words, { class: "bad-words", lang: "en" }] : [t("wait.here"), {}];
    return { id, version: JSON.stringify([name, why]), make: () => this.#card({ id, name, at, text, conversation, why, words },
      button("retry", "", () => (trouble ? outbox.retry(id) : outbox.flush())), button("discard", "danger", () => outbox.discard(id))) };
  }

  /** Before its first message a node has no conversation. */
  #nameOf(conversation) {
    const known = conversations.get(conversation);
    if (known) return shownName(known);
    const [, kind, digits] = /^(\w+):(.*)$/.exec(conversation) ?? [];
    if (kind !== "node") return digits ?? conversation;
    if (!nodes.isLoaded && !nodes.isReading && !nodes.trouble) nodes.need();
    const node = nodes.byPrefix(digits);
    return node ? nodeName(node) : digits;
  }

  #row(row) {
    const { id, channel, recipient, text, created_at: at } = row;
    const conversation = channel ? `channel:${channel}` : `node:${recipient.slice(0, 12)}`;
    const known = conversations.get(conversation);
    const name = known ? shownName(known) : row.channel_name ?? row.recipient_name ?? channel ?? recipient;
    const why = whyItWaits(row, { state: gateway.state, isBusy: gateway.status?.messaging?.waits_for_channel });
    // The gateway begins no other state anew.
    const isTried = row.state === "held_for_recipient" && !row.held_for;
    return { id, version: JSON.stringify([name, text, why, isTried, row.held_for]), make: () => this.#card({ id, name, at, text, conversation, why },
      isTried ? button("wait.now", "", () => this.#do(id, "retry")) : null,
      row.held_for ? button("wait.adopt", "", () => this.#adopt(id)) : null,
      button("cancel", "danger", () => this.#do(id, "cancel"))) };
  }

  async #adopt(id) {
    if (await confirmed(t("wait.adopt"), t("wait.adopt-why"), t("wait.adopt"))) await this.#do(id, "adopt");
  }

  async #do(id, what) {
    try {
      await order(query(`/v1/outgoing/${what}`, { id }));
      told(t(`wait.done-${what}`));
    } catch (trouble) { tell(trouble); }
    await this.#load();
  }
}

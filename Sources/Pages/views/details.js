// What is beside a chat: all that is known of one message, or of the conversation.
import { fill, icon, iconButton, make, showTrouble } from "../parts/page.js";
import { refill } from "../parts/held.js";
import { decibels, number, span } from "../parts/numbers.js";
import { full, when } from "../parts/times.js";
import { named } from "../parts/text.js";
import { written } from "../parts/written.js";
import { t } from "../parts/words.js";
import { whyItWaits } from "../parts/waits.js";
import { hasHops, wayList, waysOf } from "../parts/ways.js";
import { allRows, ask } from "../stores/api.js";
import { rowAt } from "../stores/rows.js";
import { to } from "../shell/route.js";
import { styled } from "../shell/styled.js";
import { conversations, shownName } from "../stores/conversations.js";
import { gateway } from "../stores/gateway.js";
import { live } from "../stores/live.js";
import { nodes } from "../stores/nodes.js";
import { query } from "../stores/query.js";
import { inTurn } from "../stores/turn.js";
import { pathOf } from "./path.js";
import { blockButton, channelBlocks, levelOf, senderOf } from "./concern.js";
import { cancel, drawingOf, react, retry, tell, told } from "./marks.js";

/** Names and values; what has no value is left out. */
export function facts(pairs) {
  return make("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => [make("dt", { text: name }), make("dd", {}, value)]));
}

/** A long number that one may want to have: in groups, with a button that copies it. */
export function copyable(text, label) {
  // Without TLS only this machine's own pages may write to the clipboard.
  return make("span", { class: "copyable" }, make("code", { text }), navigator.clipboard && iconButton("copy", t("copy", { what: label }), async () => {
    try {
      await navigator.clipboard.writeText(text);
      told(t("copied"));
    } catch (error) { tell(error); }
  }));
}

export function detailsHead(title, shut) {
  return make("header", { class: "details-head" }, make("h2", {}, title), iconButton("close", t("close"), shut));
}

export class MessageDetails {
  #does;
  #ends;
  #ending = new AbortController();
  #isRefused = false;
  #shown = null;
  upstreams;
  attempts;
  ways;
  why;
  #askWhy = inTurn(() => this.#readWhy());

  constructor(cursor, row, does) {
    this.#does = does;
    this.cursor = cursor;
    this.element = make("div", { class: "details-inside" });
    // It need not be among the rows that the chat has.
    this.#ends = [live.on("message", (one) => { if (one.cursor === cursor) this.update(one); }), ...["linked", "again"].map((event) => live.on(event, () => { if (this.#isRefused) this.#find(); })), gateway.subscribe(() => this.#askWhy())];
    if (row) this.update(row);
    else { fill(this.element, detailsHead(t("message"), does.shut), make("p", { class: "quiet", text: t("loading") })); this.#find(); }
  }

  close() {
    for (const end of this.#ends) end();
    this.#ending.abort();
  }

  #row() { return rowAt(this.cursor, { signal: this.#ending.signal }); }

  async #find() {
    this.#isRefused = false;
    try {
      const row = await this.#row();
      if (row) this.update(row); else fill(this.element, detailsHead(t("message"), this.#does.shut), make("p", { text: t("message.gone") }));
    } catch (trouble) {
      if (this.#ending.signal.aborted || this.version) return;
      this.#isRefused = true;
      if (!this.element.querySelector("[role=alert]")) fill(this.element, detailsHead(t("message"), this.#does.shut));
      showTrouble(this.element, trouble, () => this.#find());
    }
  }

  update(row) {
    const version = JSON.stringify([row.state, row.attempts, row.heard, row.reactions, row.reason, row.copies, row.filtered]);
    if (this.version === version) return;
    this.version = version;
    const isOwn = row.direction === "sent";
    const sender = isOwn ? null : senderOf(row);
    // On a channel nobody acknowledges; a node that has not is sent to again.
    const isEnded = row.ended || ["delivered", "failed"].includes(row.state) || row.state === "sent" && row.kind === "channel";
    this.upstreams ??= make("div", { class: "standing" });
    this.attempts ??= make("div", { class: "attempts" });
    this.ways ??= make("div", { class: "ways" });
    this.why ??= make("span");
    this.#shown = row;
    this.#tellWhy(row);
    refill(this.element, detailsHead(t("message"), this.#does.shut),
      make("blockquote", { class: "quoted" }, row.text === undefined ? t("message.data") : written(row.text, { own: gateway.name, most: 20_000 })),
      make("div", { class: "row" },
        make("button", { type: "button", class: "button", on: { click: () => this.#does.reply(row) } }, icon("reply"), t("reply")),
        make("button", { type: "button", class: "button", on: { click: () => react(row) } }, icon("smile"), t("react.verb")),
        isOwn && ["failed", "held_for_recipient"].includes(row.state) ? make("button", { type: "button", class: "button", text: t("retry"), on: { click: () => retry(row) } }) : null,
        isOwn && !isEnded ? make("button", { type: "button", class: "button danger", text: t("cancel"), on: { click: () => cancel(row) } }) : null),
      isOwn && row.kind === "channel" && row.state === "sent" ? make("p", { class: "quiet small", text: t("attempt.channel") }) : null,
      isOwn ? make("p", { class: `standing-state ${row.state}` }, icon(drawingOf(row.state)), this.why) : null,
      isOwn && !isEnded ? make("p", {}, make("a", { class: "button", href: "/gateway/waiting", text: t("wait.title") })) : null,
      facts(isOwn ? [
        [t("fact.written"), full(row.received_at)],
        [t("fact.attempts"), row.attempts ? number(row.attempts) + (row.floods ? ` (${t("fact.flooded", { count: row.floods })})` : "") : null],
        [t("fact.round-trip"), row.round_trip_ms !== undefined ? `${number(row.round_trip_ms)} ms` : null],
        [t("fact.heard"), row.heard ? t("fact.repeaters", { count: row.heard }) : null],
        [t("fact.airtime"), row.airtime_ms ? `${number(row.airtime_ms)} ms` : null],
        [t("fact.ended"), row.ended_at ? full(row.ended_at) : null],
        [t("fact.origin"), row.origin ? make("bdi", { text: row.origin }) : null],
        [t("fact.id"), row.outgoing ? copyable(row.outgoing, t("fact.id")) : null],
      ] : [
        [t("fact.from"), named(row.sender_alias ?? row.author_name ?? row.sender_name ?? row.sender ?? "")],
        [t("fact.key"), row.author ?? row.sender ? make("code", { text: row.author ?? row.sender }) : null],
        [t("fact.received"), full(row.received_at)],
        [t("fact.sent-by-clock"), row.sender_time ? full(row.sender_time * 1000) : null],
        [t("fact.age"), row.age_s ? span(row.age_s) : null],
        [t("fact.waited"), row.waited ? (row.waited_s ? span(row.waited_s) : t("fact.unknown")) : null],
        [t("fact.way"), row.direct ? t("message.direct") : row.hops !== undefined ? t("message.hops", { count: row.hops }) : null],
        ["SNR", row.snr !== undefined ? decibels(row.snr) : null],
        [t("fact.copies"), row.copies > 1 ? number(row.copies) : null],
        [t("fact.number"), `#${row.id}`],
      ]),
      this.attempts,
      row.reactions?.length ? [make("h3", { text: t("react.title-all") }), make("ul", { class: "plain" }, row.reactions.map((one) => make("li", {}, make("bdi", { text: one.emoji }), " ", one.ours ? t("you") : named(one.sender))))] : null,
      this.ways,
      this.upstreams,
      row.filtered ? make("p", { class: "quiet small", text: t(`filtered.${row.filtered}`) }) : null,
      sender && blockButton(sender, row.filtered === "blocked", () => this.#find()));
    this.#showMore(row);
    this.#askWhy();
    if (isOwn && row.kind !== "channel" && row.attempts) this.#showAttempts(row);
  }

  #tellWhy(row) {
    this.why.textContent = whyItWaits(row, { state: gateway.state, isBusy: gateway.status?.messaging?.waits_for_channel }) || t(`state-long.${row.state}`) + (row.reason ? ` ${t(`reason.${row.reason}`)}` : "");
  }

  /** While it waits: rows of a chat do not have all that it waits for. */
  async #readWhy() {
    const row = this.#shown;
    if (row?.direction !== "sent" || !whyItWaits(row)) return;
    try {
      const [found] = await allRows(query("/v1/outgoing", { id: row.outgoing }), { signal: this.#ending.signal });
      if (found && row === this.#shown) this.#tellWhy(found);
    } catch { /* the line is cut: what its state says is shown */ }
  }

  /** Each with its time, its way, and what acknowledges it. */
  async #showAttempts(row) {
    const { version } = this;
    let found;
    try {
      await nodes.need();
      found = await ask(query("/v1/outgoing/attempts", { id: row.outgoing }), { signal: this.#ending.signal });
    } catch { return; /* the line is cut: the number of attempts is shown */ }
    // The message has changed since, and is asked for anew.
    if (version !== this.version) return;
    const node = nodes.get(row.recipient);
    fill(this.attempts, found.attempts.length ? [make("h3", { text: t("fact.attempts") }), make("ol", { class: "plain lines" }, found.attempts.map((one) =>
      make("li", { data: { attempt: one.number } }, make("span", {}, `${number(one.number)}. `, one.at ? when(one.at, "clock") : t("attempt.forgotten")),
        make("span", { class: "quiet" }, one.flood === undefined ? "" : t(one.flood ? "attempt.flood" : "attempt.path"), one.ack ? [" · ", make("code", { text: one.ack, title: t("attempt.ack") })] : null)))),
    found.attempts.some((one) => one.flood === false) && node?.path !== undefined ? make("p", { class: "small" }, make("span", { class: "quiet", text: `${t("attempt.path-now")} ` }), pathOf(node)) : null,
    found.codes.length && !found.attempts.some((one) => one.ack) ? make("p", { class: "small quiet" }, t("attempt.codes"), " ", make("code", { text: found.codes.join(" ") })) : null,
    make("p", { class: "quiet small", text: t("attempt.why") })] : null);
  }

  /** Who else has it, and by which repeaters it came or was passed on. Asked for each time: it changes by itself. */
  async #showMore(row) {
    const { version } = this;
    try {
      const found = row.upstreams ? row : (await this.#row()) ?? {};
      if (version !== this.version) return;
      const standings = found.upstreams ?? [];
      this.#showWays(found);
      fill(this.upstreams, standings.length ? [make("h3", { text: t("upstreams") }), make("ul", { class: "plain" }, standings.map((one) =>
        make("li", { class: "standing-line" }, named(one.name), make("span", { class: `word ${one.state}`, text: t(one.awaits_end ? "standing.later" : `standing.${one.state}`) + (one.up_to_date === false ? ` ${t("standing.behind")}` : "") }))))] : null);
    } catch { /* the line is cut: the rest is shown */ }
  }

  #showWays(row) {
    fill(this.ways, waysOf(row).length ? [make("h3", { text: t(row.ways ? "way.title" : "way.title-own") }), wayList(row),
      hasHops(row) ? make("p", {}, make("a", { class: "button", href: `/map?message=${encodeURIComponent(this.cursor)}` }, icon("map"), t("way.on-map"))) : null,
      make("p", { class: "quiet small", text: t("way.why") })] : null);
  }
}

export class ConversationDetails {
  node;
  #end;
  #isClosed = false;

  constructor(id, { shut }) {
    this.element = make("div", { class: "details-inside" });
    const draw = async () => {
      const one = conversations.get(id);
      if (!one) { fill(this.element, detailsHead(id, shut)); return; }
      if (one.key) {
        if (this.node) return;
        const { NodeDetails } = await styled("nodes", import("./node.js"));
        if (this.#isClosed) return;
        this.node ??= new NodeDetails(one.key, { shut, isInChat: true });
        if (this.element.firstChild !== this.node.element) fill(this.element, this.node.element);
        return;
      }
      if (!this.level) {
        this.top = make("div", { class: "plain" });
        this.level = levelOf(id);
        fill(this.element, this.top, this.level.element, one.channel && channelBlocks(one.channel));
      }
      this.level.update();
      refill(this.top, detailsHead(named(shownName(one)), shut), facts([
        [t("fact.kind"), t(`chat.kind-${one.kind}`)],
        [t("fact.digest"), one.channel ? copyable(one.channel, t("fact.digest")) : null],
        [t("fact.on-radio"), one.on_radio === false ? t("no") : t("yes")],
        [t("fact.newest"), one.newest ? when(one.newest.received_at) : t("fact.never")],
      ]), make("p", { class: "quiet small", text: t("fact.digest-why") }),
      one.channel ? make("div", { class: "row" }, make("a", { class: "button", href: to("gateway", "channels"), text: t("fact.manage") })) : null);
    };
    this.#end = conversations.subscribe(draw);
    draw();
  }

  close() {
    this.#isClosed = true;
    this.#end();
    this.node?.close();
  }
}

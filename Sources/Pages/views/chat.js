// One conversation: what was said, in one order, and the place to write.
import { coded, fill, icon, iconButton, make, showTrouble } from "../parts/page.js";
import { refill, say } from "../parts/held.js";
import { number } from "../parts/numbers.js";
import "../parts/days.js";
import { dayOf, now, when } from "../parts/times.js";
import { named } from "../parts/text.js";
import { hue, initial, isReaction } from "../parts/author.js";
import { written } from "../parts/written.js";
import { t } from "../parts/words.js";
import { Windowed } from "../parts/windowed.js";
import { order } from "../stores/api.js";
import { Chat } from "../stores/chat.js";
import { compare } from "../stores/cursor.js";
import { conversations, shownName } from "../stores/conversations.js";
import { gateway } from "../stores/gateway.js";
import { live } from "../stores/live.js";
import { nodeName, nodes } from "../stores/nodes.js";
import { outbox } from "../stores/outbox.js";
import { passed } from "../stores/passed.js";
import { markRead } from "../stores/reading.js";
import { old } from "../stores/store.js";
import { onKeys } from "../shell/keys.js";
import { route } from "../shell/route.js";
import { styled } from "../shell/styled.js";
import { Composer } from "./composer.js";
import { picture } from "./list.js";
import { mark, react, reactions, retry, signal, tell } from "./marks.js";

/** What one says within so many milliseconds is one run. */
const RUN_MS = 300_000;

/** Levels of conversations before they were muted here. */
const levels = new Map();

/** A chat that is open, in the shell's main place. */
export class OpenChat {
  #shell;
  #chat;
  #ends = [];
  /** Read up to here when it was opened: where the line "new" is. */
  #readBefore = null;
  #isPlaced = false;
  #current = null;
  #at = null;
  #search = null;
  /** What is typed into the search goes into the address a moment later, while it is open. */
  #typed = 0;
  #details = null;
  #notes = 0;
  #flashed = null;
  #seenAtBottom = null;
  /** Something was sent before anything was read: then the end is what is wanted. */
  #isEndWanted = false;
  /** The newest are read, in the place of others. */
  #isToEnd = false;
  /** Keys that were pressed before the rows were there that they are for. */
  #pressed = [];
  /** Conversations with nodes, by the node's own name. */
  #keys = null;

  constructor(shell, id) {
    this.id = id;
    this.#shell = shell;
    this.#chat = new Chat(id);
    this.#build();
    this.#ends = [
      this.#chat.subscribe(() => this.#draw()),
      conversations.subscribe(() => { this.#keys = null; this.#begin(); this.#head(); }),
      gateway.subscribe(() => this.composer.update()),
      outbox.subscribe(() => this.#draw()),
      passed.subscribe(() => this.#draw()),
      nodes.subscribe(() => this.#head()),
      live.subscribe(() => this.#draw()),
      live.on("message", (row) => this.#heard(row)),
    ];
    const seen = () => this.#readOn();
    addEventListener("focus", seen);
    document.addEventListener("visibilitychange", seen);
    this.#ends.push(() => { removeEventListener("focus", seen); document.removeEventListener("visibilitychange", seen); });
    this.#begin();
    this.#head();
    if (!this.#shell.isNarrow && !matchMedia("(pointer: coarse)").matches) this.composer.field.focus({ preventScroll: true });
  }

  close() {
    for (const end of this.#ends) end();
    this.#pressed = [];
    this.#chat.close();
    this.list.close();
    this.composer.close();
    clearTimeout(this.#typed);
    this.#search?.close();
    this.#details?.close?.();
  }

  #build() {
    this.head = make("header", { class: "chat-head" });
    this.scroller = make("div", { class: "chat-scroll", tabindex: -1 });
    this.list = new Windowed(this.scroller, {
      estimate: 52, isFromBottom: true, role: "feed", label: t("chat.messages"), render: (item, index) => this.#item(item, index),
      onEdge: (edge) => (edge === "start" ? this.#chat.older() : this.#chat.newer()),
    });
    this.scroller.addEventListener("scroll", () => { this.#readOn(); this.#jumper(); }, { passive: true });
    this.list.inside.addEventListener("keydown", (event) => this.#rowKey(event));
    this.jump = make("button", { type: "button", class: "jump", hidden: true, on: { click: () => this.#toEnd() } });
    // Who answers has read what was new.
    this.composer = new Composer(this.id, () => { this.unreadBefore = 0; this.#toEnd(); });
    this.searching = make("div", { class: "chat-search", hidden: true });
    fill(this.#shell.main, this.head, this.searching, make("div", { class: "chat-body" }, this.scroller, this.jump), this.composer.element);
    this.#shapes();
    onKeys({
      j: () => this.#step(1), k: () => this.#step(-1), r: () => this.composer.field.focus(), "/": () => { route.set({ q: " " }, { replace: false }); },
      Escape: () => this.#unpress() || this.#out(), Enter: () => this.#enter(),
    });
  }

  #shapes() {
    this.scroller.prepend(make("div", { class: "chat-shapes", "aria-hidden": "true" }, Array.from({ length: 6 }, () => make("div", { class: "shape" }, make("i"), make("b"), make("u")))));
  }

  /** Escape: the innermost thing that is open. */
  #out() {
    if (route.get("message") || route.get("details")) route.set({ message: undefined, details: undefined });
    else if (route.values.has("q")) route.set({ q: undefined });
    else if (document.activeElement === this.composer.field) { this.composer.field.blur(); this.scroller.focus({ preventScroll: true }); }
    else if (this.#shell.isNarrow) route.back("/conversations");
    else return false;
    return true;
  }

  /** The first reading, once it is known how far was read, or why that is not. */
  #begin() {
    const known = conversations.get(this.id);
    if (this.#readBefore !== null || !conversations.isLoaded && !conversations.trouble) return;
    this.#readBefore = known?.read ?? "0";
    this.unreadBefore = known?.unread ?? 0;
    this.#at = route.get("at");
    if (this.#at) this.#around(this.#at);
    // Where the list is not the gateway's own, nor may be what is around a place.
    else if (this.unreadBefore > 40 && old.at === null) this.#chat.around(this.#readBefore);
    else this.#chat.newest();
  }

  // MARK: What the address says

  /** A place that the gateway refuses is none, however often it is asked: the newest is shown. */
  async #around(at) {
    await this.#chat.around(at);
    if (this.#chat.trouble?.status !== 400 || route.id !== this.id || route.get("at") !== at) return;
    this.#at = null;
    route.set({ at: undefined });
    this.#chat.newest();
  }

  update() {
    const at = route.get("at");
    if (at && at !== this.#at && this.#readBefore !== null) {
      this.#at = at;
      this.#flashed = null;
      if (this.#chat.find(at)) this.#goTo(at);
      else this.#around(at);
    }
    if (this.#chat.wanted && this.#chat.wanted !== at && this.#chat.rows.length) this.#chat.leave();
    this.#searchFor(route.values.has("q") ? route.get("q") : null);
    this.#showDetails();
    this.#head();
  }

  #visit = (at) => { this.#at = null; route.set({ at }, { replace: false }); this.update(); };

  #goTo(cursor) {
    const element = this.list.show(cursor, "center");
    if (!element) return;
    this.#flashed = cursor;
    this.#current = cursor;
    element.classList.add("flash");
    element.focus({ preventScroll: true });
  }

  #searchFor(words) {
    const isOpen = words !== null;
    this.searching.hidden = !isOpen;
    if (!isOpen) {
      clearTimeout(this.#typed);
      this.#search?.close();
      this.#search = null;
      if (this.searching.contains(document.activeElement)) this.scroller.focus({ preventScroll: true });
      fill(this.searching);
      return;
    }
    if (!this.searching.firstChild) {
      this.searchField = make("input", {
        type: "search", class: "field", "aria-label": t("chat.search"), placeholder: t("chat.search"), value: words.trim(),
        on: {
          input: () => { clearTimeout(this.#typed); this.#typed = setTimeout(() => route.set({ q: this.searchField.value || " " }), 150); },
          keydown: (event) => { if (event.key === "Escape") { route.set({ q: undefined }); event.stopPropagation(); this.scroller.focus({ preventScroll: true }); } },
        },
      });
      this.found = make("div", { class: "chat-found" });
      fill(this.searching, make("div", { class: "row" }, this.searchField, iconButton("close", t("close"), () => route.set({ q: undefined }))), this.found);
      this.searchField.focus();
    }
    this.#find(words.trim());
  }

  async #find(wanted) {
    if (this.#search?.words === wanted) return;
    const { Search } = await styled("later", import("./search.js"));
    if (this.searching.hidden || (route.get("q") ?? "").trim() !== wanted) return;
    if (!this.#search) fill(this.found, (this.#search = new Search(this.id, this.#visit)).element);
    this.#search.look(wanted);
  }

  async #showDetails() {
    const message = route.get("message");
    const wanted = message ? `message:${message}` : route.get("details") ? "conversation" : null;
    if (!wanted) {
      this.#details?.close?.();
      this.#details = null;
      this.#shell.showDetails(null);
      return;
    }
    const { MessageDetails, ConversationDetails } = await import("./details.js").catch((error) => {
      console.error(error);
      tell({ message: t("trouble.view") });
      route.set({ message: undefined, details: undefined });
      return { MessageDetails: null, ConversationDetails: null };
    });
    if (!MessageDetails || route.id !== this.id || wanted !== (route.get("message") ? `message:${route.get("message")}` : route.get("details") ? "conversation" : null)) return;
    const shut = () => route.set({ message: undefined, details: undefined });
    const row = message ? this.#chat.find(message) : null;
    if (this.#details?.wanted !== wanted) {
      this.#details?.close?.();
      this.#details = message ? new MessageDetails(message, row, { shut, reply: (one) => this.#reply(one) }) : new ConversationDetails(this.id, { shut });
      this.#details.wanted = wanted;
    } else if (message && row) this.#details.update(row);
    this.#shell.showDetails(this.#details.element, shut);
  }

  // MARK: Head

  #head() {
    const one = conversations.get(this.id);
    // Before its first message a node has no conversation.
    const node = !one && conversations.isLoaded && this.id.startsWith("node:") ? this.#node() : null;
    const name = one ? shownName(one) : node ? nodeName(node) : this.id.replace(/^\w+:/, "");
    const kind = one?.kind ?? (this.id.startsWith("channel:") ? "channel" : "direct");
    const version = [name, kind, one && conversations.digits(one), one?.on_radio, one?.muted, this.#shell.isNarrow, route.get("details")].join();
    if (this.head.dataset.version === version) return;
    this.head.dataset.version = version;
    refill(this.head,
      iconButton("back", t("back"), () => route.back("/conversations"), { class: "icon-button only-narrow" }),
      picture(kind, name, one?.key ?? one?.channel),
      make("div", { class: "chat-title" }, make("h1", {}, named(name), one && conversations.digits(one)), make("p", { class: "quiet small", text: t(`chat.kind-${kind}`) + (one?.on_radio === false ? ` · ${t("list.off-radio")}` : "") })),
      iconButton("search", t("chat.search"), () => route.set(route.values.has("q") ? { q: undefined } : { q: " " }, { replace: false })),
      one ? iconButton(one.muted ? "muted" : "bell", t(one.muted ? "chat.unmute" : "chat.mute"), () => this.#mute(!one.muted), { "aria-pressed": String(Boolean(one.muted)) }) : null,
      iconButton("details", t("details"), () => route.set({ details: route.get("details") ? undefined : "1", message: undefined }, { replace: false }),
        { "aria-expanded": String(Boolean(route.get("details"))) }));
  }

  #node() {
    if (!nodes.isLoaded && !nodes.isReading && !nodes.trouble) nodes.need();
    return nodes.byPrefix(this.id.slice("node:".length));
  }

  /** No number is shown at it, in any browser; or again. */
  async #mute(muted) {
    try {
      if (muted) levels.set(this.id, conversations.get(this.id)?.level);
      const level = muted ? "none" : levels.get(this.id) ?? "all";
      await order("/v1/conversations/level", { conversation: this.id, level });
      conversations.update(this.id, { level, muted });
    } catch (trouble) { tell(trouble); }
  }

  // MARK: Messages

  /** What was written and is not among the rows yet. */
  get #unseen() { return [...outbox.of(this.id), ...passed.of(this.id)]; }

  #items() {
    const { rows, hasOlder, hasNewer } = this.#chat;
    const items = [];
    if (hasOlder) items.push({ key: "older", version: 0, kind: "older", isLoose: true });
    else if (rows.length) items.push({ key: "start", version: 0, kind: "start", isLoose: true });
    let last = null;
    let wasNew = false;
    for (const row of rows) {
      // Our reactions are messages on the air; here they are at what they are to.
      if (row.kind === "cli" || isReaction(row)) continue;
      const date = dayOf(row.received_at);
      if (!last || dayOf(last.received_at) !== date) {
        // By its message: a clock that was set back brings the same day twice.
        items.push({ key: `day ${row.cursor}`, version: dayOf(now()), kind: "day", isLoose: true, at: row.received_at });
        last = null;
      }
      if (!wasNew && this.unreadBefore && row.direction === "received" && compare(row.cursor, this.#readBefore) > 0) {
        wasNew = true;
        items.push({ key: "new", version: this.unreadBefore, kind: "new", isLoose: true });
        last = null;
      }
      const isJoined = last !== null && sender(last) === sender(row) && row.received_at - last.received_at < RUN_MS;
      items.push({ key: row.cursor, kind: "message", row, isJoined, version: this.#version(row, isJoined) });
      last = row;
    }
    if (!hasNewer) for (const entry of this.#unseen) items.push({ key: `outbox ${entry.id}`, kind: "outbox", entry, version: [entry.trouble?.words, entry.unsure, live.isLinked, outbox.isKept(entry)].join() });
    return items;
  }

  #version(row, isJoined) {
    return [isJoined, row.state, row.reason, row.heard, row.attempts, row.reactions?.map((one) => one.emoji + one.sender).join(), row.copies, row.filtered, route.get("message") === row.cursor].join("\u0001");
  }

  #draw() {
    const { isLoaded, trouble } = this.#chat;
    const shapes = this.scroller.querySelector(".chat-shapes");
    if (isLoaded || trouble) shapes?.remove();
    const wasAtBottom = this.list.isAtBottom;
    const held = this.list.inside.contains(document.activeElement) ? document.activeElement.closest("article") : null;
    this.list.set(this.#items(), this.#chat.hasNewer);
    this.#hold(held);
    this.#say(trouble);
    if (isLoaded && !this.#isPlaced && (this.#chat.rows.length || this.#unseen.length)) {
      this.#isPlaced = true;
      if (this.#isEndWanted) this.#toEnd();
      else if (this.#at) this.#goTo(this.#at);
      else if (this.unreadBefore) this.list.show("new", "center");
      else this.list.toBottom();
    } else if (this.#at && this.#flashed !== this.#at && this.#chat.find(this.#at)) {
      this.#goTo(this.#at);
    } else if (wasAtBottom && !this.#chat.hasNewer) this.list.toBottom();
    this.#readOn();
    this.#jumper();
    this.#showDetails();
    this.#press();
    if (isLoaded && !this.#notes) this.#notes = setTimeout(() => import("./notes.js").then(({ notes }) => notes(this, this.#chat, this.#visit)).catch(() => { this.#notes = 0; }), live.catchUpMs);
  }

  /** The focus of a row that is gone. One that waited and is stored by now has another key: it is the same message. */
  #hold(row) {
    const id = row?.dataset.waiting;
    if (!id || row.isConnected || this.#unseen.some((entry) => entry.id === id)) return;
    const stored = this.#chat.rows.find((one) => one.outgoing?.split("/")[0] === id);
    if (stored && this.list.show(stored.cursor)) this.list.element(stored.cursor).focus({ preventScroll: true });
  }

  #say(trouble) {
    this.scroller.querySelector(".empty:not([role])")?.remove();
    const { rows, wanted } = this.#chat;
    const again = () => (this.#chat.wanted ? this.#around(this.#chat.wanted) : this.#chat.newest());
    showTrouble(this.scroller, rows.length ? null : trouble, again);
    // Where other rows stand, it is told in sight of all of them.
    showTrouble(this.#shell.main, rows.length && wanted ? trouble : null, again);
    if (!trouble && this.#chat.isLoaded && !this.#chat.rows.length && !this.#unseen.length) {
      const kind = conversations.get(this.id)?.kind ?? "direct";
      this.scroller.prepend(make("div", { class: "empty" }, icon("chats"), make("h2", { text: t("chat.empty") }), make("p", { class: "quiet", text: t(`chat.empty-${kind}`) })));
    }
  }

  #item(item, index) {
    switch (item.kind) {
      case "older": return make("div", { class: "older quiet", role: "presentation", text: t("chat.older") });
      case "start": return make("div", { class: "older quiet", role: "presentation", text: t("chat.start") });
      case "day": return make("div", { class: "day", role: "presentation" }, when(item.at, "day"));
      case "new": return make("div", { class: "new-line", role: "presentation" }, make("span", { text: t("chat.new", { count: this.unreadBefore }) }));
      case "outbox": return this.#waiting(item.entry);
      default: return this.#message(item, index);
    }
  }

  #message({ row, isJoined }, index) {
    const isOwn = row.direction === "sent";
    const name = isOwn ? t("you") : row.sender_alias ?? row.author_name ?? row.sender_name ?? row.author ?? row.sender ?? "";
    const key = isOwn ? "" : this.#who(row);
    const isBlocked = row.filtered === "blocked";
    const isMention = !isOwn && !isBlocked && gateway.name && row.mentions?.includes(gateway.name);
    const isCurrent = this.#current === row.cursor;
    return make("article", {
      class: `message${isOwn ? " own" : ""}${isJoined ? " joined" : ""}${isMention ? " for-us" : ""}${route.get("message") === row.cursor ? " chosen" : ""}`,
      tabindex: isCurrent ? 0 : -1, "aria-posinset": index + 1, "aria-setsize": this.#chat.hasOlder || this.#chat.hasNewer ? -1 : this.#chat.rows.length,
      data: { cursor: row.cursor, id: String(row.id) }, on: { click: (event) => this.#clicked(event, row), focus: () => { this.#current = row.cursor; } },
    },
    isJoined ? make("span", { class: "message-time quiet" }, when(row.received_at, "clock"))
      : make("span", { class: `message-picture ${isOwn ? "hue-own" : `hue-${hue(key)}`}`, "aria-hidden": "true", text: isOwn ? initial(gateway.name || "·") : initial(name) }),
    make("div", { class: "message-head" + (isJoined ? " unseen" : "") },
      make("span", { class: `message-name ${isOwn ? "" : `ink-${hue(key)}`}` }, isOwn ? name : named(name)), when(row.received_at, "clock")),
    make("div", { class: "message-text" }, isBlocked ? make("details", { class: "folded" }, make("summary", { text: t("message.blocked") }), this.#text(row)) : this.#text(row),
      row.state === "failed" ? make("p", { class: "failed" }, make("span", { text: t(`reason.${row.reason}`) }), " ",
        link("retry", () => retry(row))) : null,
      reactions(row)),
    make("div", { class: "message-side quiet" }, isOwn ? mark(row, () => this.#openMessage(row.cursor)) : signal(row)),
    make("div", { class: "message-tools" },
      iconButton("smile", t("react.verb"), () => react(row)),
      iconButton("reply", t("reply"), () => this.#reply(row)),
      iconButton("more", t("message.details"), () => this.#openMessage(row.cursor))));
  }

  /** Whose colour it has: on a channel, where names alone are told, that of the only one who is called so. */
  #who(row) {
    if (row.author || row.kind !== "channel") return row.author ?? row.sender ?? "";
    this.#keys ??= Map.groupBy(conversations.list.filter((one) => one.key), (one) => one.name);
    const known = this.#keys.get(row.sender_name);
    return known?.length === 1 ? known[0].key : row.sender_name ?? "";
  }

  #text(row) {
    if (row.text === undefined) return make("p", { class: "quiet", text: t("message.datagram", { type: row.data_type ?? 0, bytes: (row.data ?? "").length / 2 }) });
    const single = /^(\p{Extended_Pictographic}\uFE0F?|\p{RI}\p{RI}){1,3}$/u.test(row.text);
    return make("p", { class: single ? "large" : null }, written(row.text, { own: gateway.name }));
  }

  #waiting(entry) {
    const { trouble } = entry;
    const isCut = !live.isLinked;
    const isKept = outbox.isKept(entry);
    return make("article", { class: `message own waiting${trouble ? " refused" : ""}`, tabindex: -1, data: { waiting: entry.id }, on: { focus: () => { this.#current = `outbox ${entry.id}`; } } },
      make("span", { class: "message-picture hue-own", "aria-hidden": "true", text: initial(gateway.name || "·") }),
      make("div", { class: "message-head" }, make("span", { class: "message-name", text: t("you") }), when(entry.at, "clock")),
      make("div", { class: "message-text" }, make("p", {}, written(entry.text)),
        isKept ? null : make("p", { class: "failed", role: "alert", text: t("chat.not-kept") }),
        !trouble && entry.unsure ? make("div", { class: "failed" }, make("p", { text: t("chat.unsure", { status: entry.unsure }) }),
          make("div", { class: "row" },
            link("retry", () => outbox.flush()),
            link("discard", () => { outbox.discard(entry.id); passed.discard(entry.id); }))) : null,
        trouble ? make("div", { class: "failed" }, make("p", { text: trouble.code === "too_long" ? t("chat.too-long") : trouble.words, lang: trouble.code === "too_long" ? null : "en" }),
          trouble.remedy ? make("p", { class: "quiet", lang: "en" }, coded(trouble.remedy)) : null,
          make("div", { class: "row" },
            trouble.code === "too_long" ? make("button", { type: "button", class: "link", text: t("chat.split"), on: { click: () => outbox.retry(entry.id, { split: true }) } }) : null,
            link("retry", () => outbox.retry(entry.id)),
            link("chat.edit", () => { this.composer.put(entry.text); outbox.discard(entry.id); }),
            link("discard", () => outbox.discard(entry.id)))) : null),
      make("div", { class: "message-side quiet" }, trouble ? make("span", { class: "mark failed" }, icon("bang"), t("state-of.refused"))
        : make("span", { class: "mark", title: isCut && isKept ? t("state-of.cut-long") : "" }, icon("clock"), isCut ? t("state-of.cut") : t(entry.unsure ? "state-of.pending" : "state-of.posting"))));
  }

  // MARK: Doing

  #clicked(event, row) {
    if (event.target.closest("button, a, summary") || getSelection()?.type === "Range") return;
    this.#setCurrent(row.cursor);
    // A finger has no hovering: a touch opens what a mouse finds beside the message.
    if (matchMedia("(hover: none)").matches) this.#openMessage(row.cursor);
  }

  #openMessage(cursor) { route.set({ message: cursor, details: undefined }, { replace: false }); }

  #reply(row) {
    const name = row.direction === "sent" ? gateway.name : row.author_name ?? row.sender_name;
    route.set({ message: undefined });
    if (row.kind !== "direct" && name) this.composer.mention(name);
    this.composer.field.focus();
  }

  #setCurrent(cursor) {
    this.list.element(this.#current)?.setAttribute("tabindex", "-1");
    this.#current = cursor;
    this.list.element(cursor)?.setAttribute("tabindex", "0");
  }

  /** What keys are for is being read. */
  get #isComing() { return this.#isToEnd || !this.#chat.isLoaded && (this.#chat.isReading || !this.#chat.trouble); }

  /** What was pressed meanwhile, unless somebody went elsewhere by then. */
  #press() {
    if (this.#isComing || !this.#pressed.length) return;
    const at = document.activeElement;
    const isHere = !at || at === document.body || this.#shell.main.contains(at) && !at.closest("input, textarea, select");
    for (const act of this.#pressed.splice(0)) if (isHere) act();
  }

  /** Escape behind an Enter that waits: what that would open is not opened. */
  #unpress() {
    const at = this.#pressed.lastIndexOf(this.#enter);
    if (at < 0) return false;
    this.#pressed.splice(at, 1);
    return true;
  }

  #enter = () => {
    if (this.#pressed.length) this.#pressed.push(this.#enter);
    else if (this.#chat.find(this.#current)) this.#openMessage(this.#current);
    else return false;
    return true;
  };

  /** `j`, `k`: the next and the previous message. */
  #step(by) {
    if (this.#isComing) { this.#pressed.push(() => this.#step(by)); return; }
    const messages = this.list.items.filter((item) => item.kind === "message" || item.kind === "outbox");
    if (!messages.length) return;
    const at = messages.findIndex((item) => item.key === this.#current);
    const next = at < 0 ? messages.length - 1 : Math.max(0, Math.min(messages.length - 1, at + by));
    const key = messages[next].key;
    this.#setCurrent(key);
    this.list.show(key);
    this.list.element(key)?.focus({ preventScroll: true });
  }

  #rowKey(event) {
    const article = event.target.closest?.("article");
    if (!article || event.target.closest("button, a, summary")) return;
    const { cursor } = article.dataset;
    const row = this.#chat.find(cursor);
    if (event.key === "r" && row) { this.#reply(row); event.preventDefault(); event.stopPropagation(); }
    else if (event.key === "Enter" && cursor && !this.#pressed.length) { this.#openMessage(cursor); event.preventDefault(); event.stopPropagation(); }
    else if (event.key === "ArrowDown") { this.#step(1); event.preventDefault(); }
    else if (event.key === "ArrowUp") { this.#step(-1); event.preventDefault(); }
    else if (event.key === "End") { this.#toEnd(); event.preventDefault(); }
  }

  #toEnd() {
    this.#isEndWanted = !this.#chat.isLoaded;
    if (this.#chat.hasNewer) {
      this.#isToEnd = true;
      this.list.reset();
      this.#chat.newest().then(() => { this.#isToEnd = false; this.list.toBottom(); this.#press(); });
    } else this.list.toBottom();
    if (route.get("at")) { this.#at = null; route.set({ at: undefined }); }
    this.#readOn();
    this.#jumper();
  }

  #jumper() {
    const isAway = this.#chat.isLoaded && this.#chat.rows.length > 0 && (this.#chat.hasNewer || !this.list.isAtBottom);
    if (!isAway && document.activeElement === this.jump) this.scroller.focus({ preventScroll: true });
    this.jump.hidden = !isAway;
    if (!isAway) { this.#seenAtBottom = this.#chat.rows.at(-1)?.cursor ?? null; return; }
    const known = conversations.get(this.id);
    const count = this.#chat.hasNewer ? known?.unread ?? 0
      : this.#chat.rows.filter((row) => row.direction === "received" && this.#seenAtBottom && compare(row.cursor, this.#seenAtBottom) > 0).length;
    const words = count ? t("chat.jump-new", { count }) : t("chat.jump");
    if (this.jump.dataset.count === String(count)) return;
    this.jump.dataset.count = String(count);
    this.jump.setAttribute("aria-label", words);
    this.jump.title = words;
    fill(this.jump, icon("down"), count ? make("span", { class: "badge", text: number(count) }) : null);
  }

  /** What is in sight, by somebody who looks, is read. */
  #readOn() {
    if (document.hidden || !document.hasFocus() || !this.#chat.isLoaded || !this.#isPlaced) return;
    const { rows, hasNewer } = this.#chat;
    let cursor = null;
    if (this.list.isAtBottom && !hasNewer) cursor = rows.at(-1)?.cursor;
    else {
      const end = this.scroller.getBoundingClientRect().bottom;
      for (const article of this.list.inside.querySelectorAll("article[data-cursor]")) {
        if (article.getBoundingClientRect().bottom <= end + 2) cursor = article.dataset.cursor;
      }
    }
    if (cursor) markRead(this.id, cursor);
  }

  #heard(row) {
    if (row.conversation !== this.id || row.direction !== "received" || row.text === undefined || row.filtered) return;
    const isNew = !this.#chat.find(row.cursor);
    if (isNew && !document.hidden) say(`${row.sender_alias ?? row.author_name ?? row.sender_name ?? ""}: ${row.text.slice(0, 200)}`);
  }
}

function sender(row) { return row.direction === "sent" ? "\u0001own" : row.author ?? (row.kind === "channel" ? row.sender_name : row.sender); }

function link(name, click) { return make("button", { type: "button", class: "link", text: t(name), on: { click } }); }

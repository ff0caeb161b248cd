// All conversations, newest first, and found as one types, which also searches all messages.
import { fill, icon, make, showTrouble } from "../parts/page.js";
import { when } from "../parts/times.js";
import { line, named } from "../parts/text.js";
import { hue, initial, isReaction } from "../parts/author.js";
import { t } from "../parts/words.js";
import { Windowed } from "../parts/windowed.js";
import { conversations, shownName } from "../stores/conversations.js";
import { draftOf } from "../stores/kept.js";
import { outbox } from "../stores/outbox.js";
import { route, to } from "../shell/route.js";
import { styled } from "../shell/styled.js";

/** Of a person, channel or room: shape by kind, colour by key, letter by name. */
export function picture(kind, name, key) {
  return make("span", { class: `picture ${kind} hue-${hue(key || name)}`, "aria-hidden": "true" }, kind === "channel" ? "#" : initial(name));
}

export class ConversationList {
  #search = null;
  #wanted = "";
  #typed = 0;

  constructor() {
    this.field = make("input", {
      type: "search", class: "field", id: "list-search", placeholder: t("list.search"), "aria-label": t("list.search"),
      on: { input: () => this.#type(), keydown: (event) => this.#key(event) },
    });
    this.scroller = make("div", { class: "list-scroll", tabindex: -1 });
    this.found = make("div", { class: "list-found" });
    this.element = make("section", { class: "list", "aria-label": t("nav.conversations") },
      make("div", { class: "list-search" }, icon("search"), this.field), this.scroller);
    this.rows = new Windowed(this.scroller, { estimate: 60, role: "list", label: t("nav.conversations"), render: (item) => this.#row(item) });
    this.scroller.append(this.found);
    // Who has gone elsewhere is not brought back.
    route.subscribe(() => clearTimeout(this.#typed));
    conversations.subscribe(() => this.update());
    outbox.subscribe(() => this.update());
  }

  #type() {
    const words = this.field.value;
    clearTimeout(this.#typed);
    this.#typed = setTimeout(() => {
      if (route.view === "conversations") route.set({ find: words });
      else route.go(to("conversations", null, { find: words }));
    }, 150);
    this.update(words);
  }

  #key(event) {
    if (event.key === "Escape") {
      if (this.field.value) { this.field.value = ""; this.#type(); } else this.field.blur();
      event.stopPropagation();
    } else if (event.key === "ArrowDown" || event.key === "Enter") {
      const first = this.element.querySelector("a.conversation, a.hit");
      if (first) { event.preventDefault(); if (event.key === "Enter") first.click(); else first.focus(); }
    }
  }

  /** The next or previous one, for `j` and `k`. */
  step(by) {
    const list = conversations.list;
    const at = list.findIndex((one) => one.conversation === route.id);
    const next = list[Math.max(0, Math.min(list.length - 1, at + by))];
    if (next) { route.go(to("conversations", next.conversation)); this.rows.show(next.conversation); }
  }

  update(words) {
    if (words === undefined) {
      words = route.view === "conversations" ? route.get("find") ?? "" : "";
      if (document.activeElement !== this.field) this.field.value = words;
      else words = this.field.value;
    }
    const wanted = words.toLocaleLowerCase().split(/\s+/);
    const all = conversations.list;
    const shown = all.filter((one) => wanted.every((word) => `${one.alias ?? ""}\n${one.name}\n${one.key ?? ""}`.toLocaleLowerCase().includes(word)));
    this.rows.set(shown.map((one) => ({ key: one.conversation, one, version: this.#version(one) })));
    this.#tell(all, shown, words.trim());
    this.#searchFor(words.trim());
  }

  #version(one) {
    const waiting = shownOf(one);
    return [one.newest?.cursor, one.newest?.filtered, one.newest?.state, one.unread, one.mentioned, one.muted, one.name, one.alias, conversations.digits(one), one.on_radio, route.id === one.conversation, waiting?.id, !waiting?.trouble,
      route.id !== one.conversation && draftOf(one.conversation)].join("\u0001");
  }

  #tell(all, shown, words) {
    this.element.toggleAttribute("data-empty", !shown.length);
    const old = this.element.querySelector(".list-empty");
    let told = null;
    showTrouble(this.scroller, conversations.isLoaded ? null : conversations.trouble, () => conversations.load());
    if (conversations.isLoaded && !all.length) told = [t("list.none"), t("list.none-why")];
    else if (conversations.isLoaded && !shown.length) told = [t("list.no-match", { words })];
    const isLoading = !conversations.isLoaded && !conversations.trouble;
    this.element.toggleAttribute("data-loading", isLoading);
    if (isLoading) {
      if (!old?.classList.contains("shapes")) { old?.remove(); this.scroller.prepend(shapes()); }
      return;
    }
    old?.remove();
    if (told) this.scroller.prepend(make("div", { class: "list-empty quiet" }, told.map((one) => make("p", { text: one }))));
  }

  async #searchFor(words) {
    this.#wanted = words;
    if (words.length < 2 && !location.search.includes("find-")) {
      this.#search?.close();
      this.#search = null;
      fill(this.found);
      return;
    }
    if (this.#search?.words === words) return;
    const { Search } = await styled("later", import("./search.js"));
    if (this.#wanted !== words) return;
    if (!this.#search) fill(this.found, (this.#search = new Search()).element);
    this.#search.look(words);
  }

  #row({ one }) {
    const { newest } = one;
    const isOpen = route.view === "conversations" && route.id === one.conversation;
    const name = shownName(one);
    const draft = !isOpen && draftOf(one.conversation);
    const waiting = shownOf(one);
    let last = null;
    if (waiting?.trouble) last = [make("span", { class: "draft" }, icon("bang"), t("state-of.refused"), ": "), line(waiting.text)];
    else if (draft) last = [make("span", { class: "draft", text: t("list.draft") }), line(draft)];
    else if (waiting) last = [icon("clock"), line(waiting.text)];
    else if (newest) {
      const who = newest.direction === "sent" ? t("you") : one.kind === "direct" ? null : newest.author_name ?? newest.sender_name;
      last = [who ? [named(who, { class: "name who" }), ": "] : null, newest.text === undefined ? t("message.data") : newest.filtered === "blocked" ? "…" : isReaction(newest) ? t("list.reacted", { emoji: newest.text.split(/[@\n]/)[0] }) : line(newest.text)];
    } else last = t(`list.${one.kind}-empty`);
    const link = make("a", {
      class: `conversation${one.muted ? " muted" : one.unread ? " unread" : ""}`, href: to("conversations", one.conversation), "aria-current": isOpen ? "true" : null, data: { id: one.conversation },
    },
    picture(one.kind, name, one.key ?? one.channel),
    make("span", { class: "conversation-name" }, named(name), conversations.digits(one) && make("span", { class: "quiet small", text: conversations.digits(one) }), one.on_radio === false ? make("span", { class: "quiet small", text: ` ${t("list.off-radio")}` }) : null),
    newest ? when(newest.received_at, "brief") : make("span"),
    make("span", { class: "conversation-last quiet" }, last),
    make("span", { class: "conversation-marks" },
      one.mentioned ? make("span", { class: "mentioned", title: t("list.mentioned") }, icon("at"), make("span", { class: "unseen", text: t("list.mentioned") })) : null,
      one.muted ? make("span", { class: "quiet", title: t("list.muted") }, icon("muted"), make("span", { class: "unseen", text: t("list.muted") })) : null,
      one.unread && !one.muted ? make("span", { class: "badge" }, make("span", { "aria-hidden": "true", text: one.unread > 999 ? "999+" : String(one.unread) }), make("span", { class: "unseen", text: t("nav.unread", { count: one.unread }) })) : null));
    return make("div", { role: "listitem", class: "conversation-place" }, link);
  }
}

/** What is not at the gateway: a refused one first, for it waits for somebody. */
function shownOf({ conversation }) {
  const all = outbox.of(conversation);
  return all.find((entry) => entry.trouble) ?? all.at(-1);
}

/** Before there is a list. */
function shapes() {
  return make("div", { class: "list-empty shapes", "aria-hidden": "true" }, Array.from({ length: 7 }, () => make("div", { class: "shape" }, make("i"), make("b"), make("u"))));
}

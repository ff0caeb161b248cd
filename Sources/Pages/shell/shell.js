// What stays while views come and go: state, tabs, conversations, the bar of a cut line.
import * as conversationsView from "../views/conversations.js";
import { ConversationList } from "../views/list.js";
import { fill, icon, iconButton, make, showTrouble } from "../parts/page.js";
import { tellTimesAnew } from "../parts/times.js";
import { isolated, t } from "../parts/words.js";
import { named } from "../parts/text.js";
import { ask } from "../stores/api.js";
import { conversations, shownName } from "../stores/conversations.js";
import { gateway } from "../stores/gateway.js";
import { live } from "../stores/live.js";
import { outbox } from "../stores/outbox.js";
import { old } from "../stores/store.js";
import { onKeys, startKeys } from "./keys.js";
import { tellLine } from "./line.js";
import { route } from "./route.js";
import { styled } from "./styled.js";

const TABS = [["conversations", "chats"], ["nodes", "nodes"], ["map", "map"], ["air", "air"], ["gateway", "gateway"]];
const views = {
  conversations: () => conversationsView,
  nodes: () => styled("nodes", import("../views/nodes.js")),
  map: () => styled("map", import("../views/map.js")),
  air: () => styled("air", import("../views/air.js")),
  gateway: () => styled("gateway", import("../views/gateway.js")),
};

export class Shell {
  #place;
  #session;
  #shown = null;
  #isNarrow = matchMedia("(max-width: 760px)");

  constructor(place, session) {
    this.#place = place;
    this.#session = session;
  }

  start() {
    this.#build();
    startKeys();
    route.subscribe(() => this.#show());
    live.subscribe(() => { this.#tellLine(); this.#tellState(); });
    live.on("signed-out", () => location.reload());
    // Begun without a line: who is signed in is known with it.
    live.on("linked", () => { if (this.#session.isUnreached) ask("/session", { isLive: true }).then((session) => { this.#session = session; }).catch(() => { /* with the next line */ }); });
    outbox.subscribe(() => this.#tellLine());
    old.subscribe(() => { this.#tellLine(); this.#tellState(); });
    gateway.subscribe(() => this.#tellState());
    conversations.subscribe(() => { this.#tellUnread(); this.#tellLine(); });
    this.#isNarrow.addEventListener("change", () => this.#show());
    setInterval(tellTimesAnew, 20_000);
    this.#tellState();
    this.#tellLine();
    this.#show(true);
    conversations.load();
    live.start();
  }

  #build() {
    this.bar = make("div", { class: "bar", role: "status", hidden: true });
    this.state = make("div", { class: "state" });
    this.tabs = make("ul", { class: "tabs" }, TABS.map(([view, drawing]) => make("li", {}, make("a", { href: `/${view}`, data: { tab: view } },
      icon(drawing), make("span", { class: "tab-words", text: t(`nav.${view}`) }), make("span", { class: "tab-short", "aria-hidden": "true", text: t(`nav.short-${view}`) }), make("span", { class: "count" })))));
    this.list = new ConversationList();
    this.main = make("main", { id: "main", class: "main", tabindex: -1 });
    this.details = make("aside", { class: "details", hidden: true, "aria-label": t("details") });
    this.shade = make("div", { class: "shade", hidden: true, on: { click: () => this.closeDetails() } });
    this.#place.dataset.state = "open";
    fill(this.#place,
      make("a", { class: "skip", href: "#main", text: t("skip"), on: { click: (event) => { event.preventDefault(); this.main.focus(); } } }),
      this.bar,
      make("header", { class: "head" }, this.state, iconButton("more", t("menu"), async () => (await styled("later", import("./dialog.js"))).openMenu(this.#session, { version: gateway.status?.version, outbox }))),
      make("nav", { class: "nav", "aria-label": t("nav.label") }, this.tabs),
      this.list.element, this.main, this.shade, this.details);
  }

  // MARK: What is shown

  async #show(isFirst = false) {
    const view = route.view;
    const isOpen = Boolean(route.id) || view !== "conversations";
    this.#place.dataset.view = view;
    this.#place.toggleAttribute("data-open", isOpen);
    for (const link of this.tabs.querySelectorAll("a")) {
      if (link.dataset.tab === view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    this.list.update();
    if (this.#shown?.view !== view) {
      const module = await this.#tried(views[view]);
      if (!module || route.view !== view) return;
      this.#shown?.shown.close?.();
      this.showDetails(null);
      fill(this.main);
      onKeys({});
      this.#shown = { view, shown: new module.View(this) };
      if (!isFirst && document.activeElement !== this.list.field) this.main.focus({ preventScroll: true });
    }
    this.#tried(() => this.#shown.shown.update());
    this.#tellUnread();
  }

  /** What may lack a file. */
  async #tried(work, { view } = route) {
    try {
      return await work();
    } catch (error) {
      if (route.view !== view) return null;
      this.#shown?.shown.close?.();
      fill(this.main);
      console.error(error);
      showTrouble(this.main, { message: t("trouble.view") }, () => location.reload());
      this.#shown = null;
      return null;
    }
  }

  /** The operator's server of map tiles: `{url, credit?}`. */
  get tiles() { return this.#session.tiles; }

  get isNarrow() { return this.#isNarrow.matches; }

  /** Beside the view, or over it as a sheet; `null`: nothing. `close`: what closing does. */
  showDetails(content, close) {
    const had = !this.details.hidden;
    this.closeDetails = close ?? (() => {});
    this.details.hidden = !content;
    this.shade.hidden = !content;
    this.#place.toggleAttribute("data-details", Boolean(content));
    if (!content) {
      const isInside = this.details.contains(document.activeElement);
      fill(this.details);
      if (had && isInside) this.main.focus({ preventScroll: true });
      return;
    }
    if (this.details.firstChild !== content) {
      fill(this.details, content);
      this.details.scrollTop = 0;
    }
  }

  closeDetails = () => {};

  // MARK: What is told all the time

  #tellLine() {
    const count = outbox.count;
    tellLine(this.bar, live, conversations.isLoaded, count ? ` ${t("cut.waiting", { count })}` : "");
  }

  #tellState() {
    const { name } = gateway;
    const state = live.since === null && !old.has(gateway) ? gateway.state : "unknown";
    fill(this.state, make("span", { class: `dot ${state}`, "aria-hidden": "true" }),
      make("span", { class: "state-name" }, name ? named(name) : t("gateway")),
      make("span", { class: "quiet state-word", text: t(`state.${state}`) }));
    this.#count("gateway", gateway.troubles, "bad", t("nav.troubles", { count: gateway.troubles }));
  }

  #tellUnread() {
    const unread = conversations.unread;
    this.#count("conversations", unread, "", t("nav.unread", { count: unread }));
    const current = route.view === "conversations" && route.id ? conversations.get(route.id) : null;
    const title = current ? shownName(current) : t(`nav.${route.view}`);
    document.title = `${unread ? `(${unread > 999 ? "999+" : unread}) ` : ""}${isolated(title.slice(0, 80))} – Meshpost`;
  }

  #count(view, count, kind, words) {
    const place = this.tabs.querySelector(`[data-tab="${view}"] .count`);
    place.className = `count ${kind}`;
    fill(place, count ? [make("span", { "aria-hidden": "true", text: count > 999 ? "999+" : String(count) }), make("span", { class: "unseen", text: words })] : null);
  }
}

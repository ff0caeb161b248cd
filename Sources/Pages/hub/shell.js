// What stays while views come and go.
import { fill, icon, iconButton, make, showTrouble } from "../parts/page.js";
import { tellTimesAnew } from "../parts/times.js";
import { t } from "../parts/words.js";
import { ask } from "../stores/api.js";
import { old } from "../stores/store.js";
import { onKeys, startKeys } from "../shell/keys.js";
import { tellLine } from "../shell/line.js";
import { route } from "../shell/route.js";
import { styled } from "../shell/styled.js";
import * as fleetView from "./fleet.js";
import { fleet, live } from "./live.js";

const TABS = [["fleet", "antenna", "f"], ["messages", "chats", "m"], ["coverage", "map", "c"], ["alerts", "bell", "a"], ["commands", "arrow", "k"], ["people", "nodes", "p"]];
const views = {
  fleet: () => fleetView,
  messages: () => styled("hub", import("./messages.js")),
  coverage: () => styled("hub", styled("map", import("./coverage.js"))),
  alerts: () => styled("hub", import("./alerts.js")),
  commands: () => styled("hub", import("./commands.js")),
  people: () => styled("hub", import("./people.js")),
  none: () => styled("hub", import("./none.js")),
};

export class HubShell {
  #place;
  #shown = null;
  #wanted = null;
  #isNarrow = matchMedia("(max-width: 760px)");

  constructor(place, session) {
    this.#place = place;
    this.session = session;
  }

  async start() {
    fleet.load();
    this.#build();
    startKeys(/** @type {any} */ (Object.fromEntries(TABS.map(([view, , key]) => [key, view]))), "hub");
    route.subscribe(() => this.#show());
    for (const one of [live, old]) one.subscribe(() => this.#tellLine());
    // It may be cut already.
    this.#tellLine();
    fleet.subscribe(() => this.#tellFleet());
    // Begun without a line: whose pages are these?
    live.on("hello", () => { if (this.session.isUnreached) ask("/session", { isLive: true }).then(() => location.reload()).catch(() => { /* with the next line */ }); });
    setInterval(tellTimesAnew, 20_000);
    this.#show(true);
    live.start();
  }

  /** To send commands and edit. */
  get mayChange() { return this.session.can_change === true; }
  /** The operator's server of map tiles. */
  get tiles() { return this.session.tiles; }
  get mayAdminister() { return this.session.role === "administer"; }

  #build() {
    const tabs = TABS.filter(([view]) => view !== "people" || this.mayAdminister);
    this.bar = make("div", { class: "bar", role: "status", hidden: true });
    this.tabs = make("ul", { class: "tabs" }, tabs.map(([view, drawing]) => make("li", {}, make("a", { href: `/${view}`, data: { tab: view } },
      icon(drawing), make("span", { class: "tab-words", text: t(`hub.${view}`) }), make("span", { class: "tab-short", "aria-hidden": "true", text: t(`hub.short-${view}`) }), make("span", { class: "count" })))));
    this.state = make("div", { class: "state" }, make("span", { class: "state-name", text: t("hub.title") }));
    this.main = make("main", { id: "main", class: "main", tabindex: -1 });
    this.details = make("aside", { class: "details", hidden: true, "aria-label": t("details") });
    this.shade = make("div", { class: "shade", hidden: true, on: { click: () => this.closeDetails() } });
    this.#place.dataset.state = "open";
    this.#place.classList.add("hub");
    fill(this.#place,
      make("a", { class: "skip", href: "#main", text: t("skip"), on: { click: (event) => { event.preventDefault(); this.main.focus(); } } }),
      this.bar,
      make("header", { class: "head" }, this.state, iconButton("more", t("menu"), () => this.#openMenu())),
      make("nav", { class: "nav", "aria-label": t("nav.label") }, this.tabs),
      make("aside", { class: "list hub-person quiet small" }, make("p", {}, make("bdi", { text: this.session.person ?? "" }), ` · ${t(`role.${this.session.role}`)}`)),
      this.main, this.shade, this.details);
  }

  async #openMenu() {
    const [{ openMenu }, { forgetSeen }] = await Promise.all([styled("later", import("../shell/dialog.js")), import("./seen.js")]);
    openMenu(this.session, { forget: forgetSeen });
  }

  async #show(isFirst = false) {
    const view = (location.pathname.split("/")[1] || "fleet") !== route.view ? "none" : route.view !== "people" || this.mayAdminister ? route.view : "fleet";
    this.#place.dataset.view = view;
    this.#place.toggleAttribute("data-open", true);
    for (const link of this.tabs.querySelectorAll("a")) {
      if (link.dataset.tab === view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = `${t(`hub.${view}`)} – Meshpost`;
    this.#wanted = view;
    if (this.#shown?.view !== view) {
      let module;
      try {
        module = await views[view]();
        // Another one was wanted meanwhile.
        if (this.#wanted !== view || this.#shown?.view === view) return;
      } catch (error) {
        console.error(error);
        fill(this.main);
        showTrouble(this.main, { message: t("trouble.view") }, () => location.reload());
        this.#shown = null;
        return;
      }
      this.#shown?.shown.close?.();
      this.showDetails(null);
      fill(this.main);
      onKeys({});
      this.#shown = { view, shown: new module.View(this) };
      if (!isFirst) this.main.focus({ preventScroll: true });
    }
    this.#shown.shown.update?.();
  }

  get isNarrow() { return this.#isNarrow.matches; }

  /** Beside the view, or over it as a sheet; `null`: nothing. `close`: what closing does. */
  showDetails(content, close) {
    const isInside = this.details.contains(document.activeElement);
    this.closeDetails = close ?? (() => {});
    this.details.hidden = !content;
    this.shade.hidden = !content;
    this.#place.toggleAttribute("data-details", Boolean(content));
    if (!content) {
      fill(this.details);
      if (isInside) this.main.focus({ preventScroll: true });
      return;
    }
    if (this.details.firstChild !== content) {
      fill(this.details, content);
      this.details.scrollTop = 0;
    }
  }

  closeDetails = () => {};

  #tellLine() {
    tellLine(this.bar, live, fleet.isLoaded);
  }

  #tellFleet() {
    this.#tellCount("fleet", fleet.wanting, "fleet.need");
    this.#tellCount("alerts", fleet.summary?.alerts ?? 0, "alerts.open-count");
  }

  #tellCount(view, count, words) {
    const place = this.tabs.querySelector(`[data-tab="${view}"] .count`);
    if (place.dataset.version === String(count)) return;
    place.dataset.version = String(count);
    place.className = `count ${count ? "bad" : ""}`;
    // The two numbers count different things: each says which.
    place.title = count ? t(words, { count }) : "";
    fill(place, count ? [make("span", { "aria-hidden": "true", text: String(count) }), make("span", { class: "unseen", text: t(words, { count }) })] : null);
  }
}

// What is to be done first, where nothing was said yet and no conversation is chosen: made from what the gateway says of itself. What is done is gone.
import { coded, fill, make } from "../parts/page.js";
import { busy, refill } from "../parts/held.js";
import { t } from "../parts/words.js";
import { ask, order } from "../stores/api.js";
import { conversations } from "../stores/conversations.js";
import { gateway } from "../stores/gateway.js";
import { inTurn } from "../stores/turn.js";
import { route } from "../shell/route.js";
import { styled } from "../shell/styled.js";

const main = () => document.getElementById("main");

function isWanted() {
  const isBegin = route.view === "conversations" && !route.id && !route.get("find");
  return isBegin && conversations.isLoaded && gateway.status && conversations.list.every(({ newest }) => !newest);
}

class FirstSteps {
  #findings = [];
  #known = "";
  #examinedAt = 0;
  #observed = null;
  #isReady = false;
  #observer = new MutationObserver(() => this.#draw());
  #examine = inTurn(async () => {
    // Without an answer, the steps are those that the status tells of.
    try { this.#findings = (await ask("/v1/doctor")).findings; } catch { this.#findings = []; }
    this.#draw();
  });

  constructor() {
    this.element = make("section", { class: "card first-steps", "aria-labelledby": "steps-title" });
    this.list = make("ol", { class: "findings" });
    for (const store of [route, conversations, gateway]) store.subscribe(() => this.#look());
    this.#look();
  }

  async #look() {
    if (this.#observed !== main()) {
      this.#observer.disconnect();
      this.#observed = main();
      // The shell puts another view there.
      if (this.#observed) this.#observer.observe(this.#observed, { childList: true });
    }
    if (isWanted() && !this.#isReady) {
      await styled("gateway", Promise.resolve());
      fill(this.element, make("h2", { id: "steps-title", text: t("first.title") }), this.list);
      this.#isReady = true;
    }
    this.#draw();
  }

  #draw() {
    if (!this.#isReady) return;
    const steps = isWanted() ? this.#steps() : [];
    // A narrow page has the list alone.
    const list = document.querySelector(".list-scroll");
    const place = main()?.checkVisibility() ? main().querySelector(":scope > .empty") : list;
    // What the doctor found may be done meanwhile, without a change of the status: it is asked again when the steps are shown again, and each minute.
    if (!steps.length || !place) { this.element.remove(); this.#known = ""; return; }
    place.classList.toggle("with-steps", place !== list);
    if (this.element.parentNode !== place) place.append(this.element);
    const { radio, clock_trusted: isTrusted, store } = gateway.status;
    const known = [radio.state, isTrusted, store.error].join();
    const isOld = !document.hidden && Date.now() - this.#examinedAt > 60_000;
    if (known !== this.#known || isOld) { [this.#known, this.#examinedAt] = [known, Date.now()]; this.#examine(); }
    const version = JSON.stringify(steps.map(({ name, words, remedy }) => [name, words, remedy]));
    if (this.list.dataset.version === version) return;
    this.list.dataset.version = version;
    refill(this.list, steps.map((step, index) => this.#step(step, index)));
  }

  /** `words`, `remedy`: the gateway's, in English. */
  #steps() {
    const { radio, store, upstreams, clock_trusted: isTrusted } = gateway.status;
    const remedyOf = (subject) => this.#findings.find((one) => one.subject === subject && one.state !== "ok")?.remedy;
    const isUp = radio.state === "up";
    const others = conversations.list.filter((one) => one.kind === "channel" && one.on_radio !== false && one.name !== "Public");
    return [
      radio.state === "down" && { name: "radio", words: radio.error, remedy: radio.remedy },
      !isTrusted && { name: "clock", remedy: remedyOf("clock") },
      ...this.#findings.filter((one) => one.state === "failed" && (isUp || one.subject !== "radio"))
        .map(({ subject, words, remedy }) => ({ name: "finding", title: subject, words, remedy })),
      isUp && radio.advert && !radio.advert.at && { name: "advert" },
      isUp && !store.contacts && { name: "heard" },
      isUp && !others.length && { name: "channel", command: "meshpost channel add Club --new" },
      !upstreams.length && { name: "upstream", command: "meshpost upstream add hub https://…" },
    ].filter(Boolean);
  }

  #step({ name, title = null, words = null, remedy = null, command = null }, index) {
    return make("li", { class: "finding", data: { step: name } }, make("span", { class: "quiet", "aria-hidden": "true", text: `${index + 1}.` }),
      make("div", {}, make("p", {}, make("strong", title ? { text: title, lang: "en" } : { text: t(`first.${name}`) })),
        name === "finding" ? null : make("p", { class: "quiet", text: t(`first.${name}-why`) }),
        words ? make("p", {}, make("bdi", { text: words, lang: "en" })) : null,
        remedy ? make("p", { class: "quiet", lang: "en" }, coded(remedy)) : null,
        command ? make("code", { class: "block", text: command }) : null,
        name === "advert"
          ? make("button", { type: "button", class: "button", text: t("gateway.advert"), on: { click: (event) => this.#advert(event.currentTarget) } })
          : command ? null : make("a", { class: "button", href: "/gateway", text: t("nav.gateway") })));
  }

  #advert(button) {
    return busy(button, async () => {
      const { tell, told } = await import("./marks.js");
      try {
        await order("/v1/radio/advert", { flood: true });
        told(t("gateway.advert-flooded"));
        await gateway.load();
      } catch (trouble) { tell(trouble); }
    });
  }
}

new FirstSteps();

// What an address shows that is none of ours.
import { fill, make } from "../parts/page.js";
import { t } from "../parts/words.js";

export class View {
  constructor({ main }) {
    fill(main, make("div", { class: "empty" }, make("h1", { text: t("hub.none") }), make("p", { class: "quiet", text: t("none.why") }), make("a", { class: "button", href: "/fleet", text: t("hub.fleet") })));
  }
}

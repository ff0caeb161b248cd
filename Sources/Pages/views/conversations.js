// Conversations: the list is always there; this is what is beside it, which is a chat once one is chosen.
import { fill, icon, make } from "../parts/page.js";
import { t, tn } from "../parts/words.js";
import { onKeys } from "../shell/keys.js";
import { route } from "../shell/route.js";
import { styled } from "../shell/styled.js";

export class View {
  #shell;
  #open = null;
  #isClosed = false;

  constructor(shell) { this.#shell = shell; }

  async update() {
    if (!route.id) {
      this.#open?.close();
      this.#open = null;
      this.#none();
      return;
    }
    if (this.#open?.id !== route.id) {
      this.#open?.close();
      this.#open = null;
      const wanted = route.id;
      const { OpenChat } = await styled("chat", import("./chat.js"));
      // Another one was chosen meanwhile.
      if (this.#isClosed || route.id !== wanted || this.#open?.id === wanted) return;
      this.#shell.showDetails(null);
      this.#open = new OpenChat(this.#shell, wanted);
    }
    this.#open.update();
  }

  #none() {
    this.#shell.showDetails(null);
    onKeys({ j: () => this.#shell.list.step(1), k: () => this.#shell.list.step(-1), "/": () => this.#shell.list.field.focus() });
    fill(this.#shell.main, make("div", { class: "empty" }, icon("chats"), make("h1", { text: t("chat.choose") }),
      make("p", { class: "quiet" }, tn("chat.choose-why", { key: make("kbd", { text: "j" }), other: make("kbd", { text: "k" }), help: make("kbd", { text: "?" }) }))));
  }

  close() {
    this.#isClosed = true;
    this.#open?.close();
  }
}

// The place to write: bytes counted as one types, drafts kept, long texts split only when it is said.
import { fill, icon, make } from "../parts/page.js";
import { number } from "../parts/numbers.js";
import { bytesOf } from "../parts/written.js";
import { t } from "../parts/words.js";
import { conversations, shownName } from "../stores/conversations.js";
import { gateway } from "../stores/gateway.js";
import { areDraftsKept, keepDraft } from "../stores/drafts.js";
import { draftOf } from "../stores/kept.js";
import { write } from "../stores/sending.js";

/** What the gateway takes at most: docs/sending.md. The gateway's own answer counts, should this be behind it. */
function limitOf(kind) {
  if (kind === "channel") return 160 - (gateway.name ? bytesOf(gateway.name) : 31) - 2;
  return kind === "room" ? 150 : 156;
}

const MOST_PARTS = 9;

addEventListener("beforeunload", (event) => { if (!areDraftsKept()) event.preventDefault(); });

/** Into how many parts the gateway splits it: at blanks where there are any near, each part with `[1/2] ` in front. */
function partsOf(text, limit) {
  let rest = new TextEncoder().encode(text);
  if (rest.length <= limit) return 1;
  const room = limit - 6;
  let count = 0;
  while (rest.length && count <= MOST_PARTS) {
    count += 1;
    if (rest.length <= room) break;
    let end = room;
    while (end > 0 && (rest[end] & 0xc0) === 0x80) end -= 1;
    const blank = rest.lastIndexOf(0x20, end - 1);
    if (blank > room / 2) end = blank;
    while (rest[end] === 0x20) end += 1;
    rest = rest.subarray(end);
  }
  return count;
}

export class Composer {
  #id;
  #sent;
  #ends;

  constructor(id, sent) {
    this.#id = id;
    this.#sent = sent;
    this.field = make("textarea", {
      class: "composer-field", rows: 1, "aria-label": t("compose.label"), "aria-describedby": "composer-count", enterkeyhint: "send", dir: "auto", maxlength: 2000,
      on: { input: () => { keepDraft(id, this.field.value); this.update(); }, keydown: (event) => this.#key(event) },
    });
    this.count = make("span", { class: "composer-count quiet", id: "composer-count" });
    // For this message alone; the usual one is that of the conversation.
    this.region = make("select", { class: "composer-region", "aria-label": t("compose.region"), hidden: true });
    this.button = make("button", { type: "submit", class: "button primary send" });
    this.unkept = make("p", { class: "failed composer-unkept", role: "alert" });
    // A press on what is no field takes no focus: what is typed next would be keys of the view.
    const press = (event) => { if (!event.target.closest("textarea, select")) event.preventDefault(); };
    this.element = make("form", { class: "composer", "aria-label": t("compose.label"), on: { mousedown: press, submit: (event) => { event.preventDefault(); this.#send(); } } },
      this.unkept, this.field, make("div", { class: "composer-row" }, this.count, this.region, this.button));
    this.field.value = draftOf(id);
    addEventListener("storage", this.#follow);
    this.#ends = [conversations.subscribe(() => this.update()), () => removeEventListener("storage", this.#follow)];
    this.update();
  }

  close() { for (const end of this.#ends) end(); }

  /** What another tab writes and sends: a draft that is here as well would be sent twice, or lost with what is written over it. */
  #follow = ({ key }) => {
    if (key !== "meshpost.drafts" || document.hasFocus() && document.activeElement === this.field) return;
    const draft = draftOf(this.#id);
    if (draft.trim() === this.field.value.trim()) return;
    this.field.value = draft;
    this.update();
  };

  /** A choice, where there is more than one. The status that tells them may come later, and others with another radio. */
  #showRegions() {
    const names = gateway.status?.radio?.regions ?? [];
    const version = names.join("\n");
    if (this.region.dataset.version === version) return;
    this.region.dataset.version = version;
    const chosen = this.region.value;
    this.region.hidden = !names.length;
    // A public region called like one of the other choices is written with a #.
    const value = (name) => (["none", "default"].includes(name) ? `#${name}` : name);
    fill(this.region, make("option", { value: "", text: t("compose.region-usual") }), make("option", { value: "none", text: t("compose.region-none") }),
      names.filter((name) => name !== "*" && !name.startsWith("$")).map((name) => make("option", { value: value(name), text: name })));
    this.region.value = chosen;
    if (this.region.selectedIndex < 0) this.region.value = "";
  }

  update() {
    this.#showRegions();
    const one = conversations.get(this.#id);
    const kind = one?.kind ?? (this.#id.startsWith("channel:") ? "channel" : "direct");
    const limit = limitOf(kind);
    const text = this.field.value.trim();
    const bytes = bytesOf(text);
    const isOver = bytes > limit;
    this.parts = partsOf(text, limit);
    const isTooLong = this.parts > MOST_PARTS;
    this.field.placeholder = one ? t("compose.to", { name: shownName(one).slice(0, 60) }) : "";
    this.element.toggleAttribute("data-over", isOver);
    const words = isTooLong ? t("compose.too-long") : isOver ? t("compose.parts", { bytes: number(bytes), limit: number(limit), count: this.parts }) : t("compose.bytes", { bytes: number(bytes), limit: number(limit) });
    if (this.count.textContent !== words) this.count.textContent = words;
    const verb = isOver && !isTooLong ? t("compose.send-parts", { count: this.parts }) : t("compose.send");
    if (this.button.dataset.verb !== verb) {
      this.button.dataset.verb = verb;
      fill(this.button, icon("send"), make("span", { text: verb }));
    }
    // Not `disabled`: such a button hears no press, and the second of a double click would take the focus away.
    this.button.setAttribute("aria-disabled", String(!bytes || isTooLong));
    // Once, and not with each letter.
    const warning = bytes && !areDraftsKept() ? t("compose.not-kept") : "";
    if (this.unkept.textContent !== warning) this.unkept.textContent = warning;
  }

  put(text) {
    this.field.value = this.field.value.trim() ? `${this.field.value}\n${text}` : text;
    keepDraft(this.#id, this.field.value);
    this.update();
    this.field.focus();
  }

  /** Answers somebody, by name. */
  mention(name) {
    const words = `@[${name}] `;
    if (!this.field.value.includes(words)) this.field.value = words + this.field.value;
    keepDraft(this.#id, this.field.value);
    this.update();
    this.field.focus();
    this.field.setSelectionRange(this.field.value.length, this.field.value.length);
  }

  #key(event) {
    // While letters are being composed (CJK), Enter chooses them. On a phone Enter is a new line: the button is under the thumb.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229 || matchMedia("(pointer: coarse)").matches) return;
    event.preventDefault();
    this.#send();
  }

  #send() {
    const text = this.field.value.trim();
    this.field.focus();
    if (!text || this.parts > MOST_PARTS) return;
    write(this.#id, text, this.parts > 1, this.region.value);
    this.region.value = "";
    this.field.value = "";
    keepDraft(this.#id, "");
    this.update();
    this.#sent();
  }
}

// What gateways were told to do, their documents, and who did what at the hub.
import { fill, iconButton, make, showTrouble } from "../parts/page.js";
import { busy } from "../parts/held.js";
import { full, when } from "../parts/times.js";
import { cut, line, named } from "../parts/text.js";
import { has, t } from "../parts/words.js";
import { ask, order } from "../stores/api.js";
import { freshID } from "../stores/fresh.js";
import { documentDraft, keepDocument, keepDraft, ofCommand } from "../stores/drafts.js";
import { draftOf } from "../stores/kept.js";
import { query } from "../stores/query.js";
import { onKeys } from "../shell/keys.js";
import { route } from "../shell/route.js";
import { fleet, gatewayName, live } from "./live.js";
import { gatewayNames } from "./words.js";

const PAGE = 100;
/** Rows that are kept while new ones come; then the newest are read anew. */
const MOST_ROWS = 2000;
const SHOWS = ["commands", "documents"];
/** Answers that are awaited, by the command's id: a view that is opened meanwhile waits for them as well. */
const underWay = new Map();

export class View {
  #shell;
  #ends;
  #show = null;
  #part = null;
  #shows;

  constructor(shell) {
    this.#shell = shell;
    this.#shows = shell.mayAdminister ? [...SHOWS, "deeds"] : SHOWS;
    this.tabs = make("div", { class: "chips", role: "group", "aria-label": t("fleet.show") });
    this.place = make("div", { class: "hub-scroll", tabindex: 0, role: "group", "aria-label": t("hub.commands") });
    fill(shell.main, make("header", { class: "view-head" }, make("h1", { text: t("hub.commands") })), make("div", { class: "filters" }, this.tabs), this.place);
    this.#ends = [fleet.subscribe(() => this.#part?.offer?.()), live.on("command", (row) => this.#part?.came?.(row)), live.on("hello", () => { this.#part?.back?.(); this.#part?.load(); }), live.on("again", () => { if (this.#part?.isRefused) this.#part.load(); })];
    onKeys({ Escape: () => { if (!route.id) return false; this.shut(); return true; } });
  }

  close() {
    for (const end of this.#ends) end();
    this.#part?.close?.();
  }

  async update() {
    const show = this.#shows.includes(route.get("show")) ? route.get("show") : "commands";
    if (show !== this.#show) {
      this.#show = show;
      const held = [...this.tabs.children].indexOf(document.activeElement);
      fill(this.tabs, this.#shows.map((one) => make("button", { type: "button", class: "chip", "aria-pressed": String(one === show), text: t(`commands.${one}`), on: { click: () => route.go(`/commands${one === "commands" ? "" : `?show=${one}`}`) } })));
      this.tabs.children[held]?.focus();
      this.#part?.close?.();
      this.#part = null;
      fill(this.place);
      if (show === "documents") {
        const { Documents } = await import("./documents.js").catch((error) => {
          console.error(error);
          if (this.#show === show) showTrouble(this.place, { message: t("trouble.view") }, () => location.reload());
          return { Documents: null };
        });
        if (this.#show !== show || !Documents) return;
        this.#part = new Documents(this.#shell, this.place);
      } else this.#part = show === "deeds" ? new Deeds(this.place) : new Commands(this.#shell, this.place, () => this.shut());
    }
    this.#part?.update?.();
    if (show !== "commands" || !route.id) this.#shell.showDetails(null);
  }

  shut() { route.go(`/commands${location.search}`); }
}

/** Commands: one is written here, and each tells its state as it goes. */
class Commands {
  #shell;
  #shut;
  #rows = [];
  #next = null;
  #isLoading = false;
  /** What the stream told while a page was read: the answer may be older. */
  #meanwhile = [];
  #isStale = false;
  #trouble = null;
  /** Nobody has answered what was sent last. */
  #isCut = false;
  /** What is shown beside the list: the same is not made anew, as somebody may be reading it. */
  #details = "";

  constructor(shell, place, shut) {
    [this.#shell, this.#shut] = [shell, shut];
    // What is written outlasts this view, and a reload.
    const field = (name, attributes) => make("input", { id: `command-${name}`, name, class: "field", autocomplete: "off", required: true, ...attributes, value: draftOf(this.#draft(name)), on: { input: () => this.#keep() } });
    // The address says it as well: read anew, it names no other one than the draft.
    this.gateway = make("select", { id: "command-gateway", class: "field", required: true, on: { change: () => { this.#keep(); route.set({ gateway: this.gateway.value || undefined }); } } });
    this.what = make("select", { id: "command-what", class: "field", on: { change: () => this.#fit() } }, ["send", "status", "sync"].map((one) => make("option", { value: one, text: t(`command.${one}`) })));
    this.to = field("to", { maxlength: 200 });
    this.text = field("text", { maxlength: 1000 });
    this.ofMessage = make("div", { class: "plain" }, make("label", { for: "command-to", text: t("commands.to") }), this.to, make("label", { for: "command-text", text: t("commands.text") }), this.text);
    this.button = make("button", { class: "button primary", type: "submit", text: t("commands.send") });
    this.answer = make("p", { class: "trouble-line", role: "status" });
    this.form = !shell.mayChange ? null : make("form", { class: "command-form", on: { submit: (event) => this.#send(event) } },
      make("h2", { text: t("commands.new") }),
      make("label", { for: "command-gateway", text: t("commands.gateway") }), this.gateway,
      make("label", { for: "command-what", text: t("commands.what") }), this.what,
      this.ofMessage, make("div", { class: "row" }, this.button), this.answer);
    this.list = make("ul", { class: "hub-list", "aria-label": t("commands.list") });
    this.more = make("button", { type: "button", class: "button", text: t("more-of"), hidden: true, on: { click: () => this.load(true) } });
    this.failed = make("p", { class: "trouble-line", role: "alert" });
    fill(place, this.form, make("h2", { text: t("commands.list") }), this.failed, this.list, this.more);
    this.offer();
    addEventListener("storage", this.#follow);
    const sent = this.form && this.#sent;
    if (sent && underWay.has(sent.id)) busy(this.button, () => this.#await(sent));
    else if (sent && this.#isDraft(sent)) this.answer.textContent = t("commands.unanswered");
    this.load();
  }

  close() { removeEventListener("storage", this.#follow); }

  get isRefused() { return this.#trouble !== null && !this.#isLoading; }

  #draft(name) { return ofCommand(name, this.#shell.session.person); }

  /** The message that the hub has not answered yet, in any view or tab: `{id, gateway, body}`. */
  get #sent() { return documentDraft(this.#draft("sent")); }

  /** Whether it is what is written. */
  #isDraft({ gateway, body }) { return Object.entries({ gateway, to: body.to, text: body.text }).every(([name, value]) => draftOf(this.#draft(name)) === value); }

  /** With what is written, the gateway for which it is: a name may be somebody else's in another one's mesh. */
  #keep() {
    const isWritten = Boolean(this.to.value.trim() || this.text.value.trim());
    for (const field of [this.to, this.text]) keepDraft(this.#draft(field.name), field.value);
    keepDraft(this.#draft("gateway"), isWritten ? this.gateway.value || draftOf(this.#draft("gateway")) : "");
    if (!isWritten) keepDocument(this.#draft("sent"), null);
  }

  /** What another tab writes and sends: a draft that is here as well would be sent twice, or lost with what is written over it. */
  #follow = ({ key }) => {
    const fields = [this.to, this.text];
    if (key !== "meshpost.drafts" || document.hasFocus() && [...fields, this.gateway].includes(document.activeElement)) return;
    const [to, text, gateway] = ["to", "text", "gateway"].map((name) => draftOf(this.#draft(name)));
    // To whom the last one went stays.
    if (!to && !text && !this.text.value.trim()) return;
    [this.to.value, this.text.value] = [to, text];
    if (!gateway || gateway === this.gateway.value) return;
    this.gateway.value = this.gateway.dataset.version = "";
    this.offer();
  };

  /** What was chosen; where there are several, nobody but the person does. A draft for one gateway at the address of another is for neither. */
  #wanted(names) {
    const [drafted, addressed] = [draftOf(this.#draft("gateway")), route.get("gateway") ?? ""];
    if (drafted && addressed) return drafted === addressed ? drafted : "";
    return drafted || addressed || (names.length === 1 ? names[0][0] : "");
  }

  /** The line is back: whether what was sent has arrived is in the list. Sent again, it is the same command. */
  back() {
    if (!this.#isCut) return;
    this.#isCut = false;
    this.answer.textContent = "";
  }

  #fit() {
    const isMessage = this.what.value === "send";
    this.ofMessage.hidden = !isMessage;
    for (const field of [this.to, this.text]) field.required = isMessage;
  }

  offer() {
    if (!this.form || document.activeElement === this.gateway) return;
    const names = gatewayNames();
    const wanted = this.gateway.value || this.#wanted(names);
    if (wanted && !names.some(([id]) => id === wanted)) names.push([wanted, wanted]);
    if (this.gateway.dataset.version === names.join(" ")) return;
    this.gateway.dataset.version = names.join(" ");
    fill(this.gateway, [["", t("commands.choose")], ...names].map(([id, name]) => make("option", { value: id, text: cut(name, 60), selected: id === wanted })));
  }

  #send(event) {
    event.preventDefault();
    busy(this.button, () => this.#order());
  }

  async #order() {
    this.#keep();
    const command = this.what.value;
    const body = { command, ...(command === "send" ? { to: this.to.value, text: this.text.value } : {}) };
    const said = { gateway: this.gateway.value, body };
    // The id stays until the hub has answered: sent again, also from another view or tab, it is the same command. What was changed meanwhile is another one.
    const { id, ...before } = this.#sent ?? {};
    const sent = { ...said, id: JSON.stringify(before) === JSON.stringify(said) ? id : freshID() };
    // The others do no harm twice, and a message that has no answer stays what it is meanwhile.
    if (command === "send") keepDocument(this.#draft("sent"), sent);
    if (!underWay.has(sent.id)) {
      const path = `/v1/gateways/${encodeURIComponent(sent.gateway)}/commands?wait_s=10`;
      underWay.set(sent.id, order(path, { id: sent.id, ...body }, { patience: 40_000 }).finally(() => underWay.delete(sent.id)));
    }
    await this.#await(sent);
  }

  async #await(sent) {
    this.answer.textContent = t("commands.under-way");
    this.#isCut = false;
    try {
      this.#ended(sent, await underWay.get(sent.id));
    } catch (trouble) {
      if (!trouble.isCut) this.#forget(sent);
      this.#isCut = trouble.isCut;
      this.answer.textContent = trouble.message;
    }
    this.load();
  }

  #forget({ id }) { if (this.#sent?.id === id) keepDocument(this.#draft("sent"), null); }

  /** The hub has it, or has refused it. What is written by now, here or in another view or tab, is another one and stays. */
  #ended(sent, { state, answer }) {
    this.#forget(sent);
    this.answer.textContent = answer?.error ?? t(`commands.${state}`);
    if (state === "refused") return;
    if ((this.gateway.value || sent.gateway) === sent.gateway && this.to.value === sent.body.to && this.text.value === sent.body.text) this.text.value = "";
    if (this.#isDraft(sent)) for (const name of ["gateway", "to", "text"]) keepDraft(this.#draft(name), "");
  }

  /** What has no answer yet may be in the list, where nobody awaits one any more. */
  #find(rows) {
    const sent = this.#sent;
    const row = sent && !underWay.has(sent.id) && rows.find((one) => one.id === sent.id && one.gateway === sent.gateway);
    if (row) this.#ended(sent, row);
  }

  /** A command that was queued or has ended, as the stream tells it. */
  came(row) {
    this.#find([row]);
    if (this.#isLoading) this.#meanwhile.push(row);
    const at = this.#rows.findIndex((one) => idOf(one) === idOf(row));
    if (at >= 0) this.#rows[at] = row;
    else this.#rows.unshift(row);
    if (this.#rows.length > MOST_ROWS) {
      this.#rows.length = PAGE;
      this.load();
    }
    this.#draw();
  }

  async load(isMore = false) {
    if (this.#isLoading) { this.#isStale ||= !isMore; return; }
    this.#isLoading = true;
    try {
      const page = await ask(query("/v1/commands", { limit: PAGE, before: isMore ? this.#next : undefined }));
      this.#find(page.commands);
      const known = new Set(page.commands.map(idOf));
      // What was read before stays behind what is new.
      if (isMore) this.#rows = [...this.#rows, ...page.commands.filter((row) => !this.#rows.some((one) => idOf(one) === idOf(row)))];
      else this.#rows = this.#rows.length > page.commands.length && page.commands.length ? [...page.commands, ...this.#rows.filter((row) => !known.has(idOf(row)) && row.created_at <= page.commands.at(-1).created_at)] : page.commands;
      if (isMore || this.#rows.length === page.commands.length) this.#next = page.next ?? null;
      this.#trouble = null;
    } catch (trouble) {
      this.#trouble = trouble;
    } finally {
      this.#isLoading = false;
      for (const row of this.#meanwhile.splice(0)) this.came(row);
      if (this.#isStale) { this.#isStale = false; this.load(); }
    }
    this.#draw();
  }

  #draw() {
    this.more.hidden = this.#next === null;
    const words = this.#trouble?.message ?? "";
    if (this.failed.textContent !== words) this.failed.textContent = words;
    if (this.#trouble && !this.#rows.length) { fill(this.list); return; }
    const focused = this.list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    fill(this.list, this.#rows.length ? this.#rows.map((one) => make("li", { class: idOf(one) === route.id ? "chosen" : "" },
      make("span", { class: `state-word ${isTrouble(one) ? "bad-words" : ""}`, text: stateWord(one) }),
      make("a", { class: "grow plain-link", href: `/commands/${encodeURIComponent(one.gateway)}/${encodeURIComponent(one.id)}${location.search}` }, make("code", { text: cut(String(one.command ?? ""), 40) }), " ", one.body?.to ? line(String(one.body.to), 60) : null, " ", one.body?.text ? line(String(one.body.text), 120) : null,
        one.answer?.error ? make("span", { class: "bad-words small break" }, " ", line(String(one.answer.error), 200)) : null),
      make("span", { class: "quiet small" }, named(gatewayName(one.gateway)), " · ", named(one.author ?? ""), " · ", when(one.created_at)))) : make("li", { class: "quiet", text: t("commands.none") }));
    if (focused) this.list.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
    this.#showDetails();
  }

  update() {
    this.#fit();
    for (const item of this.list.children) item.classList.toggle("chosen", Boolean(route.id) && item.querySelector("a")?.getAttribute("href")?.startsWith(`/commands/${route.id.split("/").map(encodeURIComponent).join("/")}`));
    this.#showDetails();
  }

  async #showDetails() {
    const id = route.id;
    if (!id || route.view !== "commands") { this.#details = ""; return; }
    let row = this.#rows.find((one) => idOf(one) === id);
    if (!row) {
      const [gateway, ...rest] = id.split("/");
      try {
        const found = await ask(`/v1/gateways/${encodeURIComponent(gateway)}/commands/${encodeURIComponent(rest.join("/"))}`);
        // One by itself is told without what it said: that is in the list alone.
        row = { gateway, body: {}, ...found, author: found.by ?? "" };
      } catch (trouble) { row = { gateway, id: rest.join("/"), trouble }; }
      if (route.id !== id) return;
    }
    const version = JSON.stringify([id, row, row.trouble?.message, gatewayName(row.gateway)]);
    if (version === this.#details) return;
    this.#details = version;
    const fact = (name, value) => (value === null || value === undefined || value === "" ? null : [make("dt", { text: t(name) }), make("dd", {}, value)]);
    const pre = (value) => make("pre", { class: "answer-text", tabindex: 0, text: cut(JSON.stringify(value, null, 2), 8000) });
    this.#shell.showDetails(make("div", { class: "details-inside" },
      make("div", { class: "details-head" }, make("h2", { text: t("commands.one") }), iconButton("close", t("close"), this.#shut)),
      row.trouble ? make("p", { role: "alert", text: row.trouble.status === 404 ? t("commands.gone") : row.trouble.message }) : [
        make("dl", { class: "facts" },
          fact("commands.state", make("span", { class: isTrouble(row) ? "bad-words" : "", text: stateWord(row) })), fact("messages.gateway", make("a", { href: `/fleet/${encodeURIComponent(row.gateway)}` }, named(gatewayName(row.gateway)))),
          fact("commands.author", row.author ? named(row.author) : null), fact("commands.created", row.created_at ? full(row.created_at) : null), fact("commands.ended", row.ended_at ? full(row.ended_at) : null),
          fact("commands.id", make("code", { class: "break", text: cut(String(row.id), 64) }))),
        Object.keys(row.body ?? {}).length ? [make("h3", { text: t("commands.said") }), pre(row.body)] : null,
        row.answer ? [make("h3", { text: t("commands.answer") }), pre(row.answer)] : null,
      ]), this.#shut);
  }
}

function idOf(row) { return `${row.gateway}/${row.id}`; }
function isTrouble(row) { return row.state === "refused" || row.state === "expired"; }
function stateWord(row) { return has(`commands.${row.state}`) ? t(`commands.${row.state}`) : String(row.state); }

/** Who did what, the newest first. */
class Deeds {
  #rows = [];
  #next = null;
  #isLoading = false;

  constructor(place) {
    this.list = make("ul", { class: "hub-list", "aria-label": t("commands.deeds") });
    this.more = make("button", { type: "button", class: "button", text: t("more-of"), hidden: true, on: { click: () => this.load(true) } });
    this.trouble = make("p", { class: "trouble-line", role: "alert" });
    fill(place, this.trouble, this.list, this.more);
    this.load();
    this.timer = setInterval(() => { if (!document.hidden) this.load(); }, 10_000);
  }

  close() { clearInterval(this.timer); }
  came() { this.load(); }

  async load(isMore = false) {
    if (this.#isLoading) return;
    this.#isLoading = true;
    try {
      const page = await ask(query("/v1/audit", { limit: PAGE, before: isMore ? this.#next : undefined }));
      const least = page.audit.at(-1)?.id ?? 0;
      if (isMore) this.#rows = [...this.#rows, ...page.audit];
      else this.#rows = [...page.audit, ...this.#rows.filter((one) => one.id < least)];
      if (isMore || this.#rows.length === page.audit.length) this.#next = page.next ?? null;
      this.trouble.textContent = "";
      this.#draw();
    } catch (trouble) {
      this.trouble.textContent = trouble.message;
    } finally {
      this.#isLoading = false;
    }
  }

  #draw() {
    const version = `${this.#rows[0]?.id} ${this.#rows.length}`;
    if (this.list.dataset.version === version) return;
    this.list.dataset.version = version;
    this.more.hidden = this.#next === null;
    const end = ({ what, detail }) => (what === "person" && detail?.added ? "-added" : ["person", "gateway"].includes(what) && detail?.removed ? "-removed" : "");
    fill(this.list, this.#rows.length ? this.#rows.map((one) => make("li", {},
      make("span", { class: "grow" }, named(one.who), " ", has(`deed.${one.what}${end(one)}`) ? t(`deed.${one.what}${end(one)}`) : cut(String(one.what), 40), " ",
        line(Object.entries(one.detail ?? {}).filter(([name, value]) => !["added", "removed"].includes(name) && (["string", "number", "boolean"].includes(typeof value) || name === "others")).map(([name, value]) => (name === "id" ? "" : name === "others" ? t("seen.more", { count: value.length }) : name === "deleted" ? t("deed.deleted") : String(value))).filter(Boolean).join(" · "), 160)),
      make("span", { class: "quiet small" }, one.gateway ? [make("a", { href: `/fleet/${encodeURIComponent(one.gateway)}` }, named(gatewayName(one.gateway))), " · "] : null, has(`way.${one.way}`) ? t(`way.${one.way}`) : cut(String(one.way), 20), " · ", when(one.at)))) : make("li", { class: "quiet", text: t("deeds.none") }));
  }
}

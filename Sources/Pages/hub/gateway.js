// One gateway beside the fleet: what is known of it, notes to edit, what it heard last.
import { Editable } from "../parts/editable.js";
import { fill, iconButton, make, showTrouble } from "../parts/page.js";
import { busy, refill } from "../parts/held.js";
import { number, volts } from "../parts/numbers.js";
import { when } from "../parts/times.js";
import { cut, line, named } from "../parts/text.js";
import { has, t } from "../parts/words.js";
import { ask, order } from "../stores/api.js";
import { put, remove } from "../stores/change.js";
import { ofDocument } from "../stores/drafts.js";
import { query } from "../stores/query.js";
import { inTurn } from "../stores/turn.js";
import { contactMark } from "./contact.js";
import { fleet, gatewayName, live, needs } from "./live.js";
import { howHeard } from "./words.js";

const MESSAGES = 8;
const NODES = 12;
/** What is stored of a gateway may take a while to delete. */
const REMOVAL_MS = 600_000;
/** A hub keeps no more of one gateway. */
const MOST_NODES = 10_000;

export class GatewayDetails {
  gateway;
  #shell;
  #shut;
  #ends;
  #stamp = null;
  #timer = 0;
  #edits;
  /** The radio that the notes are of. */
  #key = null;
  #isClosed = false;
  /** Places of its radio's contact table: `{used, most}`; `null`: not known. */
  #table = null;
  /** What was refused. */
  #wanting = new Set();

  constructor(gateway, shell, shut) {
    [this.gateway, this.#shell, this.#shut] = [gateway, shell, shut];
    this.facts = make("div", { class: "plain" });
    this.notes = make("section", { class: "notes" });
    this.#edits = new Editable(this.notes, live);
    this.messages = make("section", { class: "plain" });
    this.nodes = make("section", { class: "plain" });
    this.removal = make("section", { class: "plain" });
    this.element = make("div", { class: "details-inside" }, this.facts, this.notes, this.messages, this.nodes, this.removal);
    this.#ends = [live.on("message", (message) => { if (message.heard.some((one) => one.gateway === gateway)) this.#soon(); }), live.on("hello", () => { this.#soon(); this.#loadNodes(); }), live.on("again", () => { for (const load of this.#wanting) { this.#wanting.delete(load); load(); } })];
    this.update();
    this.#loadMessages();
    this.#loadNodes();
  }

  close() {
    this.#isClosed = true;
    for (const end of this.#ends) end();
    this.#edits.close();
    clearTimeout(this.#timer);
  }

  /** A flood of messages is read once. */
  #soon() {
    if (this.#timer) return;
    this.#timer = setTimeout(() => { this.#timer = 0; this.#loadMessages(); }, 1000);
  }

  get #path() { return `/v1/gateways/${encodeURIComponent(this.gateway)}`; }

  update() {
    const row = fleet.rows.get(this.gateway);
    const stamp = row?.stamp ?? (fleet.isLoaded ? "none" : "loading");
    if (stamp === this.#stamp) return;
    this.#stamp = stamp;
    const fact = (name, value) => (value === undefined || value === null || value === "" ? null : [make("dt", { text: t(name) }), make("dd", {}, value)]);
    const plain = (value) => (value ? make("bdi", { text: cut(String(value), 200) }) : null);
    const head = make("div", { class: "details-head" }, make("h2", {}, named(gatewayName(this.gateway))), iconButton("close", t("close"), () => this.#shut()));
    if (!row) {
      fill(this.facts, head, make("p", { class: "quiet", text: fleet.isLoaded ? t("fleet.unknown") : t("loading") }));
      fill(this.notes);
      fill(this.removal);
      this.notes.dataset.version = "";
      return;
    }
    const found = needs(row);
    refill(this.facts, head,
      found.length ? make("ul", { class: "plain" }, found.map((one) => make("li", { class: "bad-words", text: t(`need.${one}-why`) }))) : null,
      row.alerts ? make("p", {}, make("a", { href: `/alerts?gateway=${encodeURIComponent(this.gateway)}`, text: t("alerts.open-count", { count: row.alerts }) })) : null,
      make("div", { class: "row wrap" },
        make("a", { class: "button", href: `/messages?gateway=${encodeURIComponent(row.gateway)}`, text: t("fleet.its-messages") }),
        make("a", { class: "button", href: `/coverage/${encodeURIComponent(row.gateway)}`, text: t("fleet.its-coverage") }),
        this.#shell.mayChange ? make("a", { class: "button", href: `/commands?gateway=${encodeURIComponent(row.gateway)}`, text: t("fleet.command") }) : null,
        make("a", { class: "button", href: `/commands?show=documents&gateway=${encodeURIComponent(row.gateway)}`, text: t("commands.documents") })),
      make("dl", { class: "facts" },
        fact("fleet.gateway", gatewayName(row.gateway).includes(row.gateway) ? null : make("code", { text: cut(row.gateway, 64) })),
        fact("fleet.contact", contactMark(row)), fact("fleet.link-since", row.linked && row.link_since ? when(row.link_since) : null), fact("fleet.seen", when(row.last_seen)),
        fact("fleet.radio", row.radio ? named(row.radio) : null), fact("fleet.model", plain(row.model)), fact("fleet.link", plain(row.link)), fact("fleet.sync", has(`sync.${row.sync}`) ? t(`sync.${row.sync}`) : plain(row.sync)),
        fact("fleet.battery", row.battery_mv ? volts(row.battery_mv) : null), fact("fleet.pending", row.pending ? t("fleet.pending-of", { number: number(row.pending) }) : null),
        fact("fleet.position", row.position ? `${number(row.position.lat, 4)}, ${number(row.position.lon, 4)}` : null),
        fact("fleet.table", this.#table ? t("fleet.table-of", { used: number(this.#table.used), most: number(this.#table.most) }) : null),
        fact("fleet.nodes", row.nodes === undefined ? null : number(row.nodes)), fact("fleet.today", row.messages_today === undefined ? null : number(row.messages_today)), fact("fleet.events", number(row.events ?? 0)),
        fact("fleet.version", plain(row.version)), fact("fleet.error", plain(row.error ?? row.store_error)), fact("fleet.key", row.radio_key ? make("code", { text: cut(row.radio_key, 64) }) : null)));
    this.#drawNotes(row);
    if (this.#shell.mayAdminister && !this.removal.firstChild) this.#drawRemoval();
  }

  // MARK: Removal

  #drawRemoval() {
    const trouble = make("p", { class: "trouble-line", role: "alert" });
    const button = make("button", { type: "button", class: "button danger", text: t("fleet.remove"), on: { click: () => busy(button, async () => {
      const { confirmed } = await import("../shell/dialog.js");
      trouble.textContent = "";
      if (!await confirmed(t("fleet.remove"), t("fleet.remove-why", { name: gatewayName(this.gateway) }), t("fleet.remove"))) return;
      trouble.textContent = t("fleet.removing");
      try {
        await order(this.#path, {}, { method: "DELETE", patience: REMOVAL_MS });
      } catch (error) {
        // What is not there is removed. Without an answer it may be: the fleet tells.
        if (error.status !== 404 || error.isForeign) {
          trouble.textContent = error.message;
          if (error.isCut) fleet.anew();
          return;
        }
      }
      fleet.anew();
      this.#shut();
    }) } });
    fill(this.removal, button, trouble);
  }

  // MARK: Notes

  #drawNotes(row) {
    const version = JSON.stringify([row.name, row.radio, row.note, row.tags, row.radio_key]);
    const values = { alias: row.name && row.name !== row.radio && row.name !== row.gateway ? row.name : "", note: row.note ?? "", tags: (row.tags ?? []).join(", ") };
    if (this.notes.dataset.version === version) return;
    this.notes.dataset.version = version;
    if (this.#edits.isShown && row.radio_key === this.#key) { this.#edits.update(values, (name) => this.#whose(row, name)); return; }
    this.#key = row.radio_key;
    if (!this.#shell.mayChange || !row.radio_key) {
      const shown = [row.note ? make("p", { class: "break" }, make("bdi", { text: cut(row.note, 1000) })) : null, row.tags?.length ? make("p", { class: "row wrap" }, row.tags.map((tag) => make("span", { class: "tag" }, line(tag, 32)))) : null];
      fill(this.notes, row.note || row.tags?.length ? [make("h3", { text: t("fleet.notes") }), shown] : null);
      return;
    }
    fill(this.notes, make("h3", { text: t("fleet.notes") }),
      this.#editable(row, "alias", values.alias, 64), this.#editable(row, "note", values.note, 1000), this.#editable(row, "tags", values.tags, 512));
  }

  /** Who has edited one last: a person's name is told to who looks after people. */
  async #whose(row, name) {
    const beginning = `node/${row.radio_key}/`;
    const { documents } = await ask(query(`${this.#path}/documents`, { after: beginning, limit: 3 }));
    const found = documents.find(({ key }) => key === beginning + name);
    if (!found?.by_hub) return found ? t("edit.at-gateway") : null;
    const { audit } = this.#shell.mayAdminister ? await ask(query("/v1/audit", { limit: 20 })) : { audit: [] };
    const deed = audit.find((one) => one.what === "document" && one.gateway === this.gateway && one.detail?.key === found.key && one.at >= found.updated_at);
    return deed ? t("edit.by", { name: deed.who }) : t("edit.at-hub");
  }

  /** A document of the gateway's own radio. */
  #editable(row, name, value, most) {
    return this.#edits.field(name, { id: `gateway-${name}`, label: t(`fleet.${name}`), value, hint: t(`fleet.${name}-why`), most, draft: () => ofDocument(`${encodeURIComponent(this.gateway)}/node/${row.radio_key}/${name}`, this.#shell.session.person), save: async (given) => {
      const path = `${this.#path}/documents/node/${row.radio_key}/${name}`;
      const told = () => JSON.stringify(fleet.rows.get(this.gateway)?.[name === "alias" ? "name" : name]);
      const before = told();
      const edited = await (given.length ? put(path, { value: given }) : remove(path));
      // What the stream has told meanwhile is newer.
      const now = fleet.rows.get(this.gateway);
      if (now && told() === before) fleet.take({ ...now, ...(name === "alias" ? { name: given || row.radio || this.gateway } : { [name]: given.length ? given : undefined }) });
      return edited.permitted === false ? t("documents.unpermitted", { line: edited.permits }) : null;
    } });
  }

  // MARK: What it heard

  // In turn: an older answer must not take the place of a newer one.
  #loadMessages = inTurn(() => this.#askMessages());
  #loadNodes = inTurn(() => this.#askNodes());

  async #askMessages() {
    try {
      const { messages } = await ask(query("/v1/messages", { gateway: this.gateway, order: "newest", limit: MESSAGES }));
      fill(this.messages, messages.length ? [make("h3", { text: t("fleet.heard-last") }), make("ul", { class: "plain small" }, messages.map((one) => make("li", {},
        make("a", { class: "hit", href: `/messages/${one.position}?gateway=${encodeURIComponent(this.gateway)}` },
          make("span", { class: "hit-head" }, named(one.body.sender_name || t("messages.nobody")), one.body.channel_name ? named(one.body.channel_name, { class: "name quiet" }) : null, when(one.at)),
          make("span", { class: "hit-text" }, line(one.body.text ?? "", 120))))))] : null);
    } catch (trouble) { this.#refused(this.messages, trouble, this.#loadMessages); }
  }

  async #askNodes() {
    try {
      const found = [];
      let after = "";
      do {
        const page = await ask(query(`${this.#path}/contacts`, { after, limit: 1000 }));
        found.push(...page.contacts);
        after = page.next;
        if (this.#isClosed) return;
      } while (after && found.length < MOST_NODES);
      found.sort((a, b) => (b.last_heard ?? 0) - (a.last_heard ?? 0));
      fill(this.nodes, found.length ? [make("h3", { text: t("fleet.nodes-last") }), make("ul", { class: "lines small" }, found.slice(0, NODES).map((node) => make("li", {},
        make("a", { href: `/coverage/${encodeURIComponent(node.key)}` }, named(node.name || node.key.slice(0, 12))),
        make("span", { class: "quiet" }, howHeard(node), " ", node.last_heard ? when(node.last_heard) : null))))] : null);
      await this.#showTable(found, after);
    } catch (trouble) { this.#refused(this.nodes, trouble, this.#loadNodes); }
  }

  /** What was there stays. */
  #refused(place, trouble, load) {
    this.#wanting.add(load);
    if (!place.querySelector("h3")) showTrouble(place, trouble, load);
  }

  /** How full its radio's table is: the radio says its size when it is connected. `more`: not all nodes are among these. */
  async #showTable(nodes, more) {
    const used = nodes.filter((node) => node.on_radio).length;
    let most;
    try {
      const { events: [radio] } = await ask(query(`${this.#path}/events`, { kind: "radio", order: "newest", limit: 1 }));
      most = radio?.body.max_contacts;
    } catch { return; /* it is not shown */ }
    // What a gateway leaves out for its hub, or told before it told all, is no table.
    this.#table = most > 0 && nodes.length && !more && used <= most ? { used, most } : null;
    this.#stamp = null;
    if (!this.#isClosed) this.update();
  }
}

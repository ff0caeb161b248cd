// The radio's channels: joined, created, left; the region of their messages, and whether other gateways get them.
import { fill, make, showTrouble } from "../parts/page.js";
import { busy, refill } from "../parts/held.js";
import { named } from "../parts/text.js";
import { bytesOf } from "../parts/written.js";
import { t } from "../parts/words.js";
import { allRows, ask, order } from "../stores/api.js";
import { freshID } from "../stores/fresh.js";
import { gateway } from "../stores/gateway.js";
import { live } from "../stores/live.js";
import { query } from "../stores/query.js";
import { inTurn } from "../stores/turn.js";
import { confirmed } from "../shell/dialog.js";
import { to } from "../shell/route.js";
import { empty, form, labelled, PATIENCE_MS } from "./form.js";
import { isLink, scanning, shownLink } from "./shared.js";
import { tell, told } from "./marks.js";

/** Bytes of a name in a radio. */
const MOST_BYTES = 31;
/** Eight repeaters are asked one after the other; the pages' host waits no longer. */
const REGIONS_PATIENCE_MS = 200_000;

const plain = { class: "field", autocomplete: "off", autocapitalize: "none", spellcheck: "false" };

function regionWords(region) { return region === "*" ? t("channels.region-none") : region; }

/** What the radio would refuse is said before it is asked. */
function checkName(name) {
  const bytes = bytesOf(name);
  if (bytes > MOST_BYTES) throw new Error(t("channels.too-long", { bytes, most: MOST_BYTES }));
}

export class Channels {
  #ends;
  #isRead = false;
  #isRefused = false;
  #rows = new Map();
  #read = inTurn(() => this.#ask());

  /** `place`: a card. */
  constructor(place) {
    this.place = place;
    this.list = make("ul", { class: "plain" });
    this.none = make("p", { class: "quiet", text: t("channels.none"), hidden: true });
    this.regions = make("datalist", { id: "channel-regions" });
    this.around = make("div", { class: "plain" });
    fill(place, make("h2", { id: "channels-title", text: t("channels.title") }), this.none, this.list, this.regions,
      make("div", { class: "settings-fields" }, this.#joinForm(), this.#newForm()), this.#regionsAround());
    this.#ends = [
      gateway.subscribe(() => this.#suggest()),
      live.on("linked", this.#read),
      live.on("again", () => { if (this.#isRefused) this.#read(); }),
      live.on("journal", ({ kind, body }) => { if (kind === "channel" || kind === "document" && body.key.startsWith("channel/")) this.#read(); }),
    ];
    this.#suggest();
    this.#read();
  }

  close() { for (const end of this.#ends) end(); }

  async #ask() {
    let channels, relayed;
    try {
      [channels, { documents: relayed }] = await Promise.all([allRows("/v1/channels"), ask("/v1/documents?prefix=channel/")]);
    } catch (trouble) {
      this.#isRefused = true;
      // What was shown stays.
      if (!this.#isRead) showTrouble(this.place, trouble, this.#read);
      return;
    }
    [this.#isRead, this.#isRefused] = [true, false];
    showTrouble(this.place, null);
    const relay = new Map(relayed.map((one) => [one.key, one.value]));
    const rows = /** @type {[string, any][]} */ (channels.filter((one) => one.name !== "").map((one) => {
      const id = `${one.channel} ${one.name}`;
      const row = this.#rows.get(id) ?? this.#row(one);
      row.update(one, relay.get(`channel/${one.channel}/relay`));
      return [id, row];
    }));
    this.none.hidden = rows.length > 0;
    const isSame = rows.length === this.#rows.size && rows.every(([id]) => this.#rows.has(id));
    this.#rows = new Map(rows);
    if (!isSame) refill(this.list, rows.map(([, row]) => row.element));
  }

  #suggest() {
    const names = (gateway.status?.radio?.regions ?? []).filter((name) => name !== "*" && !name.startsWith("$"));
    const known = names.join("\n");
    if (this.regions.dataset.known === known) return;
    this.regions.dataset.known = known;
    fill(this.regions, names.map((name) => make("option", { value: name })));
  }

  // MARK: One channel

  #row(first) {
    const digest = first.channel;
    const name = named(first.name);
    const state = make("span", { class: "quiet small" });
    const region = make("input", { ...plain, id: `region-${digest}`, list: "channel-regions", placeholder: t("channels.region-default"), dir: "auto" });
    const relay = make("select", { class: "field", id: `relay-${digest}` },
      ["", "true", "false"].map((value) => make("option", { value, text: t(`channels.relay.${value || "configured"}`) })));
    // What somebody is about to change stays.
    const put = (control, value) => {
      if (control.dataset.before === undefined || control.value === control.dataset.before && control !== document.activeElement) control.value = value;
      control.dataset.before = value;
    };
    const change = (control, what, body) => form(control, labelled(control, t(`channels.${what}`), t(`channels.${what}-why`)), t("settings.set"),
      async () => {
        const given = control.value.trim();
        await order(`/v1/channels/${what}`, { channel: digest, ...(given ? body(given) : {}) }, { patience: PATIENCE_MS });
        // What was typed meanwhile stays.
        if (control.value.trim() === given) control.value = given;
        control.dataset.before = given;
        this.#read();
        return t("saved");
      }, { name: t(`channels.${what}`) });
    const element = make("li", {}, make("details", { class: "more" }, make("summary", {}, make("span", {}, name, " ", state)),
      make("div", { class: "settings-fields" },
        change(region, "region", (given) => ({ region: given })), change(relay, "relay", (given) => ({ value: given === "true" }))),
      make("div", { class: "row wrap" }, make("a", { class: "button", href: to("conversations", `channel:${digest}`), text: t("channels.open") }),
        make("button", { type: "button", class: "button danger", text: t("channels.leave"), data: { leaves: first.name },
          on: { click: (event) => this.#leave(event.currentTarget, digest, first.name) } }))));
    return { element, update(one, value) {
      state.textContent = [regionWords(one.region ?? ""), value === undefined ? "" : t(`channels.relayed.${value}`)].filter(Boolean).join(" · ");
      put(region, one.region ?? "");
      put(relay, value === undefined ? "" : String(value));
    } };
  }

  async #leave(button, digest, name) {
    if (!await confirmed(t("channels.leave-title", { name }), t("channels.leave-why"), t("channels.leave"))) return;
    await busy(button, async () => {
      try {
        await order(query("/v1/channels/remove", { channel: digest }), {}, { patience: PATIENCE_MS });
        told(t("channels.left", { name }));
      } catch (trouble) { tell(trouble); }
      this.#read();
    });
  }

  // MARK: Further ones

  #joinForm() {
    const name = make("input", { ...plain, id: "channel-name", required: true, dir: "auto" });
    const key = make("input", { ...plain, id: "channel-key", dir: "ltr" });
    const join = async () => {
      const sent = [name.value, key.value];
      const [channel, secret] = [name.value.trim(), key.value.replace(/\s/g, "")];
      if (!isLink(channel)) checkName(channel);
      else if (!/^meshcore:\/\/channel\//i.test(channel)) throw new Error(t("link.of-node"));
      const answer = await order("/v1/channels/add", { channel, ...(secret ? { secret } : {}) }, { patience: PATIENCE_MS });
      [name, key].forEach((control, at) => empty(control, sent[at]));
      this.#read();
      return t("channels.joined", { name: answer.name, slot: answer.slot });
    };
    return make("section", { class: "setting plain", "aria-labelledby": "channel-join" }, make("h3", { id: "channel-join", text: t("channels.join") }),
      form(name, [labelled(name, t("channels.what"), t("channels.what-why")), scanning((link) => { name.value = link; }),
        labelled(key, t("channels.key"), t("channels.key-why"))], t("channels.join-verb"), join));
  }

  #newForm() {
    const name = make("input", { ...plain, id: "channel-new", required: true, dir: "auto" });
    const link = make("div", { class: "plain" });
    let tried = "";
    // The same until the radio has it: after an answer that was lost, the channel may be there already.
    let secret = freshID();
    const create = async () => {
      const sent = name.value;
      const channel = sent.trim();
      checkName(channel);
      let answer;
      // Another name is another channel: with the same key, each would read the other.
      if (tried && tried !== channel) secret = freshID();
      tried = channel;
      try {
        answer = await order("/v1/channels/add", { channel, secret }, { patience: PATIENCE_MS });
      } catch (trouble) {
        if (trouble.isCut || trouble.status === 504) trouble.message = `${trouble.message} ${t("channels.unsure")}`;
        throw trouble;
      }
      const region = answer.region ? `&region_scope=${encodeURIComponent(answer.region)}` : "";
      const written = `meshcore://channel/add?name=${encodeURIComponent(channel)}&secret=${secret}${region}`;
      secret = freshID();
      empty(name, sent);
      fill(link, make("p", { text: t("channels.new-done", { name: answer.name }) }), shownLink(written),
        make("div", { class: "row" },
          make("button", { type: "button", class: "button", text: t("channels.hide"), on: { click: () => { fill(link); name.focus(); } } })));
      this.#read();
      return t("channels.joined", { name: answer.name, slot: answer.slot });
    };
    return make("section", { class: "setting plain", "aria-labelledby": "channel-create" }, make("h3", { id: "channel-create", text: t("channels.new") }),
      form(name, labelled(name, t("nodes.name"), t("channels.new-why", { most: MOST_BYTES })), t("channels.new-verb"), create), link);
  }

  #regionsAround() {
    const button = make("button", { type: "button", class: "button", text: t("channels.regions"), on: { click: () => busy(button, async () => {
      fill(this.around, make("p", { class: "quiet", role: "status", text: t("ask.asked") }));
      try {
        const { repeaters } = await order("/v1/radio/regions", {}, { patience: REGIONS_PATIENCE_MS });
        const told = (one) => (one.error ? make("span", { class: "bad-words", lang: "en", text: one.error })
          : make("span", { class: "quiet", text: (one.carries ?? []).map(regionWords).join(", ") || "–" }));
        fill(this.around, repeaters.length ? make("ul", { class: "plain lines" }, repeaters.map((one) => make("li", {}, named(one.name), told(one))))
          : make("p", { class: "quiet", text: t("channels.regions-none") }));
      } catch (trouble) {
        fill(this.around, make("p", { class: "bad-words", role: "alert", text: trouble.message }));
      }
    }) } });
    return make("div", { class: "plain" }, make("div", { class: "row wrap" }, button),
      make("p", { class: "quiet small", text: t("channels.regions-why") }), this.around);
  }
}

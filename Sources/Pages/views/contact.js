// A node as a contact of the radio: added, removed, and handed on to others as a link or by its advert.
import { coded, fill, make } from "../parts/page.js";
import { busy } from "../parts/held.js";
import { KINDS } from "../parts/kinds.js";
import { t } from "../parts/words.js";
import { ask, order } from "../stores/api.js";
import { nodeName } from "../stores/nodes.js";
import { query } from "../stores/query.js";
import { confirmed, openDialog } from "../shell/dialog.js";
import { route, to } from "../shell/route.js";
import { form, labelled, PATIENCE_MS } from "./form.js";
import { told } from "./marks.js";
import { scanning, shownLink } from "./shared.js";

/** Buttons that change the radio's contacts, or hand the node on. Made once for a node: what they bring redraws its details, and their words stay. */
export function contactActions(key) {
  let node = null;
  const state = make("div", { class: "plain", role: "status" });
  const carry = async (doing) => {
    fill(state, make("p", { class: "small quiet", text: t("loading") }));
    try {
      const done = await doing();
      fill(state, typeof done === "string" ? make("p", { class: "small good-words", text: done }) : done);
    } catch (trouble) {
      fill(state, make("p", { class: "small bad-words", text: trouble.message, lang: trouble.answer?.error ? "en" : null }),
        trouble.remedy ? make("p", { class: "quiet small", lang: "en" }, coded(trouble.remedy)) : null);
    }
  };
  const does = (name, doing, kind = "") => make("button", { type: "button", class: `button small ${kind}`, text: t(`contact.${name}`), data: { contact: name },
    on: { click: (event) => busy(event.currentTarget, () => carry(doing)) } });
  const post = (name) => order(query(`/v1/contacts/${name}`, { contact: key }), {}, { patience: PATIENCE_MS });
  const add = does("add", async () => {
    await order("/v1/contacts/add", { contact: key }, { patience: PATIENCE_MS });
    return t("contact.added");
  });
  const share = does("share", async () => {
    await post("share");
    return t("contact.shared");
  });
  const link = does("link", async () => shownLink((await ask(query("/v1/contacts/export", { contact: key }), { patience: PATIENCE_MS })).link));
  const remove = does("remove", async () => {
    if (!await confirmed(t("contact.remove-title", { name: nodeName(node) }), t("contact.remove-why"), t("contact.remove-verb"))) return "";
    await post("remove");
    return t("contact.removed");
  }, "danger");
  return {
    element: make("div", { class: "plain" }, make("div", { class: "row wrap" }, add, share, link, remove), state),
    /** What can be done with the node as it is now. */
    show(shown) {
      node = shown;
      const held = [add, share, link, remove].find((one) => one === document.activeElement);
      add.hidden = node.on_radio;
      remove.hidden = share.hidden = link.hidden = !node.on_radio;
      // The one that was pressed may be gone with what it did.
      if (held?.hidden) (node.on_radio ? link : add).focus();
    },
  };
}

/** The link of this gateway's own radio, for others to add it. `isWanted()`: whether one still waits for it: a radio answers slowly. */
export async function showOwnLink(isWanted) {
  const { link } = await ask("/v1/contacts/export", { patience: PATIENCE_MS });
  if (!isWanted()) return;
  openDialog(t("contact.own"), make("p", { class: "quiet small", text: t("contact.own-why") }), shownLink(link));
}

/** Asks for a link, or a key with a name, and opens the node that it is of. */
export function openAdding() {
  const plain = { class: "field", autocomplete: "off", autocapitalize: "none", spellcheck: "false" };
  const link = make("input", { ...plain, id: "contact-link", required: true, dir: "ltr", on: { input: () => look() } });
  const name = make("input", { ...plain, id: "contact-name", dir: "auto" });
  const type = make("select", { class: "field", id: "contact-type" }, KINDS.map((kind) => make("option", { value: kind, text: t(`kind.${kind}`) })));
  const more = make("div", { class: "plain", hidden: true }, labelled(name, t("nodes.name"), t("contact.name-why")), labelled(type, t("air.kind")));
  const isKey = () => /^[0-9a-f]{64}$/i.test(link.value.trim());
  // A link has both in it.
  const look = () => { more.hidden = !isKey(); };
  const put = (given) => {
    link.value = given;
    look();
  };
  const rows = [labelled(link, t("contact.what"), t("contact.what-why")), scanning(put), more];
  const dialog = openDialog(t("contact.new"), form(link, rows, t("contact.new-verb"), async () => {
    const given = link.value.trim();
    if (/^meshcore:\/\/channel\//i.test(given)) throw new Error(t("link.of-channel"));
    let key = given.toLowerCase();
    if (isKey()) await order("/v1/contacts/add", { key, name: name.value.trim(), type: type.value }, { patience: PATIENCE_MS });
    else ({ key } = await order("/v1/contacts/import", { link: given }, { patience: PATIENCE_MS }));
    // Who has closed it meanwhile is elsewhere, and stays there.
    if (!dialog.open) { told(t("contact.added")); return ""; }
    dialog.close();
    route.go(to("nodes", key));
    return t("contact.added");
  }));
  link.focus();
}

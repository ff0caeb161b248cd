// Whom messages concern: the level of a conversation, and blocked senders.
import { busy, refill } from "../parts/held.js";
import { coded, fill, make, showTrouble } from "../parts/page.js";
import { named } from "../parts/text.js";
import { t } from "../parts/words.js";
import { allRows, order } from "../stores/api.js";
import { drop } from "../stores/keeping.js";
import { conversations } from "../stores/conversations.js";
import { live } from "../stores/live.js";
import { form } from "./form.js";

const LEVELS = ["all", "mentions", "direct", "none"];

/** The level of a conversation. `update()`: it may be another by now; what somebody is about to change stays. */
export function levelOf(id) {
  const select = make("select", { class: "field", id: "level", "aria-describedby": "level-why" },
    LEVELS.map((value) => make("option", { value, text: t(`level.${value}`) })));
  const why = make("p", { class: "quiet small", id: "level-why", text: t("level.why") });
  let before = null;
  const element = form(select, [make("label", { for: "level", text: t("level.title") }), select, why], t("level.set"), async () => {
    const level = select.value;
    await order("/v1/conversations/level", { conversation: id, level });
    before = level;
    conversations.update(id, { level, muted: level === "none" });
    return t("saved");
  });
  const update = () => {
    const { level = "all" } = conversations.get(id) ?? {};
    if (before !== null && (select.value !== before || select === document.activeElement)) return;
    select.value = before = level;
  };
  update();
  return { element, update };
}

/** Blocks a sender or, if that is done, unblocks it. `sender`: as a request names it. `changed()`: what is shown of it is old. */
export function blockButton(sender, isBlocked, changed, name) {
  const state = make("p", { class: "small bad-words", role: "alert" });
  const verb = t(isBlocked ? "block.undo" : "block.verb");
  const change = (event) => busy(event.currentTarget, async () => {
    fill(state);
    try {
      await order(`/v1/blocks/${isBlocked ? "remove" : "add"}`, sender);
      changed();
      drop((path) => path.startsWith("/v1/messages"));
      // The rows of messages say it.
      live.tell("afresh");
    } catch (trouble) {
      fill(state, make("span", { text: trouble.message, lang: trouble.answer?.error ? "en" : null }),
        trouble.remedy ? make("span", { lang: "en" }, " ", coded(trouble.remedy)) : null);
    }
  });
  const button = make("button", {
    type: "button", class: "button", text: verb, "aria-label": name ? `${verb}: ${name}` : null, data: { does: "block" }, on: { click: change },
  });
  return make("div", { class: "plain" }, make("div", { class: "row" }, button), state);
}

/** How the sender of a message is blocked: on a channel, only by its name there. Nothing: it names none. */
export function senderOf(row) {
  if (row.kind === "channel") return row.sender_name ? { whom: row.sender_name, channel: row.channel } : null;
  const whom = row.kind === "direct" ? row.sender : row.kind === "room" ? row.author : null;
  return whom ? { whom } : null;
}

/** What is blocked, asked for, and drawn by `draw(blocks, again)`. */
function asked(draw) {
  const place = make("div", { class: "plain" });
  const again = async () => {
    try {
      refill(place, draw(await allRows("/v1/blocks"), again));
    } catch (trouble) { showTrouble(place, trouble, again); }
  };
  again();
  return place;
}

/** Of a node. */
export function nodeBlock(key) {
  return asked((blocks, again) => {
    const isBlocked = blocks.some((one) => one.key && key.startsWith(one.key));
    return [blockButton({ whom: key }, isBlocked, again), make("p", { class: "quiet small", text: t(isBlocked ? "block.is" : "block.why") })];
  });
}

/** The names that are blocked on a channel. */
export function channelBlocks(channel) {
  return asked((blocks, again) => {
    const here = blocks.filter((one) => one.channel === channel);
    return here.length ? [make("h3", { text: t("block.title") }), make("ul", { class: "plain lines" }, here.map(({ name }) =>
      make("li", {}, named(name), blockButton({ whom: name, channel }, true, again, name))))] : null;
  });
}

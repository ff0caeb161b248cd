// What is noticed about the messages of a chat, beside their day: which one an answer may be about, and that somebody else has our radio's name. Loaded
// behind the chat.
import { make } from "../parts/page.js";
import { gist } from "../parts/text.js";
import { isReaction } from "../parts/author.js";
import { needWords, t } from "../parts/words.js";
import { allRows } from "../stores/api.js";
import { compare } from "../stores/cursor.js";
import { gateway } from "../stores/gateway.js";
import { query } from "../stores/query.js";
import { to } from "../shell/route.js";
import { showDay } from "./day.js";
import { tell } from "./marks.js";

/** An answer names somebody first. MeshCore One adds the first letters of what it is about, MeshCore Open a number to the name. */
const ANSWER = /^@\[([^\]\n]{1,64}?)(?:#\d{10,16})?\](?:\s*\n>([^\n]{1,64}?)(?:\.\.|…)?\n)?/;

/** So far back somebody's message is looked for. */
const [PAGE, PAGES] = [200, 5];

function nameOf(row) { return row.direction === "sent" ? gateway.name : row.author_name ?? row.sender_name; }

/** What `row` may be about: the newest earlier message of the one whom it names, with these letters if it has some; `null`: none is found. */
async function aimOf(row, chat, id) {
  const [, name, letters] = ANSWER.exec(row.text);
  // Reactions, and what a command line wrote, are not among the rows of a chat: nobody can be led to one.
  const isEarlier = (one) => compare(one.cursor, row.cursor) < 0 && one.text !== undefined && nameOf(one) === name && one.kind !== "cli" && !isReaction(one);
  let [rows, newest] = [chat.rows, null];
  for (let page = 0; ; page += 1) {
    newest ??= rows.findLast(isEarlier) ?? null;
    const found = letters ? rows.findLast((one) => isEarlier(one) && one.text.startsWith(letters)) : newest;
    if (found || page === PAGES || (page ? rows.length < PAGE : !chat.hasOlder)) return found ?? newest;
    rows = await allRows(query("/v1/messages", { conversation: id, direction: "both", limit: PAGE, before: rows[0].cursor }));
  }
}

/** At the messages of an open chat, with those that are read of it. `show`: goes to one. Ends when they leave the page. */
export async function notes({ id, list, scroller }, chat, show) {
  await needWords("views");
  const { inside } = list;
  showDay(scroller, list);
  const follow = async (event, row) => {
    event.preventDefault();
    try {
      const aim = await aimOf(row, chat, id);
      if (!inside.isConnected) return;
      if (aim) show(aim.cursor); else tell({ message: t("note.none") });
    } catch (trouble) { tell(trouble); }
  };
  const note = (article) => {
    const row = chat.find(article.dataset?.cursor);
    if (!row) return;
    const isOthers = row.direction === "received" && row.kind === "channel" && gateway.name && gist(row.sender_name ?? "") === gist(gateway.name);
    const head = article.querySelector(".message-head");
    if (isOthers && !head.querySelector(".not-ours")) {
      // On a narrow screen the name would be cut.
      head.style.flexWrap = "wrap";
      head.append(make("span", { class: "not-ours bad-words small", title: t("note.not-ours-why"), text: t("note.not-ours") }));
    }
    const name = ANSWER.test(row.text ?? "") ? article.querySelector(".written > bdi.mention:first-child") : null;
    name?.replaceWith(make("a", {
      class: name.className, href: to("conversations", id), title: t("note.answer"), on: { click: (event) => follow(event, row) },
    }, make("bdi", { text: name.textContent })));
  };
  const all = () => { for (const one of inside.children) note(one); };
  new MutationObserver((changes) => { for (const { addedNodes } of changes) for (const one of addedNodes) note(one); }).observe(inside, { childList: true });
  const end = gateway.subscribe(() => { if (inside.isConnected) all(); else end(); });
  all();
}

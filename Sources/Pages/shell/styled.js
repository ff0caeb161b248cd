// What something needs before it is shown: its module, its style, its words. The first view has its own; the rest comes with whatever opens it.
import { fileOf } from "../first.js";
import { make } from "../parts/page.js";
import { needWords } from "../parts/words.js";

/** Which catalogues, besides the first: a chat, a search and dialogs need no words of the views. */
const WORDS = { later: ["more"], chat: ["more"], hub: ["more", "hub-views"] };
const STYLES = { hub: "hub/views" };

const styles = new Map();

/** Without it what it is for is plain, and works. */
function style(name) {
  if (!styles.has(name)) {
    const link = make("link", { rel: "stylesheet", href: fileOf(`${name}.css`) });
    document.head.append(link);
    styles.set(name, new Promise((resolve) => { link.addEventListener("load", resolve); link.addEventListener("error", resolve); }));
  }
  return styles.get(name);
}

/** The module, once its drawings, its style (`views/NAME.css`; `later`: only what all have in common; `hub`: of the hub's views) and its words are there. */
export async function styled(name, module) {
  const wanted = [module, import("../parts/drawings.js"), style("later"), ...(WORDS[name] ?? ["more", "views"]).map(needWords)];
  if (name !== "later") wanted.push(style(STYLES[name] ?? `views/${name}`));
  await Promise.all(wanted);
  return module;
}

// What something needs before it is shown: its module, its style, its words. The first view has its own; the rest comes with whatever opens it.
import { make } from "../parts/page.js";
import { needWords } from "../parts/words.js";

/** Which catalogues, besides the first: a chat, a search and dialogs need no words of the views. */
const WORDS = { later: ["more"], chat: ["more"], hub: ["more", "hub-views"] };
const STYLES = { hub: "hub/views" };

const styles = new Map();

/** Without it what it is for is plain, and works. */
export function style(href) {
  if (!styles.has(href)) {
    const link = make("link", { rel: "stylesheet", href });
    document.head.append(link);
    styles.set(href, new Promise((resolve) => { link.addEventListener("load", resolve); link.addEventListener("error", resolve); }));
  }
  return styles.get(href);
}

/** The module, once its style (`views/NAME.css`; `later`: only what all have in common; `hub`: of the hub's views) and its words are there. */
export async function styled(name, module) {
  const wanted = [style("/pages/later.css"), ...(WORDS[name] ?? ["more", "views"]).map(needWords)];
  if (name !== "later") wanted.push(style(`/pages/${STYLES[name] ?? `views/${name}`}.css`));
  await Promise.all(wanted);
  return module;
}

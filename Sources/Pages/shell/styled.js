// What a view needs before it is shown: its module, its style, its words.
import { make } from "../parts/page.js";
import { needWords } from "../parts/words.js";

/** The module, once its style (`views/NAME.css`) is there, and the words of the views, unless it is a conversation's. */
export async function styled(name, module) {
  const words = name === "chat" ? null : needWords();
  const href = `/pages/views/${name}.css`;
  if (!document.querySelector(`link[href="${href}"]`)) {
    const link = make("link", { rel: "stylesheet", href });
    document.head.append(link);
    // Without it the view is plain, and works.
    await new Promise((resolve) => { link.addEventListener("load", resolve); link.addEventListener("error", resolve); });
  }
  await words;
  return module;
}

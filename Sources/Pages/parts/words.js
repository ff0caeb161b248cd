// What the pages say, in the reader's language. Catalogues are in languages/, listed in languages/index.js: two files each, of which the
// second, NAME-views.js, is read with the first view that is no conversation.
import languages from "../languages/index.js";

let catalogue = {};
let fallback = {};
let rules = new Intl.PluralRules("en");

/** The language of numbers, times and words. */
export let language = "en";

const KEPT = "meshpost.language";

/** Which catalogue: what was chosen here, else the first of the browser's that there is. */
function wanted() {
  const chosen = localStorage.getItem(KEPT);
  if (chosen && languages[chosen]) return chosen;
  for (const one of navigator.languages ?? []) {
    const plain = one.toLowerCase().split("-")[0];
    if (languages[plain]) return plain;
  }
  return "en";
}

export async function loadWords() {
  language = wanted();
  const own = await import(`../languages/${language}.js`);
  catalogue = { ...own.default.words };
  // A catalogue that does not say that it has all words has English ones behind it.
  if (!own.default.isWhole) fallback = { ...(await import("../languages/en.js")).default.words };
  // Numbers and times follow the region that the browser names, if it names one of this language.
  const region = (navigator.languages ?? []).find((one) => one.toLowerCase().split("-")[0] === language);
  locale = region ?? language;
  rules = new Intl.PluralRules(language);
  document.documentElement.lang = language;
  document.documentElement.dir = own.default.direction ?? "ltr";
}

let more = null;

/** The words of the other views. */
export function needWords() {
  more ??= (async () => {
    Object.assign(catalogue, (await import(`../languages/${language}-views.js`)).default);
    if (Object.keys(fallback).length) Object.assign(fallback, (await import("../languages/en-views.js")).default);
  })();
  return more;
}

/** Words of others, such as the hub's views. */
export function addWords(words) { Object.assign(catalogue, words); }

/** For `Intl`. */
export let locale = "en";

export function chooseLanguage(code) {
  localStorage.setItem(KEPT, code);
  location.reload();
}

/** The words by their name. `{x}` in them is the value x; where there are plural forms, `count` decides. */
export function t(name, values = {}) {
  let words = catalogue[name] ?? fallback[name] ?? name;
  if (typeof words === "object") words = words[rules.select(Number(values.count))] ?? words.other;
  return words.replace(/\{(\w+)\}/g, (whole, key) => (key in values ? String(values[key]) : whole));
}

/** As `t`, with nodes as values: a list of strings and nodes, in the language's order. */
export function tn(name, values) {
  let words = catalogue[name] ?? fallback[name] ?? name;
  if (typeof words === "object") words = words[rules.select(Number(values.count))] ?? words.other;
  return words.split(/(\{\w+\})/).map((part) => {
    const key = /^\{(\w+)\}$/.exec(part)?.[1];
    return key && key in values ? values[key] : part;
  });
}

/** Whether the catalogue has it: for words that the gateway has for something. */
export function has(name) {
  return name in catalogue || name in fallback;
}

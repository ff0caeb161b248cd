// What the pages say, in the reader's language: catalogues of languages/. What is not of the first view is read with what needs it:
// LANGUAGE-more.js (chats, search, dialogs), LANGUAGE-views.js.
import { fileOf, language as chosen } from "../first.js";

let catalogue = { __proto__: null };
let fallback = { __proto__: null };
let rules = new Intl.PluralRules("en");

/** The language of numbers, times and words. */
export let language = "en";

const wordsIn = (name) => import(fileOf(`languages/${name}.js`));
/** A hub's own catalogue has those words, too. Packed pages have them in this file (`deploy/pages/pack` sets WORDS). */
const firstIn = async (name) => (typeof WORDS === "undefined" ? (await wordsIn(document.documentElement.dataset.host === "hub" ? `${name}-hub` : `${name}-gateway`)).default : WORDS[name]);

export async function loadWords() {
  language = chosen;
  const own = await firstIn(language);
  catalogue = { __proto__: null, ...own.words };
  // A catalogue that does not say that it has all words has English ones behind it.
  if (!own.isWhole) fallback = { __proto__: null, ...(await firstIn("en")).words };
  // Numbers and times follow the region that the browser names, if it names one of this language.
  const region = (navigator.languages ?? []).find((one) => one.toLowerCase().split("-")[0] === language);
  locale = region ?? language;
  rules = new Intl.PluralRules(language);
  document.documentElement.lang = language;
  document.documentElement.dir = own.direction ?? "ltr";
}

const needed = new Map();

/** Further words, of `languages/LANGUAGE-NAME.js`. */
export function needWords(name) {
  if (!needed.has(name)) {
    needed.set(name, (async () => {
      Object.assign(catalogue, (await wordsIn(`${language}-${name}`)).default);
      if (Object.keys(fallback).length) Object.assign(fallback, (await wordsIn(`en-${name}`)).default);
    })().catch((error) => { needed.delete(name); throw error; }));
  }
  return needed.get(name);
}

/** For `Intl`. */
export let locale = "en";

const made = new Map();

/** One of `Intl`, in the language of numbers and times. They are costly to make, and few. */
export function formatter(Kind, options) {
  const key = Kind.name + locale + JSON.stringify(options);
  if (!made.has(key)) made.set(key, new Kind(locale, options));
  return made.get(key);
}

function wordsOf(name, { count = undefined }) {
  const words = catalogue[name] ?? fallback[name] ?? name;
  return typeof words === "object" ? words[rules.select(Number(count))] ?? words.other : words;
}

/** A text of others among our words: where it runs from right to left, that ends with it. */
export function isolated(text) {
  const words = String(text).replace(/[\u202a-\u202e\u2066-\u2069]/g, "");
  return /[\u0590-\u08ff\ufb1d-\ufefc]/.test(words) ? `\u2068${words}\u2069` : words;
}

/** The words by their name. `{x}` in them is the value x; where there are plural forms, `count` decides. */
export function t(name, values = {}) {
  return wordsOf(name, values).replace(/\{(\w+)\}/g, (whole, key) => (key in values ? isolated(values[key]) : whole));
}

/** As `t`, with nodes as values: a list of strings and nodes, in the language's order. */
export function tn(name, values) {
  return wordsOf(name, values).split(/(\{\w+\})/).map((part) => {
    const key = /^\{(\w+)\}$/.exec(part)?.[1];
    return key && key in values ? values[key] : part;
  });
}

/** Whether the catalogue has it: for words that the gateway has for something. */
export function has(name) {
  return name in catalogue || name in fallback;
}

// What an alert says, in the reader's language. Gateways and hubs carry it in English, made of a form and values: languages/en-alerts.js has the forms, the
// file of the reader's language the same ones in its words. What has no form, as a newer gateway may say it, is shown as it was carried.
import { fileOf, language } from "../first.js";
import { number, span, volts } from "./numbers.js";
import { make } from "./page.js";
import { cut } from "./text.js";

/** More than any alert has, and as many forms as are tried for one: what others write costs no more. */
const [LONGEST, MOST_TRIES] = [4000, 500];

/** Of each rule: forms in English, each with the same one in the reader's language. */
const forms = await (async () => {
  try {
    const [own, carried] = await Promise.all([language, "en"].map(async (one) => (await import(fileOf(`languages/${one}-alerts.js`))).default));
    const all = Object.entries(carried).map(([name, form]) => ({ rule: name.split(".")[0], form: parts(form), words: parts(own[name] ?? form) }));
    return Map.groupBy(all, (one) => one.rule);
  } catch {
    // A language that has none, or a line that is cut: alerts are shown as they were carried.
    return new Map();
  }
})();

/** Words and names of values, by turns. */
function parts(form) { return form.split(/\{(\w+)\}/); }

const SECONDS = { d: 86_400, h: 3600, m: 60, s: 1 };
const carried = (value) => make("bdi", { text: cut(value, 600), lang: "en" });

/** What becomes of a value, by its name; `null`: it is none. Other names: as it is. English keeps the words that were carried. */
const KINDS = {
  count: (value) => (/^\d{1,15}$/.test(value) ? language === "en" ? value : number(Number(value)) : null),
  volts: (value) => (/^\d{1,3}\.\d{1,3} V$/.test(value) ? language === "en" ? value : volts(Math.round(parseFloat(value) * 1000)) : null),
  time(value) {
    const [, count, unit, minutes = "0"] = /^(\d{1,10}) (days?|hours?|minutes?|seconds?|h|min|s)(?: (\d{1,2}) min)?$/.exec(value) ?? [];
    return count ? language === "en" ? value : span(Number(count) * SECONDS[unit[0]] + Number(minutes) * 60) : null;
  },
  english: carried,
  own: (value, of) => spoken(of.rule, value, of),
  some: (value, of) => spoken(of.rule, value, of) ?? carried(value),
  why: (value, of) => spoken("why", value, of) ?? carried(value),
  what: (value, of) => spoken("what", value, of),
  gateway: (value, of) => make("bdi", { text: cut(of.gateway(value), 64) }),
};

const kindOf = (name) => KINDS[name.replace(/\d+$/, "")] ?? ((value) => make("bdi", { text: cut(value, 600) }));

/** Nodes and strings of what an alert says. `gateway`: what a gateway is called, by its id. */
export function sentence({ rule, text }, gateway = (id) => id) {
  const words = String(text ?? "");
  return (words.length <= LONGEST ? spoken(rule, words, { rule, gateway, tries: 0 }) : null) ?? carried(words);
}

function spoken(rule, text, of) {
  // What holds for all rules is said around what one of them says.
  for (const { form, words } of [...(rule === of.rule ? forms.get("any") ?? [] : []), ...(forms.get(rule) ?? [])]) {
    of.tries += 1;
    if (of.tries > MOST_TRIES) return null;
    const found = valuesOf(form, text);
    if (!found) continue;
    const said = new Map();
    for (const [name, value] of found) said.set(name, kindOf(name)(value, of));
    if (![...said.values()].includes(null)) return words.flatMap((one, index) => (index % 2 ? said.get(one) : one));
  }
  return null;
}

/** What stands for the values of a form; `null`: the text has another one. Words between two values are taken where they come first, and before a last number
 *  where they come last: nothing is tried twice. */
function valuesOf(form, text) {
  const end = text.length - form.at(-1).length;
  if (!text.startsWith(form[0]) || !text.endsWith(form.at(-1)) || form.length === 1 && text !== form[0]) return null;
  const found = [];
  let at = form[0].length;
  for (let index = 1; index < form.length; index += 2) {
    const next = form[index + 1];
    const isLast = index + 2 === form.length;
    const isBeforeLast = index + 4 === form.length && /^(count|time|volts)/.test(form[index + 2]);
    const between = text.slice(at, Math.max(at, end));
    const length = isLast ? end - at : isBeforeLast ? between.lastIndexOf(next) : between.indexOf(next);
    if (length < 1) return null;
    found.push([form[index], text.slice(at, at + length)]);
    at += length + next.length;
  }
  return found;
}

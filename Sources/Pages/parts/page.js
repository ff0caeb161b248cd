// Building the page. There is one way from data into it: text nodes and attributes that are named here. No markup is ever made of data.
import { t } from "./words.js";

/** An element. `attributes`: `class`, `text`, `on` ({event: function}), `data` ({name: value}), else attributes by their name;
 *  `null`, `undefined` and `false` leave one out. `children`: nodes, strings (as text), lists of both, or nothing. */
export function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  set(element, attributes);
  append(element, children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** As `make`, for drawings. */
export function draw(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  set(element, attributes);
  append(element, children);
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "on") for (const [event, heard] of Object.entries(value)) element.addEventListener(event, heard);
    else if (name === "data") for (const [key, word] of Object.entries(value)) { if (word !== undefined && word !== null) element.dataset[key] = word; }
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
}

function append(element, children) {
  for (const child of children.flat(4)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    element.append(child);
  }
}

/** Puts other children in the place of those that are there. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

// Drawn by us on a grid of 24: lines of 2, round ends. Further ones: drawings.js.
export const shapes = {
  chats: "M4 5h16v11H9l-5 4z", nodes: "M12 4v6m0 0-6 8m6-8 6 8M12 4h.01M6 18h.01M18 18h.01", map: "M4 6l5-2 6 2 5-2v14l-5 2-6-2-5 2zM9 4v14M15 6v14",
  air: "M3 9c3-3 6-3 9 0s6 3 9 0M3 16c3-3 6-3 9 0s6 3 9 0", gateway: "M5 14h14v5H5zM8 16.5h.01M12 14V9M8 9a4 4 0 0 1 8 0M5 9a7 7 0 0 1 14 0",
  search: "M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM20 20l-4.5-4.5", clock: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 8v4l3 2",
  arrow: "M5 12h13M13 7l5 5-5 5", more: "M6 12h.01M12 12h.01M18 12h.01", bang: "M12 5v9M12 18.5h.01",
  at: "M15.5 12a3.5 3.5 0 1 1-7 0 3.5 3.5 0 0 1 7 0zm0 0v1.5a2.5 2.5 0 0 0 5 0V12a8.5 8.5 0 1 0-3.5 6.9",
  muted: "M7 10a5 5 0 0 1 10 0v3l2 3H9M10 20h4M4 4l16 16", bell: "M7 10a5 5 0 0 1 10 0v3l2 3H5l2-3zM10 20h4",
  antenna: "M12 12v8M9 20h6M7.5 7.5a6 6 0 0 0 0 9M16.5 7.5a6 6 0 0 1 0 9M5 5a10 10 0 0 0 0 14M19 5a10 10 0 0 1 0 14",
};

/** What points along the line is mirrored where lines run from right to left; a tick, a clock or a star is not. */
const ALONG = new Set(["chats", "back", "details", "send", "reply", "arrow", "copy"]);

/** A drawing of ours, which says nothing by itself: what it means is said in words beside it, or as a label of its button. */
export function icon(name) {
  return draw("svg", { class: ALONG.has(name) ? "icon along" : "icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" }, draw("path", { d: shapes[name] ?? "" }));
}

/** A button with a drawing and a name for who cannot see it. */
export function iconButton(name, label, clicked, attributes = {}) {
  return make("button", { type: "button", class: "icon-button", "aria-label": label, title: label, on: { click: clicked }, ...attributes }, icon(name));
}

/** Commands among words stand between backquotes. */
export function coded(words) { return words.split("`").map((part, index) => (index % 2 ? make("code", { text: part }) : part)); }

/** At the end of `place`: why what belongs there could not be read, and a button; no `trouble`: nothing. The same words are told once. */
export function showTrouble(place, trouble, again) {
  const old = place.querySelector(":scope > [role=alert]");
  if (old?.firstChild.textContent === trouble?.message) return;
  old?.remove();
  if (!trouble) return;
  place.append(make("div", { class: "empty", role: "alert" }, make("p", { text: trouble.message }), trouble.remedy ? make("p", { class: "quiet", lang: "en" }, coded(trouble.remedy)) : null,
    make("button", { type: "button", class: "button", text: t("again"), on: { click: again } })));
}

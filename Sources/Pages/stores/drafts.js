// What is done to drafts beside showing them, which the first view does: kept.js.
import { drafts } from "./kept.js";

/** Whether they outlast this page. */
export function areDraftsKept() { return drafts.isKept || !Object.keys(drafts.value).length; }

export function keepDraft(name, text) {
  const all = drafts.value;
  if (text.trim()) all[name] = text.slice(0, 4000);
  else delete all[name];
  drafts.value = all;
}

const COMMAND = "command ";

/** Under what a hub keeps a command's draft: of one person alone, as several sign in at one browser. */
export function ofCommand(field, person) { return `${COMMAND}${field} ${person}`; }

const NOTE = /^note (\d+) /;

/** As `ofCommand`, for a note that is written for an alert. */
export function ofNote(alert, person) { return `note ${alert} ${person}`; }

const DOCUMENT = /^document (\S+) (.*)$/;

/** As `ofCommand`, for a field of a document: `path` has no blanks. A gateway's pages know no persons. */
export function ofDocument(path, person = "") { return `document ${path} ${person}`; }

/** What was written into a document and is not saved: `{text, was}`, what was there before; `null`: nothing. No text is one as well: it deletes. */
export function documentDraft(name) { return drafts.value[name] ?? null; }

export function keepDocument(name, draft) {
  const all = drafts.value;
  if (!draft && !(name in all)) return;
  if (draft) all[name] = draft;
  else delete all[name];
  drafts.value = all;
}

/** Nobody else's. A gateway knows no persons: there all are of whoever may sign in. */
function own(person) {
  const isOwn = (name) => {
    const document = DOCUMENT.exec(name);
    if (document) return name === ofDocument(document[1], person);
    const note = NOTE.exec(name);
    return note ? name === ofNote(note[1], person) : !name.startsWith(COMMAND) || name === ofCommand(name.split(" ")[1], person);
  };
  return Object.keys(drafts.value).filter(isOwn);
}

/** Of notes only those for these alerts: nobody can add another one any more. */
export function keepNotes(alerts, person) {
  for (const name of own(person)) {
    const note = NOTE.exec(name);
    if (note && !alerts.includes(note[1])) keepDraft(name, "");
  }
}

/** How many; the fields of a command are one. */
export function countDrafts(person) { return new Set(own(person).map((name) => (name.startsWith(COMMAND) ? COMMAND : name))).size; }

export function forgetDrafts(person) {
  const all = drafts.value;
  for (const name of own(person)) delete all[name];
  if (Object.keys(all).length) drafts.value = all; else drafts.clear();
}

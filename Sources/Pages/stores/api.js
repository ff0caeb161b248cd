// The gateway's API: docs/control-socket.md, and /session of the pages' host.
import { earlyAnswer } from "../first.js";
import { t } from "../parts/words.js";

/** In the browser's storage where answers are kept: so a first view does not load what looks for them. */
export const MARK = "meshpost.known";
/** What came before keeping.js is there, which takes the rest itself; `era`: another one when all is forgotten. */
export const answers = { era: 0, came: [], take(one) { answers.came.push(one); } };

export function isAnyKept() {
  try { return localStorage.getItem(MARK) !== null; } catch { return false; /* nothing is kept here */ }
}

/** Streams have no end. */
function keepAnswer(path, answer) { if (path !== "/v1/packets") answers.take({ path, answer: answer.clone(), at: Date.now() }); }

/** Whoever comes next is not to see it. */
export function forget() {
  answers.era += 1;
  answers.came.length = 0;
  if (!isAnyKept()) return;
  localStorage.removeItem(MARK);
  // Else before anything is kept again.
  import("./known.js").then(({ forgetKept }) => forgetKept()).catch(() => {});
}

/** Why something could not be done, in words that can be shown, with what to do about it. */
export class Trouble extends Error {
  constructor(words, { status = 0, code = undefined, remedy = undefined, answer = {} } = {}) {
    super(words);
    this.status = status;
    this.code = code;
    this.remedy = remedy;
    this.answer = answer;
  }

  /** Something in between answered: a refusal of ours says why. */
  get isForeign() { return this.status > 0 && !this.answer["error"]; }

  /** None of ours has answered: the line is cut, or the host or, behind `meshpost web`, the gateway is gone or busy. The same request may succeed later. */
  get isCut() { return this.status === 0 || this.isForeign || [429, 502, 503].includes(this.status) && (!this.code || this.code === "gateway"); }
}

let signedOut = () => {};

/** What happens when the session has ended. */
export function onSignedOut(heard) { signedOut = heard; }

/** Where an answer that is kept here may stand for one that does not come: `options.isLive`: it may not; `options.late`: known.js. */
async function request(method, path, body, options = {}) {
  const sent = options.late?.get(path) ?? send(method, path, body, options);
  if (method !== "GET" || options.isLive || !isAnyKept()) return sent;
  sent.catch(() => { /* below */ });
  const known = await import("./known.js").catch(() => null);
  return known ? known.either(sent, path, options) : sent;
}

async function send(method, path, body, options) {
  const early = method === "GET" ? await earlyAnswer(path) : null;
  if (early?.ok) {
    keepAnswer(path, early);
    return early;
  }
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: method === "GET" ? {} : { "Content-Type": "application/json" },
      body: method === "GET" ? undefined : JSON.stringify(body ?? {}),
      cache: "no-store",
      signal: options.signal ?? AbortSignal["timeout"](options.patience ?? 30_000),
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Trouble(error.name === "TimeoutError" ? t("trouble.silent") : t("trouble.cut"));
  }
  if (response.ok) {
    // Somebody comes or goes.
    if (path === "/session" && method !== "GET") forget();
    if (path === "/session" || method === "GET") keepAnswer(path, response);
    return response;
  }
  let answer = {};
  // An answer of something in between has no words for us.
  try { answer = { ...await response.json() }; } catch { answer = {}; }
  if (response.status === 401 && path.startsWith("/v1/")) { forget(); signedOut(); }
  throw new Trouble(answer.error ?? t("trouble.status", { status: response.status }),
    { status: response.status, code: answer.code, remedy: answer.remedy, answer });
}

/** One that breaks off, or is not ours, is no answer. */
async function answered(method, path, body, options) {
  const response = await request(method, path, body, options);
  try {
    return await response.json();
  } catch (error) {
    if (options?.signal?.aborted) throw error;
    throw new Trouble(t("trouble.cut"), { status: response.status });
  }
}

/** The answer to a question. */
export function ask(path, options) { return answered("GET", path, undefined, options); }

/** Has something done. `patience`: milliseconds; requests to nodes take as long as the mesh does. */
export function order(path, body, options) { return answered(options?.method ?? "POST", path, body, options); }

/** Rows as they come, one object a line. An answer that breaks off throws. */
export async function* rows(path, options = {}) {
  const response = await request("GET", path, undefined, options);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const one of lines) if (one) yield JSON.parse(one);
    }
    if (rest) yield JSON.parse(rest);
  } catch (error) {
    if (options.signal?.aborted) return;
    throw error instanceof Trouble ? error : new Trouble(t("trouble.cut"));
  } finally {
    // It may have ended already, which is no trouble.
    reader.cancel().catch(() => {});
  }
}

/** All rows of an answer that ends. */
export async function allRows(path, options) {
  const found = [];
  for await (const row of rows(path, options)) found.push(row);
  return found;
}

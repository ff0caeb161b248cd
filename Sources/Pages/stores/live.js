import { forgetEarly } from "../first.js";
import { forget } from "./api.js";
import { setNow } from "../parts/times.js";
import { Kept } from "./kept.js";
import { old, Stream } from "./store.js";

/** The host sends something at least each 20 s, if only its time; an older one, a comment. */
const SILENCE_MS = 45_000;
const LOOK_MS = 5000;
/** After so long it is quicker to read everything anew than to catch up. */
const AFRESH_MS = 600_000;

/**
 * The one stream of what happens: server-sent events, read by `fetch`, because `EventSource` shows neither comments (so silence
 * cannot be told from quiet) nor why it was refused. Resumes behind the last event by itself.
 *
 * `isLinked`; `since`: when the line was cut. `on(event, heard)`: events of /v1/live, and `afresh`: what is known must be read anew;
 * with `true`, it is the first stream, before which something may have been read already; `again`: each few seconds while there is a line, for what was refused.
 */
class Live extends Stream {
  isLinked = false;
  /** So long after the first stream has begun, what was read before it is brought up to date. */
  catchUpMs = 2000;
  /** Milliseconds since 1970; `null`: there was no line yet in this page, or there is one. */
  since = null;
  #spoken = 0;
  #last = null;
  /** Gateway and epoch. */
  #journal = null;
  #gateway = new Kept("gateway", "");
  #attempt = 0;
  #ending = null;
  #wake = null;
  #isRunning = false;
  /** Not to be heard now: the page is put away, or hidden beside others. A browser has six connections to a host, for all pages together. */
  #isAway = false;

  /** The gateway at the other end; while the line is cut, the last one. */
  get gateway() { return this.#gateway.value; }

  /** Until `stop`. */
  async start() {
    if (this.#isRunning) return;
    this.#isRunning = true;
    addEventListener("online", () => this.#wake?.());
    addEventListener("pagehide", () => this.leave());
    addEventListener("pageshow", () => this.comeBack());
    // By the clock that goes on while the machine sleeps. Where it is set, the stream begins anew.
    setInterval(() => { if (Math.abs(Date.now() - this.#spoken) > SILENCE_MS) this.#ending?.abort(); else if (this.isLinked) this.tell("again"); }, LOOK_MS);
    while (this.#isRunning) {
      if (this.#isAway) {
        await new Promise((resolve) => { this.#wake = resolve; });
        continue;
      }
      try { await this.#follow(); } catch { /* whatever the reason, it is tried again; the bar says since when */ }
      if (!this.#isRunning) break;
      if (this.#isAway) continue;
      this.#cut();
      await new Promise((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, Math.min(15_000, 500 * 2 ** Math.min(this.#attempt, 5)) * (0.75 + Math.random() / 2));
      });
      this.#wake = null;
      this.#attempt += 1;
    }
  }

  stop() {
    this.#isRunning = false;
    this.#ending?.abort();
    this.#wake?.();
    this.isLinked = false;
    this.since = null;
    this.changed();
  }

  leave() {
    this.#isAway = true;
    this.#ending?.abort();
  }

  comeBack() {
    this.#isAway = false;
    this.#wake?.();
  }

  /** Tries now what else waits. */
  retry() { this.#wake?.(); }

  #cut() {
    if (this.isLinked || this.since === null) this.since = Date.now();
    this.isLinked = false;
    this.changed();
  }

  async #follow() {
    this.#ending = new AbortController();
    if (this.since !== null && Math.abs(Date.now() - this.since) > AFRESH_MS) this.#last = null;
    this.#spoken = Date.now();
    const headers = { Accept: "text/event-stream" };
    if (this.#last !== null) headers["Last-Event-ID"] = String(this.#last);
    const response = await fetch("/v1/live", { headers, cache: "no-store", signal: this.#ending.signal });
    if (response.status === 401) { this.tell("signed-out"); return; }
    if (!response.ok) return;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let event = { name: "message", data: [] };
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      this.#spoken = Date.now();
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const raw of lines) event = this.#take(raw.replace(/\r$/, ""), event);
    }
  }

  #take(line, event) {
    if (line === "") {
      if (event.data.length) this.#happened(event.name, JSON.parse(event.data.join("\n")), event.id);
      return { name: "message", data: [] };
    }
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (field === "event") event.name = value;
    else if (field === "data") event.data.push(value);
    else if (field === "id" && /^\d+$/.test(value)) event.id = Number(value);
    return event;
  }

  #happened(name, value, id) {
    if (name === "hello" || name === "tick") setNow(value.now);
    if (name === "hello") {
      // Another gateway, or one that was set back: what this page knows is of another journal. Or more was missed than is told.
      const journal = `${value.gateway} ${value.epoch ?? ""}`;
      const isAnother = this.#journal !== null && this.#journal !== journal || this.#last !== null && value.seq < this.#last || value.missed;
      const isFirst = this.#journal === null;
      const isAfresh = this.#last === null || isAnother;
      if (isAnother) this.#last = null;
      this.#journal = journal;
      forgetEarly();
      old.set("line");
      if (this.gateway && this.gateway !== value.gateway) forget();
      this.#gateway.value = value.gateway;
      this.isLinked = true;
      this.since = null;
      this.#attempt = 0;
      if (this.#last === null) this.#last = value.seq ?? id ?? null;
      if (isAfresh) this.tell("afresh", isFirst);
      this.tell("linked");
      this.changed();
    } else if (id !== undefined) {
      this.#last = id;
    }
    this.tell(name, value);
  }
}

export const live = new Live();

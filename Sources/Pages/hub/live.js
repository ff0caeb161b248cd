// The hub's one stream of what happens, and the fleet that it keeps up to date.
import { forgetEarly } from "../first.js";
import { gist, seen } from "../parts/text.js";
import { setNow } from "../parts/times.js";
import { ask } from "../stores/api.js";
import { query } from "../stores/query.js";
import { old, ServedStore, Stream } from "../stores/store.js";
import { inTurn } from "../stores/turn.js";

/** The hub says something at least each 20 s. */
const SILENCE_MS = 45_000;

/** `since`: when the line was cut; `null`: it is not. `on("message", heard)`: joined messages as they come; `gateway`, `command`, `alert`: rows of those lists; `hello`: what is known may be old; `again`: each few seconds while there is a line, for what was refused. */
class HubLive extends Stream {
  since = null;
  #source = null;
  /** The last message that is known, and when it came to the hub: of a hub that was put back another one has its number. */
  #position = null;
  #arrived = null;
  #spoken = 0;
  #watch = 0;

  start() {
    this.#open();
    // A line that is cut somewhere on the way says nothing.
    this.#watch = setInterval(() => {
      if (document.hidden) return;
      // By the clock that goes on while the machine sleeps. Where it is set, the stream begins anew.
      if (Math.abs(Date.now() - this.#spoken) > SILENCE_MS) this.retry();
      else if (this.since === null) this.tell("again");
    }, 5000);
    addEventListener("online", () => this.retry());
    // A browser has six connections to a host, for all pages together: one that is left, or not looked at, keeps none of them.
    addEventListener("pagehide", () => this.#source?.close());
    addEventListener("pageshow", (event) => { if (event.persisted) this.retry(); });
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.#source?.close(); else this.retry(); });
  }

  stop() {
    clearInterval(this.#watch);
    this.#watch = 0;
    this.#source?.close();
  }

  retry() {
    if (!this.#watch) return;
    this.#source?.close();
    this.#open();
  }

  #know({ position, arrived }) {
    this.#position = position;
    this.#arrived = arrived ?? null;
  }

  #open() {
    this.#spoken = Date.now();
    const source = new EventSource(query("/v1/live", { after: this.#position, arrived: this.#arrived }));
    this.#source = source;
    const spoke = () => { this.#spoken = Date.now(); };
    source.addEventListener("hello", (event) => {
      spoke();
      const hello = JSON.parse(event.data);
      setNow(hello.now);
      this.#know(hello);
      forgetEarly();
      old.set("line");
      if (this.since !== null) { this.since = null; this.changed(); }
      this.tell("hello");
    });
    source.addEventListener("tick", (event) => { spoke(); setNow(JSON.parse(event.data).now); });
    source.addEventListener("message", (event) => {
      if (!event.data) return;
      spoke();
      const message = JSON.parse(event.data);
      this.#know(message);
      this.tell("message", message);
    });
    for (const name of ["gateway", "command", "alert"]) source.addEventListener(name, (event) => { spoke(); this.tell(name, JSON.parse(event.data)); });
    source.addEventListener("error", () => {
      if (this.since === null) { this.since = Date.now(); this.changed(); }
      // Refused for good, such as when the session has ended: asked again, it says why.
      if (source.readyState === EventSource.CLOSED) {
        ask("/v1/channels").catch(() => { /* signed out is told where it is asked */ });
        setTimeout(() => { if (this.#source === source && !document.hidden) this.retry(); }, 5000);
      }
    });
  }
}

export const live = new HubLive();

/** The day's figures are read again so often. */
const LOOK_MS = 60_000;

/** All gateways, by id. Each row has a `stamp`, which changes with it. */
class Fleet extends ServedStore {
  rows = new Map();
  /** `/v1/fleet/summary`; `null`: not there yet. */
  summary = null;
  #stamp = 0;
  #summaryAt = 0;
  #called = null;

  constructor() {
    super();
    live.on("gateway", (row) => this.told(() => { if (this.isLoaded) this.take(row); }));
    // What came before the first stream: behind the first view.
    let isFirst = true;
    live.on("hello", () => {
      setTimeout(() => this.anew(), isFirst && !this.trouble ? 2000 : 0);
      isFirst = false;
    });
    live.on("again", () => { if (this.isWanting) this.anew(); });
    live.on("alert", () => this.#sum());
    setInterval(async () => {
      if (document.hidden || !this.isLoaded || performance.now() - this.#summaryAt < LOOK_MS) return;
      await this.#sum();
      // The stream tells of no gateway that is gone.
      if (this.summary?.gateways < this.rows.size) this.anew();
    }, LOOK_MS / 3);
  }

  #put(rows, row) {
    this.#stamp += 1;
    this.#called = null;
    rows.set(row.gateway, { ...row, stamp: this.#stamp });
  }

  /** A row as it is now. */
  take(row) {
    this.#put(this.rows, row);
    this.changed();
  }

  get kept() { return ["/v1/fleet?limit=1000", { gateways: [...this.rows.values()] }]; }

  async read(options) {
    this.#sum();
    const rows = new Map();
    let after = "";
    do {
      const page = await ask(query("/v1/fleet", { after, limit: 1000 }), options);
      for (const row of page.gateways) this.#put(rows, row);
      after = page.next;
    } while (after);
    this.rows = rows;
    this.#called = null;
  }

  /** How many somebody should look at. */
  get wanting() {
    let count = 0;
    for (const row of this.rows.values()) if (isWanting(row)) count += 1;
    return count;
  }

  /** Whether another is called so, or has it as its id. */
  isShared(name) {
    if (!this.#called) {
      this.#called = new Map();
      for (const id of this.rows.keys()) for (const one of new Set([id, ownName(id)].map(gist))) this.#called.set(one, (this.#called.get(one) ?? 0) + 1);
    }
    return this.#called.get(gist(name)) > 1;
  }

  #sum = inTurn(async () => {
    this.#summaryAt = performance.now();
    try {
      this.summary = await ask("/v1/fleet/summary");
      this.changed();
    } catch { /* what the fleet cannot tell, its rows do; a cut line is told elsewhere */ }
  });
}

export const fleet = new Fleet();

/** As somebody has named it, else by its id. An id that it made itself says nothing: its radio's name does. */
function ownName(gateway) {
  const row = fleet.rows.get(gateway);
  if (seen(row?.name) && row.name !== row.radio) return row.name;
  return (/^[0-9a-f]{16}$/.test(gateway) && seen(row?.radio)) || gateway;
}

/** What a gateway is called. Names are what it says of itself; its id is what its token allows: it is shown where two are called the same. */
export function gatewayName(gateway) {
  const name = ownName(gateway);
  return name !== gateway && fleet.isShared(name) ? `${name} (${gateway})` : name;
}

/** What needs somebody, as the hub judges it: words of the catalogue. */
export function needs(row) { return row.needs ?? []; }

/** Whether somebody should look at it. */
export function isWanting(row) { return needs(row).length > 0 || row.alerts > 0; }

/** `linked`, `quiet` (it need not have a link), `silent`. */
export function contact(row) { return row.linked ? "linked" : needs(row).includes("silent") ? "silent" : "quiet"; }

import { gist, seen } from "../parts/text.js";
import { allRows } from "./api.js";
import { gateway } from "./gateway.js";
import { live } from "./live.js";
import { ServedStore } from "./store.js";

/** All nodes that the gateway knows, by key; and what they told of their batteries. Read when a view first wants them. */
class Nodes extends ServedStore {
  #all = new Map();
  #batteries = new Map();
  #called = null;

  constructor() {
    super();
    live.on("afresh", () => { if (this.isLoaded || this.isReading) this.anew(); });
    live.on("linked", () => { if (this.isBehind) this.anew(); });
    live.on("again", () => { if (this.isWanting) this.anew(); });
    live.on("journal", ({ kind, at, body }) => this.told(() => this.#happened(kind, at, body)));
  }

  /** Once; later changes come by the stream. */
  need() { return this.isLoaded ? Promise.resolve() : this.load(); }

  async read(options) {
    const [found, readings] = await Promise.all([allRows("/v1/contacts", options), allRows("/v1/readings?newest=1", options)]);
    this.#all = new Map(found.map((node) => [node.key, node]));
    for (const { at, kind, body } of readings) this.#battery(kind, at, body);
  }

  get kept() { return ["/v1/contacts", this.list]; }

  get list() { return [...this.#all.values()]; }

  get(key) { return this.#all.get(key) ?? null; }

  /** The beginning of its key, if another is called the same; else nothing. */
  digits(node) {
    this.#called ??= Map.groupBy(this.#all.values(), (one) => gist(nodeName(one)));
    return this.#called.get(gist(nodeName(node)))?.length > 1 ? ` ${node.key.slice(0, 6)}` : "";
  }

  changed() {
    this.#called = null;
    super.changed();
  }

  /** By the first digits of its key, if only one fits. */
  byPrefix(prefix) {
    if (!prefix) return null;
    let found = null;
    for (const [key, node] of this.#all) {
      if (!key.startsWith(prefix)) continue;
      if (found) return null;
      found = node;
    }
    return found;
  }

  /** `{mv, at}`, if it ever told. */
  battery(key) { return this.#batteries.get(key) ?? null; }

  #battery(kind, at, body) {
    const mv = kind === "node_status" ? body.battery_mv
      : Math.round((body.readings?.find((one) => one.type === "voltage" && one.channel === 1)?.value ?? 0) * 1000);
    const known = this.#batteries.get(body.node);
    if (mv && (!known || known.at <= at)) this.#batteries.set(body.node, { mv, at });
  }

  #happened(kind, at, body) {
    if (!this.isLoaded) return;
    if (kind === "contact" || kind === "advert") {
      const known = { ...this.#all.get(body.key) };
      // A contact is told whole: a path that is not in it is no longer known.
      if (kind === "contact") for (const gone of ["path", "hops"]) delete known[gone];
      this.#all.set(body.key, { ...known, ...body });
    } else if (kind === "contact_removed") {
      const node = this.#all.get(body.key);
      if (node) this.#all.set(body.key, { ...node, on_radio: false });
    } else if (kind === "document") {
      const [, key, field] = /^node\/([0-9a-f]{64})\/(alias|note|tags)$/.exec(body.key) ?? [];
      const node = this.#all.get(key);
      if (!node) return;
      // Through which server, or here.
      this.#all.set(key, { ...node, [field]: body.value ?? undefined, changed: { ...node.changed, [field]: body.via ?? "" } });
    } else if (kind === "node_status" || kind === "telemetry") {
      this.#battery(kind, at, body);
    } else return;
    this.changed();
  }
}

/** As we call it, else as it calls itself. */
export function nodeName(node) { return seen(node.alias) || seen(node.name) || node.key.slice(0, 12); }

export const nodes = new Nodes();

/** Our radio's place, if it has one: 0, 0 is the sea. */
export function ownPosition() {
  const { lat, lon } = gateway.identity ?? {};
  return lat || lon ? { lat, lon } : null;
}

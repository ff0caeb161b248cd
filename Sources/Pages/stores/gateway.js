import { ask } from "./api.js";
import { live } from "./live.js";
import { old, served, Store } from "./store.js";

/** The gateway's status, as /v1/status tells it; `null` until the first one. */
class Gateway extends Store {
  status = null;

  constructor() {
    super();
    served.add(this);
    live.on("status", (status) => this.take(status));
    live.on("journal", ({ kind }) => { if (kind === "alert") this.load(); });
  }

  take(status) {
    this.status = status;
    old.set(this);
    this.changed();
  }

  // What cannot be read now comes by the stream as soon as there is one.
  async load() { try { this.take(await ask("/v1/status")); } catch { /* the bar says so */ } }

  get isLoaded() { return this.status !== null; }
  get kept() { return ["/v1/status", this.status]; }

  get identity() { return this.status?.radio?.identity ?? null; }
  /** Our radio's name on the mesh. */
  get name() { return this.identity?.name ?? ""; }

  /** The state in a word: `up`, `syncing`, `down`, `connecting`. */
  get state() {
    const { radio, sync } = this.status ?? {};
    if (!radio) return "unknown";
    if (radio.state === "up" && sync?.state === "syncing") return "syncing";
    return radio.state;
  }

  /** How many things want a person: its open alerts, and no other count beside them. */
  get troubles() {
    const status = this.status;
    if (!status) return 0;
    if (status.alerts && !status.store?.error) return status.alerts.length;
    // A store that cannot be read knows of none.
    let count = status.radio.state === "down" ? 1 : 0;
    for (const upstream of status.upstreams ?? []) if (upstream.state === "stopped" || upstream.dead_letters > 0 || upstream.state === "waiting") count += 1;
    if (status.store?.error) count += 1;
    if (status.power?.battery_low || status.power?.supply_low) count += 1;
    return count;
  }
}

export const gateway = new Gateway();

// The address is the state: every view, filter and opened thing has one, which back, reload and whoever it is sent to understand.
import { Store } from "../stores/store.js";

/** Of this host; the first one is where one begins. */
const VIEWS = document.documentElement.dataset.host === "hub" ? ["fleet", "messages", "coverage", "alerts", "commands", "people"] : ["conversations", "nodes", "map", "air", "gateway"];

/** `{view, id, values}`: `/view/id?values`. */
class Route extends Store {
  view = VIEWS[0];
  id = null;
  values = new URLSearchParams();

  start() {
    this.#read();
    addEventListener("popstate", () => { this.#read(); this.changed(); });
    document.addEventListener("click", (event) => {
      if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
      const link = event.target.closest?.("a[href]");
      if (!link || link.origin !== location.origin || link.target || link.hash && link.pathname === location.pathname) return;
      event.preventDefault();
      this.go(link.pathname + link.search);
    });
  }

  #read() {
    const [view, ...rest] = location.pathname.split("/").filter(Boolean);
    const isKnown = VIEWS.includes(view);
    this.view = isKnown ? view : VIEWS[0];
    let id = isKnown ? rest.join("/") : "";
    try { id = decodeURIComponent(id); } catch { /* not encoded by us: as it stands */ }
    this.id = id || null;
    this.values = new URLSearchParams(location.search);
  }

  get(name) { return this.values.get(name); }

  /** Opens an address. `replace`: back skips what is there now. */
  go(path, { replace = false } = {}) {
    if (path === location.pathname + location.search) return;
    history[replace ? "replaceState" : "pushState"]({ from: replace ? history.state?.from : location.pathname + location.search }, "", path);
    this.#read();
    this.changed();
  }

  /** The same view with other values; `undefined` takes one away. */
  with(values) {
    const next = new URLSearchParams(this.values);
    for (const [name, value] of Object.entries(values)) {
      if (value === undefined || value === null || value === "") next.delete(name);
      else next.set(name, value);
    }
    const search = next.toString();
    return location.pathname + (search ? `?${search}` : "");
  }

  /** As `go`, for what one types: each letter is not a step back. */
  set(values, { replace = true } = {}) { this.go(this.with(values), { replace }); }

  /** One step out: where one came from, if it was in these pages, else `path`. */
  back(path) {
    if (history.state?.from) history.back();
    else this.go(path, { replace: true });
  }
}

export const route = new Route();

/** The address of a conversation or node. */
export function to(view, id, values = {}) {
  const search = new URLSearchParams(Object.entries(values).filter(([, value]) => value)).toString();
  return `/${view}${id ? `/${encodeURIComponent(id).replaceAll("%3A", ":")}` : ""}${search ? `?${search}` : ""}`;
}

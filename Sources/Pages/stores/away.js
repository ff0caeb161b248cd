// A page that is hidden beside others.

let release = null;

/** One of those that are hidden goes on, and counts what is unread in its title. The others wait until they are looked at. */
export function startAway(live) {
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) {
      release?.();
      release = null;
      live.comeBack();
      return;
    }
    navigator.locks?.request("meshpost.hidden", { ifAvailable: true }, (lock) => {
      if (!document.hidden) return undefined;
      if (!lock) { live.leave(); return undefined; }
      return new Promise((resolve) => { release = resolve; });
    });
  });
}

// A gateway's pages. What its first view needs is imported from here: one file when packed.
import { begin } from "./app.js";
import { Shell } from "./shell/shell.js";
import { live } from "./stores/live.js";

begin({ live, Shell, worker: "/worker.js", more: () => Promise.all([import("./views/first-steps.js"), import("./stores/sending.js"), import("./stores/away.js").then(({ startAway }) => startAway(live))]) });

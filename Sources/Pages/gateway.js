// A gateway's pages. What its first view needs is imported from here: one file when packed.
import { begin } from "./app.js";
import { Shell } from "./shell/shell.js";
import { live } from "./stores/live.js";

begin({ live, Shell, worker: "/worker.js", more: () => import("./views/first-steps.js") });

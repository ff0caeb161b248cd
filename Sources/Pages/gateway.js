// A gateway's pages. What its first view needs is imported here or from here, and is one file when packed; the rest comes by `import()`.
import { begin } from "./app.js";
import { Shell } from "./shell/shell.js";
import { live } from "./stores/live.js";

begin({ live, Shell, worker: "/worker.js" });

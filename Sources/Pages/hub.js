// As gateway.js, of a hub.
import { begin } from "./app.js";
import { live } from "./hub/live.js";
import { HubShell } from "./hub/shell.js";

begin({ live, Shell: HubShell, worker: "/worker.js?host=hub", event: "hello", more: () => import("./hub/seen.js") });

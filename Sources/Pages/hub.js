// A hub's pages, as gateway.js begins those of a gateway.
import { begin } from "./app.js";
import { live } from "./hub/live.js";
import { HubShell } from "./hub/shell.js";

begin({ live, Shell: HubShell, worker: "/worker.js?host=hub" });

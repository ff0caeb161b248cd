// The pages' beginning: words, session, then the shell, and each view when it is first wanted.
import { loadWords, t } from "./parts/words.js";
import { fill, make } from "./parts/page.js";
import { ask, onSignedOut, order } from "./stores/api.js";
import { route } from "./shell/route.js";
import { styled } from "./shell/styled.js";

const place = document.getElementById("app");

/** The secret that `meshpost web` puts behind the `#`: taken out of the address at once, and kept nowhere. */
function takeSecret() {
  const secret = new URLSearchParams(location.hash.slice(1)).get("secret");
  if (location.hash) history.replaceState(history.state, "", location.pathname + location.search);
  return secret;
}

/** The hub has a document of its own. */
const isHub = document.documentElement.dataset.host === "hub";

/** The service worker fetches all files: not while the first view needs the line. */
function keepShell() {
  if (!("serviceWorker" in navigator)) return;
  setTimeout(() => navigator.serviceWorker.register(isHub ? "/worker.js?host=hub" : "/worker.js", { scope: "/" }).catch(() => { /* it works without */ }), 3000);
}

async function begin() {
  const secret = takeSecret();
  route.start();
  const [, session] = await Promise.all([loadWords(), findSession(secret)]);
  keepShell();
  onSignedOut(() => signIn({ signed_in: false }));
  if (session.signed_in) await open(session);
  else await signIn(session);
}

/** Without an answer the host is not reached: what was there is shown, and the bar says so. */
async function findSession(secret) {
  let refusal;
  if (secret) {
    try { return await order("/session", { secret }); } catch (trouble) { refusal = trouble; }
  }
  try {
    return { ...(await ask("/session")), refusal };
  } catch {
    return { signed_in: true, isUnreached: true };
  }
}

let isSigningIn = false;

async function signIn(session) {
  if (isSigningIn) return;
  isSigningIn = true;
  const { live } = await (isHub ? import("./hub/live.js") : import("./stores/live.js"));
  live.stop();
  if (!session.ways) {
    try { session = { ...session, ...(await ask("/session")) }; } catch { session = { ...session, ways: ["password"] }; }
  }
  const { showSignIn } = await styled("later", import("./views/signin.js"));
  showSignIn(place, session, async (signed) => {
    isSigningIn = false;
    await open(signed);
  });
}

async function open(session) {
  if (isHub) {
    const { HubShell } = await import("./hub/shell.js");
    return new HubShell(place, session).start();
  }
  const { Shell } = await import("./shell/shell.js");
  new Shell(place, session).start();
}

begin().catch((error) => {
  fill(place, make("div", { class: "starting", role: "alert" }, make("p", { text: t("trouble.page") }), make("pre", { text: String(error) })));
});

// The pages' beginning: words, session, the host's shell, and each view when it is first wanted.
import { loadWords, t } from "./parts/words.js";
import { fill, make } from "./parts/page.js";
import { ask, forget, onSignedOut, order } from "./stores/api.js";
import { route } from "./shell/route.js";
import { styled } from "./shell/styled.js";

const place = document.getElementById("app");

/** Whose session it is. */
const who = ({ signed_in: isIn, person, role }) => [isIn, person, role].join();

/** The secret that `meshpost web` puts behind the `#`: taken out of the address at once, and kept nowhere. */
function takeSecret() {
  const secret = new URLSearchParams(location.hash.slice(1)).get("secret");
  if (location.hash) history.replaceState(history.state, "", location.pathname + location.search);
  return secret;
}

/** `host`: its `live` stream, its `Shell`, and the address of its `worker`. */
export function begin(host) {
  show(host).catch((error) => {
    fill(place, make("div", { class: "starting", role: "alert" }, make("p", { text: t("trouble.page") }), make("pre", { text: String(error) })));
  });
}

async function show(host) {
  const secret = takeSecret();
  route.start();
  const [, session] = await Promise.all([loadWords(), findSession(secret)]);
  // After the first view.
  setTimeout(() => import("./shell/later.js").then(({ later }) => later(host)).catch(() => { /* as it was */ }), 3000);
  // Of a newer host, what one signs in with may have another name.
  onSignedOut(() => signIn(host, { signed_in: false }, () => location.reload()).catch(() => location.reload()));
  if (session.signed_in) await open(host, session);
  else await signIn(host, session, (signed) => open(host, signed));
}

/** Without an answer the host is not reached: what was there is shown, and the bar says so. While it is late, it is who was here before. */
async function findSession(secret) {
  let refusal;
  if (secret) {
    try { return await order("/session", { secret }); } catch (trouble) { refusal = trouble; }
  }
  const options = { late: new Map() };
  try {
    const session = { ...(await ask("/session", options)), refusal };
    const late = options.late.get("/session");
    if (!session.signed_in || options.before && who(JSON.parse(options.before.text)) !== who(session)) forget();
    late?.then((answer) => answer.clone().json()).then((found) => {
      if (who(found) === who(session)) return;
      forget();
      location.reload();
    }).catch(() => { session.isUnreached = true; });
    return session;
  } catch {
    return { signed_in: true, isUnreached: true };
  }
}

/** `done(session)`: where a shell was open already, all begins anew, for its views and keys are still there. */
async function signIn(host, session, done) {
  host.live.stop();
  const { signIn } = await styled("later", import("./views/signin.js"));
  await signIn(place, session, done);
}

function open({ Shell }, session) { return new Shell(place, session).start(); }

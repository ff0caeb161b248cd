"""What the browser keeps of the host's answers: shown with its age without a line and while answers are late, and nobody else's to see. As cases.py."""
import json

import rigs
from cases import PUBLIC, fresh, to_the_end
from packed import packed
from run import test

KEPT = """return new Promise((resolve, reject) => { const opening = indexedDB.open("meshpost", 1); opening.onerror = reject;
  opening.onupgradeneeded = () => opening.result.createObjectStore("known", { keyPath: "path" });
  opening.onsuccess = () => { const reading = opening.result.transaction("known").objectStore("known").getAll(); reading.onsuccess = () => { opening.result.close(); resolve(reading.result); }; }; })"""
HIDE = """Object.defineProperty(document, "hidden", { value: true, configurable: true }); document.dispatchEvent(new Event("visibilitychange"));
  delete document.hidden; document.dispatchEvent(new Event("visibilitychange"))"""
OLD = "What was there at"


def paths(browser):
    return [one["path"] for one in browser.script(KEPT)]


def is_kept(browser, path):
    browser.until(f"{path} among what is kept", lambda: path in paths(browser))


def waits_for_the_worker(browser):
    browser.until("the service worker", lambda: browser.script("return Boolean(navigator.serviceWorker.controller)"))
    files = browser.script("return fetch('/worker.js').then((one) => one.text())").split("gateway:[")[1].split("]")[0].replace('"', "").split(",")
    browser.until("its files", lambda: browser.script("return Promise.all(arguments[0].map((file) => caches.match(file))).then((found) => found.every(Boolean))", files))


@test
def what_was_there_is_shown_without_a_line(world):
    if not world.host.command:
        return
    with packed() as folder, rigs.host_of(world, "--pages", str(folder / "pages")) as site:
        browser = site.open(f"/conversations/{PUBLIC}")
        browser.until("its messages", lambda: browser.all("article[data-cursor]"))
        waits_for_the_worker(browser)
        to_the_end(browser)
        # It comes by the stream alone, and is kept as the page made it.
        text = fresh("told by the stream")
        world.gateway.say(f"chan r2 0 {text}")
        browser.shows(text, ".chat-scroll")
        for tab in ("nodes", "map", "gateway"):
            browser.click(f'[data-tab="{tab}"]')
            browser.until(tab, lambda: browser.all("main h1"))
        for path in ("/session", "/v1/conversations", "/v1/contacts", "/v1/alerts", "/v1/airtime"):
            is_kept(browser, path)
        browser.script(HIDE)
        is_kept(browser, "/v1/status")
        assert text in json.dumps(browser.script(KEPT))
        site.host.kill()
        for language, words in (("en", OLD), ("de", "Zu sehen ist, was da war (Stand ")):
            browser.script("localStorage.setItem('meshpost.language', arguments[0])", language)
            for path, selector, there in ((f"/conversations/{PUBLIC}", ".chat-scroll", text), ("/conversations", ".list", text), ("/nodes", "main .node-link", ""), ("/map", "main .map-row", ""), ("/gateway", "main .card", "r0")):
                browser.go(site.host.base + path)
                browser.until(path, lambda: browser.all(selector) and there in browser.text(selector))
                browser.shows(words, ".bar")
                assert browser.script("return document.querySelector('.app').hasAttribute('data-cut')")
                assert not browser.all(".head .dot.up"), "as if it were live"


@test
def what_was_there_is_shown_while_the_answer_is_late(world):
    """And goes once it is there, with what is no longer so."""
    if not world.host.command:
        return
    with rigs.host_of(world) as site:
        browser = site.open(f"/conversations/{PUBLIC}")
        browser.until("its messages", lambda: browser.all("article[data-cursor]"))
        is_kept(browser, f"/v1/messages?conversation={PUBLIC.replace(':', '%3A')}&direction=both&limit=30")
        is_kept(browser, "/v1/conversations")
        # What is kept tells of a message that the gateway has no longer, and of a conversation that is gone.
        browser.script("""const put = (all, path, change) => { const one = all.find((one) => one.path.startsWith(path)); change(one); return one; };
          return import("/pages/stores/known.js").then(({ all, write }) => {
            const rows = [...all.values()];
            const chat = put(rows, "/v1/messages?conversation=channel%3A1155", (one) => { const last = JSON.parse(one.text.trim().split("\\n").at(-1)); one.text = one.text.trim() + "\\n" + JSON.stringify({ ...last, cursor: "999999", text: "deleted since" }); });
            write((store) => { store.put(chat); store.put({ ...chat, path: "/v1/messages?conversation=channel%3Agone&direction=both&limit=30" }); });
          })""")
        browser.command("Page.addScriptToEvaluateOnNewDocument", source="""window.late = new Promise((resolve) => { window.answer = resolve; });
          const real = window.fetch; window.fetch = async (path, ...more) => { if (/^\\/v1\\/(conversations|messages|live)/.test(path)) await window.late; return real(path, ...more); };""")
        browser.go(f"{site.host.base}/conversations/{PUBLIC}")
        browser.shows("deleted since", ".chat-scroll")
        browser.shows("the newest is on its way", ".bar")
        browser.shows("not known", ".state")
        browser.script("window.answer()")
        browser.until("the gateway's own", lambda: "deleted since" not in browser.text(".chat-scroll") and browser.all("article[data-cursor]"))
        browser.until("no word of the age", lambda: not browser.script("return document.querySelector('.bar').textContent"))
        browser.until("nothing of what is gone", lambda: not [one for one in paths(browser) if "gone" in one])
        assert "deleted since" not in json.dumps(browser.script(KEPT))


@test
def nobody_else_sees_what_was_there(world):
    """Signed out, or by a session that has ended elsewhere; a conversation that is opened later is kept again."""
    with rigs.with_password(world, "open sesame") as site:
        from browser import Browser
        browser = Browser()
        world.browsers.append(browser)

        def enter():
            browser.type("#signin-field", "open sesame")
            browser.click(".signin-card button")
            browser.until("conversations", lambda: browser.all("a.conversation"))
            is_kept(browser, "/v1/conversations")

        browser.go(site.base + "/conversations")
        enter()
        browser.click(".head .icon-button")
        browser.press("dialog .button", "Sign out")
        browser.until("the sign-in", lambda: browser.all("#signin-field"))
        browser.until("nothing", lambda: paths(browser) == [])
        enter()
        # The session is over, and this browser was not told.
        browser.driver.delete_all_cookies()
        browser.go(site.base + "/conversations")
        browser.until("the sign-in", lambda: browser.all("#signin-field"))
        browser.until("nothing", lambda: paths(browser) == [])
        assert not browser.all("a.conversation")


@test
def what_is_kept_is_bounded(world):
    browser = world.open("/conversations")
    browser.until("conversations", lambda: browser.all("a.conversation"))
    is_kept(browser, "/v1/conversations")
    sizes = browser.script("""return import("/pages/stores/keeping.js").then(async ({ keep }) => {
      const text = "x".repeat(500_000);
      for (let number = 0; number < 6; number += 1) keep(`/v1/messages?conversation=channel%3A${number}&direction=both&limit=30`, text, Date.now() + number);
      keep("/v1/contacts", "x".repeat(3_000_000), Date.now());
      keep("/v1/airtime", "{}", Date.now() + 9);
    })""") or [(one["path"], len(one["text"])) for one in browser.script(KEPT)]
    assert sum(size for _, size in sizes) <= 2 << 20, sizes
    assert any("channel%3A5" in path for path, _ in sizes) and "/v1/contacts" not in dict(sizes), sizes

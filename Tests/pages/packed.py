"""The pages as packages have them (`deploy/pages/pack`), from both hosts. As cases.py, which says how the rest is tried."""
import contextlib
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import tempfile

import rigs
from browser import Browser
from cases import PUBLIC, VIEWS, r1
from run import test

HUB_VIEWS = ("/fleet", "/fleet?show=map", "/messages", "/coverage", "/alerts", "/commands", "/commands?show=documents", "/people")
# Files of a first view: the document, its style, the first script, and the view with its words.
MOST_FILES = 4
# With what is asked of the host, of which the stream is no entry before it ends: the session, the list, at a hub the figures.
MOST_REQUESTS = 8
MOST_BYTES = 24_000
ALL = "return [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')].map((one) => [new URL(one.name).pathname, one.startTime])"
FILES = """return [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
  .filter((one) => !/\\/(v1|session)/.test(one.name)).map((one) => [new URL(one.name).pathname, one.responseStatus, one.encodedBodySize])"""


@contextlib.contextmanager
def packed():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="meshpost-pages-"))
    try:
        subprocess.run([rigs.CHECKOUT / "deploy/pages/pack", folder / "pages"], check=True)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def first_requests(browser):
    """All before the first file that comes behind the first view."""
    entries = browser.script(ALL)
    later = min((at for path, at in entries if re.search("drawings|fleet-more|later-|manifest|dialog|seen-", path)), default=float("inf"))
    return [path for path, at in entries if at < later] + ["/v1/live"]


def shown(browser, path):
    browser.until(f"{path}: its view", lambda: browser.all(".app[data-state=open] main h1, .app[data-state=open] .composer-field"))
    browser.until(f"{path}: its style", lambda: browser.script("return [...document.styleSheets].every((one) => one.cssRules.length)"))
    assert "could not be" not in browser.text() and "konnte nicht" not in browser.text(), f"{path}: {browser.text()}"


def walk(browser, base, views):
    for path in views:
        browser.go(base + path)
        shown(browser, path)
        wrong = [one for one in browser.script(FILES) if one[1] >= 400 or not one[0].startswith("/pages/packed/") and one[0].startswith("/pages/") and one[0] != "/pages/icon.svg"]
        assert not wrong, f"{path}: {wrong}"


def without_a_line(browser, base, views, end):
    """All files are kept, also those of unopened views and of the other language; then the host stops answering."""
    host = "hub" if views is HUB_VIEWS else "gateway"
    files = browser.script("return fetch('/worker.js').then((one) => one.text())").split(f"{host}:[")[1].split("]")[0].replace('"', "").split(",")
    assert len(files) > 20, files
    browser.until("the files of the service worker", lambda: browser.script(
        "return Promise.all(arguments[0].map((file) => caches.match(file))).then((found) => found.every(Boolean))", files))
    end()
    for language in ("en", "de"):
        browser.script("localStorage.setItem('meshpost.language', arguments[0])", language)
        for path in views:
            browser.go(base + path)
            shown(browser, path)
            assert browser.script("return document.documentElement.lang") == language


def upgraded(folder):
    """The same pages under the names of another version, as a package puts them in the place of those that are there."""
    names = {file.name for file in (folder / "packed").iterdir() if file.suffix != ".gz"}
    renamed = {name: re.sub(r"-[A-Z0-9]{8}\.", lambda found: "-" + found[0][1:-1][::-1] + ".", name) for name in names}
    for file in [*folder.rglob("*.html"), *folder.rglob("*.js"), *folder.rglob("*.css")]:
        words = file.read_text()
        for name, newer in renamed.items():
            words = words.replace(name, newer)
        file.write_text(words)
    for file in folder.rglob("*.gz"):
        file.unlink()
    for name, newer in renamed.items():
        (folder / "packed" / name).rename(folder / "packed" / newer)


@test
def an_open_page_outlives_an_upgrade(world):
    """Its files are gone, and no service worker has them: what it lacks it says, and what is opened next is the new version's."""
    if not world.host.command:
        return
    with packed() as folder, rigs.host_of(world, "--pages", str(folder / "pages")) as site:
        browser = site.browser()
        browser.command("Network.enable")
        browser.command("Network.setBypassServiceWorker", bypass=True)
        browser.go(site.host.base + "/conversations")
        browser.until("conversations", lambda: browser.all("a.conversation"))
        browser.until("what comes behind the first view", lambda: browser.all('link[rel="manifest"]'))
        before = browser.script("return document.querySelector('script[src]').src")
        upgraded(folder / "pages")
        browser.click('[data-tab="nodes"]')
        browser.shows("This view could not be loaded.", "#main")
        browser.press("#main [role=alert] button", "Try again")
        shown(browser, "/nodes")
        assert browser.script("return document.querySelector('script[src]').src") != before
        # Once more, and the stream begins anew, as after the restart of an upgrade: it knows before anything is lacking.
        browser.until("what comes behind the first view", lambda: browser.all('link[rel="manifest"]'))
        before = browser.script("return document.querySelector('script[src]').src")
        upgraded(folder / "pages")
        browser.script("dispatchEvent(new Event('pagehide')); dispatchEvent(new Event('pageshow'))")
        browser.shows("newer version", ".bar")
        browser.click('[data-tab="map"]')
        browser.until("the new version", lambda: browser.script("return document.querySelector('script[src]').src") != before and browser.path() == "/map")
        shown(browser, "/map")
        browser.until("no word of it", lambda: "newer version" not in browser.text())


@test
def packed_pages_of_a_gateway(world):
    if not world.host.command:
        return
    views = (*VIEWS, f"/nodes/{r1(world)['key']}", f"/conversations/{PUBLIC}?details=1")
    with packed() as folder, rigs.host_of(world, "--pages", str(folder / "pages")) as site:
        site.browser()  # signs in; the one that is measured has been nowhere yet
        browser = site.open("/conversations")
        browser.until("conversations", lambda: browser.all("a.conversation"))
        files = {path: size for path, _, size in browser.script(FILES)}
        requests = first_requests(browser)
        print(f"        first view, packed: {len(requests)} requests, {len(files)} files, {sum(files.values())} bytes")
        assert len(files) == MOST_FILES and 10_000 < sum(files.values()) < MOST_BYTES, files
        assert MOST_FILES < len(requests) <= MOST_REQUESTS, requests
        for language in ("de", "en"):
            browser = site.open("/conversations", language=language)
            walk(browser, site.host.base, views)
        # Behind the first view, for who installs the pages.
        browser.until("the manifest", lambda: browser.all('link[rel="manifest"]'))
        without_a_line(browser, site.host.base, views, site.host.kill)


@test
def packed_pages_of_a_hub(world):
    if not world.host.command:
        return
    with packed() as folder:
        port = rigs.free_port()
        (folder / "token").write_text(secrets.token_hex(24))
        (folder / "hub.toml").write_text(f'port = {port}\ndatabase = "{folder}/hub.db"\n[web]\nurl = "http://127.0.0.1:{port}"\npages = "{folder}/pages"\n[[token]]\nfile = "{folder}/token"\naccess = "all"\n')
        program, base = world.host.programs / "meshpost-hub", f"http://127.0.0.1:{port}"
        hub = subprocess.Popen([program, "serve", "--config", folder / "hub.toml"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        browser = None
        try:
            rigs.until("the hub", lambda: rigs.http.client.HTTPConnection("127.0.0.1", port).connect() is None)
            subprocess.run([program, "people", "add", "ana", "--role", "administer", "--config", folder / "hub.toml"], input="correct horse", text=True, check=True, stdout=subprocess.DEVNULL)
            for language in ("de", "en"):
                if browser:
                    browser.close()
                browser = Browser(language=language)
                browser.go(base + "/fleet")
                browser.type("#signin-person", "ana")
                browser.type("#signin-field", "correct horse")
                browser.click(".signin-card button")
                shown(browser, "/fleet")
                # Again, and signed in: what a first view has.
                browser.go(base + "/fleet")
                shown(browser, "/fleet")
                requests = first_requests(browser)
                print(f"        first view of a hub, packed: {len(requests)} requests")
                assert MOST_FILES < len(requests) <= MOST_REQUESTS, requests
                walk(browser, base, HUB_VIEWS)

            def end():
                os.killpg(hub.pid, signal.SIGKILL)
                hub.wait()

            without_a_line(browser, base, HUB_VIEWS, end)
            refused = browser.refusals()
            assert not refused, f"the browser refused or threw: {refused}"
        finally:
            if browser:
                browser.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(hub.pid, signal.SIGKILL)
            hub.wait()

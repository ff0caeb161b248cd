#!/usr/bin/env python3
"""firstview.py PROGRAMS: how soon the pages show something on a slow line, in a real browser, and how much that takes.

Between the browser and `meshpost web` lies Tests/Doubles/shapedline.py with 50 KB/s and a round trip of 100 ms, so it needs root; the files are those of the package
(`deploy/pages/pack`). Each view is opened by a browser that has been nowhere yet and is signed in, until it shows what it is for; and the first one again, with what
the browser has kept: as over HTTP, and as over https, where it has a service worker. Beside each: the bare transfer of as many bytes by one request on the same line, in the same run. Requests are those that were answered by
then, and the stream.

    --runs 5  --rate 50000  --delay 0.05  --hub  --only NAME  --pages FOLDER  --verbose
"""
import argparse
import asyncio
import json
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "Tests/pages"), str(ROOT / "Tests/Doubles")]
from gateway import free_port, status, until  # noqa: E402

PUBLIC = "channel:1155f1870f917786"
# The first of what it wants to see, and when: noted by the page itself.
WATCH = """
window.seen = null;
new MutationObserver((_, observer) => {
  if (!document.querySelector("%s")) return;
  requestAnimationFrame(() => { window.seen ??= performance.now(); });
  observer.disconnect();
}).observe(document, { childList: true, subtree: true });
"""
GATEWAY = {"Conversations": ("/conversations", "a.conversation", False), "Conversations, again": ("/conversations", "a.conversation", "http"),
           "Conversations, again, as over https": ("/conversations", "a.conversation", "https"),
           "a chat": (f"/conversations/{PUBLIC}", "article[data-cursor]", False), "Nodes": ("/nodes", "main .node-link", False), "Map": ("/map", "main .map-row", False),
           "Air": ("/air", "main h1", False), "Gateway": ("/gateway", "main .card .facts", False)}
HUB = {"Fleet": ("/fleet", ".fleet-row .node-link", False), "Fleet, again": ("/fleet", ".fleet-row .node-link", "http"),
       "Fleet, again, as over https": ("/fleet", ".fleet-row .node-link", "https"), "Messages": ("/messages", ".hub-message", False),
       "Coverage": ("/coverage", ".map-row, .empty", False), "Alerts": ("/alerts", "main .empty, main .hub-list li", False), "Commands": ("/commands", "#command-text", False),
       "People": ("/people", ".hub-list li", False)}


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rate", type=int, default=50_000, help="bytes a second, each way")
    parser.add_argument("--delay", type=float, default=0.05, help="seconds one way")
    parser.add_argument("--hub", action="store_true", help="the views of a hub, with three gateways")
    parser.add_argument("--only", help="views whose name has this")
    parser.add_argument("--pages", type=pathlib.Path, help="a folder with the pages, in place of the package's")
    parser.add_argument("--verbose", "-v", action="store_true", help="each file, when it was asked for and when it was there")
    parser.add_argument("--near", help=argparse.SUPPRESS)
    parser.add_argument("--far", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


# On the far side: what leads to the host's port, and a server that sends as many bytes as it is asked for.

def far(port):
    import passage

    async def bare(reader, writer):
        count = int(await reader.readline())
        writer.write(bytes(count))
        await writer.drain()
        writer.close()

    async def main():
        async with await asyncio.start_server(passage.to(port), "0.0.0.0", 8800), await asyncio.start_server(bare, "0.0.0.0", 8801):
            print("ready", flush=True)
            await asyncio.Event().wait()

    asyncio.run(main())


# On the near side: the browser.

def near(place):
    """Reads an order a line, answers each with a line."""
    from browser import Browser
    plan = json.loads(pathlib.Path(place).read_text())
    for order in map(json.loads, sys.stdin):
        if order["do"] == "bare":
            began = time.monotonic()
            with socket.create_connection((plan["address"], 8801)) as connection:
                connection.sendall(f"{order['bytes']}\n".encode())
                while connection.recv(65536):
                    pass
            answer = {"ms": (time.monotonic() - began) * 1000}
        else:
            again = order.get("again", False)
            browser = Browser(trusted=f"http://{plan['address']}:8800" if again == "https" else None)
            try:
                browser.command("Network.enable")
                browser.driver.execute_cdp_cmd("Network.setCookie", plan["cookie"])
                browser.command("Page.addScriptToEvaluateOnNewDocument", source=WATCH % order["wanted"])
                if again:
                    browser.go(f"http://{plan['address']}:8800{order['path']}")
                    browser.until(order["wanted"], lambda: browser.script("return window.seen"), 60)
                    # What comes behind it, too: the files that are kept, and the answers.
                    browser.until("what is kept", lambda: browser.script("return localStorage.getItem('meshpost.known')"), 60)
                    if again == "https":
                        browser.until("its worker", lambda: browser.script("return navigator.serviceWorker?.controller"), 120)
                    time.sleep(10)
                    browser.go("about:blank")
                print(json.dumps({"ready": True}), flush=True)
                sys.stdin.readline()
                browser.driver.set_page_load_timeout(60)
                browser.go(f"http://{plan['address']}:8800{order['path']}")
                shown = browser.until(order["wanted"], lambda: browser.script("return window.seen"), 60)
                entries = browser.script("""return [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
                  .filter((one) => one.responseEnd && one.responseEnd <= arguments[0]).map((one) => [new URL(one.name).pathname, Math.round(one.startTime), Math.round(one.responseEnd), one.encodedBodySize, one.decodedBodySize])""", shown)
                paint = browser.script("return performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
                answer = {"shown": shown, "paint": paint, "files": entries}
            finally:
                browser.close()
        print(json.dumps(answer), flush=True)


class Site:
    """A gateway with its radio, the host of the pages, and a line in front of it."""

    def __init__(self, options, folder):
        self.options, self.folder, self.started = options, folder, []
        self.line = self.start(sys.executable, ROOT / "Tests/Doubles/shapedline.py", "--up", options.rate, "--delay", options.delay)
        self.told = json.loads(self.line.stdout.readline())
        if "near" not in self.told:
            sys.exit(f"no line can be made here: {self.told}")
        self.counts = {}
        threading.Thread(target=self.read, daemon=True).start()
        port, cookie = self.hub(options.programs) if options.hub else self.gateway(options.programs)
        relay = self.start("nsenter", f"--net={self.told['far']}", sys.executable, __file__, options.programs, "--far", "--near", port)
        assert "ready" in relay.stdout.readline()
        plan = folder / "plan.json"
        plan.write_text(json.dumps({"address": self.told["far_address"], "cookie": {"name": cookie[0], "value": cookie[1], "domain": self.told["far_address"], "path": "/", "httpOnly": True}}))
        self.browser = self.start("nsenter", f"--net={self.told['near']}", sys.executable, __file__, options.programs, "--near", plan)

    def hub(self, programs):
        """Three gateways, sixty messages. Its port, and the cookie of a person."""
        folder, port, token = self.folder, free_port(), "f" * 48
        (folder / "token").write_text(token)
        (folder / "hub.toml").write_text(f'port = {port}\ndatabase = "{folder}/hub.db"\n[web]\nurl = "http://{self.told["far_address"]}:8800"\npages = "{self.pages()}"\n[[token]]\nfile = "{folder}/token"\naccess = "all"\n')
        self.start("nsenter", f"--net={self.told['far']}", programs / "meshpost-hub", "serve", "--config", folder / "hub.toml")
        until("the hub", lambda: self.said(port, "GET", "/session"))
        subprocess.run([programs / "meshpost-hub", "people", "add", "ana", "--role", "administer", "--config", folder / "hub.toml"], input="correct horse", text=True, check=True, stdout=subprocess.DEVNULL)
        for gateway in ("hilltop", "valley", "lake"):
            bodies = [{"text": f"Number {number}: the path over the ridge is three hops", "sender_name": f"N{number % 5}", "channel": "1155f1870f917786", "channel_name": "Public", "sender_time": int(time.time()) - number} for number in range(60)]
            events = [{"seq": number + 1, "at": int(time.time() * 1000), "trusted": True, "kind": "message", "body": body} for number, body in enumerate(bodies)]
            assert self.said(port, "POST", f"/v1/gateways/{gateway}/events", {"epoch": "00" * 4, "events": events}, f"Authorization: Bearer {token}"), gateway
        return port, self.cookie(port, {"person": "ana", "password": "correct horse"})

    def gateway(self, programs):
        """On a radio that hears 80 nodes, with sixty messages. The port of its pages, and the cookie of a session."""
        folder, options = self.folder, self.options
        self.radio = self.start(programs / "meshpost-radio", "--clock", "now", "--tty", f"r0={folder}/tty", "--nodes", "6", "--contacts", "80", "--keep")
        until("the radio", lambda: (folder / "tty").exists())
        (folder / "gw.toml").write_text(f'[radio]\nlink = "serial:{folder}/tty"\n[store]\nlocation = "{folder}/gw.db"\n[control]\nsocket = "{folder}/ctl"\n')
        self.start(programs / "meshpostd", "--config", folder / "gw.toml")
        until("the sync", lambda: status(folder / "ctl")["sync"]["state"] == "synced")
        for number in range(60):
            self.radio.stdin.write(f"chan r{1 + number % 5} 0 Number {number}: the path over the ridge is three hops, and the battery at 3.{number % 90 + 10} V\n")
            self.radio.stdin.flush()
            until("what was said", lambda: status(folder / "ctl")["store"]["messages"] > number)
        port = free_port()
        host = self.start("nsenter", f"--net={self.told['far']}", programs / "meshpost", "web", "--socket", folder / "ctl", "--port", port, "--pages", self.pages())
        secret = urllib.parse.urlparse(next(line for line in host.stdout if "#secret=" in line).split()[1]).fragment.removeprefix("secret=")
        return port, self.cookie(port, {"secret": secret})

    def start(self, *command):
        with open(self.folder / "log", "a") as log:
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        self.started.append(process)
        return process

    def pages(self):
        """As deploy/package lays them out."""
        if self.options.pages:
            return self.options.pages
        subprocess.run([ROOT / "deploy/pages/pack", self.folder / "pages"], check=True)
        return self.folder / "pages"

    def said(self, port, method, path, body=None, *headers):
        """What a host of the far side answers, with its headers; nothing: it refuses, or is not there."""
        words = [part for one in ("Content-Type: application/json", f"Origin: http://127.0.0.1:{port}", *headers) for part in ("-H", one)]
        data = ["-d", json.dumps(body)] if body else []
        return subprocess.run(["nsenter", f"--net={self.told['far']}", "curl", "-sfi", "-X", method, *words, *data, f"http://127.0.0.1:{port}{path}"], capture_output=True, text=True).stdout

    def cookie(self, port, body):
        answer = self.said(port, "POST", "/session", body)
        return next(line for line in answer.splitlines() if line.lower().startswith("set-cookie")).split(": ", 1)[1].split(";")[0].split("=", 1)

    def read(self):
        for text in self.line.stdout:
            self.counts = json.loads(text)

    def carried(self):
        """Bytes that the line has carried to the browser: TCP's payload, and all with its headers."""
        before = self.counts
        self.line.stdin.write("report\n")
        self.line.stdin.flush()
        until("the line's figures", lambda: self.counts is not before)
        return self.counts["down"]["payload"], self.counts["down"]["bytes"]

    def order(self, **what):
        self.browser.stdin.write(json.dumps(what) + "\n")
        self.browser.stdin.flush()

    def answer(self):
        line = self.browser.stdout.readline()
        if not line:
            sys.exit("the browser ended: see " + str(self.folder / "log"))
        return json.loads(line)

    def seen(self, path, wanted, again):
        self.order(do="view", path=path, wanted=wanted, again=again)
        self.answer()
        before = self.carried()
        self.order(go=True)
        found = self.answer()
        found["payload"], found["wire"] = (after - first for after, first in zip(self.carried(), before))
        self.order(do="bare", bytes=found["payload"])
        found["bare"] = self.answer()["ms"]
        return found


def main():
    options = parsed()
    if options.far:
        return far(int(options.near))
    if options.near:
        return near(options.near)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="meshpost-firstview-"))
    site = None
    try:
        site = Site(options, folder)
        print(f"{options.rate / 1000:.0f} KB/s and {options.delay * 2000:.0f} ms round trip, files of the package, median of {options.runs} (least to most)\n")
        print("| view | shown after | first words after | requests | files | bytes of files, as they are | as they go | bytes on the line until then | the same bytes bare | ratio |\n|---|---|---|---|---|---|---|---|---|---|")
        for name, (path, wanted, again) in (HUB if options.hub else GATEWAY).items():
            if options.only and options.only not in name:
                continue
            runs = [site.seen(path, wanted, again) for _ in range(options.runs)]
            shown = sorted(one["shown"] for one in runs)
            last = runs[-1]
            files = [one for one in last["files"] if not one[0].startswith(("/v1/", "/session"))]
            bare = statistics.median(one["bare"] for one in runs)
            middle = statistics.median(shown)
            print(f"| {name} | {middle:.0f} ms ({shown[0]:.0f} to {shown[-1]:.0f}) | {statistics.median(one['paint'] or 0 for one in runs):.0f} ms | {len(last['files']) + 1} | {len(files)} | {sum(one[4] for one in files):,} | {sum(one[3] for one in files):,} "
                  f"| {statistics.median(one['payload'] for one in runs):,.0f} | {bare:.0f} ms | {middle / bare:.2f} |", flush=True)
            if options.verbose:
                for one in sorted(last["files"], key=lambda one: one[1]):
                    print("   ", *one, file=sys.stderr)
    finally:
        for process in reversed(site.started if site else []):
            process.kill()
        if sys.exc_info()[0]:
            print((folder / "log").read_text()[-3000:], file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

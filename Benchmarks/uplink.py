#!/usr/bin/env python3
"""uplink.py PROGRAMS [PART…]: what the relay makes of a thin line. Parts: pipe, ahead, cuts, bytes; all of them without.

Gateway, server and radio are the real programs; between gateway and server lies Tests/Doubles/shapedline.py, so needs root.

pipe    a backlog through lines of several rates, 600 ms round trip, cut every 20 to 60 s for 3 to 10 s
ahead   a message that comes while 10,000 records of nodes wait, at 1.5 KB/s
cuts    the same, with the cuts of pipe
bytes   TCP payload for each message, by kind of upstream, plain and with TLS
broker  a backlog for an MQTT broker at 16 KB/s, 600 ms round trip, without cuts
"""
import argparse
import asyncio
import http.client
import json
import pathlib
import random
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib

from gateway import status, until
from texts import Talk

DOUBLES = pathlib.Path(__file__).resolve().parent.parent / "Tests/Doubles"
SHAPED = DOUBLES / "shapedline.py"
sys.path.append(str(DOUBLES))
import passage  # noqa: E402
PORT, INNER = 8700, 8701
TOKEN = "a-token-for-the-benchmark"
# So many messages that the line is busy for some two minutes.
BACKLOGS = {0.3: 500, 1.5: 2500, 4: 6000, 16: 20000, 250: 40000}
everything = []


def terminate_tls(place):
    """On the far side: TLS in front of a hub, as a proxy does it."""
    async def main():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{place}/server.pem", f"{place}/server.key")
        await (await asyncio.start_server(passage.to(INNER), "0.0.0.0", PORT, ssl=context)).serve_forever()

    asyncio.run(main())


class Door(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, place):
        super().__init__("far", timeout=60)
        self.place = place

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(self.place))


class Site:
    """A gateway with its radio, a server, and a line between them that is cut at first."""

    def __init__(self, name, *line, kind="hub", tls=False, extra="", broker=""):
        self.place, self.kind, self.tls, self.extra, self.started = folder / name, kind, tls, extra, []
        self.broker = broker
        self.place.mkdir()
        inside = INNER if tls else PORT
        self.line = self.start(
            sys.executable, SHAPED, *line, "--door", self.place / "door", inside, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        told = json.loads(self.line.stdout.readline())
        if "near" not in told:
            sys.exit(f"no line can be made here: {told}")
        self.near, self.far, self.address = told["near"], told["far"], told["far_address"]
        self.counts = {}
        threading.Thread(target=self.read, daemon=True).start()
        self.tell("cut")

    def start(self, *command, **more):
        more = {"stdout": subprocess.DEVNULL, **more}
        with open(self.place / "log", "a") as log:
            process = subprocess.Popen([str(word) for word in command], stderr=log, text=True, **more)
        self.started.append(process)
        everything.append(process)
        return process

    def read(self):
        for text in self.line.stdout:
            self.counts = json.loads(text)

    def tell(self, command):
        self.line.stdin.write(command + "\n")
        self.line.stdin.flush()

    def counted(self):
        """The totals of this moment."""
        before = self.counts
        self.tell("report")
        until("the line's figures", lambda: self.counts is not before)
        return self.counts

    def serve(self, others=()):
        inside = ("nsenter", f"--net={self.far}")
        if self.tls and not (self.place / "server.pem").exists():
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                 "-subj", "/CN=far", "-addext", f"subjectAltName=IP:{self.address}", "-keyout", self.place / "server.key", "-out",
                 self.place / "server.pem"], check=True, capture_output=True)
        if self.kind == "mqtt":
            secure = f"certfile {self.place}/server.pem\nkeyfile {self.place}/server.key\n" if self.tls else ""
            (self.place / "mosquitto.conf").write_text(
                f"listener {PORT} 0.0.0.0\n{secure}allow_anonymous true\nuser root\nmax_queued_messages 0\n{self.broker}\n")
            self.servers = [self.start(*inside, "/usr/sbin/mosquitto", "-c", self.place / "mosquitto.conf")]
            return
        (self.place / "token").write_text(TOKEN + "\n")
        address = f'host = "127.0.0.1"\nport = {INNER}' if self.tls else f'host = "0.0.0.0"\nport = {PORT}'
        (self.place / "hub.toml").write_text(
            f'{address}\ndatabase = "{self.place}/hub.db"\n[[token]]\nfile = "{self.place}/token"\naccess = "all"\n')
        self.servers = [self.start(*inside, options.programs / "meshpost-hub", "serve", "--config", self.place / "hub.toml"), *others]
        if self.tls and not others:
            self.servers.append(self.start(*inside, sys.executable, __file__, "--terminate-tls", self.place))
        until("the hub", lambda: self.ask("/healthz") is not None)

    def restart_server(self):
        # What terminates TLS in front of a hub stays: sessions are resumed there. A broker forgets them with its keys.
        for server in self.servers[:1]:
            server.terminate()
            server.wait()
        self.serve(self.servers[1:])

    def gateway(self):
        scheme = {"hub": "http", "mqtt": "mqtt"}[self.kind] + ("s" if self.tls else "")
        keys = {"hub": f'token_file = "{self.place}/token"', "mqtt": 'kind = "mqtt"'}[self.kind]
        trust = f'ca_file = "{self.place}/server.pem"\n' if self.tls else ""
        (self.place / "gw.toml").write_text(
            f'[gateway]\nid = "hilltop"\n[radio]\nlink = "serial:{self.place}/tty"\n[store]\nlocation = "{self.place}/gw.db"\n'
            f'[control]\nsocket = "{self.place}/ctl"\n[[upstream]]\nname = "far"\nurl = "{scheme}://{self.address}:{PORT}"\n'
            f"{keys}\n{trust}{self.extra}\n")
        self.daemon = self.start(
            "nsenter", f"--net={self.near}", options.programs / "meshpostd", "--config", self.place / "gw.toml")
        until("the sync", lambda: self.status()["sync"]["state"] == "synced")

    def radio(self, *arguments):
        self.player = self.start(
            options.programs / "meshpost-radio", "--clock", "now", "--nodes", "2", "--advertise", "--tty", f"r0={self.place}/tty",
            *arguments, stdin=subprocess.PIPE)
        until("the radio", lambda: (self.place / "tty").exists())

    def hear(self, queue, *people):
        """A radio that people, each with a name, write varied messages to."""
        self.talk = Talk(options.seed, *people)
        self.radio("--queue", queue, *self.talk.options(self.place))
        until("the others", lambda: self.talk.is_there(self.place))
        self.talk.introduce(self.place)

    def play(self, line):
        self.player.stdin.write(line + "\n")
        self.player.stdin.flush()

    def end(self, process):
        process.kill()
        process.wait()
        self.started.remove(process)

    def status(self):
        return status(self.place / "ctl")

    def pending(self):
        return self.status()["upstreams"][0]["pending"]

    def resume(self):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.place / "ctl"))
            connection.sendall(b"POST /v1/outbox/resume HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            connection.recv(65536)

    def ask(self, target):
        door = Door(self.place / "door")
        try:
            door.request("GET", target, headers={"Authorization": f"Bearer {TOKEN}"})
            answer = door.getresponse()
            text = answer.read()
            return text if answer.status == 200 else None
        finally:
            door.close()

    def at_hub(self, what="messages"):
        """All rows that the hub has, in its order."""
        rows, after = [], "" if what == "contacts" else "0"
        while (page := self.ask(f"/v1/gateways/hilltop/{what}?after={after}&limit=1000")) is not None:
            page = json.loads(page)
            rows += page[what]
            if (after := page.get("next")) is None:
                break
        return rows

    def close(self):
        for process in self.started:
            process.kill()
            process.wait()


def shape(rate, cuts=True):
    return ["--up", rate, "--delay", options.delay, "--seed", options.seed, *(["--cuts", "20:60:3:10"] if cuts else []),
            *(["--buffer", options.buffer] if options.buffer else []), "--mtu", options.mtu]


def grown(before, after, way, name):
    return after[way][name] - before[way][name]


def once(before, after):
    """TCP payload up and down, without what TCP repeated."""
    return [grown(before, after, way, "payload") - grown(before, after, way, "again") for way in ("up", "down")]


def backlog(site, count):
    """So many messages wait at the gateway, and the line is about to be open."""
    site.serve()
    # Few people: each hears all, which takes the virtual radios longer than the line.
    site.hear(count + 100, 3)
    site.gateway()
    for number in range(1, count + 1):
        site.play(site.talk.line(f" {number}"))
    until("the backlog", lambda: site.status()["store"]["messages"] >= count, 600)
    site.begun, before = time.monotonic(), site.counted()
    site.tell("mend")
    site.resume()
    return before


def waiting_bytes(site):
    """Of events that wait, before compression."""
    return sum(lane["pending_bytes"] for lane in site.status()["upstreams"][0]["lanes"].values())


def drained(site, bound):
    """Seconds until nothing waits; none if the bound came first."""
    while time.monotonic() - site.begun < bound:
        if site.pending() == 0:
            return time.monotonic() - site.begun
        time.sleep(0.2)


def through(rate):
    count = max(1, round(BACKLOGS[rate] * options.size))
    # What the same backlog costs on a line that nothing disturbs.
    clear = Site(f"clear-{rate}", "--up", 10_000_000, "--delay", 0, "--buffer", 10_000_000)
    before = backlog(clear, count)
    drained(clear, 600)
    time.sleep(1)
    needed = once(before, clear.counted())[0]
    clear.close()
    site = Site(f"pipe-{rate}", *shape(rate * 1000))
    before, plain = backlog(site, count), waiting_bytes(site)
    seconds = drained(site, options.bound)
    time.sleep(3)
    after = site.counted()
    texts = [row["body"]["text"] for row in site.at_hub()]
    exact = [text.split()[-1] for text in texts] == [str(number) for number in range(1, len(texts) + 1)]
    site.close()
    spent, up = seconds or options.bound, {name: grown(before, after, "up", name) for name in after["up"]}
    share = len(texts) / count
    row = [
        f"{rate} KB/s", f"{count:,}", f"{seconds:,.0f} s" if seconds else f"{len(texts):,} after {options.bound:,} s",
        f"{len(texts) / spent:,.1f}", f"{plain * share / spent / 1000:,.1f} KB/s",
        f"{100 * needed * share / spent / (rate * 1000):.0f} %", f"{100 * up['bytes'] / spent / (rate * 1000):.0f} %",
        f"{100 * max(0, 1 - needed * share / max(1, up['payload'])):.0f} %", f"{100 * up['again'] / max(1, up['payload']):.1f} %", f"{100 * up['repeated'] / max(1, up['offered']):.0f} %",
        f"{up['bytes'] / max(1, len(texts)):,.0f}", ("yes" if len(texts) == count else "so far") if exact else "NO"]
    return row


def pipe():
    rows = {}

    def one(rate):
        try:
            rows[rate] = through(rate)
        except Exception as error:
            rows[rate] = [f"{rate} KB/s", f"failed: {error}"]
        print("|", " | ".join(rows[rate]), "|", flush=True)

    rates = [float(word) for word in options.rates.split(",")]
    runners = [threading.Thread(target=one, args=(int(rate) if rate >= 2 else rate,)) for rate in rates]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    table(
        ["line", "backlog", "through after", "messages/s", "of events", "goodput", "line used", "more than needed", "carried twice", "TCP repeated", "IP bytes a message", "once, in order"],
        [rows[rate] for rate in sorted(rows)])


def table(head, rows):
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def ahead(cuts=False):
    """Radios come one after another, each with a full table of 1,000 nodes, which is how a gateway has 10,000 records quickly."""
    site = Site("ahead-cuts" if cuts else "ahead", *shape(1500, cuts))
    site.serve()
    for seed in range(1, options.nodes // 1000 + 1):
        site.radio("--contacts", 998, "--max-contacts", 1000, "--seed", seed, "--queue", 1000)
        if seed == 1:
            site.gateway()
        until(
            "the nodes", lambda: site.status()["store"]["contacts"] >= 998 * seed and site.status()["sync"]["state"] == "synced", 300)
        if seed < options.nodes // 1000:
            site.end(site.player)
            (site.place / "tty").unlink(missing_ok=True)
    waiting = site.pending()
    site.tell("mend")
    site.resume()
    time.sleep(20)
    chance, took = random.Random(options.seed), []
    for number in range(options.messages):
        time.sleep(chance.uniform(2, 6))
        begin = time.monotonic()
        site.play(f"chan r1 0 urgent {number}")
        while len(site.at_hub()) <= number and time.monotonic() - begin < options.bound:
            time.sleep(0.1)
        seconds = time.monotonic() - begin
        left = site.pending()
        if seconds >= options.bound:
            print(f"message {number + 1}: not at the hub after {options.bound:,} s; {left:,} of {waiting:,} still waited")
            break
        took.append(seconds)
        print(f"message {number + 1}: {seconds:.1f} s; {left:,} of {waiting:,} still waited", flush=True)
        if left < options.nodes / 20:
            print("the records are all but through: what comes now says nothing")
            break
    if took:
        print(f"median of {len(took)}: {statistics.median(took):.1f} s, longest {max(took):.1f} s", flush=True)
    site.close()


def seen(file):
    """Seqs as a subscriber got them: of events as JSON, or of batches in the compact form."""
    found = []
    for line in file.read_text().split():
        payload = bytes.fromhex(line)
        if payload[:1] == b"{":
            found.append(json.loads(payload)["seq"])
        else:
            text = zlib.decompressobj(-15, zdict=dictionary()).decompress(payload[1:])
            found += [event["seq"] for event in json.loads(text)["events"]]
    return found


def dictionary():
    page = (pathlib.Path(__file__).resolve().parent.parent / "docs/link-dictionary.md").read_text()
    return page.split("```text\n")[1].split("\n```")[0].encode()


def to_broker(name, count, **kind):
    site = Site(f"broker-{name}".replace(" ", "-").replace(",", ""), *shape(16000, cuts=False), kind="mqtt", **kind)
    site.extra += '\nkinds = ["message"]'
    before = backlog(site, count)
    topic = "compact" if "compact" in site.extra else "message"
    listener = ["nsenter", f"--net={site.far}", "mosquitto_sub", "-p", PORT, "-q", 1, "-t", f"meshpost/+/{topic}", "-F", "%x"]
    if site.tls:
        listener += ["--cafile", site.place / "server.pem", "-h", site.address]
    with open(site.place / "seen", "w") as output:
        site.start(*listener, stdout=output)
    seconds = drained(site, options.bound)
    time.sleep(3)
    after, came = site.counted(), seen(site.place / "seen")
    site.close()
    spent, up = seconds or options.bound, {name: grown(before, after, "up", name) for name in after["up"]}
    return [
        name, f"{count:,}", f"{seconds:,.0f} s" if seconds else "–", f"{len(came) / spent:,.0f}",
        f"{100 * up['bytes'] / spent / 16000:.0f} %", f"{(up['payload'] - up['again']) / max(1, len(came)):,.0f}",
        "yes" if came == sorted(set(came)) and len(came) == count else f"NO: {len(set(came)):,} once, {len(came):,} in all"]


def broker():
    kinds = {
        "events as JSON": {}, "events as JSON, TLS": {"tls": True},
        "events as JSON, no limit of messages in flight": {"broker": "max_inflight_messages 0"},
        "events as JSON, set_tcp_nodelay": {"broker": "set_tcp_nodelay true"},
    }
    if not options.before:
        kinds |= {"compact": {"extra": 'format = "compact"'}, "compact, TLS": {"extra": 'format = "compact"', "tls": True}}
    if options.kinds:
        kinds = {name: kinds[name] for name in options.kinds.split(";")}
    rows = [to_broker(name, max(1, round(2000 * options.size)), **kind) for name, kind in kinds.items()]
    table(["form", "backlog", "through after", "messages a second", "line used", "TCP payload a message", "once, in order"], rows)


def cost(name, **kind):
    site = Site(f"bytes-{name}".replace(" ", "-").replace(",", ""), *shape(250_000, cuts=False), **kind)
    site.extra += '\nkinds = ["message"]'
    site.serve()
    site.hear(2100)
    site.gateway()
    site.tell("mend")
    site.resume()

    def taken(count):
        now = site.status()
        return now["store"]["messages"] >= count and now["upstreams"][0]["pending"] == 0

    def settled():
        """The figures when the line has been silent for a while."""
        before = site.counted()
        while True:
            time.sleep(3)
            now = site.counted()
            if all(now[way]["offered"] == before[way]["offered"] and now[way]["waiting"] == 0 for way in ("up", "down")):
                return now
            before = now

    until("the first state", lambda: taken(0))
    site.play("chan r1 0 the first one, for the connection")
    until("the first", lambda: taken(1))
    before = settled()
    for number in range(options.singles):
        site.play(site.talk.line())
        until("a message", lambda: taken(2 + number))
    after = settled()
    single = [count / options.singles for count in once(before, after)]
    # Over HTTP there is a connection only when there is something to be sent.
    site.restart_server()
    if site.kind == "hub" and "link" in site.extra:
        again = None
    else:
        site.resume()
        until("the connection", lambda: site.counted()["up"]["offered"] > after["up"]["offered"] + 150)
        again = once(after, settled())
    count = 1 + options.singles
    site.tell("cut")
    for _ in range(2000):
        site.play(site.talk.line())
    until("the backlog", lambda: site.status()["store"]["messages"] >= count + 2000)
    before = site.counted()
    site.tell("mend")
    site.resume()
    until("the backlog's end", lambda: taken(count + 2000), 300)
    after = settled()
    many = [count / 2000 for count in once(before, after)]
    site.close()
    return [name, *(f"{figure:,.0f}" for figure in single), *(f"{figure:,.0f}" for figure in many),
            f"{again[0]:,}" if again else "–", f"{again[1]:,}" if again else "–"]


def cost_of_bytes():
    kinds = {
        "hub, live": {}, "hub, live, TLS": {"tls": True}, "hub, HTTP": {"extra": 'link = "http"'},
        "hub, HTTP, TLS": {"extra": 'link = "http"', "tls": True}, "MQTT 5": {"kind": "mqtt"}, "MQTT 5, TLS": {"kind": "mqtt", "tls": True},
        "MQTT 5, compact": {"kind": "mqtt", "extra": 'format = "compact"'},
        "MQTT 5, compact, TLS": {"kind": "mqtt", "extra": 'format = "compact"', "tls": True},
    }
    if options.kinds:
        kinds = {name: kinds[name] for name in options.kinds.split(";")}
    rows = {}

    def one(name):
        try:
            rows[name] = cost(name, **kinds[name])
        except Exception as error:
            rows[name] = [name, f"failed: {error!r}"]
        print("|", " | ".join(rows[name]), "|", flush=True)

    runners = [threading.Thread(target=one, args=(name,)) for name in kinds]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    table(["upstream", "up, single", "down", "up, backlog", "down", "connecting again, up", "down"], [rows[name] for name in kinds])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--terminate-tls"]:
        sys.exit(terminate_tls(sys.argv[2]))
    parts = {"pipe": pipe, "ahead": ahead, "cuts": lambda: ahead(cuts=True), "bytes": cost_of_bytes,
             "broker": broker}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], default=[], metavar="PART")
    parser.add_argument("--rates", default="0.3,1.5,4,16,250", help="KB/s, of " + ", ".join(str(rate) for rate in BACKLOGS))
    parser.add_argument("--size", type=float, default=1, help="of the backlogs: times the usual one")
    parser.add_argument("--bound", type=int, default=900, help="seconds after which a wait is given up, and said")
    parser.add_argument("--delay", type=float, default=0.3, help="seconds one way")
    parser.add_argument("--buffer", type=int, help="bytes; of 2 s, at least 3000, if not given")
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--nodes", type=int, default=10000)
    parser.add_argument("--messages", type=int, default=20)
    parser.add_argument("--singles", type=int, default=100)
    parser.add_argument("--before", action="store_true", help="programs that know no compact form")
    parser.add_argument("--kinds", help="of upstreams whose bytes are counted, with ; between: as the table calls them")
    parser.add_argument("--seed", type=int, default=1, help="of cuts and of what people write (texts.py); printed")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="meshpost-uplink-"))
    print(f"seed {options.seed}", flush=True)
    try:
        for part in options.parts or parts:
            parts[part]()
    finally:
        for process in everything:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)

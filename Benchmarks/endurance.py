#!/usr/bin/env python3
"""endurance.py PROGRAMS: a gateway and a hub at full speed for as long as --minutes says, and whether anything of them grows.

A virtual radio in a busy mesh, a gateway with a hub on the live link, a broker (mosquitto), a webhook, a hook that answers, a proxy and pages. Messages come as fast
as the slowest of them takes them, or as --rate allows; adverts and foreign traffic between them. The gateway sends, is commanded by the hub and by a client of the
broker, and is read: browsers, followers, clients of the proxy, subscribers and readers of the hub come and go, some of them without a word.

Every --every seconds a row of FOLDER/endurance.csv has what both programs use. At the end a table says of each figure its mean after the first quarter, and its slope with
the standard error (of the means of 24 stretches); it grows if the slope is above four errors, and comes to more than a fiftieth of the mean. Pictures:
FOLDER/endurance-….svg. The gateway's bounds are small, so that it reaches them soon: the journal's within minutes, those of messages with the first sweep, after an hour, so
its database is judged from then on. The hub keeps everything: its database has to grow.

    --minutes 120  --rate 200  --every 10  --folder endurance  --messages-max 20000  --journal "8 MiB"  --pages Sources/Pages  --seed 1
    --weeks 8     invented weeks at ten times a busy mesh in their place: meshpost-simulate has gateway, hub and servers in one process, and compares what arrived
    --draw FILE   only the table and the pictures of an earlier run's CSV
"""
import argparse
import csv
import http.client
import http.server
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.dont_write_bytecode = True
from gateway import free_port, status, until  # noqa: E402
from texts import text  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
NODES, PEERS, TOKEN, PASSWORD = 24, 4, "a-token-of-the-endurance-run", "a password of the endurance run"
TICKS = os.sysconf("SC_CLK_TCK")


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path, nargs="?")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--rate", type=float, default=200, help="messages a second at most")
    parser.add_argument("--every", type=float, default=10)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("endurance"))
    parser.add_argument("--messages-max", type=int, default=20000)
    parser.add_argument("--journal", default="8 MiB")
    parser.add_argument("--pages", type=pathlib.Path, default=ROOT / "Sources/Pages")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--weeks", type=int)
    parser.add_argument("--draw", type=pathlib.Path)
    return parser.parse_args()


class Counts:
    """What the clients did, by name. An error of a client is a count, too: it tries again."""

    def __init__(self):
        self.lock, self.counts, self.last = threading.Lock(), {}, {}

    def add(self, name, number=1):
        with self.lock:
            self.counts[name] = self.counts.get(name, 0) + number

    def error(self, name, error):
        self.add(f"{name} failed")
        self.last[name] = repr(error)

    def __getitem__(self, name):
        return self.counts.get(name, 0)


class Site:
    """All programs, and the folder of their files."""

    def __init__(self, chosen, folder):
        self.options, self.folder, self.started, self.threads = chosen, folder, [], []
        self.counts, self.over, self.behind, self.queue = Counts(), threading.Event(), False, {"queued": 0, "handed_over": 0}
        self.hub_port, self.broker, self.hook_port, self.proxy, self.web = (free_port() for _ in range(5))

    def set_up(self):
        chosen, folder = self.options, self.folder
        (folder / "token").write_text(TOKEN + "\n")
        (folder / "hub.toml").write_text(
            f'port = {self.hub_port}\ndatabase = "{folder}/hub.db"\nmax_bytes_per_day = 0\n[[token]]\nfile = "{folder}/token"\naccess = "all"\n')
        (folder / "mosquitto.conf").write_text(f"listener {self.broker} 127.0.0.1\nallow_anonymous true\npersistence false\nset_tcp_nodelay true\nlog_type error\n")
        self.start("mosquitto", "-c", folder / "mosquitto.conf")
        self.hub = self.start(chosen.programs / "meshpost-hub", "serve", "--config", folder / "hub.toml")
        self.radio = self.start(
            chosen.programs / "meshpost-radio", "--clock", "now", "--nodes", NODES, "--advertise", "--airtime", 0, "--contacts", 100, "--queue", 256, "--seed", chosen.seed,
            "--tty", f"r0={folder}/tty", "--keep", stdout=subprocess.PIPE)
        threading.Thread(target=self.listen, daemon=True).start()
        webhook = http.server.ThreadingHTTPServer(("127.0.0.1", self.hook_port), self.receiver())
        webhook.daemon_threads = True
        threading.Thread(target=webhook.serve_forever, daemon=True).start()
        until("the radio", lambda: (folder / "tty").exists())
        self.configure([])
        self.gateway = self.start(chosen.programs / "meshpostd", "--config", folder / "gw.toml")
        until("the sync", lambda: status(folder / "ctl")["sync"]["state"] == "synced")
        self.keys = [row["key"] for row in self.rows("/v1/contacts") if row["name"] in {f"r{number}" for number in range(1, PEERS + 1)}]
        # The hook answers one node, whose key is known only now.
        self.configure(self.keys[:1])
        self.gateway.send_signal(1)
        subprocess.run([chosen.programs / "meshpost", "--socket", folder / "ctl", "web", "password"], input=PASSWORD + "\n", text=True, check=True, stdout=subprocess.DEVNULL)
        until("the link", lambda: {one["name"]: one for one in status(folder / "ctl")["upstreams"]}["hub"].get("link") == "live" and len(status(folder / "ctl")["upstreams"]) == 4)

    def configure(self, hooked):
        user = 'user = "nobody"\n' if os.geteuid() == 0 else ""
        hook = "" if not hooked else (
            f'[[hook]]\nname = "answer"\nkinds = ["message"]\ncontacts = ["{hooked[0]}"]\nchannels = []\nrun = ["/bin/sh", "-c", "cat >/dev/null; echo heard you"]\n'
            f'reply = true\nreplies_per_minute = 60\nreplies_per_hour = 3600\n{user}')
        (self.folder / "gw.toml").write_text(f"""
            [gateway]
            id = "hill"
            [radio]
            link = "serial:{self.folder}/tty"
            [store]
            location = "{self.folder}/gw.db"
            messages_max = {self.options.messages_max}
            journal_max_size = "{self.options.journal}"
            [messaging]
            airtime_per_hour_s = 3600
            messages_per_hour = 3600
            channel_airtime_per_hour_s = 3600
            channel_messages_per_hour = 3600
            [control]
            socket = "{self.folder}/ctl"
            [web]
            listen = "127.0.0.1:{self.web}"
            pages = "{self.options.pages.resolve()}"
            [[proxy]]
            name = "apps"
            listen = "127.0.0.1:{self.proxy}"
            [[upstream]]
            name = "hub"
            url = "http://127.0.0.1:{self.hub_port}"
            token_file = "{self.folder}/token"
            allow = ["send", "status", "documents"]
            commands_per_minute = 60
            [[upstream]]
            name = "broker"
            kind = "mqtt"
            url = "mqtt://127.0.0.1:{self.broker}"
            allow = ["send"]
            commands_per_minute = 60
            [[upstream]]
            name = "webhook"
            kind = "webhook"
            url = "http://127.0.0.1:{self.hook_port}/"
            batch = true
            """ + hook)

    def receiver(self):
        counts, chance = self.counts, random.Random(self.options.seed)

        class Receiver(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                is_well = chance.random() > 0.005
                counts.add("events at the webhook", len(body["events"]) if is_well else 0)
                self.send_response(204 if is_well else 503)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        return Receiver

    def start(self, *command, stdout=subprocess.DEVNULL):
        log = open(self.folder / "log", "a")
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=stdout, stderr=log, text=True, preexec_fn=os.setpgrp)
        self.started.append(process)
        return process

    def end(self):
        self.over.set()
        for process in reversed(self.started):
            process.kill()
            process.wait()

    # Requests

    def ask(self, method, target, body=None):
        """The answer of the control socket."""
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(60)
        connection.sock.connect(str(self.folder / "ctl"))
        connection.request(method, target, json.dumps(body) if body is not None else None, {"Connection": "close"})
        return connection.getresponse().read()

    def rows(self, target):
        return [json.loads(line) for line in self.ask("GET", target).splitlines()]

    def tcp(self, port, method, target, body=None, headers={}):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request(method, target, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def follow(self, make, request, seconds):
        """A stream that is read for some seconds, and then left without a word. Returns its bytes."""
        count, end = 0, time.monotonic() + seconds
        with make() as connection:
            connection.sendall(request)
            connection.settimeout(1)
            while time.monotonic() < end and not self.over.is_set():
                try:
                    data = connection.recv(65536)
                except TimeoutError:
                    continue
                if not data:
                    break
                count += len(data)
        return count

    # Who is there

    def tell(self, line):
        with self.counts.lock:
            self.radio.stdin.write(line + "\n")
            self.radio.stdin.flush()

    def listen(self):
        """What the radio says of its queue."""
        for line in self.radio.stdout:
            if '"stats"' in line:
                self.queue = json.loads(line)

    def air(self, chance):
        """Messages on the channel and to this node, adverts, and what others say to each other. Says no more while a server is behind."""
        begun, said = time.monotonic(), 0
        while not self.over.is_set():
            if self.behind:
                begun, said = time.monotonic(), 0
                time.sleep(0.05)
                continue
            due = (time.monotonic() - begun) * self.options.rate
            while said < due and not self.over.is_set():
                said += 1
                one, other = chance.sample(range(1, NODES), 2)
                words = f"{text(chance)} {self.counts['messages']}"
                draw = chance.random()
                if draw < 0.7:
                    self.tell(f"chan r{one} 0 {words}")
                elif draw < 0.85:
                    self.tell(f"dm r{chance.randint(1, PEERS)} r0 {words}")
                elif draw < 0.95:
                    self.tell(f"dm r{one} r{other} {words}")
                else:
                    self.tell(f"advert r{one}")
                self.counts.add("messages", draw < 0.85)
            time.sleep(0.02)

    def watch(self, chance):
        """Whether the gateway or a server is behind: the radio's queue, which has the size of a real one, and the journal stay short of their bounds."""
        pending = max(one["pending"] for one in status(self.folder / "ctl")["upstreams"])
        for _ in range(5):
            self.tell("stats r0")
            time.sleep(0.1)
            self.behind = pending > 1000 or self.queue["queued"] > 40

    def sender(self, chance):
        answer = json.loads(self.ask("POST", "/v1/send", {"to": chance.choice(self.keys), "text": text(chance)}))
        self.counts.add("sent", "messages" in answer)
        if chance.random() < 0.1 and answer.get("messages"):
            self.ask("POST", f"/v1/outgoing/cancel?id={answer['messages'][0]['id']}")
        time.sleep(chance.uniform(1, 4))

    def commander(self, chance):
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        command = chance.choice([{"command": "status"}, {"command": "send", "to": chance.choice(self.keys), "text": text(chance)}])
        self.tcp(self.hub_port, "POST", "/v1/gateways/hill/commands?wait_s=10", command, headers)
        self.tcp(self.hub_port, "PUT", f"/v1/gateways/hill/documents/node/{chance.choice(self.keys)}/note", {"value": text(chance)}, headers)
        self.counts.add("commands")
        time.sleep(chance.uniform(3, 9))

    def publisher(self, chance):
        command = json.dumps({"id": f"c{time.monotonic_ns()}", "command": "send", "to": chance.choice(self.keys), "text": text(chance)})
        subprocess.run(["mosquitto_pub", "-p", str(self.broker), "-q", "1", "-t", "meshpost/hill/command", "-m", command], check=True, timeout=60)
        self.counts.add("commands of the broker's client")
        time.sleep(chance.uniform(5, 15))

    def subscriber(self, chance):
        """One that comes and goes, beside the one that stays and counts."""
        process = subprocess.Popen(["mosquitto_sub", "-p", str(self.broker), "-t", "meshpost/#"], stdout=subprocess.DEVNULL)
        self.over.wait(chance.uniform(5, 40))
        process.kill()
        process.wait()

    def counter(self, chance):
        process = subprocess.Popen(["mosquitto_sub", "-p", str(self.broker), "-q", "1", "-t", "meshpost/hill/+", "-F", "%t"], stdout=subprocess.PIPE, text=True)
        self.started.append(process)
        for line in process.stdout:
            self.counts.add("events at the broker", not line.rstrip().endswith(("/status", "/command", "/result")))

    def browser(self, chance):
        """Signs in, loads what pages load, and follows for a while."""
        origin = {"Origin": f"http://127.0.0.1:{self.web}", "Content-Type": "application/json"}
        answer, _ = self.tcp(self.web, "POST", "/session", {"password": PASSWORD}, origin)
        cookie = {"Cookie": answer.getheader("Set-Cookie").split(";")[0]}
        for _ in range(chance.randint(2, 6)):
            for target in ("/", "/v1/conversations", "/v1/messages?limit=50", "/v1/contacts", "/v1/status", f"/v1/messages?q={chance.choice(['the', 'wetter', 'snow'])}&limit=20"):
                self.tcp(self.web, "GET", target, headers=cookie)
            self.counts.add("streams of browsers")
            self.follow(lambda: socket.create_connection(("127.0.0.1", self.web)),
                        f"GET /v1/live HTTP/1.1\r\nHost: 127.0.0.1:{self.web}\r\nCookie: {cookie['Cookie']}\r\n\r\n".encode(), chance.uniform(3, 30))
        if chance.random() < 0.8:
            self.tcp(self.web, "DELETE", "/session", headers=origin | cookie)

    def follower(self, chance):
        def connect():
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(str(self.folder / "ctl"))
            return connection
        target = chance.choice(["/v1/journal?follow=1", "/v1/messages?follow=1", "/v1/packets", "/v1/live"])
        self.follow(connect, f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), chance.uniform(1, 20))
        self.ask("GET", "/metrics")
        self.counts.add("followers")

    def companion(self, chance):
        """A client of the proxy, which asks for its messages."""
        frames = [b"\x16\x03", b"\x01\x03      endurance", b"\x04", b"\x14"] + [b"\x0a"] * 50
        with socket.create_connection(("127.0.0.1", self.proxy), timeout=60) as connection:
            for frame in frames:
                connection.sendall(b"<" + struct.pack("<H", len(frame)) + frame)
                connection.recv(65536)
        self.counts.add("clients of the proxy")
        time.sleep(chance.uniform(0.5, 5))

    def reader(self, chance):
        headers = {"Authorization": f"Bearer {TOKEN}"}
        for target in ("/v1/fleet", "/v1/messages?order=newest&limit=50", "/v1/messages?order=newest&q=the&limit=20", "/v1/nodes?limit=100", "/metrics"):
            self.tcp(self.hub_port, "GET", target, headers=headers)
        self.follow(lambda: socket.create_connection(("127.0.0.1", self.hub_port)),
                    f"GET /v1/live HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode(), chance.uniform(3, 30))
        self.counts.add("readers of the hub")

    def stranger(self, chance):
        """Somebody who may nothing, at each port."""
        for port in (self.web, self.hub_port):
            self.tcp(port, "GET", "/v1/messages", headers={"Authorization": "Bearer nobody-knows-this"})
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.sendall(b"GET /v1/mess")
                time.sleep(chance.uniform(0, 2))
        self.counts.add("strangers")

    def begin(self):
        crowd = [(self.air, 1), (self.watch, 1), (self.counter, 1), (self.sender, 2), (self.commander, 1), (self.publisher, 1), (self.subscriber, 2), (self.browser, 3), (self.follower, 3),
                 (self.companion, 2), (self.reader, 3), (self.stranger, 1)]
        for number, work in enumerate(work for work, times in crowd for _ in range(times)):
            thread = threading.Thread(target=self.again, args=(work, random.Random(self.options.seed * 1000 + number)), daemon=True)
            self.threads.append(thread)
            thread.start()

    def again(self, work, chance):
        while not self.over.is_set():
            try:
                work(chance)
            except (OSError, ValueError, KeyError, AttributeError, http.client.HTTPException, subprocess.SubprocessError) as error:
                if not self.over.is_set():
                    self.counts.error(work.__name__, error)
                    time.sleep(1)

    # Figures

    def sample(self, begun):
        row = {"seconds": round(time.monotonic() - begun, 1)}
        for name, process, database in (("gateway", self.gateway, "gw.db"), ("hub", self.hub, "hub.db")):
            if process.poll() is not None:
                raise SystemExit(f"the {name} has ended with {process.returncode}: see {self.folder}/log")
            place = pathlib.Path(f"/proc/{process.pid}")
            fields = {line.split()[0]: int(line.split()[1]) for line in (place / "smaps_rollup").read_text().splitlines()[1:]}
            spent = (place / "stat").read_text().rsplit(")", 1)[1].split()
            row |= {
                f"{name}_anonymous_kib": fields["Anonymous:"], f"{name}_resident_kib": fields["Rss:"], f"{name}_descriptors": len(os.listdir(place / "fd")),
                f"{name}_threads": len(os.listdir(place / "task")), f"{name}_processor_s": (int(spent[11]) + int(spent[12])) / TICKS,
                f"{name}_database_bytes": (self.folder / database).stat().st_size, f"{name}_log_bytes": (self.folder / f"{database}-wal").stat().st_size}
        now = status(self.folder / "ctl")
        store = now["store"]
        row |= {"stored_messages": store["messages"], "journal_events": store["last_seq"] - store["oldest_seq"] + 1, "journal_bytes": store["journal_bytes"], "events": store["last_seq"],
                "pending": max(one["pending"] for one in now["upstreams"]), "lost": sum(one["lost"] for one in now["upstreams"]),
                "dead_letters": sum(one["dead_letters"] for one in now["upstreams"]), "waiting_outgoing": now["messaging"]["waiting"], "sessions": (now.get("web") or {}).get("sessions", 0),
                "on_the_air": self.counts["messages"], "alerts": len(now.get("alerts", []))}
        return row

    def run(self, file):
        self.begin()
        begun = time.monotonic()
        with open(file, "w", newline="") as output:
            writer = None
            while (now := time.monotonic() - begun) < self.options.minutes * 60:
                time.sleep(self.options.every - now % self.options.every)
                row = self.sample(begun)
                if writer is None:
                    writer = csv.DictWriter(output, row)
                    writer.writeheader()
                writer.writerow(row)
                output.flush()
        self.over.set()
        until("the radio to be empty", lambda: self.tell("stats r0") or time.sleep(0.3) or self.queue["queued"] == 0, 600)
        until("the servers to have everything", lambda: max(one["pending"] for one in status(self.folder / "ctl")["upstreams"]) == 0, 600)
        now = status(self.folder / "ctl")
        received = next(line.split()[1] for line in self.ask("GET", "/metrics").decode().splitlines() if line.startswith("meshpost_messages_received_total "))
        print(f"\nAt the end: {self.counts['messages']:,} messages on the air, {self.queue['handed_over']:,} handed over by the radio, {float(received):,.0f} received; {now['store']['last_seq']:,} events; pending 0, lost {sum(one['lost'] for one in now['upstreams'])}, "
              f"given up {now['store'].get('given_up', 0)}, dead letters {sum(one['dead_letters'] for one in now['upstreams'])}; open alerts: "
              + ("; ".join(alert["text"] for alert in now.get("alerts", [])) or "none"))
        for name, count in sorted(self.counts.counts.items()):
            print(f"* {name}: {count:,}" + (f" (last: {self.counts.last[name.removesuffix(' failed')]})" if name.endswith(" failed") else ""))


# What the figures say

SWEPT, DAY = 3900, 86400
KEPT, FULLEST = "it keeps everything", "not judged: it has the size of its fullest moment"
FIGURES = [  # name of the picture; its title; unit; factor; columns and their names; seconds from which they may not grow, if not the first quarter, or why they may
    ("memory", "Anonymous memory", "MiB", 1 / 1024, {"gateway_anonymous_kib": "gateway", "hub_anonymous_kib": "hub"}, 0),
    ("resident", "Resident memory", "MiB", 1 / 1024, {"gateway_resident_kib": "gateway", "hub_resident_kib": "hub"}, 0),
    ("descriptors", "Open descriptors", "", 1, {"gateway_descriptors": "gateway", "hub_descriptors": "hub"}, 0),
    ("threads", "Threads", "", 1, {"gateway_threads": "gateway", "hub_threads": "hub"}, 0),
    ("store", "The gateway's database", "MiB", 2 ** -20, {"gateway_database_bytes": "database", "journal_bytes": "journal in it"}, SWEPT),
    ("log", "The databases' logs (WAL)", "MiB", 2 ** -20, {"gateway_log_bytes": "gateway", "hub_log_bytes": "hub"}, 0),
    ("journal", "Events in the journal, and waiting", "", 1, {"journal_events": "journal", "pending": "waiting for the slowest server"}, 0),
    ("hub", "The hub's database", "MiB", 2 ** -20, {"hub_database_bytes": "database"}, KEPT),
    ("speed", "Messages a second on the air, and events", "1/s", 1, {"on_the_air_rate": "messages", "events_rate": "events"}, 0),
    ("processor", "Processor", "cores", 1, {"gateway_processor_s_rate": "gateway", "hub_processor_s_rate": "hub"}, 0),
]
# Of the invented weeks: all is one process, and the hub deletes what is older than seven days.
WEEKS = [
    ("heap", "Memory that the allocator has given out", "MiB", 2 ** -20, {"heap_bytes": "gateway, hub and mesh"}, 0),
    ("memory", "Memory of the process", "MiB", 1 / 1024, {"resident_kib": "resident", "anonymous_kib": "anonymous"}, 0),
    ("descriptors", "Open descriptors, and threads", "", 1, {"descriptors": "descriptors", "threads": "threads"}, 0),
    ("store", "The gateway's database", "MiB", 2 ** -20, {"gateway_used_bytes": "in use", "journal_bytes": "journal in it"}, 0),
    ("file", "The gateway's database, with its free pages", "MiB", 2 ** -20, {"gateway_database_bytes": "file"}, FULLEST),
    ("log", "The databases' logs (WAL)", "MiB", 2 ** -20, {"gateway_log_bytes": "gateway", "hub_log_bytes": "hub"}, 0),
    ("journal", "Rows of the gateway", "", 1, {"journal_events": "events in the journal", "stored_messages": "messages"}, 0),
    ("pending", "Events waiting for the slowest server, and dead letters", "", 1, {"pending": "waiting", "dead_letters": "dead letters"}, 0),
    ("hub", "The hub's database", "MiB", 2 ** -20, {"hub_database_bytes": "database"}, 9 * DAY),
    ("hub-events", "Events at the hub", "", 1, {"hub_events": "events"}, 9 * DAY),
    ("wake-ups", "The gateway's wake-ups", "an hour", 3600, {"wake_ups_rate": "wake-ups"}, 0),
    ("written", "Written to files and sockets", "MiB an hour", 3600 / 2 ** 20, {"written_bytes_rate": "all parts"}, 0),
    ("speed", "Messages on the air, and events", "a day", DAY, {"on_the_air_rate": "messages", "events_rate": "events"}, 0),
    ("processor", "Processor", "s for a day", DAY, {"processor_s_rate": "all parts, and the mesh"}, 0),
]
STRETCHES = 24


class Scale:
    """What differs between hours and weeks: the figures, the time of a slope, the axis, and how many rows repeat each other, as those of a day do."""

    def __init__(self, rows):
        self.is_weeks = "wake_ups" in rows[0]
        self.figures, self.prefix, self.cycle = (WEEKS, "endurance-weeks", 6) if self.is_weeks else (FIGURES, "endurance", 1)
        self.per, self.time = (("a week", 7 * DAY), ("days", DAY)) if self.is_weeks else (("an hour", 3600), ("minutes", 60))
        self.whose = "a gateway and a hub at ten times a busy mesh" if self.is_weeks else "a gateway and a hub at full speed"


def read(file):
    rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(open(file))]
    rates = {"on_the_air", "events", "gateway_processor_s", "hub_processor_s", "processor_s", "written_bytes", "wake_ups"} & set(rows[0])
    for before, row in zip(rows, rows[1:]):
        for name in rates:
            row[f"{name}_rate"] = (row[name] - before[name]) / (row["seconds"] - before["seconds"])
    return rows[1:]


def slope(points, cycle):
    """(mean, slope a second, its standard error) by the means of stretches: neighbouring samples are much alike, and would make the error too small."""
    size = max(cycle, len(points) // STRETCHES // cycle * cycle)
    means = [[sum(column) / len(part) for column in zip(*part)] for part in (points[i:i + size] for i in range(0, len(points) - size + 1, size))]
    count = len(means)
    if not count:
        return 0.0, 0.0, float("inf")
    x, y = (sum(column) / count for column in zip(*means))
    spread = sum((a - x) ** 2 for a, _ in means)
    if count < 4 or not spread:
        return y, 0.0, float("inf")
    rise = sum((a - x) * (b - y) for a, b in means) / spread
    rest = sum((b - y - rise * (a - x)) ** 2 for a, b in means)
    return y, rise, (rest / (count - 2) / spread) ** 0.5


def table(rows, scale):
    """Lines of the table, and whether anything grows that should not."""
    end, (words, per) = rows[-1]["seconds"], scale.per
    lines, grows = [f"| figure | mean | highest | {words} | grows |", "|---|---|---|---|---|"], []
    for _, title, unit, factor, columns, settled in scale.figures:
        is_judged = not isinstance(settled, str) and settled < end * 0.9
        late = [row for row in rows if row["seconds"] > max(end / 4, settled if is_judged else 0)]
        for column, name in columns.items():
            values = [row[column] * factor for row in late]
            mean, rise, error = slope([(row["seconds"], value) for row, value in zip(late, values)], scale.cycle)
            is_growing = rise > 4 * error and rise * (end - late[0]["seconds"]) > mean / 50
            if is_growing and is_judged:
                grows.append(f"{title}, {name}")
            verdict = ("**yes**" if is_growing else "no") if is_judged else settled if isinstance(settled, str) else "not judged: its bound is not reached in so short a time"
            lines.append(f"| {title}: {name} | {mean:,.4g} {unit} | {max(values):,.4g} | {rise * per:+,.2g} ± {error * per:,.2g} | {verdict} |")
    return lines, grows


def draw(rows, folder, scale):
    place = ROOT / "Benchmarks/fleet/pictures"
    spec = importlib.util.spec_from_loader("pictures", importlib.machinery.SourceFileLoader("pictures", str(place)))
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    looks, (time_unit, seconds) = ["plain", "compressed"], scale.time
    for short, title, unit, factor, columns, _ in scale.figures:
        picture = pictures.Picture(title, f"{title} of {scale.whose}, over {rows[-1]['seconds'] / seconds:.0f} {time_unit}.", 300)
        picture.text(22, 30, title, size=17, more=' font-weight="600"')
        picture.legend(list(zip(looks, columns.values())))
        times = pictures.round_ticks(rows[-1]["seconds"] / seconds, 6)
        across = pictures.Axis(times, False, pictures.LEFT, pictures.WIDTH - pictures.RIGHT - 8)
        up = pictures.Axis(pictures.round_ticks(max(max(row[column] * factor for column in columns for row in rows), 1e-9)), False, 300 - pictures.FOOT, pictures.HEAD + 34)
        picture.frame(across, up, (time_unit, unit))
        # As many points as can be told apart: of each some rows the highest.
        size = max(1, len(rows) // 360)
        for look, column in zip(looks, columns):
            parts = (rows[index:index + size] for index in range(0, len(rows), size))
            path = "L".join(f"{across(part[-1]['seconds'] / seconds):.1f} {up(max(row[column] for row in part) * factor):.1f}" for part in parts)
            picture.add(f'<path d="M{path}" fill="none" stroke="{pictures.LOOKS[look][0]}" stroke-width="1.6" stroke-linejoin="round"/>')
        (folder / f"{scale.prefix}-{short}.svg").write_text(picture.svg())


def invent(chosen, file):
    """Weeks in invented time. Its exit code says whether everything arrived."""
    with open(file, "w") as output:
        command = [chosen.programs / "meshpost-simulate", chosen.seed, "--weeks", chosen.weeks]
        return subprocess.run([str(word) for word in command], stdout=output).returncode


def measure(chosen, file):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="meshpost-endurance-"))
    folder.chmod(0o755)
    site = Site(chosen, folder)
    try:
        site.set_up()
        site.run(file)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        site.end()
        shutil.copy(folder / "log", chosen.folder / "log")
        shutil.rmtree(folder, ignore_errors=True)


def main():
    chosen = options()
    file, code = chosen.draw, 0
    if not file:
        if not chosen.programs:
            sys.exit("endurance.py: which folder has the release programs?")
        chosen.folder.mkdir(parents=True, exist_ok=True)
        file = chosen.folder / ("weeks.csv" if chosen.weeks else "endurance.csv")
        if chosen.weeks:
            code = invent(chosen, file)
        else:
            measure(chosen, file)
    rows = read(file)
    scale = Scale(rows)
    draw(rows, file.parent, scale)
    lines, grows = table(rows, scale)
    print("\n".join(["", *lines, "", f"Grows: {'; '.join(grows)}" if grows else "Nothing grows that should not."]))
    sys.exit(1 if grows or code else 0)


if __name__ == "__main__":
    main()

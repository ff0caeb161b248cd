#!/usr/bin/env python3
"""doors.py PROGRAMS: what it costs when somebody whom nobody knows knocks at each door, a thousand times.

A gateway with its pages, metrics and two proxies (one for this machine, one that lets in nobody from here), and a hub with its pages and OpenID Connect. Each door
is asked by one client after the other, over a connection that is kept where the server keeps it. Of the program behind it: processor (schedstat, and of
children that compare passwords), bytes written to the disk (/proc/PID/io), calls of fsync and fdatasync in a tenth as many (strace, in a run of its own, because it slows down),
lines of its log, and anonymous memory that has come.

    --times 1000  --only proxy  --json
"""
import argparse
import collections
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent
from gateway import free_port, status, until  # noqa: E402

TOKEN, PASSWORD, FORGED = "a-token-of-the-bench-0", "correct horse", "a" * 64
JSON = "Content-Type: application/json\r\n"

Door = collections.namedtuple("Door", "what request stops", defaults=("",))


def http(method, path, port, headers="", body="", host=None):
    length = f"Content-Length: {len(body)}\r\n" if body or method == "POST" else ""
    origin = f"Origin: http://127.0.0.1:{port}\r\n" if method != "GET" else ""
    return f"{method} {path} HTTP/1.1\r\nHost: {host or f'127.0.0.1:{port}'}\r\n{origin}{headers}{length}\r\n{body}".encode()


def gateway_doors(web, metrics, proxy, closed):
    cookie = f"Cookie: meshpost_{web}={FORGED}\r\n"
    pages = [
        Door("the page", http("GET", "/", web)), Door("a file of it", http("GET", "/pages/app.js", web)), Door("an unknown file", http("GET", "/pages/nothing.js", web)),
        Door("`GET /session`", http("GET", "/session", web)), Door("the same, forged cookie", http("GET", "/session", web, cookie)),
        Door("`DELETE /session`, forged cookie", http("DELETE", "/session", web, cookie + JSON)),
        Door("`POST /session`, wrong password", http("POST", "/session", web, JSON, '{"password":"wrong"}'), "five of an address, then a pause"),
        Door("`GET /v1/status`, no session", http("GET", "/v1/status", web)), Door("by another name", http("GET", "/", web, host="evil.example")),
        Door("no HTTP", b"\x16\x03\x01\x02\x00nonsense\r\n\r\n"), Door("connected, and gone", None, "32 connections"),
    ]
    return [("the gateway's pages", web, pages),
            ("its metrics (this machine)", metrics, [Door("`GET /metrics`", http("GET", "/metrics", metrics)), Door("another path", http("GET", "/v1/status", metrics))]),
            ("a proxy (this machine)", proxy, [Door("connected, and gone", None, "8 clients"), Door("`APP_START`", b"<" + struct.pack("<H", 12) + b"\x01\x03      abcd", "8 clients"), Door("no frame", b"nonsense" * 4, "8 clients")]),
            ("a proxy for others", closed, [Door("connected", None, "`allow_from`")])]


def hub_doors(port):
    cookie, wrong = f"Cookie: meshpost_hub={FORGED}\r\n", "Authorization: Bearer wrong-wrong-wrong\r\n"
    link = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: meshpost-link\r\n"
    journey = f"Cookie: meshpost_oidc=eyJzdGF0ZSI6ImEifQ.{FORGED[:43]}\r\n"
    log = "the log: 10 a minute of an address"
    return [("the hub", port, [
        Door("`GET /healthz`", http("GET", "/healthz", port)), Door("`GET /readyz`", http("GET", "/readyz", port)), Door("`GET /openapi.json`", http("GET", "/openapi.json", port)),
        Door("the page", http("GET", "/", port)), Door("a file of it", http("GET", "/pages/app.js", port)), Door("an unknown file", http("GET", "/pages/nothing.js", port)),
        Door("`GET /v1/fleet`, no token", http("GET", "/v1/fleet", port), log), Door("the same, wrong token", http("GET", "/v1/fleet", port, wrong), log),
        Door("the same, forged cookie", http("GET", "/v1/fleet", port, cookie)),
        Door("64 KiB of events, wrong token", http("POST", "/v1/gateways/hill/events", port, wrong + JSON, "x" * 65536), log),
        Door("a live link, wrong token", http("GET", "/v1/gateways/hill/link", port, wrong + link), log), Door("`POST /v1/e`, unknown key", http("POST", "/v1/e", port, "", "abcdefghijklmnop")),
        Door("`GET /session`, forged cookie", http("GET", "/session", port, cookie)), Door("`DELETE /session`, forged cookie", http("DELETE", "/session", port, cookie + JSON)),
        Door("`POST /session`, wrong password", http("POST", "/session", port, JSON, '{"person":"ana","password":"wrong"}'), "five of an address, then a pause; the audit: 20 rows, and one in 5 min"),
        Door("`/oidc/start`, provider away", http("GET", "/oidc/start", port), "two of an address at once"), Door("`/oidc/back`, forged journey", http("GET", "/oidc/back?code=x&state=a", port, journey)),
        Door("by another name", http("GET", "/", port, host="evil.example")), Door("no HTTP", b"\x16\x03\x01\x02\x00nonsense\r\n\r\n"), Door("connected, and gone", None, "`max_connections`; strangers make room"),
    ])]


class Knocker:
    """Asks and reads the answer, whole where it says how long it is."""

    def __init__(self, port):
        self.port, self.socket = port, None

    def ask(self, request):
        if request is None:
            with socket.create_connection(("127.0.0.1", self.port), timeout=30):
                pass
            return
        for _ in range(2):
            isNew = self.socket is None
            if isNew:
                self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=30)
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                self.socket.sendall(request)
                if self.read():
                    # A refused link is answered, and then nothing more on its connection.
                    if b"Upgrade" in request:
                        self.close()
                    return
            except OSError:
                pass
            self.close()
            if isNew:
                return

    def read(self):
        """False: it was closed."""
        answer = b""
        while b"\r\n\r\n" not in answer:
            data = self.socket.recv(65536)
            if not data:
                return False
            answer += data
            if not answer.startswith(b"HTTP/"):
                # Of a radio's protocol one answer is enough.
                self.close()
                return True
        head, body = answer.split(b"\r\n\r\n", 1)
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if fields.get(b"transfer-encoding") == b"chunked":
            while not body.endswith(b"0\r\n\r\n"):
                body += self.socket.recv(65536)
        else:
            left = int(fields.get(b"content-length", b"0")) - len(body)
            while left > 0:
                data = self.socket.recv(65536)
                if not data:
                    return False
                left -= len(data)
        if fields.get(b"connection") == b"close":
            self.close()
        return True

    def close(self):
        if self.socket:
            self.socket.close()
            self.socket = None


class Program:
    def __init__(self, folder, name, *command):
        self.log = folder / f"{name}.log"
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=open(self.log, "a"), stderr=subprocess.STDOUT)

    @property
    def place(self):
        return pathlib.Path(f"/proc/{self.process.pid}")

    def figures(self):
        tasks = 0
        for task in (self.place / "task").iterdir():
            try:
                tasks += int((task / "schedstat").read_text().split()[0])
            except OSError:
                pass  # it has ended
        fields = (self.place / "stat").read_text().rsplit(")", 1)[1].split()
        children = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK") * 1e9
        written = int(next(line for line in (self.place / "io").read_text().splitlines() if line.startswith("write_bytes")).split()[1])
        memory = int(next(line for line in (self.place / "smaps_rollup").read_text().splitlines() if line.startswith("Anonymous:")).split()[1])
        return [(tasks + children) / 1e6, written, len(self.log.read_bytes().splitlines()), memory]

    def flushes(self, folder, work):
        """How often it makes the disk sure of something while this is done."""
        trace = folder / "trace"
        tracer = subprocess.Popen(["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", trace, "-p", str(self.process.pid)], stderr=subprocess.DEVNULL)
        time.sleep(0.3)
        work()
        time.sleep(1.5)
        tracer.terminate()
        tracer.wait()
        return sum("sync(" in line for line in trace.read_text().splitlines())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--times", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="", help="doors of places that are called so")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="doors-", dir=ROOT / ".build"))
    started = []
    try:
        programs = options.programs
        radio = subprocess.Popen([programs / "meshpost-radio", "--clock", "now", "--tty", f"r0={folder}/tty", "--nodes", "2"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until("the radio", lambda: (folder / "tty").exists())
        web, metrics, proxy, closed, hub_port = (free_port() for _ in range(5))
        (folder / "gw.toml").write_text(f"""
[radio]
link = "serial:{folder}/tty"
[store]
location = "{folder}/gw.db"
[control]
socket = "{folder}/ctl"
metrics_port = {metrics}
[web]
listen = "127.0.0.1:{web}"
pages = "{ROOT}/Sources/Pages"
[[proxy]]
name = "apps"
listen = "127.0.0.1:{proxy}"
[[proxy]]
name = "others"
listen = "127.0.0.1:{closed}"
allow_from = ["192.0.2.1"]
""")
        gateway = Program(folder, "gateway", programs / "meshpostd", "--config", folder / "gw.toml")
        started.append(gateway)
        until("the sync", lambda: status(folder / "ctl")["sync"]["state"] == "synced")
        subprocess.run([programs / "meshpost", "web", "password", "--socket", folder / "ctl"], input=PASSWORD + "\n" + PASSWORD + "\n", text=True, check=True, capture_output=True)
        (folder / "token").write_text(TOKEN + "\n")
        (folder / "secret").write_text("a secret\n")
        (folder / "hub.toml").write_text(f"""
port = {hub_port}
database = "{folder}/hub.db"
[[token]]
file = "{folder}/token"
access = "all"
[web]
url = "http://127.0.0.1:{hub_port}"
pages = "{ROOT}/Sources/Pages"
[web.oidc]
issuer = "http://127.0.0.1:9"
client_id = "bench"
client_secret_file = "{folder}/secret"
default_role = "view"
""")
        hub = Program(folder, "hub", programs / "meshpost-hub", "serve", "--config", folder / "hub.toml")
        started.append(hub)
        until("the hub", lambda: socket.create_connection(("127.0.0.1", hub_port)).close() is None)
        subprocess.run([programs / "meshpost-hub", "people", "add", "ana", "--role", "view", "--config", folder / "hub.toml"], input=PASSWORD + "\n", text=True, check=True, capture_output=True)
        rows = []
        for program, places in ((gateway, gateway_doors(web, metrics, proxy, closed)), (hub, hub_doors(hub_port))):
            for place, port, doors in (one for one in places if options.only in one[0]):
                for door in doors:
                    rows.append(measured(program, place, port, door, options.times, folder))
                    if not options.json:
                        print(line(rows[-1]), flush=True)
        if options.json:
            print(json.dumps(rows))
    except RuntimeError as trouble:
        sys.exit(f"{trouble}: {started[-1].log.read_text()[-2000:]}")
    finally:
        for program in started:
            program.process.terminate()
            program.process.wait()
        radio.terminate()
        shutil.rmtree(folder, ignore_errors=True)


def measured(program, place, port, door, times, folder):
    knocker = Knocker(port)

    def knock(times=times):
        for _ in range(times):
            knocker.ask(door.request)
        knocker.close()

    knocker.ask(door.request)
    time.sleep(0.2)
    before = program.figures()
    knock()
    # What is written is written some time after it was asked for.
    time.sleep(1.5)
    cost = [after - earlier for after, earlier in zip(program.figures(), before)]
    return {"place": place, "door": door.what, "ms": round(cost[0], 1), "bytes": cost[1], "flushes": program.flushes(folder, lambda: knock(times // 10)), "lines": cost[2], "kib": cost[3], "stops": door.stops}


def line(row):
    return f"| {row['place']} | {row['door']} | {row['ms']:,.0f} ms | {row['bytes']:,} | {row['flushes']} | {row['lines']} | {row['kib']} KiB | {row['stops']} |"


main()

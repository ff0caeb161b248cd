#!/usr/bin/env python3
"""Bytes on the wire per message, for each kind of upstream, both ways.

    wire.py PROGRAMS [--messages 100] [--backlog 2000] [--seed 1]

A proxy between gateway and server counts what TCP carries (without TCP's and IP's own headers, without TLS). Single: each message is
acknowledged before the next comes, as in a quiet mesh. Backlog: all at once after an outage. A command: a text of ten bytes to
send, with its answer. The texts are those of texts.py by the seed, which is printed.
"""
import argparse
import http.server
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from gateway import free_port, status, until
from texts import Talk

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("programs", type=pathlib.Path)
arguments.add_argument("--messages", type=int, default=100)
arguments.add_argument("--backlog", type=int, default=2000)
arguments.add_argument("--seed", type=int, default=1)
options = arguments.parse_args()
folder = pathlib.Path(tempfile.mkdtemp(prefix="meshpost-wire-"))
started = []
TOKEN = "a-token-for-the-benchmark"


def start(*command, **more):
    process = subprocess.Popen([str(part) for part in command], stderr=subprocess.DEVNULL, **more)
    started.append(process)
    return process


class Wire:
    """Counts what goes through."""

    def __init__(self, target):
        self.up = self.down = 0
        self.target = target
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.is_cut = False
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            near, _ = self.server.accept()
            try:
                if self.is_cut:
                    raise OSError
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            threading.Thread(target=self.pipe, args=(near, far, "up"), daemon=True).start()
            threading.Thread(target=self.pipe, args=(far, near, "down"), daemon=True).start()

    def pipe(self, source, sink, way):
        try:
            while (data := source.recv(65536)) and not self.is_cut:
                setattr(self, way, getattr(self, way) + len(data))
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            end.close()

    def counted(self):
        count = (self.up, self.down)
        self.up = self.down = 0
        return count


class Hook(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def hub(port):
    (folder / "token").write_text(TOKEN + "\n")
    (folder / "hub.toml").write_text(
        f'port = {port}\ndatabase = "{folder}/hub-{port}.db"\n[[token]]\nfile = "{folder}/token"\naccess = "all"\n')
    start(options.programs / "meshpost-hub", "serve", "--config", folder / "hub.toml")


def broker(port):
    (folder / "mosquitto.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\nmax_queued_messages 0\n")
    start("/usr/sbin/mosquitto", "-c", folder / "mosquitto.conf", stdout=subprocess.DEVNULL)


def measure(name, begin, scheme, extra, command=None):
    target = free_port()
    begin(target)
    until(f"{name} to listen", lambda: socket.create_connection(("127.0.0.1", target), timeout=1).close() is None)
    wire = Wire(target)
    place = folder / name.replace(" ", "-").replace(",", "")
    place.mkdir()
    talk = Talk(options.seed)
    radio = start(
        options.programs / "meshpost-radio", "--clock", "now", "--advertise", "--queue", options.backlog + 100, "--tty", f"r0={place}/tty",
        *talk.options(place), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    until("the radio", lambda: (place / "tty").exists() and talk.is_there(place))
    talk.introduce(place)
    (place / "gw.toml").write_text(
        f'[gateway]\nid = "hilltop"\n[radio]\nlink = "serial:{place}/tty"\n[store]\nlocation = "{place}/gw.db"\n[control]\nsocket = "{place}/ctl"\n'
        f'[[upstream]]\nname = "far"\nurl = "{scheme}://127.0.0.1:{wire.port}"\nkinds = ["message"]\n{extra}\n')
    start(options.programs / "meshpostd", "--config", place / "gw.toml")

    def say(line):
        radio.stdin.write(line + "\n")
        radio.stdin.flush()

    def is_done(messages):
        now = status(place / "ctl")
        return now["store"]["messages"] >= messages and now["upstreams"][0]["pending"] == 0

    until("the sync", lambda: status(place / "ctl")["sync"]["state"] == "synced" and status(place / "ctl")["upstreams"][0]["pending"] == 0)
    say("chan r1 0 the first one, for the connection")
    until("the first", lambda: is_done(1))
    time.sleep(1)
    wire.counted()
    for number in range(options.messages):
        say(talk.line())
        until("a message", lambda: is_done(2 + number))
    single = [count / options.messages for count in wire.counted()]
    wire.is_cut = True
    for _ in range(options.backlog):
        say(talk.line())
    until("the backlog", lambda: status(place / "ctl")["store"]["messages"] >= 1 + options.messages + options.backlog)
    wire.counted()
    wire.is_cut = False
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(place / "ctl"))
        connection.sendall(b"POST /v1/outbox/resume HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        connection.recv(65536)
    until("the backlog's end", lambda: is_done(1 + options.messages + options.backlog))
    time.sleep(0.5)
    backlog = [count / options.backlog for count in wire.counted()]
    asked = ("–", "–")
    if command:
        command(target)
        time.sleep(1)
        asked = tuple(f"{count:,}" for count in wire.counted())
    print(f"| {name} | {single[0]:,.0f} | {single[1]:,.0f} | {backlog[0]:,.0f} | {backlog[1]:,.0f} | {asked[1]} | {asked[0]} |", flush=True)
    for process in started:
        process.kill()
        process.wait()
    started.clear()


def hub_command(port):
    body = json.dumps({"id": "c1", "command": "send", "to": "Public", "text": "ten bytes!"}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/gateways/hilltop/commands", body, {"Authorization": f"Bearer {TOKEN}"})
    answer = json.load(urllib.request.urlopen(request))
    assert answer["state"] == "done", answer


def broker_command(port):
    body = json.dumps({"id": "c1", "command": "send", "to": "Public", "text": "ten bytes!"})
    subprocess.run(["mosquitto_pub", "-p", str(port), "-q", "1", "-t", "meshpost/hilltop/command", "-m", body], check=True)


def hook(port):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()


try:
    token = f'token_file = "{folder}/token"\nallow = ["send"]'
    print(f"seed {options.seed}")
    print("| upstream | up, single | down | up, backlog | down | a command, down | its answer, up |")
    print("|---|---|---|---|---|---|---|")
    measure("hub, live", hub, "http", token, hub_command)
    measure("hub, HTTP", hub, "http", token + '\nlink = "http"')
    measure("MQTT 5", broker, "mqtt", 'kind = "mqtt"\nallow = ["send"]', broker_command)
    measure("MQTT 5, text only", broker, "mqtt", 'kind = "mqtt"\ntemplate = "{{sender_name}}: {{text}}"')
    measure("webhook", hook, "http", 'kind = "webhook"')
    measure("webhook, batches", hook, "http", 'kind = "webhook"\nbatch = true')
    measure("webhook, text only", hook, "http", """kind = "webhook"\ntemplate = '{"text":"{{sender_name}}: {{text}}"}'""")
finally:
    for process in started:
        process.kill()
    shutil.rmtree(folder, ignore_errors=True)

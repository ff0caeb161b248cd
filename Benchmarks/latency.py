#!/usr/bin/env python3
"""How long a message takes from the radio's port to the hub's disk.

    latency.py PROGRAMS [--messages 300]

The clock starts when the frame with the message is written to the gateway. It is on the gateway's disk when the gateway asks for the next
one, and on the hub's disk when the hub's answer `taken` goes back. Messages come one at a time, each after the answer for the last.

Beside it, in turns: two bare processes with the same way to go. The first writes a page, waits for the disk (fdatasync), and passes it on over a
loopback connection; the second does the same, and answers. Prints a table.
"""
import argparse
import os
import pathlib
import random
import selectors
import shutil
import socket
import statistics
import subprocess
import tempfile
import time

from gateway import free_port, status, until

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("programs", type=pathlib.Path)
arguments.add_argument("--messages", type=int, default=300)
options = arguments.parse_args()
folder = pathlib.Path(tempfile.mkdtemp(prefix="meshpost-latency-", dir=options.programs.parent))
started, children = [], []
PAGE = bytes(4096)
# What the radio answers with a message (CHANNEL_MSG, with SNR or without), and how the gateway asks for the next.
MESSAGES, NEXT = (0x08, 0x11), b"<\x01\x00\x0a"


def start(*command, **more):
    process = subprocess.Popen([str(part) for part in command], stderr=subprocess.DEVNULL, **more)
    started.append(process)
    return process


def connected(port):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Between:
    """Passes on what two ends say, in this thread, and gives each piece to `seen` just before."""

    def __init__(self, target, seen):
        self.target, self.seen = target, seen
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        selector.register(self.server, selectors.EVENT_READ, self.accept)

    def accept(self):
        near, _ = self.server.accept()
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            far = connected(self.target)
        except OSError:
            return near.close()
        selector.register(near, selectors.EVENT_READ, lambda: self.carry(near, far, True))
        selector.register(far, selectors.EVENT_READ, lambda: self.carry(far, near, False))

    def carry(self, source, sink, is_gateways):
        try:
            data = source.recv(65536)
            if data:
                # What is compressed cannot be looked at: the hub is not asked for it.
                data = data.replace(b"Sec-WebSocket-Extensions", b"Unsaid-Socket-Extensions")
                self.seen(data, is_gateways)
                return sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            if end.fileno() >= 0:
                selector.unregister(end)
                end.close()


class Times:
    began = stored = taken = None

    def radio(self, data, is_gateways):
        if is_gateways:
            if self.began and not self.stored and NEXT in data:
                self.stored = time.perf_counter()
        elif not self.began and has_message(data):
            self.began = time.perf_counter()

    def hub(self, data, is_gateways):
        if not is_gateways and self.began and not self.taken and is_taken(data):
            self.taken = time.perf_counter()


def has_message(data):
    while len(data) > 3 and data[:1] == b">":
        if data[3] in MESSAGES:
            return True
        data = data[3 + int.from_bytes(data[1:3], "little"):]
    return False


def is_taken(data):
    """A text frame with the number of the batch alone, or, before version 2 of the protocol, with "taken"."""
    return b'"taken"' in data or (data[:1] == b"\x81" and len(data) > 2 and data[2:].isdigit())


def turn_until(condition, limit=60):
    end = time.monotonic() + limit
    while not condition():
        for key, _ in selector.select(0.02):
            if key.fileobj.fileno() >= 0:
                key.data()
        if time.monotonic() > end:
            raise RuntimeError("waited in vain")


def bare(name, onward=None):
    """A process that has what it gets on disk before it passes it on, or answers. Returns its port."""
    server = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if child == 0:
        near, _ = server.accept()
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        far = connected(onward) if onward else None
        with open(folder / name, "wb", buffering=0) as file:
            while data := near.recv(len(PAGE), socket.MSG_WAITALL):
                file.write(data)
                os.fdatasync(file.fileno())
                if far:
                    far.sendall(data)
                    far.recv(1)
                near.sendall(b".")
        os._exit(0)
    children.append(child)
    port = server.getsockname()[1]
    server.close()
    return port


def milliseconds(values):
    values = sorted(values)
    return statistics.median(values) * 1000, values[min(len(values) - 1, len(values) * 99 // 100)] * 1000


try:
    second = bare("second")
    first = connected(bare("first", onward=second))
    selector = selectors.DefaultSelector()
    hub_port, radio_port = free_port(), free_port()
    (folder / "token").write_text("a-token-for-the-benchmark\n")
    (folder / "hub.toml").write_text(
        f'port = {hub_port}\ndatabase = "{folder}/hub.db"\n[[token]]\nfile = "{folder}/token"\naccess = "all"\n')
    start(options.programs / "meshpost-hub", "serve", "--config", folder / "hub.toml")
    radio = start(
        options.programs / "meshpost-radio", "--clock", "now", "--advertise", "--nodes", "2", "--airtime", "0", "--tcp", f"r0={radio_port}",
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    for port in (hub_port, radio_port):
        until("the servers", lambda: socket.create_connection(("127.0.0.1", port), timeout=1).close() is None)
    times = Times()
    ends = Between(radio_port, lambda *seen: times.radio(*seen)), Between(hub_port, lambda *seen: times.hub(*seen))
    (folder / "gw.toml").write_text(
        f'[radio]\nlink = "tcp:127.0.0.1:{ends[0].port}"\n[store]\nlocation = "{folder}/gw.db"\n[control]\nsocket = "{folder}/ctl"\n'
        f'[[upstream]]\nname = "far"\nurl = "http://127.0.0.1:{ends[1].port}"\nkinds = ["message"]\ntoken_file = "{folder}/token"\n')
    start(options.programs / "meshpostd", "--config", folder / "gw.toml")

    def is_ready():
        try:
            now = status(folder / "ctl")
            return now["sync"]["state"] == "synced" and now["upstreams"][0].get("link") == "live" and now["upstreams"][0]["pending"] == 0
        except OSError:
            return False

    def wait(seconds):
        end = time.monotonic() + seconds
        turn_until(lambda: time.monotonic() >= end)

    # Asked by another process, as this one carries what the gateway says meanwhile.
    ready = os.fork()
    if ready == 0:
        until("the sync", is_ready)
        os._exit(0)
    turn_until(lambda: os.waitpid(ready, os.WNOHANG)[0] != 0)
    wait(1)
    ways = {"stored": [], "taken": [], "bare": []}
    chance = random.Random(1)
    for number in range(options.messages + 10):
        times = Times()
        radio.stdin.write(f"chan r1 0 a message of fifty bytes, as they are in chats {number}\n")
        radio.stdin.flush()
        turn_until(lambda: times.taken and times.stored)
        began = time.perf_counter()
        first.sendall(PAGE)
        first.recv(1)
        ended = time.perf_counter()
        # The first ones warm up.
        if number >= 10:
            ways["stored"].append(times.stored - times.began)
            ways["taken"].append(times.taken - times.began)
            ways["bare"].append(ended - began)
        wait(chance.uniform(0.01, 0.05))
    (beside, beside_worst) = milliseconds(ways["bare"])
    print(f"| from the radio's port, {options.messages} messages | median | 99 of 100 | median, as bare |")
    print("|---|---|---|---|")
    for name, words in (("stored", "to the gateway's disk"), ("taken", "to the hub's disk and back"), ("bare", "two bare processes, both disks and back")):
        median, worst = milliseconds(ways[name])
        print(f"| {words} | {median:.2f} ms | {worst:.2f} ms | {median / beside:.2f} |")
finally:
    for process in started:
        process.kill()
        process.wait()
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)
    shutil.rmtree(folder, ignore_errors=True)

#!/usr/bin/env python3
"""Sends direct messages over a mesh of pymc_core radios that loses packets, with the gateway and with meshcore-cli.

    delivery.py PROGRAMS [--messages 12] [--loss 0 0.2 0.5] [--no-cli] [--lifetime 600] [--seed 1]

PROGRAMS: where meshpostd and meshpost are. The gateway holds a message until it is delivered or has lived LIFETIME seconds.
Prints a table, and fails when the gateway reports as delivered what did not
arrive, or when a recipient gets a message twice that its client would show twice (another time, or another text).
Air time is that of the whole mesh, computed from packet lengths for SF 8, 62.5 kHz, CR 4/8.
"""
import argparse
import json
import math
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(__file__).resolve().parent.parent
python = root / ".build/python/bin/python"
RECIPIENTS = 3


def airtime_ms(length, sf=8, bandwidth=62500, cr=8):
    symbol = 2**sf / bandwidth * 1000
    low_rate = 1 if symbol >= 16 else 0
    blocks = max(0, math.ceil((8 * length - 4 * sf + 44) / (4 * (sf - 2 * low_rate))))
    return (28.25 + blocks * cr) * symbol


class Companion:
    """As much of a client as it takes to read a radio's messages."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.ask(b"\x16\x03", 0x0D)
        self.ask(b"\x01\x03      delivery", 0x05)

    def send(self, frame):
        self.socket.sendall(b"<" + struct.pack("<H", len(frame)) + frame)

    def receive(self):
        def exactly(count):
            data = b""
            while len(data) < count:
                more = self.socket.recv(count - len(data))
                if not more:
                    raise EOFError("the radio closed the connection")
                data += more
            return data

        while exactly(1) != b">":
            pass
        return exactly(struct.unpack("<H", exactly(2))[0])

    def ask(self, frame, *codes):
        self.send(frame)
        while True:
            answer = self.receive()
            if answer[0] in codes:
                return answer

    def messages(self):
        """(time, text) of each direct message that waits."""
        found = []
        while True:
            frame = self.ask(b"\x0a", 0x0A, 0x07, 0x10, 0x08, 0x11)
            if frame[0] == 0x0A:
                return found
            if frame[0] == 0x10:
                found.append((struct.unpack("<I", frame[12:16])[0], frame[16:].rstrip(b"\0").decode(errors="replace")))
            elif frame[0] == 0x07:
                found.append((struct.unpack("<I", frame[9:13])[0], frame[13:].rstrip(b"\0").decode(errors="replace")))


class Mesh:
    def __init__(self, folder, loss, seed):
        self.port = free_port_range()
        self.folder = folder
        command = [python, root / "hardware/mesh.py", "--nodes", RECIPIENTS + 1, "--dir", folder, "--port", self.port]
        command += ["--tty", "", "--seed", seed, "--firmware-times"]
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [str(part) for part in command], stdout=subprocess.PIPE, stderr=open(folder / "errors", "w"), text=True)
        self.wait_for("ready")
        # Adverts first, so that everybody knows everybody; the losses begin with the messages.
        for number in range(RECIPIENTS + 1):
            self.command(f"advert r{number}")
            self.wait_for("advert")
        self.command(f"loss {loss}")
        self.wait_for("loss")

    def command(self, line):
        with open(self.folder / "ctl", "w") as fifo:
            fifo.write(line + "\n")

    def wait_for(self, key):
        while line := self.process.stdout.readline():
            value = json.loads(line)
            if key in value:
                return value
        errors = (self.folder / "errors").read_text()[-2000:]
        raise RuntimeError(f"the mesh ended while {key} was waited for: {errors}")

    def sent(self):
        self.command("stats")
        return [length for radio in self.wait_for("stats")["sent"] for length in radio]

    def arrived(self):
        self.command("loss 0")
        self.wait_for("loss")
        return {f"r{n}": Companion(self.port + n).messages() for n in range(1, RECIPIENTS + 1)}

    def stop(self):
        self.process.kill()
        self.process.wait()


def free_port_range():
    for base in range(21000 + os.getpid() % 8000, 60000, RECIPIENTS + 1):
        try:
            for number in range(RECIPIENTS + 1):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", base + number))
            return base
        except OSError:
            continue
    raise RuntimeError("no free ports")


class Gateway:
    def __init__(self, programs, folder, port):
        self.programs, self.socket = programs, folder / "ctl.sock"
        (folder / "gw.toml").write_text(
            f'[radio]\nlink = "tcp:127.0.0.1:{port}"\n[store]\nlocation = "{folder}/gw.db"\n'
            f'[control]\nsocket = "{self.socket}"\n[messaging]\nairtime_per_hour_s = 3600\n')
        self.log = open(folder / "gw.log", "w")
        self.process = subprocess.Popen(
            [str(programs / "meshpostd"), "--config", str(folder / "gw.toml")], stderr=self.log)
        end = time.monotonic() + 60
        while "synced" not in self.meshpost("sync").stdout:
            if time.monotonic() > end:
                raise RuntimeError(f"not synced: {folder}/gw.log")
            time.sleep(0.2)

    def meshpost(self, *arguments):
        command = [str(self.programs / "meshpost"), *map(str, arguments), "--socket", str(self.socket)]
        return subprocess.run(command, capture_output=True, text=True)

    def deliver(self, messages, lifetime):
        """All at once; the gateway keeps them in order. Returns what it says of each."""
        for to, text in messages:
            answer = self.meshpost("send", to, text, "--id", text, "--expires", f"{lifetime}s")
            if answer.returncode:
                raise RuntimeError(answer.stderr)
        # The last attempt begins within the lifetime and is waited for; without an answer it takes half a minute.
        end = time.monotonic() + lifetime + 120
        while time.monotonic() < end:
            rows = [json.loads(line) for line in self.meshpost("sent", "--json", "--limit", 1000).stdout.splitlines()]
            if all(row["ended"] for row in rows):
                return rows
            time.sleep(0.5)
        raise RuntimeError("not all messages have ended")

    def stop(self):
        self.process.kill()
        self.process.wait()


def with_gateway(programs, folder, messages, loss, seed, lifetime):
    mesh = Mesh(folder / "mesh", loss, seed)
    gateway = Gateway(programs, folder, mesh.port)
    before, begin = len(mesh.sent()), time.monotonic()
    try:
        rows = gateway.deliver(messages, lifetime)
        seconds = time.monotonic() - begin
        air = sum(airtime_ms(length) for length in mesh.sent()[before:]) / 1000
        gateway.stop()
        arrived = mesh.arrived()
    finally:
        gateway.stop()
        mesh.stop()
    reported = {row["text"] for row in rows if row["state"] == "delivered"}
    attempts = sum(row.get("attempts", 0) for row in rows)
    return reported, arrived, attempts, air, seconds


def with_cli(folder, messages, loss, seed):
    mesh = Mesh(folder / "mesh", loss, seed)
    before, begin = len(mesh.sent()), time.monotonic()
    reported = set()
    try:
        for to, text in messages:
            answer = subprocess.run(
                [str(python), "-m", "meshcore_cli.meshcore_cli", "-t", "127.0.0.1", "-p", str(mesh.port), "-j", "msg", "-a",
                 to, text], capture_output=True, text=True)
            if answer.returncode == 0 and '"ack": false' not in answer.stdout and "rror" not in answer.stdout:
                reported.add(text)
        seconds = time.monotonic() - begin
        air = sum(airtime_ms(length) for length in mesh.sent()[before:]) / 1000
        arrived = mesh.arrived()
    finally:
        mesh.stop()
    return reported, arrived, None, air, seconds


def judge(name, loss, messages, result):
    """A row of the table, and what is wrong."""
    reported, arrived, attempts, air, seconds = result
    shown = {}
    for to, received in arrived.items():
        for moment, text in set(received):
            shown.setdefault(text, []).append((to, moment))
    there = {text for to, text in messages if any(who == to for who, _ in shown.get(text, []))}
    untrue = sorted(reported - there)
    double = sorted(text for text, places in shown.items() if len(places) > 1)
    copies = sum(len(received) for received in arrived.values())
    print(f"{name:<14}{loss:>5.0%}{len(messages):>6}{len(reported):>10}{len(there):>9}{len(untrue):>8}{len(double):>8}"
          f"{attempts if attempts is not None else '-':>10}{copies:>8}{air:>9.1f}{seconds:>7.0f}", flush=True)
    return untrue, double


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("programs", type=pathlib.Path)
    arguments.add_argument("--messages", type=int, default=12)
    arguments.add_argument("--loss", type=float, nargs="+", default=[0, 0.2, 0.5])
    arguments.add_argument("--no-cli", action="store_true")
    arguments.add_argument("--lifetime", type=int, default=600)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    messages = [(f"r{1 + n % RECIPIENTS}", f"message-{n + 1}") for n in range(options.messages)]
    print("client         loss  sent  reported  arrived  untrue  double  attempts  copies  air s   took s")
    failures = []
    for loss in options.loss:
        with tempfile.TemporaryDirectory(prefix="meshpost-delivery-") as name:
            result = with_gateway(options.programs, pathlib.Path(name), messages, loss, options.seed, options.lifetime)
            untrue, double = judge("meshpost", loss, messages, result)
            failures += [f"loss {loss}: reported delivered, did not arrive: {untrue}"] if untrue else []
            failures += [f"loss {loss}: shown twice: {double}"] if double else []
            if loss == 0 and len(result[0]) != len(messages):
                failures.append(f"without loss only {len(result[0])} of {len(messages)} were delivered")
        if not options.no_cli:
            with tempfile.TemporaryDirectory(prefix="meshpost-delivery-") as name:
                judge("meshcore-cli", loss, messages, with_cli(pathlib.Path(name), messages, loss, options.seed))
    for failure in failures:
        print(f"FAILED (seed {options.seed}): {failure}")
    sys.exit(1 if failures else 0)


main()

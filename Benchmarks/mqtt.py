#!/usr/bin/env python3
"""An edge is killed with messages queued for a broker that is away: mosquitto as a bridge, and meshpostd.

    mqtt.py PROGRAMS [--messages 20000] [--durable 2000]

PROGRAMS: where meshpostd, meshpost and meshpost-radio are. Each edge takes messages in while the far broker is down, is
killed with `kill -9`, starts again, and then the far broker comes. A subscriber there counts. For mosquitto every message is
acknowledged to its publisher (QoS 1); for meshpostd the radio has handed it over.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("programs", type=pathlib.Path)
arguments.add_argument("--messages", type=int, default=20000)
arguments.add_argument("--durable", type=int, default=2000, help="messages for the bridge that saves every change")
options = arguments.parse_args()
folder = pathlib.Path(tempfile.mkdtemp(prefix="meshpost-mqtt-"))
started = []


def start(*command, **more):
    process = subprocess.Popen([str(part) for part in command], stderr=subprocess.DEVNULL, **more)
    started.append(process)
    return process


def kill(process, how=signal.SIGKILL):
    process.send_signal(how)
    process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(what, condition, limit=300):
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"waited in vain for {what}")
        time.sleep(0.02)


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


def facts(process):
    resident = next(int(line.split()[1]) for line in open(f"/proc/{process.pid}/status") if line.startswith("VmRSS"))
    written = next(int(line.split()[1]) for line in open(f"/proc/{process.pid}/io") if line.startswith("write_bytes"))
    return resident / 1024, written


def broker(name, port, *lines):
    place = folder / name
    place.mkdir(exist_ok=True)
    config = place / "conf"
    config.write_text("\n".join(
        [f"listener {port} 127.0.0.1", "allow_anonymous true", "persistence true", f"persistence_location {place}/",
         "max_queued_messages 0", "max_inflight_messages 100", "user root", *lines]) + "\n")
    process = start("/usr/sbin/mosquitto", "-c", config, stdout=subprocess.DEVNULL)
    until(f"{name} to listen", lambda: listens(port))
    return process


class Count:
    """What a subscriber of the far broker sees, by message."""

    def __init__(self, port, topic, name):
        self.file = folder / f"{name}.seen"
        self.output = open(self.file, "w")
        start("mosquitto_sub", "-p", port, "-q", "1", "-t", topic, stdout=self.output)
        time.sleep(0.5)

    def seen(self):
        return self.file.read_text().splitlines()

    def settled(self, wanted):
        """Seconds until all came, or nothing more for five seconds; and the lines."""
        begin, last, count = time.monotonic(), time.monotonic(), 0
        while True:
            now = len(self.seen())
            if now != count:
                last, count = time.monotonic(), now
            if len(set(self.seen())) >= wanted or time.monotonic() - last > 5:
                return last - begin, self.seen()
            time.sleep(0.05)


def show(name, taken, rate, lines, identity, seconds, resident, written):
    unique = {identity(line) for line in lines}
    print(f"| {name} | {taken:,} | {rate:,.0f} | {len(unique):,} | {taken - len(unique):,} | {len(lines) - len(unique):,} | "
          f"{seconds:.1f} | {resident:.1f} | {written / taken:,.0f} |", flush=True)
    return taken - len(unique)


def bridge(name, messages, *settings):
    far_port, port = free_port(), free_port()
    lines = [
        "connection far", f"address 127.0.0.1:{far_port}", "topic # out 1", "cleansession false", "restart_timeout 1",
        "bridge_protocol_version mqttv311", *settings]
    edge = broker(name, port, *lines)
    text = "".join(f"message {number}\n" for number in range(messages))
    begin = time.monotonic()
    subprocess.run(["mosquitto_pub", "-p", str(port), "-q", "1", "-t", "mesh/x", "-l"], input=text, text=True, check=True)
    rate = messages / (time.monotonic() - begin)
    resident, written = facts(edge)
    kill(edge)
    far = broker(f"{name}-far", far_port)
    count = Count(far_port, "mesh/#", name)
    edge = broker(name, port, *lines)
    seconds, seen = count.settled(messages)
    kill(edge), kill(far)
    return show(f"mosquitto bridge, {name}", messages, rate, seen, lambda line: line, seconds, resident, written)


def gateway(messages):
    port = free_port()
    radio = start(
        options.programs / "meshpost-radio", "--clock", "now", "--nodes", "1", "--queue", messages + 100, "--tty",
        f"r0={folder}/tty", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    until("the radio", lambda: os.path.exists(folder / "tty"))
    (folder / "gw.toml").write_text(
        f'[radio]\nlink = "serial:{folder}/tty"\n[store]\nlocation = "{folder}/gw.db"\n[control]\nsocket = "{folder}/ctl"\n'
        f'[[upstream]]\nname = "far"\nkind = "mqtt"\nurl = "mqtt://127.0.0.1:{port}"\nkinds = ["message"]\n')

    def daemon():
        return start(options.programs / "meshpostd", "--config", folder / "gw.toml")

    def status():
        answer = subprocess.run(
            [str(options.programs / "meshpost"), "status", "--json", "--socket", str(folder / "ctl")], capture_output=True,
            text=True).stdout
        return json.loads(answer) if answer else None

    edge = daemon()
    until("the sync", lambda: (status() or {}).get("sync", {}).get("state") == "synced")
    begin = time.monotonic()
    radio.stdin.write(f"inject r0 0 {messages}\n")
    radio.stdin.flush()
    until("the messages", lambda: status()["store"]["messages"] >= messages)
    rate = messages / (time.monotonic() - begin)
    resident, written = facts(edge)
    kill(edge)
    far = broker("meshpost-far", port)
    count = Count(port, "meshpost/+/message", "meshpost")
    edge = daemon()
    seconds, seen = count.settled(messages)
    kill(edge), kill(far), kill(radio)
    return show("meshpostd", messages, rate, seen, lambda line: json.loads(line)["seq"], seconds, resident, written)


try:
    print("| edge | taken | a second | arrived | lost | doubled | s to arrive | resident MiB | written a message |")
    print("|---|---|---|---|---|---|---|---|---|")
    bridge("default", options.messages)
    bridge("durable", options.durable, "autosave_on_changes true", "autosave_interval 1")
    sys.exit(1 if gateway(options.messages) else 0)
finally:
    for process in started:
        if process.poll() is None:
            process.kill()
    shutil.rmtree(folder, ignore_errors=True)

#!/usr/bin/env python3
"""flash.py PROGRAMS: what a busy mesh with the observer feed writes to the card.

A mesh of virtual radios, a gateway, mosquitto with an observer feed. Foreign packets, adverts of known nodes and channel messages come at random moments, drawn by --seed, as often as the
options say for an hour; MINUTES of it are measured, to the end of the gateway, whose last checkpoint belongs to them. With --speed the gateway's time passes so many times as fast
(Tests/Doubles/faster.c). The gateway's folder is an ext4 file system of its own (a loop device, so root), as on a card: what reaches the device counts, the file
system's own blocks too. Without root, /proc/PID/io alone.

    --minutes 60  --speed 1  --packets 1200  --adverts 100  --messages 30  --profile durable  --mount noatime  --seed 1  --json
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from gateway import free_port, status, until  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("programs", type=pathlib.Path)
parser.add_argument("--minutes", type=float, default=60)
parser.add_argument("--speed", type=int, default=1)
for name, usual in (("packets", 1200), ("adverts", 100), ("messages", 30)):
    parser.add_argument(f"--{name}", type=int, default=usual, help="an hour")
parser.add_argument("--profile", default="durable")
parser.add_argument("--mount", default="noatime")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--json", action="store_true")
options = parser.parse_args()
NODES = 60
folder = pathlib.Path(tempfile.mkdtemp(prefix="meshpost-flash-"))
card, started = folder / "card", []
card.mkdir()


class Device:
    """The card that the gateway writes to."""

    def __init__(self):
        self.name = None
        if os.geteuid() != 0:
            return
        image = folder / "image"
        with open(image, "wb") as file:
            file.truncate(256 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", image], check=True)
        self.name = subprocess.run(["losetup", "--find", "--show", image], check=True, capture_output=True, text=True).stdout.strip()
        subprocess.run(["mount", "-o", options.mount, self.name, card], check=True)

    def figures(self):
        """Bytes and flushes so far. Source: the kernel's Documentation/block/stat.rst."""
        if not self.name:
            return 0, 0
        os.sync()
        fields = [int(word) for word in pathlib.Path(f"/sys/block/{pathlib.Path(self.name).name}/stat").read_text().split()]
        return fields[6] * 512, fields[15] if len(fields) > 15 else 0

    def close(self):
        if self.name:
            subprocess.run(["umount", card], check=True)
            subprocess.run(["losetup", "-d", self.name], check=True)


def start(*command, **more):
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True, **more)
    started.append(process)
    return process


def written(process):
    lines = pathlib.Path(f"/proc/{process.pid}/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("write_bytes")).split()[1])


def moments(seconds):
    """What happens when, in order."""
    draw, events = random.Random(options.seed), []
    for what, an_hour in (("packet", options.packets / 2), ("advert", options.adverts), ("message", options.messages)):
        at = 0.0
        while an_hour and (at := at + draw.expovariate(an_hour / 3600)) < seconds:
            events.append((at, what, draw.sample(range(1, NODES), 2)))
    return sorted(events)


def play(radio, seconds):
    zero, counts = time.monotonic(), {"packet": 0, "advert": 0, "message": 0}
    for at, what, (one, other) in moments(seconds):
        time.sleep(max(0, zero + at / options.speed - time.monotonic()))
        counts[what] += 1
        # A direct message between others is two packets, its acknowledgement being one.
        line = {"packet": f"dm r{one} r{other} is anybody on the ridge {at:.0f}", "advert": f"advert r{one}", "message": f"chan r{one} 0 the storm is over the lake {at:.0f}"}[what]
        radio.stdin.write(line + "\n")
        radio.stdin.flush()
    time.sleep(max(0, zero + seconds / options.speed - time.monotonic()))
    return counts


def begin():
    faster = {"LD_PRELOAD": str(folder / "faster.so"), "MESHPOST_TEST_SPEED": str(options.speed)} if options.speed > 1 else {}
    gateway = start(options.programs / "meshpostd", "--config", folder / "gw.toml", env={**os.environ, **faster})
    until("the gateway", lambda: status(folder / "ctl")["sync"]["state"] == "synced")
    until("the broker", lambda: status(folder / "ctl")["upstreams"][0]["pending"] == 0)
    return gateway


def end(gateway):
    """It stays to be asked what it wrote."""
    gateway.terminate()
    os.waitid(os.P_PID, gateway.pid, os.WEXITED | os.WNOWAIT)


device = Device()
try:
    if options.speed > 1:
        source = pathlib.Path(__file__).resolve().parent.parent / "Tests/Doubles/faster.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "faster.so", source], check=True)
    broker = free_port()
    (folder / "mosquitto.conf").write_text(f"listener {broker} 127.0.0.1\nallow_anonymous true\n")
    start("mosquitto", "-c", folder / "mosquitto.conf")
    radio = start(options.programs / "meshpost-radio", "--clock", "now", "--nodes", NODES, "--advertise", "--airtime", 0, "--queue", 1000, "--keep", "--tty", f"r0={folder}/tty")
    until("the radio", lambda: (folder / "tty").exists())
    (folder / "gw.toml").write_text(
        f'[radio]\nlink = "serial:{folder}/tty"\n[store]\nlocation = "{card}/gw.db"\nprofile = "{options.profile}"\n[control]\nsocket = "{folder}/ctl"\n'
        f'[[upstream]]\nname = "analyzer"\nkind = "mqtt"\nurl = "mqtt://127.0.0.1:{broker}"\nobserver = true\niata = "ZRH"\n')
    # All nodes are known, and the log has its size: while it grows, the file system writes much besides.
    gateway = begin()
    radio.stdin.write("inject r0 0 400\n")
    radio.stdin.flush()
    until("the messages", lambda: status(folder / "ctl")["store"]["messages"] >= 400)
    end(gateway)
    gateway = begin()
    time.sleep(35 / options.speed)
    bytes_before, (device_before, flushes_before) = written(gateway), device.figures()
    counts = play(radio, options.minutes * 60)
    # What is in the log belongs to these minutes, with what its checkpoint writes.
    end(gateway)
    bytes_after, (device_after, flushes_after) = written(gateway), device.figures()
    hours = options.minutes / 60
    found = {"profile": options.profile, "minutes": options.minutes, **counts, "process_mb_an_hour": (bytes_after - bytes_before) / 1e6 / hours}
    if device.name:
        found |= {"card_mb_an_hour": (device_after - device_before) / 1e6 / hours, "card_mb_a_day": (device_after - device_before) / 1e6 / hours * 24,
                  "flushes_an_hour": (flushes_after - flushes_before) / hours}
    found = {name: round(value, 2) if isinstance(value, float) else value for name, value in found.items()}
    print(json.dumps(found) if options.json else "\n".join(f"{name:20}{value}" for name, value in found.items()))
finally:
    for process in started:
        process.kill()
        process.wait()
    device.close()
    shutil.rmtree(folder, ignore_errors=True)

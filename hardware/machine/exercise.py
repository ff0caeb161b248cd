#!/usr/bin/env python3
"""exercise.py [--programs FOLDER] [--packages FOLDER] [--cuts N] [--kills N] [--moments N] [--seed N] [SCENARIO ...]

Installs the packages in an emulated Debian machine and does to it what happens to a gateway in the field. Radios and the hub run outside of it, on this
machine, so that they know what they handed over and what they were given whatever happens in there. Without scenarios, all of them; `--list` names them.
Ends with 0 when everything was as it should be; each finding is a line.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from disk import EIO
from machine import ARCHITECTURE, Machine, PATIENCE, checkout
from moments import Moments

parser = argparse.ArgumentParser()
parser.add_argument("--programs", default=checkout / ".build/release", type=pathlib.Path)
parser.add_argument("--packages", default=checkout / ".build/packages", type=pathlib.Path)
parser.add_argument("--cuts", default=20, type=int)
parser.add_argument("--kills", default=20, type=int)
parser.add_argument("--moments", default=200, type=int, help="moments of a recording at which the power goes")
parser.add_argument("--seed", default=20261121, type=int)
parser.add_argument("--profiles", default="durable,balanced,wear", help="what `measure` measures")
parser.add_argument("--mount", help="further options of the file system for `measure`: lazytime, noatime, …")
parser.add_argument("--list", action="store_true")
parser.add_argument("--keep", action="store_true", help="leave the folder with disk and logs")
parser.add_argument("scenarios", nargs="*")
options = parser.parse_args()
TOKEN = "a-token-for-the-machine"


def say(text):
    print(f"{time.monotonic() - begin:7.1f} s  {text}", flush=True)


class Program:
    """A program of ours on this machine, with its lines."""

    def __init__(self, name, *arguments):
        self.lines = []
        self.process = subprocess.Popen(
            [str(options.programs / name), *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def line(self, text, after=0, limit=PATIENCE):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            for line in self.lines[after:]:
                if text in line:
                    return line
            assert self.process.poll() is None, "\n".join(self.lines[-20:])
            time.sleep(0.02)
        raise AssertionError(f"no line with {text}: {self.lines[-10:]}")

    def count(self, text):
        return sum(text in line for line in self.lines)

    def lines_with(self, text, count, limit=PATIENCE):
        """Waits for so many lines in all: earlier ones of the same words are not the awaited ones."""
        end = time.monotonic() + limit
        while self.count(text) < count:
            assert self.process.poll() is None and time.monotonic() < end, f"{self.count(text)} of {count} lines with {text}: {self.lines[-10:]}"
            time.sleep(0.02)

    def stats(self, radio):
        before = len(self.lines)
        self.tell(f"stats {radio}")
        return json.loads(self.line('"stats"', before))

    def end(self):
        self.process.kill()
        self.process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def packages(name):
    """File names, the oldest version first."""
    return sorted((path.name for path in options.packages.glob(f"{name}_*_{ARCHITECTURE}.deb")), key=lambda file: [int(n) for n in file.split("_")[1].split(".")])


class Rig:
    """Two radios and a hub on this machine; a gateway in the emulated one."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="meshpost-machine-"))
        self.hub_port, self.ports = free_port(), [free_port(), free_port()]
        (self.folder / "token").write_text(TOKEN + "\n")
        (self.folder / "hub.toml").write_text(
            f'port = {self.hub_port}\ndatabase = "{self.folder}/hub.db"\n[[token]]\nfile = "{self.folder}/token"\naccess = "all"\n')
        self.radio = Program(
            "meshpost-radio", "--nodes", 3, "--clock", "now", "--advertise", "--queue", 100000, "--contacts", 10, "--keep",
            "--line", f"r0={self.ports[0]}", "--line", f"r1={self.ports[1]}")
        self.radio.line("ready")
        self.keys = [json.loads(self.radio.line(f'"r{n}"'))["key"] for n in (0, 1)]
        self.hub = Program("meshpost-hub", "serve", "--config", self.folder / "hub.toml")
        self.hub.line("listening")
        self.machine = Machine(self.folder / "machine", options.packages)
        self.machine.plug("one", self.ports[0], "RADIO-ONE")
        self.boots = 0

    def boot(self):
        self.machine.start()
        self.boots += 1

    def share(self):
        self.machine.do("mkdir -p /share; mountpoint -q /share || { modprobe 9pnet_virtio; modprobe 9p; mount -t 9p -o trans=virtio,version=9p2000.L,ro share /share; }")

    def install(self):
        self.share()
        self.machine.do(f"dpkg -i /share/{packages('meshpost')[-1]}")

    def set_up(self, *words):
        self.machine.do(f"echo {TOKEN} >/root/token; sync")
        return self.machine.run("meshpost setup --unattended --token-file /root/token --upstream http://10.0.2.2:%d %s" % (self.hub_port, " ".join(words)))

    def status(self):
        code, output = self.machine.run("meshpost status --json")
        try:
            return json.loads(output) if code == 0 else None
        except ValueError:
            return None

    def wait_for_radio(self, name="r0"):
        def is_up():
            status = self.status() or {}
            return status.get("sync", {}).get("state") == "synced" and status["radio"]["identity"]["name"] == name
        self.machine.until(f"{name} to be up", is_up)

    def ask_hub(self, target):
        request = urllib.request.Request(f"http://127.0.0.1:{self.hub_port}{target}", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def events(self):
        gateway = self.status()["gateway"]
        rows, after = [], "0"
        while after is not None:
            page = self.ask_hub(f"/v1/gateways/{gateway}/events?after={after}&limit=1000")
            rows += page["events"]
            after = page.get("next")
        return rows

    def everything_is_there(self):
        """All that the radio had is at the hub, each once; how many messages that the radio handed over are missing."""
        self.machine.until("the radio's queue to be empty", lambda: self.radio.stats("r0")["queued"] == 0)
        # What waits for company, in the profile `wear`, is counted among the stored ones before the hub can have it.
        def is_at_hub():
            status = self.status()
            if not status or status["sync"]["state"] != "synced" or status["upstreams"][0]["pending"] > 0:
                return False
            return status["store"]["messages"] <= sum(event["kind"] == "message" for event in self.events())
        self.machine.until("the hub to have all", is_at_hub)
        events = self.events()
        identities = [(event["epoch"], event["seq"]) for event in events]
        assert len(identities) == len(set(identities)), "an event is there twice"
        texts = [(event["body"]["text"], event["body"].get("sender_time")) for event in events if event["kind"] == "message"]
        assert len(texts) == len(set(texts)), "a message is there twice"
        stored = self.status()["store"]["messages"]
        assert stored == len(texts), f"{stored} are stored, {len(texts)} at the hub"
        return self.radio.stats("r0")["handed_over"], stored

    def close(self):
        self.machine.close()
        self.radio.end()
        self.hub.end()
        if not options.keep:
            shutil.rmtree(self.folder, ignore_errors=True)


# Scenarios. Each finds the machine on, with the gateway set up and its radio up, and leaves it so.

def setup(rig):
    """package, setup unattended, reboot: no hand is needed after that"""
    rig.install()
    code, output = rig.set_up()
    assert code == 0, output
    assert "r0" in output and "accepts this gateway" in output, output
    assert "/dev/meshpost/RADIO-ONE" in rig.machine.do("cat /etc/meshpost/meshpostd.toml")
    assert TOKEN not in rig.machine.do("cat /etc/meshpost/meshpostd.toml; systemctl show meshpost; journalctl -u meshpost --no-pager")
    rig.wait_for_radio()
    rig.radio.tell("chan r1 0 before the reboot")
    rig.machine.until("the message at the hub", lambda: any(e["kind"] == "message" for e in rig.events()))
    rig.machine.shut_down()
    rig.boot()
    rig.wait_for_radio()
    rig.radio.tell("chan r1 0 after the reboot")
    rig.machine.until("the message at the hub", lambda: sum(e["kind"] == "message" for e in rig.events()) == 2)
    say("set up unattended; after a reboot it runs by itself: " + rig.machine.do("systemd-analyze | head -n 1").strip())


def security(rig):
    """what systemd says of the unit's hardening, and that it can do its work all the same"""
    for unit in ["meshpost"]:
        line = rig.machine.do(f"systemd-analyze security --no-pager {unit} | tail -n 1")
        score = float(line.split(":")[1].split()[0])
        assert score <= 2.0, line
        say(line.strip("→ \n"))
    # The clock's state can be asked for in there.
    assert rig.status()["clock_trusted"] is False
    owner = rig.machine.do("stat -c '%U:%G %a' /run/meshpost/control.sock /var/lib/meshpost/gateway.db /etc/meshpost/credentials").split("\n")
    assert owner == ["meshpost:meshpost 660", "meshpost:meshpost 600", "root:root 700"], owner
    code, output = rig.machine.run("useradd -m visitor; setpriv --reuid visitor --clear-groups meshpost status; usermod -aG meshpost visitor; "
                                   "setpriv --reuid visitor --init-groups meshpost status >/dev/null && echo may")
    assert "may" in output and ("denied" in output or "ermission" in output), output


def kills(rig):
    """kill -9 under steady traffic: not one message lost, systemd keeps the port"""
    chance = random.Random(options.seed)
    total = options.kills * 60
    _, before = rig.everything_is_there()
    handed = rig.radio.stats("r0")["handed_over"]
    injected = rig.radio.count('"injected"')
    rig.radio.tell(f"inject r0 30 {total}")
    for _ in range(options.kills):
        time.sleep(chance.uniform(0.3, 1.5))
        rig.machine.do("systemctl kill -s KILL meshpost")
        rig.machine.until("it to be back", lambda: rig.machine.run("systemctl is-active --quiet meshpost")[0] == 0)
    rig.radio.lines_with('"injected"', injected + 1)
    now, stored = rig.everything_is_there()
    say(f"kills: {options.kills}, handed over {now - handed}, stored {stored - before}")
    assert now - handed == total == stored - before, "messages are missing"


def watchdog(rig):
    """a daemon that hangs is ended and started anew"""
    rig.machine.do("mkdir -p /run/systemd/system/meshpost.service.d; "
                   "printf '[Service]\\nWatchdogSec=6\\nTimeoutAbortSec=2\\n' >/run/systemd/system/meshpost.service.d/bench.conf; "
                   "systemctl daemon-reload; systemctl restart meshpost")
    rig.wait_for_radio()
    time.sleep(8)  # longer than the watchdog waits: it is fed
    first = rig.machine.do("systemctl show -p MainPID --value meshpost").strip()
    rig.machine.do(f"kill -STOP {first}")
    rig.machine.until("another process", lambda: rig.machine.do("systemctl show -p MainPID --value meshpost").strip() not in (first, "0"))
    rig.wait_for_radio()
    words = rig.machine.do("journalctl -u meshpost --no-pager | grep -i watchdog | head -n 1")
    rig.machine.do("rm /run/systemd/system/meshpost.service.d/bench.conf; systemctl daemon-reload; systemctl restart meshpost")
    rig.wait_for_radio()
    assert rig.machine.do("systemctl show -p WatchdogUSec --value meshpost").strip() == "4min"
    say("watchdog: " + words.split("]: ")[-1].strip())


def memory(rig):
    """the limit is respected, and a hook that wants too much does not take the gateway with it"""
    injected = rig.radio.count('"injected"')
    rig.radio.tell("inject r0 0 3000")
    rig.radio.lines_with('"injected"', injected + 1)
    rig.everything_is_there()
    group = "/sys/fs/cgroup/system.slice/meshpost.service"
    peak = int(rig.machine.run(f"cat {group}/memory.peak")[1] or 0)
    now = int(rig.machine.do(f"cat {group}/memory.current"))
    anonymous = int(rig.machine.do(f"grep -E '^anon ' {group}/memory.stat | cut -d' ' -f2"))
    first = rig.machine.do("systemctl show -p MainPID --value meshpost").strip()
    rig.machine.do("cp /etc/meshpost/meshpostd.toml /root/kept.toml; "
                   "printf '\\n[[hook]]\\nname = \"greedy\"\\nkinds = [\"message\"]\\nmemory = \"1 GiB\"\\ntimeout_s = 15\\n"
                   "run = [\"/bin/bash\", \"-c\", \"head -c 300M /dev/zero | tail\"]\\n' >>/etc/meshpost/meshpostd.toml; systemctl reload meshpost")
    rig.radio.tell("chan r1 0 for the greedy one")
    rig.machine.until("the hook to be ended", lambda: "greedy: event" in rig.machine.do("journalctl -u meshpost --no-pager -n 50") or
                      "oom_kill 0" not in rig.machine.do(f"grep -w oom_kill {group}/memory.events"))
    highest = int(rig.machine.do(f"cat {group}/memory.peak"))
    assert highest <= 96 << 20, f"{highest} bytes, more than the limit"
    rig.machine.do("cp /root/kept.toml /etc/meshpost/meshpostd.toml; systemctl reload meshpost")
    assert rig.machine.do("systemctl show -p MainPID --value meshpost").strip() == first, "the gateway was ended, too"
    rig.wait_for_radio()
    say(f"memory: {now >> 10} KiB now, of it {anonymous >> 10} anonymous, {peak >> 10 or '?'} at most; a hook that wanted 300 MiB was ended at {highest >> 10}, the gateway was not")


def usb(rig):
    """other names, two radios that change places, a device that is no radio"""
    stranger = socket.create_server(("127.0.0.1", 0))
    heard = bytearray()

    def talk():
        while True:
            try:
                client, _ = stranger.accept()
            except OSError:
                return
            threading.Thread(target=listen, args=(client,), daemon=True).start()

    def listen(client):
        try:
            while data := client.recv(4096):
                heard.extend(data)
        except OSError:
            pass

    threading.Thread(target=talk, daemon=True).start()
    machine = rig.machine

    def devices():
        return machine.do("ls /dev/meshpost 2>/dev/null; ls -l /dev/meshpost | sed -n 's/.*-> ..//p'")

    # Pulled out, and back under another name: what was first is something else now.
    machine.unplug("one")
    machine.until("it to be missed", lambda: (rig.status() or {}).get("radio", {}).get("state") == "down")
    machine.plug("stranger", stranger.getsockname()[1], "NO-RADIO")
    machine.until("the stranger", lambda: "NO-RADIO" in devices())
    machine.plug("two", rig.ports[1], "RADIO-TWO")
    machine.until("the other radio", lambda: "RADIO-TWO" in devices())
    # It may be trying just now whether its own is there.
    state = rig.status()["radio"]["state"]
    assert state != "up", f"another device was taken for the radio: {state}"
    machine.plug("one", rig.ports[0], "RADIO-ONE")
    rig.wait_for_radio("r0")
    say("usb: by serial number, under " + machine.do("readlink -f /dev/meshpost/RADIO-ONE").strip())
    assert not heard, "a device that is no radio was written to"
    # By key, whatever the names: both change places.
    machine.do("sed -i 's/^link = .*/link = \"auto:\"\\nkey = \"%s\"/' /etc/meshpost/meshpostd.toml; systemctl restart meshpost" % rig.keys[1][:12])
    rig.wait_for_radio("r1")
    for name in ("one", "two"):
        machine.unplug(name)
    machine.until("both to be gone", lambda: "RADIO" not in devices().replace("NO-RADIO", ""))
    machine.plug("one", rig.ports[1], "RADIO-ONE")
    machine.plug("two", rig.ports[0], "RADIO-TWO")
    rig.wait_for_radio("r1")
    assert "RADIO-ONE" in machine.do("for d in /dev/meshpost/*; do [ $(readlink -f $d) = $(meshpost status --json | sed 's/.*\"link\":\"serial:\\([^\"]*\\)\".*/\\1/') ] && echo $d; done; true")
    asked = bytes.fromhex("3c02001603")
    assert bytes(heard) in (b"", asked * 2), f"a device that is no radio was told {bytes(heard).hex()}"
    say(f"usb: by key, after both changed places; the stranger was asked {bytes(heard).count(asked)} questions of 5 bytes, and nothing else")
    for name in ("one", "two", "stranger"):
        machine.unplug(name)
    stranger.close()
    # Plugging in starts a gateway that is not running.
    machine.do("sed -i '/^key = /d; s|^link = .*|link = \"serial:/dev/meshpost/RADIO-ONE\"|' /etc/meshpost/meshpostd.toml; systemctl stop meshpost")
    machine.plug("one", rig.ports[0], "RADIO-ONE")
    rig.wait_for_radio("r0")
    properties = machine.do("udevadm info -q property /dev/meshpost/RADIO-ONE")
    assert "ID_MM_PORT_IGNORE=1" in properties and "ID_MM_DEVICE_IGNORE=1" in properties
    assert machine.do("cat $(dirname $(readlink -f /sys/class/tty/$(basename $(readlink -f /dev/meshpost/RADIO-ONE))/device/../..))/usb*/power/control 2>/dev/null | head -n 1; "
                      "cat $(readlink -f /sys/class/tty/$(basename $(readlink -f /dev/meshpost/RADIO-ONE))/device/../..)/power/control").split()[-1] == "on"
    say("usb: plugging in starts the gateway; ModemManager is told to stay away, autosuspend is off")


def card(rig):
    """a card that dies: messages stay in the radio, and it goes on when there is one that is well"""
    machine = rig.machine
    rig.everything_is_there()
    before, handed = rig.status()["store"]["messages"], rig.radio.stats("r0")["handed_over"]
    machine.disk.failing = EIO
    rig.radio.tell("inject r0 0 20")
    machine.until("it to be noticed", lambda: (rig.status() or {}).get("store", {}).get("error"))
    error = rig.status()["store"]["error"]
    queued = rig.radio.stats("r0")["queued"]
    taken = rig.radio.stats("r0")["handed_over"] - handed
    assert queued + taken == 20 and taken <= 1, f"{queued} of 20 are still in the radio, {taken} are in hand"
    assert machine.run("systemctl is-active --quiet meshpost")[0] == 0, "it ended"
    machine.process.kill()
    machine.process.wait()
    machine.disk.cut(options.seed)
    machine.disk.failing = None
    rig.boot()
    rig.wait_for_radio()
    rig.everything_is_there()
    stored = rig.status()["store"]["messages"] - before
    assert stored == 20 - taken, f"{stored} are stored"
    say(f"card: it fails ({error}); {queued} of 20 stayed in the radio, {taken} was in hand when the power went, the rest is stored since there is a card that works")


def cuts(rig):
    """the power goes under traffic, at random moments and in the midst of flushes, and the disk forgets what was not flushed"""
    chance = random.Random(options.seed)
    machine = rig.machine
    handed_before, stored_before = rig.everything_is_there()
    injected = rig.radio.count('"injected"')
    forgotten = kept = 0
    fsck = []
    for cut in range(options.cuts):
        rig.radio.tell("inject r0 25 600")
        time.sleep(chance.uniform(0.2, 6))
        lost, stayed = machine.cut(options.seed + cut, at_flush=cut % 2 == 0)
        forgotten, kept = forgotten + lost - stayed, kept + stayed
        rig.boot()
        # No hand helps it.
        rig.wait_for_radio()
        if cut % 5 == 4:
            say(f"cut {cut + 1}: up again")
        fsck.append(machine.run("journalctl -b --no-pager | grep -ci 'ext4.*error'")[1].strip())
    rig.radio.lines_with('"injected"', injected + options.cuts)
    handed, stored = rig.everything_is_there()
    handed, stored = handed - handed_before, stored - stored_before
    status = rig.status()
    check = machine.do("ls /var/lib/meshpost; systemctl --failed --no-legend")
    assert "corrupt" not in check and "meshpostd" not in check, check
    epochs = list(dict.fromkeys(event["epoch"] for event in rig.events()))
    assert len(epochs) == 1, f"a database was given up: {epochs}\n" + machine.run("journalctl -u meshpost --no-pager | grep -iE 'warning|copy|epoch|hub'")[1]
    assert handed - options.cuts <= stored <= handed, f"{handed} handed over, {stored} stored"
    assert status["store"].get("error") is None
    say(f"cuts: {options.cuts}; {forgotten} writes forgotten, {kept} unflushed ones stayed; {handed} messages handed over, {stored} stored, each once at the hub; "
        f"{handed - stored} were in hand when the power went")


def moments(rig):
    """what was written under traffic is recorded, and the disk is put together as after power cuts at many moments of it"""
    machine = rig.machine
    handed_before, stored_before = rig.everything_is_there()
    gateway, seq = rig.status()["gateway"], 0
    machine.do("sync")
    recording = machine.disk.record(rig.folder / "recorded.img")
    known, last = [], len(rig.radio.lines)
    rig.radio.tell("inject r0 12 300")
    while not any('"injected"' in line for line in rig.radio.lines[last:]):
        # What others know must be on disk from then on.
        handed = rig.radio.stats("r0")["handed_over"]
        rows = rig.ask_hub(f"/v1/gateways/{gateway}/events?after={seq}&limit=1000")["events"]
        seq = rows[-1]["seq"] if rows else seq
        known.append((time.monotonic(), handed, seq))
        time.sleep(0.03)
    machine.disk.stop_recording()
    images = Moments(rig.folder / "recorded.img", recording, options.seed)
    chosen = images.chosen(options.moments)
    for moment in chosen:
        begun = recording[moment - 1][0]
        _, handed, seq = max((entry for entry in known if entry[0] <= begun), default=(0, handed_before, 0))
        messages, last_event = images.at(moment)
        least = stored_before + handed - handed_before - 1
        assert messages >= least, f"step {moment}: {messages} messages are stored, the radio had handed over {handed - handed_before} and is asked for the next when one is"
        assert last_event >= seq, f"step {moment}: the hub has event {seq}, the database ends with {last_event}"
    say(f"moments: {len(chosen)} of {len(recording)} writes and flushes while 300 messages came; {images.at_stake} writes at stake; each time the file system mended itself, "
        "the database was sound, and had what the radio had been asked to go on after and what the hub had")


def upgrade(rig):
    """from the version before, with data and configuration in place; purge takes everything away"""
    machine = rig.machine
    rig.share()
    handed, stored = rig.everything_is_there()
    machine.do("echo '# mine' >>/etc/meshpost/meshpostd.toml; sha256sum /etc/meshpost/meshpostd.toml >/root/sum")
    versions = packages("meshpost")
    assert len(versions) >= 2, f"two versions are wanted, there are {versions}"
    machine.do(f"dpkg -i /share/{versions[0]}")
    rig.wait_for_radio()
    injected = rig.radio.count('"injected"')
    rig.radio.tell("inject r0 20 200")
    old = machine.do("meshpostd --version")
    machine.do(f"dpkg -i /share/{versions[-1]}")
    rig.wait_for_radio()
    rig.radio.lines_with('"injected"', injected + 1)
    now, there = rig.everything_is_there()
    assert now - handed == there - stored, f"{now - handed} handed over during the upgrade, {there - stored} stored"
    machine.do("sha256sum -c --quiet /root/sum")
    machine.do("systemctl is-enabled --quiet meshpost")
    say(f"upgrade: {versions[0]} → {versions[-1]}; {there - stored} messages meanwhile, all stored; configuration untouched")
    machine.do("dpkg --purge meshpost")
    left = machine.run("ls -d /etc/meshpost /var/lib/meshpost /run/meshpost /dev/meshpost /usr/lib/systemd/system/meshpost*.service /etc/systemd/system/meshpost*.service /usr/lib/udev/rules.d/*meshpost* 2>/dev/null; "
                       "systemctl list-units --all --no-legend meshpost.service meshpostd.service")[1]
    assert left.strip() == "", left
    say("purge: nothing is left")


def hub(rig):
    """the hub as a package, in the same machine"""
    machine = rig.machine
    rig.share()
    machine.do(f"dpkg -i /share/{packages('meshpost-hub')[-1]}")
    machine.until("the hub", lambda: machine.run("systemctl is-active --quiet meshpost-hub")[0] == 0)
    line = machine.do("systemd-analyze security --no-pager meshpost-hub | tail -n 1")
    assert float(line.split(":")[1].split()[0]) <= 2.0, line
    machine.do(f"echo {TOKEN} >/root/token; meshpost-hub tokens add $(cat /var/lib/meshpost/gateway.db.id) >/root/hub.token; meshpost setup --unattended --replace --link serial:/dev/meshpost/RADIO-ONE "
               f"--upstream near=http://127.0.0.1:8787 --token-file near=/root/hub.token --upstream hub=http://10.0.2.2:{rig.hub_port} --token-file hub=/root/token")
    rig.wait_for_radio()
    machine.do("dpkg --purge meshpost-hub; systemctl restart meshpost")
    code, _ = rig.set_up("--replace", "--link", "serial:/dev/meshpost/RADIO-ONE")
    assert code == 0
    rig.wait_for_radio()
    say(f"hub: installed, took a gateway, purged; {line.strip(chr(8594) + ' ' + chr(10))}")


def measure(rig):
    """not a trial: bytes that reach the disk for a message, an advert and an idle day, in each profile; takes 45 minutes"""
    machine, seconds = rig.machine, 60
    # Logs have a card of their own, and are everybody's own choice.
    machine.do("mkdir -p /etc/systemd/journald.conf.d; printf '[Journal]\\nStorage=volatile\\n' >/etc/systemd/journald.conf.d/bench.conf; systemctl restart systemd-journald; "
               "systemctl stop meshpost; systemctl mask --now e2scrub_reap.timer e2scrub_all.timer fstrim.timer apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer 2>/dev/null; true")

    if options.mount:
        machine.do(f"mount -o remount,{options.mount} /")

    def written(during):
        machine.do("sync; sync")
        before = machine.disk.written
        during()
        machine.do("sync")
        return machine.disk.written - before

    def messages(count, rate):
        before = len(rig.radio.lines)
        rig.radio.tell(f"inject r0 {rate} {count}")
        rig.radio.line('"injected"', before, limit=count / rate + PATIENCE if rate else PATIENCE)
        rig.everything_is_there()

    def adverts(count):
        for _ in range(count):
            rig.radio.tell("advert r1")
            time.sleep(1)
        time.sleep(35)

    idle = written(lambda: time.sleep(seconds))
    say(f"| without a gateway | | | | {idle * 86400 // seconds / 1e6:.1f} MB |")
    inserts = "".join(f"INSERT INTO t VALUES({n}, hex(randomblob(60)));" for n in range(1000))
    script = pathlib.Path(options.packages) / f"floor-{os.getpid()}.sql"
    script.write_text(
        "PRAGMA page_size=1024; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=200; CREATE TABLE t(n INTEGER PRIMARY KEY, body);" + inserts)
    floor = written(lambda: machine.do(f"sqlite3 /var/lib/floor.db </share/{script.name} >/dev/null"))
    script.unlink()
    say(f"| SQLite alone, a row of 120 bytes a commit | {floor // 1000:,} | | | |")
    for profile in options.profiles.split(","):
        machine.do("sed -i '/^profile/d; /^\\[store\\]/d' /etc/meshpost/meshpostd.toml; printf '[store]\\nprofile = \"%s\"\\n' >>/etc/meshpost/meshpostd.toml; "
                   "systemctl restart meshpost" % profile)
        rig.wait_for_radio()
        # So that the log has its size: while it grows, the file system writes much besides.
        messages(400, 0)
        time.sleep(35)
        still = written(lambda: time.sleep(seconds))
        many = written(lambda: (messages(300, 1), time.sleep(35))) / 300
        few = written(lambda: [(messages(1, 0), time.sleep(40)) for _ in range(8)]) / 8
        heard = written(lambda: adverts(100)) / 100
        say(f"| {profile} | {many:,.0f} | {few:,.0f} | {heard:,.0f} | {still * 86400 / seconds / 1e6:.1f} MB |")


ALL = [setup, security, kills, watchdog, memory, usb, card, hub, cuts, moments, upgrade]
if options.list:
    for scenario in [*ALL, measure]:
        print(f"{scenario.__name__:10}{scenario.__doc__}")
    sys.exit(0)
begin = time.monotonic()
chosen = [scenario for scenario in [*ALL, measure] if scenario.__name__ in (options.scenarios or [one.__name__ for one in ALL])]
rig = Rig()
passed = 0
try:
    rig.boot()
    say("the machine is up")
    if setup not in chosen:
        rig.install()
        code, output = rig.set_up()
        assert code == 0, output
        rig.wait_for_radio()
    for scenario in chosen:
        started = time.monotonic()
        scenario(rig)
        passed += 1
        say(f"{scenario.__name__} ok, {time.monotonic() - started:.0f} s")
except BaseException:
    print(f"FAILED in {chosen[passed].__name__ if passed < len(chosen) else 'the end'} (--seed {options.seed})", flush=True)
    try:
        print(rig.machine.run("systemctl status --no-pager meshpost; journalctl -u meshpost -n 30 --no-pager; ls -l /dev/meshpost")[1])
    except Exception as error:
        print(f"the machine says nothing: {error}")
    console = rig.folder / "machine/console.log"
    print(console.read_text(errors="replace")[-2000:] if console.exists() else "")
    raise
finally:
    rig.close()
print(f"{passed} passed, 0 failed")

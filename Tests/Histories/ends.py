"""The near end of a history: a radio and a gateway."""
import collections
import hashlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAMS = pathlib.Path(os.environ.get("MESHPOST_PROGRAMS") or CHECKOUT / ".build/debug").resolve()
TOKEN = "a-token-for-the-tests"
sys.path.append(str(CHECKOUT / "hardware"))
from ports import free_port  # noqa: E402, F401


class Stuck(Exception):
    """An awaited state did not come."""


def until(what, look, limit=60.0, pause=0.03):
    end = time.monotonic() + limit
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise Stuck(what() if callable(what) else what)
        time.sleep(pause)
        pause = min(pause * 1.3, 0.4)


class Radio:
    """A companion radio on TCP that returns the messages of the test."""

    PUBLIC = bytes.fromhex("8b3387e9c5cdea6ac9e5edbaa115cd72")

    def __init__(self, name):
        self.name = name.encode()
        self.key = hashlib.sha256(self.name).digest()
        self.queue, self.client, self.lock = collections.deque(), None, threading.Lock()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                self.client, _ = self.server.accept()
                self.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.talk(self.client.makefile("rb"))
            except OSError:
                if self.server.fileno() < 0:
                    return

    def talk(self, stream):
        while head := stream.read(3):
            if len(head) < 3:
                return
            command = stream.read(struct.unpack("<H", head[1:])[0])
            if len(command) < struct.unpack("<H", head[1:])[0]:
                return  # The client has disconnected.
            self.say(*self.answer(command))

    def say(self, *frames):
        with self.lock:
            try:
                self.client.sendall(b"".join(b">" + struct.pack("<H", len(frame)) + frame for frame in frames))
            except (OSError, AttributeError):
                pass  # No client is connected: the next one asks by itself.

    def hear(self, text):
        now = struct.pack("<I", int(time.time()))
        self.queue.append(bytes([17, 20, 0, 0, 0, 2, 0]) + now + b"friend: " + text.encode())
        self.say(b"\x83")

    def hear_advert(self, name):
        """An advert of a new node."""
        key = hashlib.sha256(name.encode()).digest()
        self.say(b"\x8a" + key + bytes([1, 0, 0xFF]) + bytes(64) + name.encode().ljust(32, b"\0")
                 + struct.pack("<IiiI", int(time.time()), 0, 0, int(time.time())))

    def answer(self, command):
        now = struct.pack("<I", int(time.time()))
        code = command[0]
        if code == 1:
            return [bytes([5, 1, 22, 22]) + self.key + bytes(12) + struct.pack("<II", 869525, 250000) + bytes([11, 5]) + self.name]
        if code == 22:
            return [bytes([13, 13, 100, 1]) + bytes(4) + b"1 Jan 2026".ljust(12, b"\0") + b"double".ljust(40, b"\0") + b"v1.17.1".ljust(20, b"\0") + bytes(2)]
        if code == 4:
            return [b"\2" + bytes(4), b"\4" + now]
        if code == 5:
            return [b"\x09" + now]
        if code == 10:
            return [self.queue.popleft() if self.queue else b"\x0a"]
        if code == 20:
            return [b"\x0c" + struct.pack("<HII", 4000, 1, 2)]
        if code == 30:
            return [b"\1\2"]
        if code == 31:
            return [bytes([18, command[1]]) + (b"Public".ljust(32, b"\0") + self.PUBLIC if command[1] == 0 else bytes(48))]
        if code == 56:
            return [b"\1\1"]
        return [b"\0"]

    def close(self):
        self.server.close()
        if self.client:
            self.client.close()


class Daemon:
    """A program that is started, ended and killed."""

    def __init__(self, folder, name, command, environment=None):
        self.folder, self.name, self.command, self.environment = folder, name, command, environment
        self.log, self.process = folder / f"{name}.log", None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["/usr/bin/setpriv", "--pdeathsig", "KILL"] + [str(word) for word in self.command], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, cwd=self.folder, env={**os.environ, **(self.environment or {})})

    @property
    def runs(self):
        return self.process is not None and self.process.poll() is None

    def end(self, number=signal.SIGTERM):
        if not self.runs:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Stuck(f"{self.name} did not end within 30 s") from None

    def said(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class Unix(http.client.HTTPConnection):
    """HTTP over the control socket."""

    def __init__(self, location):
        super().__init__("localhost", timeout=20)
        self.location = location

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(self.location)


DATABASE_FILES = ["", "-wal", "-shm", ".mark"]


def copy_database(source, target, with_mark=True):
    """A copy as by `cp`; without the mark if only the database is restored."""
    for suffix in DATABASE_FILES:
        if suffix == ".mark" and not with_mark:
            continue
        at, to = pathlib.Path(f"{source}{suffix}"), pathlib.Path(f"{target}{suffix}")
        to.unlink(missing_ok=True)
        if at.exists():
            shutil.copyfile(at, to)


class Gateway(Daemon):
    def __init__(self, folder, identity, radio, upstream, clock=None):
        folder.mkdir(exist_ok=True)
        self.radio, self.database, self.clock = radio, folder / "gw.db", folder / "clock"
        (folder / "gw.toml").write_text(f"""
            [gateway]
            id = "{identity}"
            [radio]
            link = "tcp:127.0.0.1:{radio.port}"
            [store]
            location = "{self.database}"
            journal_max_size = "1 MiB"
            [control]
            socket = "{folder}/ctl"
            [alerts]
            backlogged_after_s = 4
            [[upstream]]
            name = "far"
            from = "start"
            {upstream}
            """)
        environment = {"LD_PRELOAD": str(clock), "MESHPOST_TEST_CLOCK": str(self.clock)} if clock else None
        super().__init__(folder, "gateway", [PROGRAMS / "meshpostd", "--config", folder / "gw.toml"], environment)

    def start(self):
        super().start()
        until(lambda: f"the gateway to answer:\n{self.said()[-1500:]}", lambda: self.status() or not self.runs)
        if not self.runs:
            raise Stuck(f"the gateway ended:\n{self.said()[-1500:]}")

    def ask(self, method, target):
        try:
            connection = Unix(str(self.folder / "ctl"))
            connection.request(method, target)
            return connection.getresponse().read()
        except OSError:
            return None
        except http.client.HTTPException:
            return None

    def status(self):
        answer = self.ask("GET", "/v1/status")
        return json.loads(answer) if answer else None

    def journal(self):
        rows = self.ask("GET", "/v1/journal?after=0&limit=1000000") or b""
        return [row for row in map(json.loads, rows.splitlines()) if "missed" not in row]

    def alerts(self):
        """The rules of the open alerts."""
        answer = json.loads(self.ask("GET", "/v1/alerts") or b"{}")
        return [alert["rule"] for alert in answer.get("alerts") or [] if not alert.get("ended_at")]

    def upstream(self):
        return ((self.status() or {}).get("upstreams") or [{}])[0]

"""What a fleet is measured against: hubs, PostgreSQL, a line to it, brokers, as processes of a folder; and what they use meanwhile."""
import http.client
import json
import os
import pathlib
import pwd
import resource
import shutil
import socket
import subprocess
import tempfile
import threading
import time

TOKEN = "a-token-for-the-benchmark"
TICKS = os.sysconf("SC_CLK_TCK")
# What a hub gets: enough for any fleet, or what this machine lets us have.
WANTED_FILES = 65536


def open_files():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most == resource.RLIM_INFINITY or most >= WANTED_FILES:
        return WANTED_FILES
    # Root may raise it, where it is not shut in.
    raised = subprocess.run(["prlimit", f"--nofile={WANTED_FILES}", "true"], capture_output=True).returncode == 0
    return WANTED_FILES if raised else most


OPEN_FILES = open_files()


def free_port():
    """Below those that outgoing connections get, so that no link takes it."""
    for port in range(21000 + os.getpid() % 2000, 25000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            if port not in taken_ports:
                taken_ports.add(port)
                return port
    raise RuntimeError("no port is free")


taken_ports = set()


def until(what, condition, limit=60):
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"waited in vain for {what}")
        time.sleep(0.005)


def can_connect(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


class Stage:
    """A folder, and the processes that were started in it; they end with it."""

    def __init__(self, built, parent=None):
        self.built = pathlib.Path(built)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="meshpost-fleet-", dir=parent))
        self.folder.chmod(0o755)
        self.running = []
        self.token = self.folder / "token"
        self.token.write_text(TOKEN + "\n")

    def start(self, *command, environment=None, **more):
        with open(self.folder / "log", "a") as log:
            more = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL, **more}
            process = subprocess.Popen(
                [str(word) for word in command], env={**os.environ, **{name: str(value) for name, value in (environment or {}).items()}}, **more)
        self.running.append(process)
        return process

    def end(self, process, limit=20):
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process in self.running:
            self.running.remove(process)

    def close(self):
        for process in reversed(self.running[:]):
            self.end(process)
        shutil.rmtree(self.folder, ignore_errors=True)


class Hub:
    def __init__(self, stage, program, database, name="hub", open_files=OPEN_FILES, environment=None, wants=25000):
        self.stage, self.program, self.open_files, self.environment = stage, program, open_files, environment
        self.port = free_port()
        self.config = stage.folder / f"{name}-{self.port}.toml"
        self.config.write_text(
            f'port = {self.port}\ndatabase = "{database}"\nmax_connections = {wants}\nmax_bytes_per_day = 0\n'
            f'[[token]]\nfile = "{stage.token}"\naccess = "all"\n')
        self.start()

    def start(self):
        self.spawned = time.monotonic()
        self.process = self.stage.start(
            "prlimit", f"--nofile={self.open_files}", self.program, "serve", "--config", self.config, environment=self.environment)
        until("the hub to listen", lambda: can_connect(self.port) or self.process.poll() is not None)
        if self.process.poll() is not None:
            raise RuntimeError(f"the hub ended: {(self.stage.folder / 'log').read_text()[-500:]}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.stage.end(self.process)

    def ask(self, method, target, body=None, timeout=60):
        """The status, the body, and the seconds that it took."""
        begin = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        connection.request(method, target, body=body, headers={"Authorization": "Bearer " + TOKEN})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, data, time.monotonic() - begin


class Postgres:
    """A server with its own cluster, as Debian's defaults have it; not as root."""

    def __init__(self, stage, environment=None):
        self.stage, self.port = stage, free_port()
        self.tools = sorted(pathlib.Path("/usr/lib/postgresql").iterdir())[-1] / "bin"
        self.home = stage.folder / f"postgres-{self.port}"
        self.home.mkdir()
        self.as_user = []
        if os.geteuid() == 0:
            os.chown(self.home, pwd.getpwnam("postgres").pw_uid, -1)
            self.as_user = ["runuser", "-u", "postgres", "--"]
        self.run("initdb", "-D", self.home / "data", "-U", "hub", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.environment = [f"{name}={value}" for name, value in (environment or {}).items()]
        self.databases = 0
        self.start()

    def start(self):
        self.process = self.stage.start(
            *self.as_user, "env", *self.environment, self.tools / "postgres", "-D", self.home / "data", "-p", self.port, "-k", self.home, "-c",
            "listen_addresses=127.0.0.1", "-c", "logging_collector=off")
        until("PostgreSQL", self.is_ready)

    def crash(self):
        """As a power cut has it."""
        self.run("pg_ctl", "-D", self.home / "data", "stop", "-m", "immediate", "-w")
        self.stage.end(self.process)

    def run(self, tool, *words):
        subprocess.run(
            [str(w) for w in (*self.as_user, self.tools / tool, *words)], check=True, capture_output=True, cwd=self.stage.folder)

    def is_ready(self):
        return subprocess.run(
            [str(w) for w in (*self.as_user, self.tools / "pg_isready", "-h", "127.0.0.1", "-p", self.port)], capture_output=True,
            cwd=self.stage.folder).returncode == 0

    def database(self, port=None):
        """The address of a new one; `port`: of a line to it."""
        self.databases += 1
        name = f"mesh{self.databases}"
        self.run("createdb", "-h", "127.0.0.1", "-p", self.port, "-U", "hub", name)
        return f"postgresql://hub@127.0.0.1:{port or self.port}/{name}"

    def rest(self):
        """What the run before has left to do is done now, and not in the next one's time."""
        self.run("psql", "-h", "127.0.0.1", "-p", self.port, "-U", "hub", "-d", "postgres", "-c", "CHECKPOINT")


class Line:
    """PostgreSQL, some way off."""

    def __init__(self, stage, target, one_way_us):
        self.stage, self.port = stage, free_port()
        self.process = stage.start(stage.built / "delayproxy", self.port, target, one_way_us)
        until("the line", lambda: can_connect(self.port))


def descendants(pid):
    found = [pid]
    for parent in found:
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                found += [int(child) for child in pathlib.Path(f"/proc/{parent}/task/{task}/children").read_text().split()]
        except OSError:
            pass  # it has ended meanwhile
    return found


class Meter:
    """Processor seconds and bytes written by a process and all below it. Looks often: what a child that has ended wrote is kept from the last look."""

    def __init__(self, process):
        self.pid, self.seen, self.most = process.pid, {}, 0
        self.begin()
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def begin(self):
        """What was used so far does not count."""
        self.look()
        self.first = dict(self.seen)

    def watch(self):
        while not self.is_over.wait(0.25):
            self.look()

    def look(self):
        resident = 0
        for pid in descendants(self.pid):
            try:
                words = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                lines = pathlib.Path(f"/proc/{pid}/io").read_text().splitlines()
            except OSError:
                continue  # it has ended meanwhile
            written = int(next(line for line in lines if line.startswith("write_bytes")).split()[1])
            self.seen[pid] = ((int(words[11]) + int(words[12])) / TICKS, written)
            resident += int(words[21]) * os.sysconf("SC_PAGE_SIZE")
        self.most = max(self.most, resident)

    def stop(self):
        """Processor seconds, bytes written, most memory in use at once (with what is shared counted for each)."""
        self.is_over.set()
        self.thread.join()
        self.look()
        zero = (0, 0)
        return tuple(sum(now[i] - self.first.get(pid, zero)[i] for pid, now in self.seen.items()) for i in (0, 1)) + (self.most,)


def memory(pid):
    """Resident, proportional and anonymous memory in KiB."""
    fields = {}
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value, *_ = line.split()
        fields[name] = int(value)
    return fields["Rss:"], fields["Pss:"], fields.get("Anonymous:", 0)


class Fleet:
    """The load generator, under way."""

    def __init__(self, stage, hub, mode, *words, seed=1):
        self.stage, self.hub = stage, hub
        self.journal = stage.folder / f"journal-{hub.port}-{seed}"
        self.told, self.moment = {}, threading.Condition()
        texts = stage.folder / "texts"
        self.process = stage.start(
            stage.built / "fleet", mode, "--port", hub.port, "--token-file", stage.token, "--seed", seed, "--journal", self.journal,
            *(["--texts", texts] if texts.exists() else []), *words, stdout=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            event = json.loads(line)
            with self.moment:
                self.told.setdefault(event["event"], event)
                self.moment.notify_all()
        with self.moment:
            self.told.setdefault("end", {})
            self.moment.notify_all()

    def wait(self, event, limit=300):
        """What it tells with that; None: it has ended without."""
        with self.moment:
            self.moment.wait_for(lambda: event in self.told or "end" in self.told, limit)
            return self.told.get(event)

    def result(self, limit=900):
        found = self.wait("result", limit)
        self.process.wait()
        self.stage.running.remove(self.process)
        if not found:
            raise RuntimeError(f"the fleet ended without a result: {(self.stage.folder / 'log').read_text()[-500:]}")
        return found

#!/usr/bin/env python3
"""PostgreSQL that fails over: three nodes under Patroni, with a synchronous standby, and etcd, on this machine.

    patroni.py FOLDER        builds it there, prints its address, and runs it until Ctrl-C

docs/scaling.md tells how the same is built on three machines. All of it is in Debian: patroni, etcd-server, postgresql.
"""
import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from stage import Stage, free_port, until  # noqa: E402

# The shortest that Patroni allows: how long a leader that is gone keeps its place, in seconds.
TTL = 20
NODES = 3


def missing():
    """What is to be installed first."""
    return [name for name in ("patroni", "etcd") if not shutil.which(name)]


class Node:
    """A PostgreSQL server, and the Patroni that looks after it."""

    def __init__(self, cluster, number):
        self.cluster, self.name = cluster, f"node{number}"
        self.home = cluster.home / self.name
        self.home.mkdir()
        self.port, self.rest = free_port(), free_port()
        self.file = self.home / "patroni.yml"
        self.file.write_text(self.configuration())
        self.process = None

    def configuration(self):
        # JSON is YAML, too.
        return json.dumps({
            "scope": "meshpost",
            "name": self.name,
            "restapi": {"listen": f"127.0.0.1:{self.rest}", "connect_address": f"127.0.0.1:{self.rest}"},
            "etcd3": {"hosts": [f"127.0.0.1:{self.cluster.etcd_port}"]},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL, "loop_wait": 2, "retry_timeout": 5, "maximum_lag_on_failover": 1 << 20,
                    # A transaction is acknowledged when a standby has it on its disk, too; only that one is promoted.
                    "synchronous_mode": True,
                    "postgresql": {"use_pg_rewind": True, "parameters": {"max_connections": 60, "wal_log_hints": True}},
                },
                "initdb": [{"encoding": "UTF8"}, {"auth": "trust"}, "data-checksums"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}", "connect_address": f"127.0.0.1:{self.port}", "data_dir": str(self.home / "data"),
                "bin_dir": str(self.cluster.tools), "pgpass": str(self.home / "pgpass"),
                "pg_hba": ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
                "authentication": {name: {"username": user} for name, user in (("superuser", "hub"), ("replication", "replicator"), ("rewind", "hub"))},
                "parameters": {"unix_socket_directories": str(self.home)},
            },
            "log": {"level": "INFO"},
        }, indent=1)

    def start(self):
        # A group of its own: Patroni and PostgreSQL go together, as machines do.
        self.process = self.cluster.stage.start(
            *self.cluster.as_user, "patroni", self.file, cwd=self.home, start_new_session=True, environment={"LC_ALL": "C.UTF-8"})

    def processes(self):
        """Of this node, all: PostgreSQL leaves Patroni's session."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and str(self.home).encode() in (entry / "cmdline").read_bytes() + os.fsencode(os.readlink(entry / "cwd")):
                    found.append(int(entry.name))
            except OSError:
                pass  # it has ended meanwhile
        return found

    def signal(self, number):
        for pid in self.processes():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill(self):
        """As a power cut has it: everything of it at once."""
        while self.processes():
            self.signal(signal.SIGKILL)
            time.sleep(0.01)
        self.process.wait()
        self.cluster.stage.running.remove(self.process)

    def make_anew(self):
        """As an operator does (`patronictl reinit`) with one whose history no longer fits."""
        self.kill()
        shutil.rmtree(self.home / "data", ignore_errors=True)
        self.start()

    def kill_server(self):
        """PostgreSQL alone."""
        pid = int((self.home / "data/postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)

    def role(self):
        """What its Patroni says: `leader`, `sync_standby`, `replica`; `None`: nothing."""
        return next((member["role"] for member in self.cluster.members() if member["name"] == self.name), None)


class Cluster:
    def __init__(self, stage, nodes=NODES):
        self.stage = stage
        self.tools = sorted(pathlib.Path("/usr/lib/postgresql").iterdir())[-1] / "bin"
        self.home = stage.folder / "cluster"
        self.home.mkdir()
        self.as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        self.etcd_port, peer = free_port(), free_port()
        self.nodes = [Node(self, number + 1) for number in range(nodes)]
        if self.as_user:
            owner = pwd.getpwnam("postgres").pw_uid
            for path in [self.home, *self.home.rglob("*")]:
                os.chown(path, owner, -1)
        self.etcd = stage.start(
            *self.as_user, "etcd", "--name", "one", "--data-dir", self.home / "etcd", "--listen-client-urls", f"http://127.0.0.1:{self.etcd_port}",
            "--advertise-client-urls", f"http://127.0.0.1:{self.etcd_port}", "--listen-peer-urls", f"http://127.0.0.1:{peer}",
            "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}", "--initial-cluster", f"one=http://127.0.0.1:{peer}", "--log-level", "warn",
            environment={"ETCD_UNSUPPORTED_ARCH": "arm64"})
        for node in self.nodes:
            node.start()
        until("three nodes, one of them synchronous", self.is_whole, 180)

    def members(self, but=None):
        """As whichever Patroni answers sees them; `but`: one that does not."""
        for node in self.nodes:
            if node is but:
                continue
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{node.rest}/cluster", timeout=2) as answer:
                    return json.load(answer)["members"]
            except (OSError, ValueError):
                continue
        return []

    def running(self):
        return {member["name"]: member["role"] for member in self.members() if member.get("state") in ("running", "streaming")}

    def is_whole(self):
        roles = self.running()
        return len(roles) == len(self.nodes) and {"leader", "sync_standby"} <= set(roles.values())

    def mend(self, tell):
        """Waits until it is whole; a node that does not find back is made anew. Returns how many were; `tell` hears of each."""
        made = 0
        while True:
            try:
                until("three nodes, one of them synchronous", self.is_whole, 45)
                return made
            except RuntimeError:
                astray = [node for node in self.nodes if node.name not in self.running()]
                if made >= 2 * len(self.nodes) or len(astray) == len(self.nodes):
                    raise
            for node in astray:
                tell(f"{node.name} does not find back, and is made anew")
                node.make_anew()
                made += 1

    def leader(self, but=None):
        name = next((member["name"] for member in self.members(but) if member["role"] == "leader"), None)
        return next((node for node in self.nodes if node.name == name), None)

    def database(self, name="mesh"):
        """The address of a new one, with all nodes."""
        leader = self.leader()
        subprocess.run([str(word) for word in (*self.as_user, self.tools / "createdb", "-h", "127.0.0.1", "-p", leader.port, "-U", "hub", name)],
                       check=True, capture_output=True, cwd=self.home)
        # Of several servers libpq goes on to the next one only if one cannot be reached, and not if it does not know the database yet.
        until("the database everywhere", lambda: all(self.has(node, name) for node in self.nodes))
        return f"postgresql://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes)}/{name}?user=hub&target_session_attrs=read-write"

    def has(self, node, name):
        return subprocess.run(
            [str(word) for word in (*self.as_user, self.tools / "psql", "-h", "127.0.0.1", "-p", node.port, "-U", "hub", "-d", name, "-c", "")],
            capture_output=True, cwd=self.home).returncode == 0

    def close(self):
        # Each kill of PostgreSQL that its Patroni sees would make it start another one.
        for node in self.nodes:
            node.signal(signal.SIGSTOP)
        for node in self.nodes:
            node.signal(signal.SIGKILL)


def main():
    if missing():
        sys.exit(f"not installed: {' '.join(missing())} (apt-get install patroni etcd-server postgresql)")
    stage = Stage(".", sys.argv[1])
    try:
        cluster = Cluster(stage)
        print(cluster.database(), flush=True)
        for node in cluster.nodes:
            print(f"{node.name}: port {node.port}, {node.role()}", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        cluster.close()
        stage.close()


if __name__ == "__main__":
    main()

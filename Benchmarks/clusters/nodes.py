"""Broker clusters of three nodes on one machine, in a folder of their own: NATS with JetStream, RabbitMQ with quorum queues. Nodes are killed and
started again; what they are is asked of themselves."""
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import time

USER, PASSWORD = "mesh", "a-password-for-the-benchmark"
taken = set()


def free_port(address="127.0.0.1"):
    """Below those that outgoing connections get, so that no link takes it."""
    for port in range(25000 + os.getpid() % 2000, 32000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                continue
            if port not in taken:
                taken.add(port)
                return port
    raise RuntimeError("no port is free")


def until(what, condition, limit=60.0, pause=0.1):
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"waited in vain for {what}")
        time.sleep(pause)


def listens(address, port):
    try:
        socket.create_connection((address, port), timeout=1).close()
        return True
    except OSError:
        return False


class Cluster:
    """Nodes listen for MQTT on one port, each on an address of its own: 127.0.0.1 to 127.0.0.3."""

    count = 3

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.port = free_port("0.0.0.0")
        self.processes = [None] * self.count

    def address(self, node):
        return f"127.0.0.{node + 1}"

    def place(self, node):
        place = self.folder / f"node{node}"
        place.mkdir(parents=True, exist_ok=True)
        return place

    def is_up(self, node):
        return listens(self.address(node), self.port)

    def kill(self, node):
        """As a machine that is gone: SIGKILL. The kernel keeps what was written and not flushed."""
        self.processes[node].kill()
        self.processes[node].wait()

    def end(self):
        for node, process in enumerate(self.processes):
            if process and process.poll() is None:
                self.kill(node)

    def node_of(self, port):
        """The node to which the connection from a local port goes; None where there is none."""
        listing = subprocess.run(["ss", "-tnH", "state", "established", f"( sport = :{port} )"], capture_output=True, text=True).stdout
        for node in range(self.count):
            if f"{self.address(node)}:{self.port}" in listing:
                return node
        return None


class NATS(Cluster):
    """nats-server: a cluster of servers with JetStream, three replicas of every stream."""

    name = "NATS"

    def __init__(self, folder, sync=None):
        super().__init__(folder)
        self.routes = [free_port() for _ in range(self.count)]
        self.clients = [free_port() for _ in range(self.count)]
        self.sync = sync

    @staticmethod
    def version():
        return subprocess.run(["nats-server", "--version"], capture_output=True, text=True).stdout.split()[-1]

    def start(self, node):
        place = self.place(node)
        routes = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in self.routes)
        (place / "nats.conf").write_text(f"""
server_name: n{node}
listen: "127.0.0.1:{self.clients[node]}"
jetstream {{ store_dir: "{place}/jetstream" }}
cluster {{ name: mesh, listen: "127.0.0.1:{self.routes[node]}", routes: [{routes}] }}
mqtt {{ listen: "{self.address(node)}:{self.port}", ack_wait: "10s", stream_replicas: 3, consumer_replicas: 3 }}
authorization {{ user: "{USER}", password: "{PASSWORD}" }}
""")
        log = open(place / "log", "ab")
        self.processes[node] = subprocess.Popen(["nats-server", "-c", place / "nats.conf"], stdout=log, stderr=log)

    def begin(self):
        for node in range(self.count):
            self.start(node)
        until("three servers", lambda: all(self.is_up(node) for node in range(self.count)))
        until("a leader of JetStream", lambda: self.ask("$JS.API.INFO") is not None)

    def ask(self, subject, body=""):
        """A request on the NATS protocol, of any node that answers; None: nobody does."""
        for node in range(self.count):
            try:
                with socket.create_connection(("127.0.0.1", self.clients[node]), timeout=2) as line:
                    line.settimeout(2)
                    reader = line.makefile("rb")
                    reader.readline()
                    hello = json.dumps({"user": USER, "pass": PASSWORD, "verbose": False, "lang": "py", "version": "1"})
                    line.sendall(f"CONNECT {hello}\r\nSUB box 1\r\nPUB {subject} box {len(body)}\r\n{body}\r\n".encode())
                    for answer in reader:
                        if answer.startswith(b"PING"):
                            line.sendall(b"PONG\r\n")
                        if answer.startswith(b"MSG"):
                            found = json.loads(reader.read(int(answer.split()[-1])))
                            return None if "error" in found else found
            except (OSError, ValueError):
                continue
        return None

    def leader(self):
        """The node that leads the stream of publications; None while there is none."""
        facts = self.ask("$JS.API.STREAM.INFO.$MQTT_msgs")
        name = (facts or {}).get("cluster", {}).get("leader", "")
        return int(name[1:]) if name[1:].isdigit() else None

    def facts(self):
        facts = self.ask("$JS.API.STREAM.INFO.$MQTT_msgs") or {}
        return f"replicas {facts.get('config', {}).get('num_replicas')}, {facts.get('state', {}).get('messages')} messages left in the stream"


class RabbitMQ(Cluster):
    """rabbitmq-server: three Erlang nodes; the queues of durable subscriptions are quorum queues."""

    name = "RabbitMQ"
    home = pathlib.Path("/usr/lib/rabbitmq/bin")

    def __init__(self, folder, sync=None):
        super().__init__(folder)
        self.distribution = [free_port() for _ in range(self.count)]
        self.amqp = [free_port() for _ in range(self.count)]
        self.epmd = free_port("0.0.0.0")
        self.names = None
        (self.folder / "home").mkdir(parents=True)
        cookie = self.folder / "home/.erlang.cookie"
        cookie.write_text("a-cookie-for-the-benchmark")
        cookie.chmod(0o400)

    @staticmethod
    def version():
        return subprocess.run(["dpkg-query", "-Wf", "${Version}", "rabbitmq-server"], capture_output=True, text=True).stdout.split("-")[0]

    def settings(self, node):
        place = self.place(node)
        (place / "rabbitmq.conf").write_text(f"""
listeners.tcp.1 = 127.0.0.1:{self.amqp[node]}
mqtt.listeners.tcp.1 = {self.address(node)}:{self.port}
mqtt.durable_queue_type = quorum
mqtt.allow_anonymous = false
mqtt.prefetch = 64
default_user = {USER}
default_pass = {PASSWORD}
cluster_partition_handling = pause_minority
""")
        (place / "plugins").write_text("[rabbitmq_mqtt].\n")
        return {
            **os.environ, "HOME": str(self.folder / "home"), "RABBITMQ_NODENAME": f"r{node}@localhost", "RABBITMQ_NODE_PORT": str(self.amqp[node]),
            "RABBITMQ_DIST_PORT": str(self.distribution[node]), "RABBITMQ_MNESIA_BASE": str(place / "mnesia"),
            "RABBITMQ_LOG_BASE": str(place / "log"), "RABBITMQ_CONFIG_FILE": str(place / "rabbitmq.conf"), "ERL_EPMD_PORT": str(self.epmd),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(place / "plugins"), "RABBITMQ_PID_FILE": str(place / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2",
        }

    def start(self, node):
        log = open(self.place(node) / "out", "ab")
        self.processes[node] = subprocess.Popen(
            [self.home / "rabbitmq-server"], env=self.settings(node), stdout=log, stderr=log, start_new_session=True)

    def kill(self, node):
        # The script's children are the Erlang machine.
        os.killpg(self.processes[node].pid, signal.SIGKILL)
        self.processes[node].wait()

    def tool(self, node, *words):
        done = subprocess.run([self.home / "rabbitmqctl", "-n", f"r{node}@localhost", *words], env=self.settings(node), capture_output=True, text=True)
        return done.returncode == 0, done.stdout

    def begin(self):
        # Nodes would start one that outlives them.
        self.names = subprocess.Popen(["epmd", "-port", str(self.epmd)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until("epmd", lambda: listens("127.0.0.1", self.epmd))
        # One after the other: each is told to join the first.
        for node in range(self.count):
            self.start(node)
            until(f"node {node}", lambda node=node: self.is_up(node), limit=120)
            if node > 0:
                for words in (["stop_app"], ["join_cluster", "r0@localhost"], ["start_app"]):
                    good, words_back = self.tool(node, *words)
                    if not good:
                        raise RuntimeError(f"{words}: {words_back}")
                until(f"node {node}", lambda node=node: self.is_up(node), limit=120)

    def end(self):
        super().end()
        if self.names:
            self.names.kill()
            self.names.wait()

    def leader(self):
        """The node that leads the queue of the hub; None while there is none."""
        for node in range(self.count):
            if self.is_up(node):
                _, listing = self.tool(node, "list_queues", "--quiet", "--no-table-headers", "name", "leader")
                for line in listing.splitlines():
                    if "meshpost-hub" in line and "\tr" in line:
                        return int(line.split("\tr")[1][0])
        return None

    def facts(self):
        for node in range(self.count):
            if self.is_up(node):
                return " / ".join(self.tool(node, "list_queues", "--quiet", "--no-table-headers", "name", "type", "messages")[1].split("\n")).replace("\t", " ")
        return "no node"


CLUSTERS = {"nats": NATS, "rabbitmq": RabbitMQ}

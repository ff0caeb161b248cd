"""The far ends of a history: a hub, a broker's consumer, a webhook, and an old hub and an old gateway."""
import http.client
import http.server
import json
import os
import pathlib
import shutil
import socket
import sqlite3
import subprocess
import threading
import time

from ends import DATABASE_FILES, Daemon, PROGRAMS, Stuck, TOKEN, copy_database, free_port, until

SAID = ["channel", "data", "kind", "sender", "sender_name", "sender_time", "text"]


def content(event):
    """The content of an event, by docs/hub-protocol.md."""
    body = event["body"]
    names = SAID if event["kind"] == "message" else sorted(set(body) - {"folded"})
    return event["kind"], event["at"], json.dumps({name: body.get(name) for name in names}, sort_keys=True)


class Postgres:
    """One server; a database for each history."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.tools = sorted(pathlib.Path("/usr/lib/postgresql").iterdir())[-1] / "bin"
        folder.mkdir()
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        self.run("initdb", "-D", folder / "data", "-U", "hub", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.run("pg_ctl", "-D", folder / "data", "-w", "-l", folder / "log", "start", "-o",
                 f"-p {self.port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=300")

    def run(self, tool, *arguments):
        command = [str(self.tools / tool)] + [str(word) for word in arguments]
        if os.geteuid() == 0:
            command = ["/usr/sbin/runuser", "-u", "postgres", "--"] + command
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/", text=True, check=False)
        if done.returncode:
            raise Stuck(f"{tool} {arguments}: {done.stdout}")

    def psql(self, database, sql):
        done = subprocess.run(
            [str(self.tools / "psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", "hub", "-d", database, "-v", "ON_ERROR_STOP=1", "-Atc", sql],
            capture_output=True, text=True, check=False)
        if done.returncode:
            raise Stuck(done.stderr)
        return done.stdout

    def make(self, name, like="template0"):
        self.psql("postgres", f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        self.psql("postgres", f'CREATE DATABASE "{name}" TEMPLATE "{like}"')

    def stop(self):
        self.run("pg_ctl", "-D", self.folder / "data", "stop", "-m", "immediate")


class Hub(Daemon):
    """`meshpost-hub serve`, or `consume`, on a database that can be put back."""

    def __init__(self, folder, identity, postgres=None, consume=None, broker=None):
        self.identity, self.postgres, self.broker, self.port = identity, postgres, broker, free_port()
        self.name_of_database = identity.lower()
        if postgres:
            postgres.make(self.name_of_database)
            database = f"postgresql://hub@127.0.0.1:{postgres.port}/{self.name_of_database}"
        else:
            database = folder / "hub.db"
        (folder / "token").write_text(TOKEN + "\n")
        (folder / "hub.toml").write_text(f"""
            port = {self.port}
            database = "{database}"
            {consume or ""}
            [[token]]
            file = "{folder}/token"
            access = "all"
            """)
        self.consumes = consume is not None
        super().__init__(folder, "hub", [PROGRAMS / "meshpost-hub", "consume" if consume else "serve", "--config", folder / "hub.toml"])

    def start(self):
        super().start()
        until(lambda: f"the hub to listen:\n{self.said()[-1500:]}", lambda: self.is_ready() or not self.runs)
        if not self.runs:
            raise Stuck(f"the hub ended:\n{self.said()[-1500:]}")

    def is_ready(self):
        if self.consumes:  # The broker drops publications from before the first subscription.
            return self.broker and f"Sending SUBACK to hub-{self.identity}" in self.broker.said()
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False

    def keep(self, name):
        if self.postgres:
            self.postgres.make(f"{self.name_of_database}_{name}", self.name_of_database)
        else:
            copy_database(self.folder / "hub.db", self.folder / f"hub-{name}.db")

    def put_back(self, name):
        if self.postgres:
            self.postgres.make(self.name_of_database, f"{self.name_of_database}_{name}")
        else:
            copy_database(self.folder / f"hub-{name}.db", self.folder / "hub.db")

    def empty(self):
        if self.postgres:
            self.postgres.make(self.name_of_database)
        else:
            for suffix in DATABASE_FILES:
                (self.folder / f"hub.db{suffix}").unlink(missing_ok=True)

    def rows(self):
        """Events, in the order in which they came."""
        columns = ["id", "epoch", "seq", "at", "kind", "body"]
        sql = f"SELECT {', '.join(columns)} FROM events WHERE gateway = '{self.identity}' ORDER BY id"
        try:
            if self.postgres:
                found = [json.loads(line) for line in self.postgres.psql(self.name_of_database, f"SELECT row_to_json(v) FROM ({sql}) v").splitlines()]
            else:
                with sqlite3.connect(f"file:{self.folder}/hub.db?mode=ro", uri=True, timeout=10) as database:
                    found = [dict(zip(columns, row)) for row in database.execute(sql)]
        except (sqlite3.OperationalError, Stuck) as trouble:
            if "no such table" in str(trouble) or "does not exist" in str(trouble) or "unable to open" in str(trouble):
                return []
            raise
        return [{**row, "body": json.loads(row["body"])} for row in found]

    def ask(self, method, target, body=None):
        """A request of the gateway, or of a forger with its id: status and answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request(method, f"/v1/gateways/{self.identity}{target}", body and json.dumps(body),
                           {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"{}")

    def post(self, batch):
        return self.ask("POST", "/events", batch)


class Server(http.server.ThreadingHTTPServer):
    """A server of this process that is away now and then, and keeps its port."""

    daemon_threads = True

    def __init__(self, port=0):
        self.faults, self.is_away, self.drips = [], False, False
        super().__init__(("127.0.0.1", port), Handler)
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # The client may hang up.

    def took(self, method, path, body):
        """Status and answer."""
        raise NotImplementedError

    def close(self):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        fault = "refuse" if self.server.is_away else self.server.faults.pop(0) if self.server.faults and self.command == "POST" else None
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.drips:
            return self.drip()
        if fault == "refuse":
            return self.say(503, {})
        if fault == "unheard":
            self.close_connection = True
            return None
        status, answer = self.server.took(self.command, self.path, body)
        if fault == "lost":
            self.close_connection = True
            return None
        return self.say(status, answer)

    do_POST = do_PUT = do_GET

    def say(self, status, answer):
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def drip(self):
        """An endless answer that accepts no event."""
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Padding: ")
        while self.server.drips:
            self.wfile.write(b"x")
            time.sleep(0.1)

    def log_message(self, *_):
        pass


class Webhook(Server):
    """Stores each identity once, as the documents demand of receivers."""

    def __init__(self):
        self.kept, self.lock = {}, threading.Lock()
        super().__init__()

    def took(self, method, path, body):
        said = json.loads(body)
        with self.lock:
            for event in said.get("events") or [said]:
                if "kind" not in event:
                    continue
                row = {"epoch": said["epoch"], "before": said.get("before"), **event}
                row["id"] = len(self.kept) + 1
                # It is known by the epoch in which it had its number first.
                self.kept.setdefault((row["before"] or row["epoch"], row["seq"], content(row)), row)
        return 200, {}

    def rows(self):
        with self.lock:
            return list(self.kept.values())


class OldHub(Server):
    """Version 1: one order, no digests, each identity once whatever its content."""

    def __init__(self):
        self.kept, self.lock = {}, threading.Lock()
        super().__init__()

    def took(self, method, path, body):
        with self.lock:
            if method == "POST" and path.endswith("/events"):
                said = json.loads(body)
                epoch = said["epoch"]
                for event in said["events"]:
                    self.kept.setdefault((epoch, event["seq"]), {"id": len(self.kept) + 1, "epoch": epoch, **event})
                return 200, {"acknowledged": max((seq for name, seq in self.kept if name == epoch), default=0)}
            if method == "GET" and "epoch=" in path:
                epoch = path.split("epoch=")[1].split("&")[0]
                seqs = [seq for name, seq in self.kept if name == epoch]
                return 200, {"acknowledged": max(seqs)} if seqs else {}
        return 404, {}

    def rows(self):
        with self.lock:
            return list(self.kept.values())


class OldGateway:
    """An old gateway on HTTP: it handles no conflicts, sends no position before a batch, and takes a position beyond its journal for a conflict."""

    def __init__(self, hub, lane):
        self.hub, self.lane = hub, lane
        self.state = {"epoch": os.urandom(8).hex(), "first": 1, "events": [], "cursor": 0}
        self.is_greeted, self.taken = False, []

    def hear(self, text):
        events = self.state["events"]
        events.append({"seq": len(events) + 1, "at": time.time_ns() // 1_000_000, "trusted": True, "kind": "message", "body": {"text": text}})

    def copy(self):
        return json.loads(json.dumps(self.state))

    def put_back(self, state):
        self.state, self.is_greeted = json.loads(json.dumps(state)), False

    def flush(self):
        """Sends until the hub has all events, or is away."""
        state = self.state
        try:
            while True:
                if not self.is_greeted:
                    self.greet()
                rest = state["events"][state["cursor"]:][:3]
                if not rest:
                    return True
                status, answer = self.hub.post({"epoch": state["epoch"], **self.lane, "events": rest})
                if status != 200:
                    raise Stuck(f"an old gateway's batch is answered {status} {answer}")
                state["cursor"] = min(answer["acknowledged"], rest[-1]["seq"])
                self.taken += [event for event in rest if event["seq"] <= state["cursor"]]
        except (OSError, http.client.HTTPException):
            self.is_greeted = False
            return False

    def greet(self):
        state = self.state
        while True:
            _, answer = self.hub.ask("GET", f"?epoch={state['epoch']}")
            has = answer.get("lanes", {}).get("messages") if self.lane else answer.get("acknowledged")
            if has is None or has <= len(state["events"]):
                break
            state["epoch"], state["first"] = os.urandom(8).hex(), len(state["events"]) + 1
        state["cursor"] = min(state["cursor"], state["first"] - 1) if has is None else has
        self.is_greeted = True

"""One history, made from a seed: the events at both ends."""
import json
import random
import signal
import subprocess
import sys
import time

from ends import Gateway, Radio, Stuck, copy_database, until
from far import Hub, OldHub, Server, Webhook
from judge import Judge, Wrong

# (way, database, the other end's age)
COMBINATIONS = [
    ("live", "sqlite", "new"), ("live", "postgres", "new"), ("http", "sqlite", "new"), ("http", "postgres", "new"),
    ("mqtt", "sqlite", "new"), ("mqtt", "postgres", "new"), ("webhook", "none", "new"), ("http", "none", "old hub"),
    ("http", "sqlite", "old gateway"), ("http", "postgres", "old gateway"),
]
class History(Judge):
    def __init__(self, seed, folder, site):
        self.random, self.seed, self.folder, self.site = random.Random(seed), seed, folder, site
        self.way, self.database, self.peer = COMBINATIONS[seed % len(COMBINATIONS)]
        self.identity = f"g{seed}"
        self.heard, self.copies, self.hub_copies, self.forged = 0, [], [], 0
        self.twin, self.clones, self.pinger = None, [], None
        self.spoiled = set()  # Reasons why a wrong order or a repetition is unavoidable.
        self.steps = self.plan()

    # The plan

    def plan(self):
        steps = {"hear": 6, "adverts": 2, "settle": 4, "flow": 3, "restart": 3, "kill": 3, "stop": 2, "copy": 4, "put_back": 5,
                 "put_back_unmarked": 4, "clone": 3, "clone_alone": 2, "clone_ends": 2, "clock": 2, "trim": 0.3,
                 "far_restart": 2, "far_kill": 3, "far_stop": 4, "mute": 1}
        if self.way in ("live", "http") and self.peer == "new":
            steps |= {"far_copy": 4, "far_put_back": 6, "far_emptied": 2, "forge": 3}
        if self.way == "mqtt":
            steps |= {"forge": 3}
        if self.peer == "old hub":  # An old hub cannot handle numbers that are used twice.
            for name in ("copy", "put_back", "put_back_unmarked", "clone", "clone_alone", "clone_ends"):
                del steps[name]
            steps |= {"far_copy": 4, "far_put_back": 4, "far_emptied": 2}
        names, weights = zip(*steps.items())
        chosen = self.random.choices(names, weights, k=self.random.randint(5, 14))
        return [("hear", 4), ("copy", 0) if "copy" in steps else ("flow", 1)] + [
            (name, self.random.randint(1, 8)) for name in chosen] + [("hear", self.random.randint(0, 3))]

    def description(self):
        return f"seed {self.seed}: {self.way}, {self.database}, {self.peer}: " + " ".join(f"{name}:{number}" for name, number in self.steps)

    def build(self):
        self.folder.mkdir(parents=True)
        self.radio = Radio(f"r{self.seed}")
        postgres = self.site.postgres if self.database == "postgres" else None
        consume = None
        if self.way == "mqtt":
            consume = f"""[consume]
                url = "mqtt://127.0.0.1:{self.site.broker_port}"
                client_id = "hub-{self.identity}"
                topics = ["meshpost/{self.identity}/+"]
                refused_file = "{self.folder}/refused.jsonl"
                """
        if self.way == "webhook":
            self.far = Webhook()
        elif self.peer == "old hub":
            self.far = OldHub()
        else:
            self.far = Hub(self.folder, self.identity, postgres, consume, self.site.broker)
        self.port = self.far.port
        fold = f"fold = {self.random.choice(['true', 'false'])}"
        self.upstream = {
            "live": f'url = "http://127.0.0.1:{self.port}"\ntoken_file = "{self.folder}/token"',
            "http": f'url = "http://127.0.0.1:{self.port}"\ntoken_file = "{self.folder}/token"\nlink = "http"',
            "mqtt": f'kind = "mqtt"\nurl = "mqtt://127.0.0.1:{self.site.broker_port}"\nclient_id = "{self.identity}"\n'
                    + f'format = "{self.random.choice(["json", "compact"])}"',
            "webhook": f'kind = "webhook"\nurl = "http://127.0.0.1:{self.port}/"\nbatch = {self.random.choice(["true", "false"])}',
        }[self.way] + f"\n{fold}\n{'' if self.way == 'mqtt' else 'timeout_s = 5'}"
        (self.folder / "token").write_text("a-token-for-the-tests\n")
        self.gateway = Gateway(self.folder / "gw", self.identity, self.radio, self.upstream, self.site.clock)
        self.start_far()
        self.gateway.start()

    def run(self):
        self.build()
        try:
            for number, (name, amount) in enumerate(self.steps):
                self.now = f"{number}:{name}"
                getattr(self, name)(amount)
            self.now = "end"
            self.judge()
        except Stuck as stuck:
            raise Wrong(f"in step {self.now}: {stuck}") from None
        finally:
            self.close()

    def close(self):
        for program in [self.gateway, *self.clones, self.far]:
            if isinstance(program, (Gateway, Hub)):
                program.end(signal.SIGKILL)
        self.end_mute()
        for radio in [self.radio] + [clone.radio for clone in self.clones]:
            radio.close()
        if not isinstance(self.far, Hub):
            self.far.close()

    # Steps of the gateway

    def hear(self, amount, radio=None):
        radio = radio or self.radio
        for _ in range(amount):
            self.heard += 1
            radio.hear(f"{self.identity} message {self.heard}")
        gateway = self.twin if radio is not self.radio else self.gateway
        if gateway.runs and self.random.random() < 0.7:
            until("the radio's queue to be empty", lambda: not radio.queue or not gateway.runs, 20)

    def adverts(self, amount):
        for _ in range(amount):
            self.heard += 1
            self.radio.hear_advert(f"{self.identity} node {self.heard}")

    def settle(self, _):
        """Waits a moment for all events to arrive."""
        self.start()
        end = time.monotonic() + 1.5
        while time.monotonic() < end and (self.radio.queue or self.gateway.upstream().get("pending")):
            time.sleep(0.05)

    def flow(self, amount):
        time.sleep(amount * 0.03)

    def start(self):
        if not self.gateway.runs:
            self.gateway.start()

    def restart(self, _):
        self.gateway.end()
        self.start()

    def kill(self, _):
        self.gateway.end(signal.SIGKILL)
        self.start()

    def stop(self, amount):
        self.gateway.end(signal.SIGKILL if amount > 4 else signal.SIGTERM)

    def copy(self, amount):
        was_running = self.gateway.runs
        self.stop(amount)
        copy_database(self.gateway.database, self.folder / f"kept{len(self.copies)}")
        self.copies.append(self.folder / f"kept{len(self.copies)}")
        if was_running:
            self.start()

    def put_back(self, amount, with_mark=True):
        if not self.copies:
            return
        self.spoiled.add("put back")
        self.stop(amount)
        if not with_mark:
            # The mark stays: only the database is older.
            mark = self.gateway.folder / "gw.db.mark"
            kept = mark.read_bytes() if mark.exists() else None
        copy_database(self.random.choice(self.copies), self.gateway.database)
        if not with_mark and kept:
            mark.write_bytes(kept)
        if amount % 2:
            self.start()

    def put_back_unmarked(self, amount):
        self.put_back(amount, with_mark=False)

    def clone(self, _, is_alone=False):
        if self.twin:
            return
        self.spoiled.add("clone")
        was_running = self.gateway.runs
        self.gateway.end(signal.SIGKILL)
        self.twin = Gateway(self.folder / f"clone{len(self.clones)}", self.identity, Radio(f"c{self.seed}.{len(self.clones)}"), self.upstream.replace(
            f'client_id = "{self.identity}"', f'client_id = "{self.identity}c"'), self.site.clock)
        self.clones.append(self.twin)
        copy_database(self.gateway.database, self.twin.database)
        self.twin.start()
        if was_running and not is_alone:
            self.start()
        self.hear(3, self.twin.radio)

    def clone_alone(self, _):
        self.clone(0, is_alone=True)

    def clone_ends(self, amount):
        if self.twin:
            self.hear(amount, self.twin.radio)
            self.twin.end(signal.SIGKILL if amount > 4 else signal.SIGTERM)
            self.twin = None

    def clock(self, amount):
        ahead = self.random.choice([-400, -30, -1, 0, 1, 30, 400, 4000]) * 86400
        self.gateway.clock.write_text(f"{ahead} {amount % 2}\n")

    def trim(self, _):
        if not self.site.is_long:
            return
        self.start()
        for _ in range(2600):
            self.heard += 1
            self.radio.queue.append(bytes([17, 20, 0, 0, 0, 2, 0]) + int(time.time()).to_bytes(4, "little")
                                    + f"friend: {self.identity} message {self.heard} ".encode().ljust(140, b"x"))
        self.radio.say(b"\x83")
        until("the radio's queue to be empty", lambda: not self.radio.queue, 240)

    # Steps of the far end

    def end_mute(self):
        if isinstance(self.pinger, Server):
            self.pinger.drips = False
            self.pinger.close()
        elif self.pinger:
            self.pinger.kill()
            self.pinger.wait()
        self.pinger = None
        if not isinstance(self.far, Hub):
            self.far.drips = False

    def start_far(self):
        self.end_mute()
        if isinstance(self.far, Hub):
            if not self.far.runs:
                self.far.start()
        else:
            self.far.is_away = False

    def far_stop(self, amount):
        if isinstance(self.far, Hub):
            self.far.end(signal.SIGKILL if amount > 4 else signal.SIGTERM)
        else:
            self.far.is_away = True

    def far_restart(self, _):
        self.far_stop(1)
        self.start_far()

    def far_kill(self, amount):
        if isinstance(self.far, Hub):
            self.far_stop(8)
            self.start_far()
        else:
            self.far.faults += self.random.choices(["lost", "unheard", "refuse"], k=amount % 3 + 1)

    def far_copy(self, amount):
        if isinstance(self.far, OldHub):
            self.hub_copies.append(dict(self.far.kept))
            return
        was_running = self.far.runs
        self.far_stop(amount)
        self.far.keep(f"kept{len(self.hub_copies)}")
        self.hub_copies.append(f"kept{len(self.hub_copies)}")
        if was_running:
            self.start_far()

    def far_put_back(self, amount):
        if not self.hub_copies:
            return
        self.spoiled.add("hub")
        if isinstance(self.far, OldHub):
            self.gateway.end()  # Only a greeting can show it.
            with self.far.lock:
                self.far.kept = dict(self.random.choice(self.hub_copies))
            return
        self.far_stop(amount)
        self.far.put_back(self.random.choice(self.hub_copies))
        if amount % 2:
            self.start_far()

    def far_emptied(self, amount):
        self.spoiled.add("hub")
        if isinstance(self.far, OldHub):
            self.gateway.end()
            with self.far.lock:
                self.far.kept = {}
            return
        self.far_stop(amount)
        self.far.empty()
        if amount % 2:
            self.start_far()

    def mute(self, _):
        """In place of the server something answers all requests, and accepts nothing; the gateway must raise an alert."""
        if self.way == "mqtt" or self.peer == "old hub":
            return
        if not isinstance(self.far, Hub):
            self.far.drips = True
        elif not self.pinger and self.way == "http":
            self.far_stop(1)
            self.pinger = Server(self.port)
            self.pinger.drips = True
        elif not self.pinger:
            self.far_stop(1)
            self.pinger = subprocess.Popen([sys.executable, str(self.site.pinghub), str(self.folder / "mute"), "0", str(self.port)], stdout=subprocess.DEVNULL)
        self.start()
        self.hear(2)

        until(lambda: f"an alert about waiting events: {self.gateway.alerts()} {self.gateway.upstream()}", lambda: "backlogged" in self.gateway.alerts(), 40)

    def forge(self, amount):
        """A forger sends events with the gateway's id."""
        self.spoiled.add("forged")
        self.start()
        if isinstance(self.far, Hub) and not self.far.runs:
            self.start_far()
        rows = [row for row in self.far.rows() if "." not in row["epoch"]]
        journal = self.gateway.journal()
        if not rows or not journal:
            return
        epoch = rows[-1]["epoch"]
        first = max(1, journal[-1]["seq"] + self.random.choice([-3, 0, 1, 1, 3]))
        events = []
        for number in range(amount):
            self.forged += 1
            events.append({"seq": first + number, "at": 1, "trusted": True, "kind": "message", "body": {"text": f"forged {self.forged}"}})
        if self.way == "mqtt":
            subprocess.run(
                ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(self.site.broker_port), "-q", "1", "-t", f"meshpost/{self.identity}/message", "-l"],
                input="\n".join(json.dumps({"gateway": self.identity, "epoch": epoch, **event}) for event in events), text=True, check=True)
            return
        batch = {"epoch": epoch, "events": events}
        if self.random.random() < 0.7:
            batch["lane"] = "messages"
            if self.random.random() < 0.5:
                batch["after"] = journal[-1]["seq"]
        self.far.post(batch)

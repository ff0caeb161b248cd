"""Histories of a gateway that was never upgraded, and a hub of today."""
import signal

from ends import until
from far import Hub, OldGateway
from history import History
from judge import Wrong


class OldHistory(History):
    """Checks of an old gateway: the hub has each of its acknowledged events."""

    def plan(self):
        self.lane = self.random.choice([{}, {"lane": "messages"}])
        steps = {"hear": 6, "flush": 6, "copy": 3, "put_back": 4, "clone": 2, "clone_ends": 1, "forge": 3,
                 "far_restart": 2, "far_kill": 3, "far_stop": 3, "far_copy": 3, "far_put_back": 4, "far_emptied": 1}
        chosen = self.random.choices(*zip(*steps.items()), k=self.random.randint(6, 20))
        return [("hear", 4), ("flush", 0)] + [(name, self.random.randint(1, 8)) for name in chosen]

    def build(self):
        self.folder.mkdir(parents=True)
        self.far = Hub(self.folder, self.identity, self.site.postgres if self.database == "postgres" else None)
        self.gateway = OldGateway(self.far, self.lane)
        self.start_far()

    def close(self):
        self.far.end(signal.SIGKILL)

    def start(self):
        pass

    def stop(self, _):
        pass

    def hear(self, amount, gateway=None):
        for _ in range(amount):
            self.heard += 1
            (gateway or self.gateway).hear(f"{self.identity} message {self.heard}")

    def flush(self, _):
        for gateway in [self.gateway, *self.clones]:
            if self.far.runs:
                gateway.flush()

    def copy(self, _):
        self.copies.append(self.gateway.copy())

    def put_back(self, _):
        if self.copies:
            self.gateway.put_back(self.random.choice(self.copies))

    def clone(self, amount):
        self.clones.append(OldGateway(self.far, self.lane))
        self.clones[-1].put_back(self.gateway.copy())
        self.hear(amount, self.clones[-1])

    def clone_ends(self, _):
        if self.clones:
            self.gateway = self.clones.pop()

    def forge(self, amount):
        if not self.far.runs:
            return
        first = max(1, len(self.gateway.state["events"]) + self.random.choice([-3, 0, 1, 1, 3]))
        self.far.post({"epoch": self.gateway.state["epoch"], **self.lane, "events": [
            {"seq": first + number, "at": 1, "trusted": True, "kind": "message", "body": {"text": "forged"}} for number in range(amount)]})

    def far_put_back(self, amount):
        super().far_put_back(amount)
        self.forget()

    def far_emptied(self, amount):
        super().far_emptied(amount)
        self.forget()

    def forget(self):
        """Acknowledged events that were lost with the hub's database. An old gateway believes the hub's position, and so also skips events of a forger."""
        for gateway in [self.gateway, *self.clones]:
            gateway.taken, gateway.is_greeted = [], False

    def judge(self):
        self.start_far()
        for gateway in [self.gateway, *self.clones]:
            until("the hub to take all", gateway.flush, 60)
            found = self.missing(gateway.taken, self.far.rows())
            if found:
                raise Wrong(f"{len(found)} events of an old gateway were taken and are not there: {found[:5]}")

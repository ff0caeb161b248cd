"""Checks at the end of a history that each event is where it belongs: compares the content by lane, and believes no counter."""
import collections
import time

from ends import until
from far import content

NODES = {"contact", "contact_removed", "advert", "telemetry", "node_status"}
LIMIT = 60.0


def lane(event):
    if event["kind"] == "gap":
        return event["body"].get("lane", "messages")
    return "nodes" if event["kind"] in NODES else "messages"


class Wrong(Exception):
    """A counterexample."""


class Judge:
    """The checks at the end of a history."""

    def judge(self):
        self.start_far()
        self.start()
        both = self.twin is not None and self.random.random() < 0.5
        for gateway in ([self.gateway, self.twin] if both else [self.gateway, *self.clones]):
            if not both:
                for other in [self.gateway, *self.clones]:
                    if other is not gateway:
                        other.end()
            if not gateway.runs:
                gateway.start()
            self.settled(gateway)
            self.whole(gateway)
        self.nothing_twice()

    def settled(self, gateway):
        if self.way == "http":  # Without a link it notices the hub's missing events with its next batch.
            self.heard += 1
            gateway.radio.hear(f"{self.identity} message {self.heard}")
        until("the radio's queue to be empty", lambda: not gateway.radio.queue, 30)

    def whole(self, gateway):
        """Each of its events is at the server, or in a gap, or an alert is open."""
        began, quiet, left = time.monotonic(), 0, None
        while True:
            journal, rows = gateway.journal(), self.far.rows()
            found = self.missing(journal, rows)
            if not found:
                break
            if left is None or len(found) < left:  # While events arrive, the time limit starts again.
                began, left = time.monotonic(), len(found)
            waited = time.monotonic() - began
            if waited > 6:
                gateway.ask("POST", "/v1/outbox/resume")
            state = gateway.upstream()
            # It reports itself that nothing is pending.
            quiet = quiet + 1 if state.get("pending") == 0 and state.get("state") == "idle" else 0
            if waited > LIMIT or quiet > 12:
                alerts = gateway.alerts()
                raise Wrong(f"after {waited:.0f} s {len(found)} of {len(journal)} events are not there: {[(e['seq'], e['kind'], e['body'].get('text', '')[:30]) for e in found[:8]]}; "
                            + f"pending {state.get('pending')}, {state.get('state')}, alerts {alerts}, in {gateway.folder.name}")
            time.sleep(0.1 + min(waited, 4) * 0.1)
        self.in_order(journal, rows)
        if not self.spoiled:
            self.no_hole(journal, rows)

    def missing(self, journal, rows):
        there = {content(row) for row in rows}
        # A gap without a range is about a lost database: it does not excuse missing events of this database.
        gaps = [row for row in rows if row["kind"] == "gap" and "first" in row["body"]]
        found = []
        for event in journal:
            if content(event) in there or event["kind"] in ("gap", "packet"):
                continue
            if any(lane(gap) == lane(event) and gap["body"]["first"] <= event["seq"] <= gap["body"]["last"] for gap in gaps):
                continue
            if lane(event) == "nodes" and self.is_folded(event, rows):
                continue
            found.append(event)
        return found

    @staticmethod
    def is_folded(event, rows):
        return any(row["kind"] == event["kind"] and row["body"].get("key") == event["body"].get("key")
                   and row["seq"] > event["seq"] and row["body"].get("folded") for row in rows)

    def in_order(self, journal, rows):
        if self.spoiled:
            return
        place = {}
        for row in rows:
            place.setdefault(content(row), row["id"])
        for name in ("messages", "nodes"):
            places = [place[content(event)] for event in journal if lane(event) == name and content(event) in place]
            if places != sorted(places):
                raise Wrong(f"events of {name} came out of order: {places}")

    def no_hole(self, journal, rows):
        """Each event that is at neither end was reported as lost."""
        known = {event["seq"] for event in journal} | {row["seq"] for row in rows}
        for row in rows:
            if row["kind"] == "gap" and "first" in row["body"]:
                known |= set(range(row["body"]["first"], row["body"]["last"] + 1))
        holes = set(range(1, max(known, default=0))) - known
        if holes:
            raise Wrong(f"nobody knows anything of {sorted(holes)[:20]}")

    def nothing_twice(self):
        rows = [row for row in self.far.rows() if row["kind"] != "gap"]
        counts = collections.Counter(content(row) for row in rows)
        twice = [said for said, count in counts.items() if count > 1]
        if twice:
            where = {said: [(row["epoch"], row["seq"], row.get("before")) for row in rows if content(row) == said] for said in twice[:5]}
            raise Wrong(f"{len(twice)} events are there twice: {where}")

#!/usr/bin/env python3
"""check.py PORT TOKEN_FILE JOURNAL [--whole]: is all that was acknowledged to a fleet at the hub, once and in order?

JOURNAL is what `fleet --journal` has written. By default the hub's own count of each gateway is compared; with --whole each event is read back,
and its text must be that of its group and seq. Prints a line of JSON; ends with 1 when anything is wrong.
"""
import argparse
import http.client
import json
import pathlib
import re
import sys

LANES = ("messages", "nodes")


class Reader:
    def __init__(self, port, token):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {"Authorization": "Bearer " + token}

    def get(self, target):
        self.connection.request("GET", target, headers=self.headers)
        answer = self.connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{target}: {answer.status} {body[:200]}")
        return json.loads(body)


def gateways(reader):
    """The hub's list, by id."""
    found, after = {}, ""
    while after is not None:
        page = reader.get(f"/v1/gateways?limit=1000&after={after}")
        found.update((row["gateway"], row) for row in page["gateways"])
        after = page.get("next")
    return found


def events(reader, gateway):
    after = 0
    while after is not None:
        page = reader.get(f"/v1/gateways/{gateway}/events?limit=1000&after={after}")
        yield from page["events"]
        after = page.get("next")


def lane_of(event, knows_lanes):
    return "nodes" if knows_lanes and event["kind"] == "advert" else "messages"


def read_back(reader, row, knows_lanes):
    """What is wrong with a gateway's events at the hub."""
    gateway, epoch, group, taken = row["gateway"], row["epoch"], row["group"], row["taken"]
    # A hub of version 1 has one order, whose number is that of its last event.
    if not knows_lanes:
        taken = {"messages": taken["messages"], "nodes": 0}
    last, seen, complaints = dict.fromkeys(LANES, 0), set(), []
    for event in events(reader, gateway):
        if event["epoch"] != epoch:
            continue
        seq, lane = event["seq"], lane_of(event, knows_lanes)
        if seq in seen:
            complaints.append(f"{gateway}: {seq} is there twice")
        if seq <= last[lane]:
            complaints.append(f"{gateway}: {seq} comes after {last[lane]}")
        seen.add(seq)
        last[lane] = seq
        if event["kind"] == "message":
            said = re.search(r" (\d+)\.(\d+)$", event["body"].get("text", ""))
            if not said or (int(said[1]), int(said[2])) != (group, seq):
                complaints.append(f"{gateway}: {seq} says {event['body'].get('text')!r}")
    if max(seen, default=0) > row["created"]:
        complaints.append(f"{gateway}: the hub has {max(seen)} of {row['created']} events")
    # Of an unfinished run it is known how many of each lane there must be, and not which seqs are a lane's.
    missing = set(range(1, row["created"] + 1)) - seen if row["done"] == row["created"] else set()
    for lane in LANES:
        # A hub that has been upgraded begins lanes where the whole journal was; of a finished run `missing` tells more.
        if last[lane] < taken[lane] and row["done"] != row["created"]:
            complaints.append(f"{gateway}: {lane} were acknowledged up to {taken[lane]}, and end at {last[lane]}")
    if missing:
        complaints.append(f"{gateway}: {len(missing)} are missing, {sorted(missing)[:5]} …")
    if len(seen) < row["done"]:
        complaints.append(f"{gateway}: {row['done']} were acknowledged, {len(seen)} are there")
    return complaints


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("token", type=pathlib.Path)
    parser.add_argument("journal", type=pathlib.Path)
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    reader = Reader(options.port, options.token.read_text().split("\n")[0].strip())
    there, complaints, total, acknowledged = gateways(reader), [], 0, 0
    for line in options.journal.read_text().splitlines():
        gateway, epoch, *numbers = line.split()
        group, messages, nodes, done, created = map(int, numbers)
        row = {"gateway": gateway, "epoch": epoch, "group": group, "taken": {"messages": messages, "nodes": nodes}, "done": done,
               "created": created}
        acknowledged += done
        known = there.get(gateway, {"events": 0, "epoch": epoch})
        total += known["events"]
        # What was stored and could not be told of any more is there, too.
        if not done <= known["events"] <= created:
            complaints.append(f"{gateway}: {done} of {created} were acknowledged, the hub counts {known['events']}")
        # One of which it has nothing yet is none that it knows.
        if options.whole and gateway in there:
            complaints += read_back(reader, row, "lanes" in reader.get(f"/v1/gateways/{gateway}?epoch={epoch}"))
    print(json.dumps({"acknowledged": acknowledged, "there": total, "wrong": len(complaints), "wrong_lines": complaints[:20]}))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())

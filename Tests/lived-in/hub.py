#!/usr/bin/env python3
"""hub.py PROGRAM CONFIGURATION [--seed N] [--messages N] [--nodes N] [--gateways N] [--end SECONDS]: gives a hub a past.

PROGRAM is `meshpost-hub`; CONFIGURATION names a port, a database in a file that is not there yet, and a token. The hub runs for as long as the gateways tell it
what they have heard, as gateways do over HTTP. Then the moments at which it got it are put into the past, in its database.
"""
import argparse
import asyncio
import concurrent.futures
import dataclasses
import json
import pathlib
import random
import sqlite3
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from life import DAY, HARD_NAMES, HOUR, MINUTE, Life, digest_of, key_of  # noqa: E402

# What becomes of gateways, and of how many in sixty. `outage`: silent together, since one moment.
FATES = {"lost": 4, "low": 4, "backlogged": 4, "outage": 8, "gone": 2, "http": 5, "mqtt": 3, "unset": 2}
TYPES = {1: "chat", 2: "repeater", 3: "room", 4: "sensor"}
BATCH = 250


@dataclasses.dataclass
class Gateway:
    id: str
    epoch: str
    name: str
    key: str
    fate: str
    lat: float
    lon: float
    tags: list
    note: str | None

    def state(self, end):
        """What it told last of itself; `None`: it tells a broker, which passes on no states."""
        if self.fate == "mqtt":
            return None
        state = {"version": "0.1.0", "link": "serial:/dev/serial/by-id/usb-" + self.id, "radio": "up", "name": self.name, "sync": "synced", "clock_trusted": self.fate != "unset", "battery_mv": 4100}
        if self.fate == "lost":
            state |= {"radio": "down", "sync": "waiting", "error": "/dev/serial/by-id/usb-" + self.id + " is not there: plug the radio in", "alerts": 1}
        if self.fate == "low":
            state |= {"battery_mv": 3300, "alerts": 1}
        if self.fate == "backlogged":
            state |= {"pending": 1000, "alerts": 1}
        return state


class Fleet:
    def __init__(self, life, count):
        self.life, chance = life, random.Random(f"{life.seed} fleet")
        fates = [fate for fate, of in FATES.items() for _ in range(max(1, round(of * count / 60)))][:count]
        fates += ["healthy"] * (count - len(fates))
        chance.shuffle(fates)
        self.outage = life.end - 7 * HOUR
        self.gateways = []
        for number, fate in enumerate(fates):
            name = HARD_NAMES[number % len(HARD_NAMES)] if number % 2 else f"{chance.choice(['Hilltop', 'Ridge', 'Valley', 'Hut', 'Dam', 'Mast'])} {number}"
            id = key_of(life.seed, "gateway", number).hex()[:16] if number % 3 else f"hut-{number:02}"
            near = chance.random() < 0.5
            place = (round(47.37 + chance.gauss(0, 0.05 if near else 0.8), 5), round(8.54 + chance.gauss(0, 0.06 if near else 1.2), 5))
            tags = ["valley-outage"] if fate == "outage" else [f"valley-{number % 5}"] if number % 4 else []
            note = "Key at the neighbour's, 2nd floor. " * 8 if number % 11 == 0 else None
            self.gateways.append(Gateway(id, key_of(life.seed, "epoch", number).hex()[:16], name, key_of(life.seed, "radio", number).hex(), fate, *place, tags, note))

    def last_seen(self, gateway):
        chance = random.Random(f"{self.life.seed} {gateway.id} seen")
        if gateway.fate == "outage":
            return self.outage + chance.randrange(20_000)
        if gateway.fate == "gone":
            return self.life.end - chance.randrange(20, 90) * DAY
        return self.life.end - chance.randrange(MINUTE)

    def is_linked(self, gateway):
        return gateway.fate in ("healthy", "lost", "low", "backlogged", "unset")

    def events(self):
        """For each gateway its events, in order: (at, kind, body). Whoever is gone has heard nothing since."""
        life, chance = self.life, random.Random(f"{self.life.seed} hearing")
        found = {gateway.id: [] for gateway in self.gateways}
        last = {gateway.id: self.last_seen(gateway) for gateway in self.gateways}
        for gateway in self.gateways:
            radio = {"key": gateway.key, "name": gateway.name, "model": "Heltec V3", "version": "v1.17.1", "protocol_version": 13, "max_contacts": 350, "lat": gateway.lat, "lon": gateway.lon}
            found[gateway.id].append((life.start, "radio", radio))
            for node in chance.sample(life.nodes, min(len(life.nodes), chance.choice([3, 20, 60, 120]))):
                body = {"key": node.key.hex(), "name": node.name, "type": TYPES[node.type], "favourite": False, "flags": 0, "on_radio": chance.random() < 0.5, "first_seen": node.first_seen}
                body |= {"last_heard": node.last_heard} if node.last_heard else {}
                body |= {"lat": node.lat, "lon": node.lon} if node.lat else {}
                body |= {"hops": len(node.path), "path": node.path.hex()} if node.path is not None else {}
                found[gateway.id].append((min(node.last_heard or node.first_seen, last[gateway.id]), "contact", body))
            self.add_alerts(gateway, found[gateway.id], last[gateway.id], chance)
        for number, one in enumerate(life.messages):
            if one.kind != "channel":
                continue
            first = int.from_bytes(key_of(one.sender_name)[:4]) % len(self.gateways)
            for step in range(chance.choice([1, 1, 1, 2, 2, 3, 6])):
                gateway = self.gateways[(first + step * 7) % len(self.gateways)]
                at = one.at + step * chance.randrange(900)
                if at > last[gateway.id]:
                    continue
                body = {"id": number + 1, "kind": "channel", "sender_name": one.sender_name, "channel": digest_of(one.channel), "channel_name": one.channel, "sender_time": one.sender_time,
                        "text": one.text, "snr": (one.snr - 8 * step) / 4, "hops": one.hops + step, "direct": False}
                body |= {"waited": True, "waited_s": one.late + 60, "age_s": one.late} if one.late else {}
                found[gateway.id].append((at, "message", body))
        return {id: sorted(events, key=lambda one: (one[0], one[1])) for id, events in found.items()}

    def add_alerts(self, gateway, events, last, chance):
        def alert(id, rule, text, since, subject=None, **more):
            return {"id": id, "rule": rule, "state": "begin", "since": since, "text": text, **({"subject": subject} if subject else {}), **more}
        since = last - chance.randrange(HOUR, 5 * HOUR)
        if gateway.fate == "lost":
            events.append((since, "alert", alert(1, "radio_lost", "the radio is lost: it was unplugged", since)))
        if gateway.fate == "low":
            events.append((since, "power", {**alert(1, "battery_low", "the battery is low: 3.30 V", since), "source": "battery", "state": "low", "battery_mv": 3300}))
        if gateway.fate == "backlogged":
            events.append((since, "alert", alert(1, "backlogged", "1000 events wait for hub: it takes them too slowly", since, "hub", value=1000)))
        for number in range(chance.randrange(4)):
            begin = last - chance.randrange(DAY, 200 * DAY)
            one = alert(10 + number, "node_silent", "Ridge has not been heard for 24 h", begin, key_of("silent", number).hex())
            events += [(begin, "alert", one), (begin + chance.randrange(HOUR, 20 * HOUR), "alert", {**one, "state": "end"})]


class Hub:
    """Requests to the hub at this configuration."""

    def __init__(self, configuration):
        told = tomllib.loads(configuration.read_text())
        self.database = told["database"]
        self.port = told["port"]
        self.token = pathlib.Path(told["token"][0]["file"]).read_text().strip()

    def ask(self, method, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", None if body is None else json.dumps(body).encode(),
                                         {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def until_ready(self):
        end = time.monotonic() + 60
        while True:
            try:
                return self.ask("GET", "/v1/fleet")
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def tell(self, fleet, gateway, events):
        for begin in range(0, len(events), BATCH):
            rows = [{"seq": begin + number + 1, "at": at, "trusted": gateway.fate != "unset", "kind": kind, "body": body} for number, (at, kind, body) in enumerate(events[begin:begin + BATCH])]
            while True:
                try:
                    self.ask("POST", f"/v1/gateways/{gateway.id}/events", {"epoch": gateway.epoch, "events": rows})
                    break
                except urllib.error.HTTPError as refusal:
                    if refusal.code not in (429, 503):
                        raise SystemExit(f"{gateway.id}: {refusal.code} {refusal.read().decode()}") from refusal
                    time.sleep(float(refusal.headers.get("Retry-After") or 1))
        if state := gateway.state(fleet.life.end):
            self.ask("PUT", f"/v1/gateways/{gateway.id}/state/gateway", state)
        for name, value in (("tags", gateway.tags), ("note", gateway.note)):
            if value:
                self.ask("PUT", f"/v1/gateways/{gateway.id}/documents/node/{gateway.key}/{name}", {"value": value})

    async def hold_links(self, fleet):
        """Links of those that have one, until it is cancelled; needs `websockets` (hardware/requirements.txt)."""
        import contextlib

        import websockets

        async def link(gateway):
            address = f"ws://127.0.0.1:{self.port}/v1/gateways/{gateway.id}/link"
            async with websockets.connect(address, subprotocols=["meshpost.v1"], additional_headers={"Authorization": f"Bearer {self.token}"}, ping_interval=60) as line:
                await line.send(json.dumps({"type": "hello", "protocol": 2, "gateway": gateway.id, "epoch": gateway.epoch, "version": "0.1.0", "keep_alive_s": 300, "brief": True}))
                while json.loads(await line.recv())["type"] != "welcome":
                    pass
                await line.send(json.dumps({"type": "state", "name": "gateway", "body": gateway.state(fleet.life.end)}))
                with contextlib.suppress(websockets.ConnectionClosed):
                    async for _ in line:
                        pass

        await asyncio.gather(*(link(gateway) for gateway in fleet.gateways if fleet.is_linked(gateway)))


def put_back(database, fleet):
    """What the hub got in a moment, it got over a year: nearly all at once, and two days late what a backlogged gateway alone had heard."""
    backlogged = [gateway.id for gateway in fleet.gateways if gateway.fate == "backlogged"]
    waiting = ", ".join("?" * len(backlogged))
    database.execute("UPDATE messages SET arrived = at + 200 + position * 7919 % 1500")
    database.execute(f"""UPDATE messages SET arrived = at + 172800000 WHERE at < ? AND position % 3 = 0
      AND NOT EXISTS(SELECT 1 FROM heard h WHERE h.message = messages.position AND h.gateway NOT IN ({waiting}))""", (fleet.life.end - 3 * DAY, *backlogged))
    for gateway in fleet.gateways:
        seen = fleet.last_seen(gateway)
        database.execute("UPDATE gateways SET last_seen = ? WHERE id = ?", (seen, gateway.id))
        database.execute("UPDATE states SET at = ? WHERE gateway = ?", (seen, gateway.id))
    database.execute("UPDATE alerts SET told_at = began_at + 500")
    # The hub's own, which it raises when it has run for a quarter of an hour.
    for gateway in fleet.gateways:
        if gateway.fate in ("outage", "gone"):
            seen = fleet.last_seen(gateway)
            database.execute("INSERT INTO alerts(gateway, rule, subject, began_at, text, returns, told_at) VALUES (?, 'gateway_silent', '', ?, ?, 0, ?)",
                             (gateway.id, seen, f"nothing has come from {gateway.id} for 15 minutes", seen + 15 * MINUTE))


def fleet_of(options):
    return Fleet(Life(options.seed, round(options.end * 1000), options.messages, options.nodes), options.gateways)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("configuration", type=pathlib.Path)
    for name, size in (("seed", 1), ("messages", 100_000), ("nodes", 1_000), ("gateways", 60)):
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--end", type=float, default=time.time(), help="the newest moment, seconds since 1970; else now")
    options = parser.parse_args()
    hub, fleet = Hub(options.configuration), fleet_of(options)
    if pathlib.Path(hub.database).exists():
        raise SystemExit(f"{hub.database} is there already: a past is for a hub that has none")
    process = subprocess.Popen([options.program, "serve", "--config", options.configuration], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        hub.until_ready()
        events = fleet.events()
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            for done in [threads.submit(hub.tell, fleet, gateway, events[gateway.id]) for gateway in fleet.gateways]:
                done.result()
    finally:
        process.terminate()
        process.wait()
    database = sqlite3.connect(hub.database)
    with database:
        put_back(database, fleet)
    database.close()
    print(f"{len(fleet.gateways)} gateways, {sum(map(len, events.values()))} events")


if __name__ == "__main__":
    main()

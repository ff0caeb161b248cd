"""Scenarios that measure one thing at several sizes: the points of the curves that `pictures` draws. Each point is a run, with a hub and a database of its own."""
import pathlib
import re
import sqlite3
import subprocess
import time

from stage import Hub

PLACES = (("sqlite", "SQLite"), ("pg", "PostgreSQL on loopback"), ("pg-1ms", "PostgreSQL 1.1 ms away"))
GATEWAYS = (10, 100, 1000, 5000)
BACKLOG = 40000
CALM = 500
RATES = (250, 500, 1000, 2000, 4000, 6000, 8000, 12000, 16000)
LINKS_KILLED = (500, 1000, 2500, 5000, 10000)
LINKS_IDLE = (1000, 2500, 5000, 10000, 19900)
# A point beyond which a hub is not asked for more: it has bent.
BENT_MS = 2000
PURGED = 60000


def add(scenario, storm, idle):
    for kind, words in PLACES:
        scenario(f"curve-gateways-{kind}", f"{BACKLOG:,} events that wait, and {CALM} events/s, from 10 to 5,000 gateways, {words}")(
            lambda bench, label, program, kind=kind: gateways(bench, label, program, kind))
        scenario(f"curve-rate-{kind}", f"1,000 gateways, more and more events a second, {words}")(
            lambda bench, label, program, kind=kind: rates(bench, label, program, kind))
        scenario(f"curve-restart-{kind}", f"the hub is killed, 500 to 10,000 links, {words}")(
            lambda bench, label, program, kind=kind: restarts(bench, label, program, storm, kind))
        scenario(f"purge-{kind}", f"`meshpost-hub purge` of {PURGED:,} events and as many joined messages beside a hub, {words}")(
            lambda bench, label, program, kind=kind: purge(bench, label, program, kind))
    for name, more in (("memory", ()), ("memory-compressed", ("--compress",))):
        scenario(f"curve-{name}", f"memory of 1,000 to 19,900 idle links{', with compression' if more else ''}, SQLite")(
            lambda bench, label, program, name=name, more=more: memory(bench, label, program, idle, name, more))


def point(curve, kind, at):
    return {"curve": curve, "place": kind, "at": at}


def gateways(bench, label, program, kind):
    for count in GATEWAYS:
        name = f"curve-gateways-{kind}"
        bench.load(
            f"{name} {count} backlog", label, program, kind, "backlog", "--gateways", count, "--events", BACKLOG // count, "--limit", 60,
            more=lambda *_: point("backlog", kind, count))
        bench.load(
            f"{name} {count} calm", label, program, kind, "steady", "--gateways", count, "--rate", CALM / count, "--seconds", 10, "--limit", 60,
            more=lambda *_: point("calm", kind, count))


def rates(bench, label, program, kind):
    for rate in RATES:
        result = bench.load(
            f"curve-rate-{kind} {rate}", label, program, kind, "steady", "--gateways", 1000, "--rate", rate / 1000, "--seconds", 8, "--limit", 40,
            more=lambda *_: point("rate", kind, rate))
        if result["latency"].get("p99_ms", 0) > BENT_MS or not result["complete"]:
            break


def restarts(bench, label, program, storm, kind):
    for links in LINKS_KILLED:
        storm(bench, label, program, f"curve-restart-{kind} {links}", kind, links, point("restart", kind, links))


def memory(bench, label, program, idle, name, more):
    for links in LINKS_IDLE:
        idle(bench, label, program, f"curve-{name} {links}", *more, links=links, point=point(name, "sqlite", links))


def purge(bench, label, program, kind):
    """Rows of ten gateways, 400 days old, of the size of a message; the hub goes on beside. The program rests between its steps as long as they take."""
    place, _ = bench.place(kind)
    hub = Hub(bench.stage, program, place)
    body = '{"kind":"channel","channel":"Public","text":"' + "x" * 150 + '","sender_time":1}'
    old = int((time.time() - 400 * 86400) * 1000)
    # The newest joined message stays.
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {PURGED}) "
    statements = [
        "INSERT INTO gateways(id, epoch, events, last_seen) " + numbers + "SELECT 'g' || i, 'e', 6000, 1 FROM n WHERE i <= 10",
        "INSERT INTO events(gateway, epoch, seq, at, trusted, kind, body) " + numbers
        + f"SELECT 'g' || (i % 10 + 1), 'e', i, {old} + i, 1, 'message', '{body}' FROM n",
        "INSERT INTO messages(position, identity, channel, at, body) " + numbers
        + f"SELECT i, 'identity of message ' || i, 'Public', {old} + i, '{body}' FROM n",
        "INSERT INTO heard(message, gateway, at, body) " + numbers + f"SELECT i, 'g' || (i % 10 + 1), {old} + i, '{{}}' FROM n"]
    if kind == "sqlite":
        with sqlite3.connect(place, timeout=30) as database:
            for statement in statements:
                database.execute(statement)
        database.close()
    else:
        server = bench.postgres()
        words = [word for statement in statements + ["ANALYZE"] for word in ("-c", statement)]
        server.run("psql", "-h", "127.0.0.1", "-p", server.port, "-U", "hub", "-d", pathlib.PurePath(place).name, "-v", "ON_ERROR_STOP=1", *words)
        server.rest()
    begin = time.monotonic()
    done = subprocess.run(
        [str(program), "purge", "--config", str(hub.config), "--older-than", "90d", "--messages", "--yes"], capture_output=True, text=True)
    took = time.monotonic() - begin
    hub.end()
    deleted = sum(int(word) for word in re.findall(r"(\d+) (?:events|messages)", done.stdout))
    if done.returncode or deleted != 2 * PURGED - 1:
        bench.failures.append(f"purge-{kind}, {label}: {done.returncode}, {deleted} rows: {done.stdout[-300:]}{done.stderr[-300:]}")
    bench.row(f"purge-{kind}", label, {
        "seconds": took, "per_second": deleted / took, **point("purge", kind, deleted), "notes": {"rows deleted": f"{deleted:,}"}})

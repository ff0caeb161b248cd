#!/usr/bin/env python3
"""gateway.py DATABASE [--seed N] [--messages N] [--nodes N] [--readings N] [--end SECONDS]: gives a gateway a past.

DATABASE was made by a `meshpostd` that has met its radio, received no message yet, and does not run now. Each row is as that program writes it, with its
identity, its place in the journal and its checksum; the search index and the list of conversations are made by the program itself, from the rows.
"""
import argparse
import hashlib
import json
import pathlib
import sqlite3
import struct
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from life import Life, digest_of, secret_of  # noqa: E402

MASK = (1 << 64) - 1


def checksum(parts):
    """FNV-1a of 64 bits, as SQLite's signed number (`RowChecksum`)."""
    value = 0xCBF29CE484222325
    for byte in parts:
        value = (value ^ byte) * 0x100000001B3 & MASK
    return value - (1 << 64) if value >> 63 else value


def number(value):
    return struct.pack("<q", value)


def optional(value):
    return b"\0" if value is None else b"\1" + number(value)


def counted(value):
    return number(-1) if value is None else number(len(value)) + value


def message_rows(life, seq):
    """Rows of `messages`, in their order (`Store.insertRow`, `MessageEvent.checksum`, `MessageTraits`)."""
    start = 0
    digests = {name: digest_of(name) for name in {one.channel for one in life.messages if one.channel}}
    names = {one.name: 0 for one in life.nodes}
    for one in life.nodes:
        names[one.name] += 1
    authors = {}
    for node in life.nodes:
        authors.setdefault(node.key[:4], []).append(node)
    taken = set()
    for id, one in enumerate(life.messages, 1):
        text, sender = one.text.encode()[:160], one.sender.key[:6] if one.sender else None
        sender_name = one.sender_name.encode()
        author = one.author.key[:4] if one.author else None
        author_name = one.author.name.encode() if one.author and len(authors[author]) == 1 else None
        channel, sent = one.channel and digests[one.channel], one.sender_time
        while True:
            identity = struct.pack(">I", sent) + hashlib.sha256(b"".join([
                one.kind.encode(), b"\0", sender or b"", (channel or "").encode(), b"\0", bytes([0]), sender_name if one.kind == "channel" else b"", b"\0", author or b"", b"\0",
                struct.pack(">I", sent), struct.pack("<H", 0), text])).digest()[:12]
            if identity not in taken:
                break
            sent += 1  # the same words of the same person a second later
        taken.add(identity)
        slot = None if channel is None else 0 if one.channel == "Public" else 1
        channel_name = one.channel.encode() if one.channel else None
        text_type, raw = 2 if one.kind == "room" else 0, 0xFF if one.hops is None else one.hops
        waited, age = (3600, one.late) if one.late else (None, None)
        sum = checksum(b"".join([
            number(seq), number(start), number(one.at), number(1), number(id), one.kind.encode(), counted(sender), counted(sender_name), counted(author), counted(author_name),
            counted(channel_name), counted(channel.encode() if channel else None), counted(text), number(text_type), number(raw), optional(slot), optional(sent), optional(one.snr), optional(None),
            optional(waited), optional(age), optional(None)]))
        yield (id, identity, one.kind, sender, sender_name, channel, slot, text_type, sent, author, text, one.snr, raw, None, one.at, 1, one.copies, waited, age, 1, seq, start, channel_name,
               author_name, None, sum, None)
        start += 150 + sum_of(sender_name, author_name, channel_name) + len(text) + len(channel or "")
        seq += 1


def sum_of(*texts):
    return sum(len(text) for text in texts if text is not None)


MESSAGES = """id, identity, kind, sender, sender_name, channel, slot, text_type, sender_time, author, text, snr, path_length, data_type, at, trusted, copies, waited, age, radio, seq, event_start,
  channel_name, author_name, event_radio, checksum, ways"""


def rows(count):
    return ", ".join("?" * count)


def fill(database, life, readings, sent):
    if database.execute("SELECT count(*) FROM messages").fetchone()[0]:
        raise SystemExit("this gateway has messages: a past is for one that has none")
    if not database.execute("SELECT count(*) FROM radios").fetchone()[0]:
        raise SystemExit("this gateway has not met its radio yet")
    meta = dict(database.execute("SELECT name, value FROM meta"))
    seq = database.execute("SELECT ifnull(max(seq), 0) FROM journal").fetchone()[0] + 1
    database.executemany(f"INSERT INTO messages({MESSAGES}) VALUES ({rows(27)})", message_rows(life, seq))
    database.execute("INSERT OR REPLACE INTO identities SELECT identity, id FROM messages ORDER BY identity")
    database.execute("INSERT OR REPLACE INTO meta VALUES ('identified', ?)", (len(life.messages),))
    talked = {}
    for one in life.messages:
        if one.sender:
            talked[one.sender.key] = one.at
    elapsed = meta.get("elapsed", 0)
    database.executemany(
        f"""INSERT INTO contacts(key, type, flags, path_length, path, name, last_advert, latitude, longitude, last_modified, on_radio, first_seen, last_heard, radio, seen, talked_at)
        VALUES ({rows(16)})""",
        ((node.key, node.type, 0, None if node.path is None else len(node.path), node.path, node.name.encode(), (node.last_heard or node.first_seen) // 1000, round(node.lat * 1e6),
          round(node.lon * 1e6), (node.last_heard or node.first_seen) // 1000, 0, node.first_seen, node.last_heard, 1, elapsed, talked.get(node.key)) for node in life.nodes))
    database.executemany(f"INSERT INTO readings(node, kind, at, trusted, body, radio) VALUES ({rows(6)})",
                         ((node.key, kind, at, 1, json.dumps(body, ensure_ascii=False).encode(), 1) for node, kind, at, body in life.readings(readings)))
    database.executemany(
        f"""INSERT INTO outgoing(key, origin, priority, kind, recipient, channel, text, state, reason, sender_time, attempt, tries, floods, codes, created_at, created_trusted, lifetime, ended_at,
          round_trip, heard, airtime, created_elapsed, radio, place) VALUES ({rows(24)})""",
        ((f"life-{number}", "cli", 1, "direct" if to else "channel", to.key if to else None, None if to else digest_of("Public"), text.encode(), state, reason, at // 1000, 0, 1, 0 if to else 1, b"",
          at, 1, 86_400, at + 4000, 3200 if state == "delivered" else None, 0 if to else number % 4, 400, elapsed, 1, place + 1)
         for number, (place, at, to, text, state, reason) in enumerate(life.sent(sent))))
    database.executemany(f"INSERT INTO alerts(rule, subject, text, value, began_at, ended_at, ended_elapsed, returns, acknowledged_at, acknowledged_by, note) VALUES ({rows(11)})",
                         ((rule, subject, text, value, begin, end, 0, 0, begin + 60_000 if who else None, who, note if who else None)
                          for rule, subject, text, value, begin, end, who, note in life.alerts()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--readings", type=int, default=10_000)
    parser.add_argument("--end", type=float, default=time.time(), help="the newest moment, seconds since 1970; else now")
    options = parser.parse_args()
    if not options.database.exists():
        raise SystemExit(f"{options.database}: there is none")
    life = Life(options.seed, round(options.end * 1000), options.messages, options.nodes)
    database = sqlite3.connect(options.database, isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    fill(database, life, options.readings, options.messages // 50)
    database.execute("COMMIT")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    print(f"{len(life.messages)} messages, {len(life.nodes)} nodes")


if __name__ == "__main__":
    main()

"""SQLite's own limit on this disk, in the store's mode (WAL, FULL, page 1024): a row of 120 bytes, one and ten a commit."""
import json
import os
import sqlite3
import sys
import time


def written():
    for line in open("/proc/self/io"):
        if line.startswith("write_bytes"):
            return int(line.split()[1])


for per_commit, count in ((1, 5000), (10, 20000)):
    location = os.path.join(sys.argv[1], f"limit-{per_commit}.db")
    database = sqlite3.connect(location, isolation_level=None)
    for pragma in ("page_size=1024", "journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=200"):
        database.execute(f"PRAGMA {pragma}")
    database.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, body BLOB)")
    body, before, start = b"x" * 120, written(), time.perf_counter()
    for number in range(count):
        if number % per_commit == 0:
            database.execute("BEGIN")
        database.execute("INSERT INTO t(body) VALUES (?)", (body,))
        if number % per_commit == per_commit - 1:
            database.execute("COMMIT")
    seconds = time.perf_counter() - start
    row = {"bench": "sqlite", "per_commit": per_commit, "per_second": int(count / seconds)}
    row["bytes_per_row"] = (written() - before) // count
    print(json.dumps(row))

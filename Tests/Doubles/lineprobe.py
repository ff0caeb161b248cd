#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lineprobe.py: measures plain TCP and UDP over a line, to check shapedline.py. Prints one JSON object.

    lineprobe.py serve PORT                 answers both; prints `listening`
    lineprobe.py bulk HOST PORT BYTES       sends so many bytes over TCP, and waits until the other end has all of them
    lineprobe.py ping HOST PORT COUNT GAP   datagrams, GAP seconds apart: the shortest and the median round trip, and how many came back
"""
import json
import select
import socket
import sys
import threading
import time


def take(connection):
    wanted, got = int.from_bytes(connection.recv(8, socket.MSG_WAITALL), "big"), 0
    while got < wanted:
        got += len(connection.recv(65536)) or sys.exit("the other end is gone")
    connection.sendall(b"!")


def serve(port):
    listener = socket.create_server(("0.0.0.0", port))
    echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    echo.bind(("0.0.0.0", port))
    print("listening", flush=True)
    while True:
        ready, _, _ = select.select([listener, echo], [], [])
        if listener in ready:
            threading.Thread(target=take, args=(listener.accept()[0],), daemon=True).start()
        if echo in ready:
            echo.sendto(*echo.recvfrom(2048))


def bulk(host, port, count):
    connection = socket.create_connection((host, port))
    begin = time.monotonic()
    connection.sendall(count.to_bytes(8, "big") + bytes(count))
    connection.recv(1)
    seconds = time.monotonic() - begin
    print(json.dumps({"bytes": count, "seconds": round(seconds, 3), "per_second": round(count / seconds)}))


def ping(host, port, count, gap):
    channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    channel.connect((host, port))
    sent, trips = {}, []

    def hear(until):
        while (left := until - time.monotonic()) > 0:
            if select.select([channel], [], [], left)[0]:
                trips.append(time.monotonic() - sent[int.from_bytes(channel.recv(2048), "big")])

    for number in range(count):
        sent[number] = time.monotonic()
        channel.send(number.to_bytes(8, "big"))
        hear(time.monotonic() + gap)
    hear(time.monotonic() + 3)
    trips.sort()
    median = round(trips[len(trips) // 2], 4) if trips else None
    print(json.dumps({"sent": count, "came": len(trips), "shortest": round(trips[0], 4) if trips else None, "median": median}))


match sys.argv[1:]:
    case ["serve", port]:
        serve(int(port))
    case ["bulk", host, port, count]:
        bulk(host, int(port), int(count))
    case ["ping", host, port, count, gap]:
        ping(host, int(port), int(count), float(gap))
    case _:
        sys.exit(__doc__)

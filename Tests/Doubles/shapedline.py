#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""shapedline.py: a thin line between two networks of their own, for tests and benchmarks. Needs root and /dev/net/tun.

    shapedline.py --up 1500 [--down RATE] [--delay 0.3] [--loss 1] [--cuts 20:60:2:8] …

Two network namespaces, near and far, are connected by this process alone: IP packets of everything that runs there go through one
queue for each direction. So the rate holds for the whole pipe, not for each connection, and TCP meets what it meets at a modem: a
buffer in front of the narrow place, full buffers, losses, silence.

The first line printed says how to start programs there: `nsenter --net=NEAR meshpostd …`. Then a JSON object each second, with totals
for each direction:

    bytes, packets      that the line carried, with IP headers: as a provider's meter counts
    payload, again      TCP payload carried, and how much of it had been carried before
    offered, repeated   TCP payload that senders handed to the line, and how much of it they had handed over before
    full, lost, cut     packets dropped because the buffer was full, by chance, and by a cut
    forgotten           packets of connections that the NAT has forgotten
    waiting             bytes in the buffer now

Lines on standard input change it: `rate UP [DOWN]`, `delay SECONDS`, `loss PERCENT`, `cut [SECONDS]`, `mend`, `forget`, `report`. Each is
answered by such an object, whose `after` is the line. It ends with its input.
"""
import argparse
import asyncio
import collections
import ctypes
import fcntl
import json
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import time

import passage

NEAR, FAR = "192.0.2.1", "192.0.2.2"
CLONE_NEWNET, PR_SET_PDEATHSIG = 0x40000000, 1
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
IMPOSSIBLE = 77
libc = ctypes.CDLL(None, use_errno=True)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--up", type=float, default=1500, help="bytes a second from near to far, with IP headers")
    parser.add_argument("--down", type=float, help="bytes a second from far to near; as up if not given")
    parser.add_argument("--delay", type=float, default=0.3, help="seconds one way, besides the time that the bytes take")
    parser.add_argument("--loss", type=float, default=0, help="packets lost by chance, per cent")
    parser.add_argument("--buffer", type=int, help="bytes before the narrow place; 2 s of the rate, at least 3000, if not given")
    parser.add_argument("--mtu", type=int, default=1500, help="576 to 1500")
    parser.add_argument("--cuts", help="A:B:C:D: every A to B seconds the line is cut for C to D seconds")
    parser.add_argument("--forget", action="store_true", help="each cut makes the NAT forget all connections")
    parser.add_argument("--congestion", default="reno", help="TCP's congestion control at both ends, so that all machines do the same")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--door", nargs=2, metavar=("FILE", "PORT"), help="a Unix socket that leads to 127.0.0.1:PORT on the far side")
    options = parser.parse_args()
    options.down = options.down or options.up
    if options.up <= 0 or options.down <= 0 or not 576 <= options.mtu <= 1500:
        parser.error("rates above 0, and an MTU of 576 to 1500")
    return options


# The two networks.

def network(address, options):
    """Puts this process into a new network, and makes a TUN device there. Returns the device, and a descriptor of the network."""
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "no network namespace can be made")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"line0", IFF_TUN | IFF_NO_PI))
    for words in (f"addr add {address}/24 dev line0", f"link set line0 mtu {options.mtu} txqueuelen 1000 up", "link set lo up"):
        subprocess.run(["ip", *words.split()], check=True, stdout=subprocess.DEVNULL)
    with open("/proc/sys/net/ipv4/tcp_congestion_control", "w") as file:
        file.write(options.congestion)
    return device, os.open("/proc/self/ns/net", os.O_RDONLY)


def open_door(file, port):
    """A separate process on the far side, so that observers do not disturb the line."""
    parent = os.getpid()
    if os.fork() != 0:
        return
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)

    async def main():
        await (await asyncio.start_unix_server(passage.to(port), file)).serve_forever()

    asyncio.run(main())
    os._exit(0)


# TCP's bytes, and its retransmissions.

Segment = collections.namedtuple("Segment", "flow seq payload is_first")


def segment(packet):
    """TCP's part of an IPv4 packet; none for others."""
    head = (packet[0] & 15) * 4
    if packet[9] != socket.IPPROTO_TCP or struct.unpack_from("!H", packet, 6)[0] & 0x1FFF or len(packet) < head + 20:
        return None
    seq, = struct.unpack_from("!I", packet, head + 4)
    payload = struct.unpack_from("!H", packet, 2)[0] - head - (packet[head + 12] >> 4) * 4
    return Segment(bytes(packet[12:20] + packet[head:head + 4]), seq, payload, bool(packet[head + 13] & 2))


def answers(flow):
    """The same connection in the other direction."""
    return flow[4:8] + flow[0:4] + flow[10:12] + flow[8:10]


class Stretches:
    """Which bytes of each connection have passed, by their sequence numbers."""

    def __init__(self):
        self.flows = {}

    def passed(self, part):
        """How many of these bytes have passed before."""
        if part.is_first or part.flow not in self.flows:
            self.flows[part.flow] = (part.seq, [])
        first, known = self.flows[part.flow]
        start = (part.seq - first) & 0xFFFFFFFF
        end = start + part.payload
        again, low, high, rest = 0, start, end, []
        for stretch in known:
            overlap = min(stretch[1], end) - max(stretch[0], start)
            if overlap < 0:
                rest.append(stretch)
            else:
                again += overlap
                low, high = min(low, stretch[0]), max(high, stretch[1])
        if part.payload > 0:
            self.flows[part.flow] = (first, rest + [(low, high)])
        return again


class Way:
    """One direction: a buffer, a narrow place, then the air. Time is an argument, so lateness of this process adds up to nothing."""

    def __init__(self, rate, options, out, seed):
        self.rate, self.delay, self.loss = rate, options.delay, options.loss
        self.buffer, self.out, self.chance = options.buffer, out, random.Random(seed)
        self.waiting, self.flying = collections.deque(), collections.deque()
        self.queued, self.free_at = 0, 0.0
        self.handed, self.carried, self.forgotten = Stretches(), Stretches(), set()
        self.count = dict.fromkeys(
            ("bytes", "packets", "payload", "again", "offered", "repeated", "full", "lost", "cut", "forgotten"), 0)

    def limit(self):
        return self.buffer or max(3000, int(2 * self.rate))

    def take(self, packet, now, is_cut):
        part = segment(packet)
        if part and part.payload > 0:
            self.count["offered"] += part.payload
            self.count["repeated"] += self.handed.passed(part)
        elif part and part.is_first:
            self.handed.passed(part)
            # The same ports again, for a new connection.
            self.forgotten.discard(part.flow)
        if is_cut:
            self.count["cut"] += 1
        elif self.queued + len(packet) > self.limit():
            self.count["full"] += 1
        else:
            self.queued += len(packet)
            self.waiting.append((now, packet, part))

    def move(self, now):
        """Delivers the packets that have arrived by now."""
        while self.waiting and max(self.free_at, self.waiting[0][0]) + len(self.waiting[0][1]) / self.rate <= now:
            came, packet, part = self.waiting.popleft()
            self.free_at = max(self.free_at, came) + len(packet) / self.rate
            self.queued -= len(packet)
            self.count["bytes"] += len(packet)
            self.count["packets"] += 1
            if part and (part.payload > 0 or part.is_first):
                self.count["payload"] += part.payload
                self.count["again"] += self.carried.passed(part)
            if self.chance.random() * 100 < self.loss:
                self.count["lost"] += 1
            elif part and part.flow in self.forgotten:
                self.count["forgotten"] += 1
            else:
                self.flying.append((self.free_at + self.delay, packet))
        while self.flying and self.flying[0][0] <= now:
            try:
                os.write(self.out, self.flying.popleft()[1])
            except OSError:
                self.count["lost"] += 1  # the other side's device takes no more

    def next(self):
        """The time of the next work."""
        times = [self.flying[0][0]] if self.flying else []
        if self.waiting:
            times.append(max(self.free_at, self.waiting[0][0]) + len(self.waiting[0][1]) / self.rate)
        return min(times, default=float("inf"))

    def cut(self):
        """Drops the packets in transit and in the modem."""
        self.count["cut"] += len(self.waiting) + len(self.flying)
        self.waiting.clear()
        self.flying.clear()
        self.queued = 0


class Line:
    def __init__(self, options, near, far):
        # Each direction has its own random numbers: a loss depends on the packet's number, not on the other direction.
        self.options, self.chance = options, random.Random(options.seed)
        self.ways = {
            near: Way(options.up, options, far, f"up {options.seed}"), far: Way(options.down, options, near, f"down {options.seed}")}
        self.up, self.down = self.ways[near], self.ways[far]
        self.is_cut, self.change_at, self.began = False, float("inf"), time.monotonic()
        self.cuts = [float(word) for word in options.cuts.split(":")] if options.cuts else None
        self.plan(self.began)

    def plan(self, now):
        """When the next cut begins."""
        self.change_at = now + self.chance.uniform(*self.cuts[:2]) if self.cuts else float("inf")

    def cut(self, now, seconds):
        self.is_cut, self.change_at = True, now + seconds
        for way in self.ways.values():
            way.cut()
        if self.options.forget:
            self.forget()

    def mend(self, now):
        self.is_cut = False
        self.plan(now)

    def forget(self):
        flows = set(self.up.handed.flows) | {answers(flow) for flow in self.down.handed.flows}
        self.up.forgotten = flows
        self.down.forgotten = {answers(flow) for flow in flows}

    def turn(self, now):
        for way in self.ways.values():
            way.move(now)
        if now >= self.change_at:
            if self.is_cut:
                self.mend(now)
            else:
                self.cut(now, self.chance.uniform(*self.cuts[2:]))

    def next(self):
        return min(self.change_at, self.up.next(), self.down.next())

    def receive(self, device, now):
        for _ in range(64):
            try:
                packet = os.read(device, 65536)
            except BlockingIOError:
                return
            if packet and packet[0] >> 4 == 4:  # IPv6 has no address here, and asks nobody for one
                self.ways[device].take(packet, now, self.is_cut)

    def command(self, words, now):
        match words:
            case ["rate", *rates] if rates:
                self.up.rate, self.down.rate = float(rates[0]), float(rates[-1])
            case ["delay", seconds]:
                self.up.delay = self.down.delay = float(seconds)
            case ["loss", percent]:
                self.up.loss = self.down.loss = float(percent)
            case ["cut", *seconds]:
                self.cut(now, float(seconds[0]) if seconds else float("inf"))
            case ["mend"]:
                self.mend(now)
            case ["forget"]:
                self.forget()
            case ["report"]:
                pass
            case _:
                raise ValueError("no such command")

    def report(self, now, **more):
        told = {"seconds": round(now - self.began, 3), "is_cut": self.is_cut, **more}
        for name, way in (("up", self.up), ("down", self.down)):
            told[name] = {**way.count, "waiting": way.queued}
        print(json.dumps(told, separators=(",", ":")), flush=True)


def run(line):
    tell_at, half = line.began, b""
    while True:
        now = time.monotonic()
        # select, not poll: it waits for microseconds.
        ready, _, _ = select.select([0, *line.ways], [], [], max(0, min(line.next(), tell_at) - now))
        now = time.monotonic()
        # Earlier packets leave first: a new packet must not see the old buffer.
        line.turn(now)
        for device in line.ways:
            if device in ready:
                line.receive(device, now)
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                return line.report(now)
            *lines, half = (half + data).split(b"\n")
            for text in lines:
                try:
                    line.command(text.decode().split(), now)
                except ValueError as error:
                    print(json.dumps({"error": str(error), "line": text.decode()}), flush=True)
                else:
                    line.report(now, after=text.decode())
        if now >= tell_at:
            line.report(now)
            tell_at += 1 + int(now - tell_at)


def main():
    options = parsed()
    try:
        near, near_network = network(NEAR, options)
        far, far_network = network(FAR, options)
    except (OSError, subprocess.CalledProcessError) as error:
        print(json.dumps({"impossible": str(error)}), flush=True)
        sys.exit(IMPOSSIBLE)
    if options.door:
        open_door(options.door[0], int(options.door[1]))
    try:
        os.nice(-10)  # the line keeps its time on a machine that builds something
    except PermissionError:
        pass  # then not quite
    place = f"/proc/{os.getpid()}/fd"
    told = {"near": f"{place}/{near_network}", "far": f"{place}/{far_network}", "near_address": NEAR, "far_address": FAR}
    print(json.dumps(told), flush=True)
    run(Line(options, near, far))


if __name__ == "__main__":
    main()

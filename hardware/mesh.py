#!/usr/bin/env python3
"""A small real mesh on one machine: N companion radios that hear each other.

Each radio is `pymc_core`'s own companion radio (PyPI), so its cryptography, routing, offline
queue and companion protocol were written by somebody else: use it as the counterpart in
interoperability tests.  Every radio answers the companion protocol on loopback TCP, and also on a
pseudo-terminal that behaves like its USB serial port.

    pip install -r requirements.txt
    python3 mesh.py --nodes 2 --dir ./mesh        # radios r0 and r1; ./mesh/r0.tty, TCP 5500...

Lines typed on standard input (or written to ./mesh/ctl, a FIFO) drive the radios no client holds:
    dm FROM TO TEXT          direct message, e.g. "dm r1 r0 hello"
    chan FROM INDEX TEXT     channel message (0 is the public channel, which all have)
    advert NAME              flood an advert
    loss P                   drop each packet with probability P from now on
    stats                    lengths of the packets that each radio has sent
    post ROOM TEXT           a post by somebody who is not on the mesh
    quit
Prints one JSON object a line: what is listening, and what each radio was asked to do.

What pymc_core 1.0.12 does otherwise than the firmware (seen): it takes the client's version from byte 1 of APP_START
(send it there too, or messages come in the short form without SNR); a flooded first message gets no SEND_CONFIRMED
(0x82) but a stray BINARY_RESPONSE (0x8C), the later, direct ones between pymc radios do; it puts its own time for the
client's; sends ADVERT and NEW_ADVERT together; CONTACTS_START is the filtered count; an unasked CURR_TIME comes after
15 s of silence; frames over 172 bytes cut the connection; the queue is 512 long; commands 19, 28, 33, 34, 35, 37, 43,
51, 60 and 65 are unknown to it. Good for transport, handshake and messages; the traces are the reference.
"""
import argparse
import asyncio
import base64
import contextvars
import json
import os
import pty
import random
import sys
import tty

from pymc_core import LocalIdentity
from pymc_core.companion import CompanionFrameServer, CompanionRadio
from pymc_core.hardware.base import LoRaRadio
from pymc_core.protocol.packet_builder import PacketBuilder

from servers import Server


# What the client says a message's time is. Firmware sends a message under that time; pymc_core takes its own clock, by
# which a retry would be another message. With --firmware-times it does as firmware does.
client_time = contextvars.ContextVar("client_time", default=None)


class FrameServer(CompanionFrameServer):
    tells_packets = False

    def _setup_push_callbacks(self):
        super()._setup_push_callbacks()
        if self.tells_packets:
            self.bridge.on_rx_log_data(self.push_rx_raw_async)

    async def _cmd_send_txt_msg(self, data):
        token = client_time.set(int.from_bytes(data[2:6], "little"))
        try:
            await super()._cmd_send_txt_msg(data)
        finally:
            client_time.reset(token)


def use_client_times():
    own = PacketBuilder._get_timestamp
    PacketBuilder._get_timestamp = staticmethod(lambda: client_time.get() or own())


PUBLIC_CHANNEL = base64.b64decode("izOH6cXN6mrJ5e26oRXNcg==")


def say(**fields):
    print(json.dumps(fields), flush=True)


class Ether:
    """Delivers each transmission to every other radio after its time on air."""

    def __init__(self, loss, airtime, seed):
        self.loss, self.airtime, self.random = loss, airtime, random.Random(seed)
        self.radios = []

    async def carry(self, sender, data):
        sender.packets += 1
        sender.lengths.append(len(data))
        await asyncio.sleep(self.airtime)
        for radio in self.radios:
            if radio is not sender and self.random.random() >= self.loss:
                asyncio.get_running_loop().call_soon(radio.hear, bytes(data))


class SimulatedRadio(LoRaRadio):
    def __init__(self, ether):
        self.ether, self.callback = ether, None
        self.packets, self.lengths = 0, []
        ether.radios.append(self)

    def begin(self):
        pass

    def sleep(self):
        pass

    def set_rx_callback(self, callback):
        self.callback = callback

    def hear(self, data):
        if self.callback:
            try:
                self.callback(data, self.get_last_rssi(), self.get_last_snr())
            except TypeError:
                self.callback(data)

    async def send(self, data):
        await self.ether.carry(self, data)
        return {"airtime_ms": self.ether.airtime * 1000}

    async def wait_for_rx(self):
        await asyncio.Event().wait()

    def get_last_rssi(self):
        return -71

    def get_last_snr(self):
        return 9.75


async def bridge_tty(path, port):
    """Copy bytes between a pseudo-terminal and the radio's TCP port: the framing is the same."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    os.set_blocking(master, False)
    if os.path.islink(path):
        os.unlink(path)
    os.symlink(os.ttyname(slave), path)
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    def from_tty():
        try:
            writer.write(os.read(master, 4096))
        except OSError:
            pass

    loop.add_reader(master, from_tty)
    while data := await reader.read(4096):
        while data:
            try:
                data = data[os.write(master, data):]
            except BlockingIOError:
                await asyncio.sleep(0.005)


async def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--nodes", type=int, default=2)
    args.add_argument("--names", help="comma-separated, in place of r0,r1,…")
    args.add_argument("--dir", default="./mesh", help="where the .tty links and the ctl FIFO go")
    args.add_argument("--port", type=int, default=5500, help="radio i listens on PORT+i (loopback)")
    args.add_argument("--tty", default="r0", help="comma-separated radios that get a .tty (their TCP port is then taken)")
    args.add_argument("--loss", type=float, default=0.0)
    args.add_argument("--airtime", type=float, default=0.02, help="seconds on air for each packet")
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--server", action="append", default=[], metavar="NAME=KIND", help="a repeater, room or sensor")
    args.add_argument("--packets", action="store_true", help="tell clients every packet that is heard, as firmware does")
    args.add_argument("--firmware-times", action="store_true", help="send messages under the client's time")
    args = args.parse_args()
    if args.firmware_times:
        use_client_times()
    os.makedirs(args.dir, exist_ok=True)
    ether, radios = Ether(args.loss, args.airtime, args.seed), {}
    names = args.names.split(",") if args.names else [f"r{i}" for i in range(args.nodes)]
    for i, name in enumerate(names):
        identity = LocalIdentity(seed=bytes([i + 1]) * 32)
        radio = CompanionRadio(SimulatedRadio(ether), identity, node_name=name)
        radio.set_channel(0, "Public", PUBLIC_CHANNEL)
        await radio.start()
        key = identity.get_public_key()
        server = FrameServer(radio, f"{key[0]:02x}", port=args.port + i, bind_address="127.0.0.1")
        server.tells_packets = args.packets
        await server.start()
        radios[name] = radio
        say(radio=name, public_key=key.hex(), tcp=f"127.0.0.1:{args.port + i}")
    nodes = {}
    for number, choice in enumerate(args.server):
        name, _, kind = choice.partition("=")
        nodes[name] = Server(name, kind, SimulatedRadio(ether), seed=0x80 + number)
        say(server=name, kind=kind, public_key=nodes[name].key.hex())
    for name in filter(None, args.tty.split(",")):
        path = os.path.join(args.dir, f"{name}.tty")
        asyncio.create_task(bridge_tty(path, args.port + names.index(name)))
        await asyncio.sleep(0.1)
        say(radio=name, tty=path)
    for radio in radios.values():
        await radio.advertise(flood=True)
    for node in nodes.values():
        await node.advertise()

    fifo = os.path.join(args.dir, "ctl")
    if not os.path.exists(fifo):
        os.mkfifo(fifo)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.open(fifo, os.O_RDWR), "rb", 0))
    say(ready=True)
    while line := (await reader.readline()).decode().strip():
        verb, *rest = line.split(" ", 3)
        try:
            if verb == "quit":
                break
            if verb == "loss":
                ether.loss = float(rest[0]); say(loss=ether.loss)
            elif verb == "stats":
                say(stats=True, sent=[radio.lengths for radio in ether.radios])
            elif verb == "advert":
                node = nodes.get(rest[0]) or radios[rest[0]]
                say(advert=rest[0], ok=await node.advertise())
            elif verb == "post":
                nodes[rest[0]].post(bytes([0xEE]) * 32, " ".join(rest[1:]).encode())
                say(post=rest[0])
            elif verb == "dm":
                sent = await radios[rest[0]].send_text_message(radios[rest[1]]._identity.get_public_key(), rest[2])
                say(dm=rest[:2], text=rest[2], sent=str(sent))
            elif verb == "chan":
                sent = await radios[rest[0]].send_channel_message(int(rest[1]), rest[2])
                say(channel=rest[:2], text=rest[2], sent=str(sent))
            else:
                say(error=f"unknown: {line}")
        except Exception as error:  # a bad line must not end the mesh
            say(error=repr(error), line=line)


asyncio.run(main())

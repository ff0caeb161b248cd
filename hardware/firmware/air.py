"""The air between MeshCore programs, and clients of their ports.

A program is a node of the mesh without its radio chip. It takes `--name N --dir D`, and `--pty LINK` or `--tcp PORT` (a companion),
`--epoch SECONDS` (its clock) and `--speed X` (its milliseconds run so many times faster). It speaks JSON lines with the air:

    to the air      {"type":"ready","pub":KEY}  {"type":"tx","hex":PACKET,"airtime_ms":N}  {"type":"cmd_reply","reply":TEXT}
    from the air    {"type":"rx_start","duration_ms":N}  {"type":"rx","hex":PACKET,"snr":N,"rssi":N}  {"type":"cmd","command":TEXT}

Its files are in D/N, so a node that is started again keeps its identity and contacts.
"""
import asyncio
import json
import os
import random
import socket
import time


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Node:
    def __init__(self, air, name, role, options):
        self.air, self.name, self.role, self.options = air, name, role, options
        self.program, self.key, self.replies, self.starts = None, None, asyncio.Queue(), 0
        self.is_ready = asyncio.Event()
        self.sends = []  # (from, to): when it has transmitted
        self.hears = []  # receptions: they spoil each other

    async def start(self):
        arguments = [word for option, value in self.options.items() for word in (f"--{option}", str(value))]
        self.program = await asyncio.create_subprocess_exec(
            f"{self.air.programs}/{self.role}", "--name", self.name, "--dir", self.air.folder, *arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=open(f"{self.air.folder}/{self.name}.err", "a"))
        self.starts += 1
        self.reader = asyncio.create_task(self.read(self.program))
        await asyncio.wait_for(self.is_ready.wait(), 20)

    async def read(self, program):
        while line := await program.stdout.readline():
            said = json.loads(line)
            if said["type"] == "tx":
                self.air.carry(self, said)
            elif said["type"] == "ready":
                self.key = said["pub"]
                self.is_ready.set()
            elif said["type"] == "cmd_reply":
                self.replies.put_nowait(said["reply"])
        await program.wait()
        # It has rebooted itself, as a board does after an order to.
        if program is self.program:
            self.is_ready.clear()
            await asyncio.sleep(0.5)
            if program is self.program:
                await self.start()

    def say(self, **said):
        if self.program and not self.program.stdin.is_closing():
            self.program.stdin.write(json.dumps(said, separators=(",", ":")).encode() + b"\n")

    async def stop(self):
        """Power off: what is in its memory is lost."""
        program, self.program = self.program, None
        self.is_ready.clear()
        if program and program.returncode is None:
            program.kill()
        if program:
            await self.reader
        if "pty" in self.options and os.path.islink(self.options["pty"]):
            os.unlink(self.options["pty"])

    async def reboot(self, off=1.0):
        await self.stop()
        await asyncio.sleep(off)
        await self.start()

    async def command(self, text):
        """A line on the node's own console."""
        self.say(type="cmd", command=text)
        return await asyncio.wait_for(self.replies.get(), 10)


class Air:
    """Who hears whom, with loss; a packet that another overlaps at a listener is lost there, and nobody hears while it transmits."""

    def __init__(self, programs, folder, seed=1):
        self.programs, self.folder, self.random = programs, folder, random.Random(seed)
        self.nodes, self.links, self.packets = {}, {}, 0
        os.makedirs(folder, exist_ok=True)
        self.log = open(f"{folder}/air.jsonl", "a", buffering=1)
        self.lost = {}  # why: how many

    def add(self, name, role, **options):
        self.nodes[name] = Node(self, name, role, options)
        return self.nodes[name]

    def join(self, a, b, snr=6, loss=0.0):
        self.links[a, b] = self.links[b, a] = {"snr": snr, "loss": loss}

    def part(self, a, b):
        self.links.pop((a, b), None)
        self.links.pop((b, a), None)

    def lose(self, chance):
        for link in self.links.values():
            link["loss"] = chance

    def note(self, **what):
        self.log.write(json.dumps({"t": round(time.time(), 3), **what}) + "\n")

    def carry(self, sender, said):
        self.packets += 1
        # Its packets follow each other, however late this program reads of them.
        now, number = max([time.monotonic()] + [end for _, end in sender.sends[-1:]]), self.packets
        end = now + said["airtime_ms"] / 1000
        sender.sends = [when for when in sender.sends if when[1] > now - 5] + [(now, end)]
        self.note(tx=number, node=sender.name, ms=said["airtime_ms"], hex=said["hex"])
        for (a, name) in list(self.links):
            if a != sender.name:
                continue
            listener = self.nodes[name]
            reception = {"from": now, "to": end, "why": "", "start": listener.starts}
            listener.hears = [other for other in listener.hears if other["to"] > now]
            for other in listener.hears:
                other["why"] = reception["why"] = "collision"
            listener.hears.append(reception)
            listener.say(type="rx_start", duration_ms=said["airtime_ms"])
            asyncio.get_running_loop().call_later(end - time.monotonic(), self.arrive, sender, listener, reception, said["hex"], number)

    def arrive(self, sender, listener, reception, packet, number):
        link, why = self.links.get((sender.name, listener.name)), reception["why"]
        if not link:
            why = "parted"
        elif any(start < reception["to"] and end > reception["from"] for start, end in listener.sends):
            why = "transmits itself"
        elif not why and self.random.random() < link["loss"]:
            why = "loss"
        if not listener.program or listener.starts != reception["start"]:
            why = "off"
        self.note(rx=number, node=listener.name, of=sender.name, why=why)
        if why:
            self.lost[why] = self.lost.get(why, 0) + 1
        else:
            listener.say(type="rx", hex=packet, snr=link["snr"], rssi=-90 + link["snr"])

    async def close(self):
        for node in self.nodes.values():
            await node.stop()
        self.log.close()


async def open_terminal(line):
    """Both directions of an open terminal, and the transport to close with them."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(line), "rb", 0))
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(line, "wb", 0))
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop), reading


class Client:
    """A plain client of a companion on TCP or a terminal. `trace`: a list for each frame, as in the folders of traces."""

    reading = None  # a terminal's other direction

    def __init__(self):
        self.frames, self.pushes, self.trace, self.arrived = asyncio.Queue(), [], [], asyncio.Event()

    @classmethod
    async def connect(cls, *, port=None, terminal=None):
        client = cls()
        if port:
            client.reader, client.writer = await asyncio.open_connection("127.0.0.1", port)
        else:
            client.reader, client.writer, client.reading = await open_terminal(os.open(terminal, os.O_RDWR | os.O_NOCTTY))
        client.started = time.monotonic()
        client.task = asyncio.create_task(client.read())
        return client

    async def read(self):
        try:
            while True:
                if (await self.reader.readexactly(1)) != b">":
                    continue
                frame = await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(2), "little"))
                self.note("rx", frame)
                self.arrived.set()
                if frame[0] < 0x80:
                    self.frames.put_nowait(frame)
                else:
                    self.pushes.append(frame)
        except (asyncio.IncompleteReadError, OSError):
            self.arrived.set()

    def note(self, direction, frame, **more):
        self.trace.append({"t": round(time.monotonic() - self.started, 3), "dir": direction, "hex": frame.hex(), **more})

    def write(self, frame):
        self.note("tx", frame)
        self.writer.write(b"<" + len(frame).to_bytes(2, "little") + frame)

    async def ask(self, frame, timeout=5):
        """The reply; None: there was none."""
        while not self.frames.empty():
            self.frames.get_nowait()
        self.write(frame)
        try:
            return await asyncio.wait_for(self.frames.get(), timeout)
        except asyncio.TimeoutError:
            return None

    async def begin(self):
        await self.ask(bytes([22, 13]))
        me = await self.ask(bytes([1, 0, 0, 0, 0, 0, 0, 0]) + b"air")
        self.key = me[4:36]
        await self.ask(bytes([6]) + int(time.time()).to_bytes(4, "little"))
        return self

    async def name(self, name):
        await self.ask(bytes([8]) + name.encode())

    async def advertise(self, flood=True):
        await self.ask(bytes([7, 1 if flood else 0]))

    async def send(self, key, text, attempt=0, when=None):
        """SENT's ack code, or None with a refusal."""
        when = int(time.time()) if when is None else when
        answer = await self.ask(bytes([2, 0, attempt]) + when.to_bytes(4, "little") + key[:6] + text.encode())
        return answer[2:6] if answer and answer[0] == 6 else None

    async def say(self, slot, text):
        return await self.ask(bytes([3, 0, slot]) + int(time.time()).to_bytes(4, "little") + text.encode())

    async def add(self, key, name, kind=1, path=None):
        path_length = b"\xff" if path is None else bytes([len(path)])
        record = key + bytes([kind, 0]) + path_length + (path or b"").ljust(64, b"\0") + name.encode().ljust(32, b"\0")
        return await self.ask(bytes([9]) + record + int(time.time()).to_bytes(4, "little"))

    async def contacts(self):
        self.write(bytes([4]))
        found = []
        while frame := await asyncio.wait_for(self.frames.get(), 10):
            if frame[0] == 3:
                found.append(frame[1:33])
            if frame[0] == 4:
                return found

    async def take(self):
        """All messages that wait, as texts."""
        texts = []
        while (frame := await self.ask(bytes([10]))) and frame[0] != 10:
            if frame[0] == 16:
                start = 20 if frame[11] == 2 else 16
                texts.append(frame[start:].decode(errors="replace"))
            elif frame[0] == 17:
                texts.append(frame[11:].decode(errors="replace"))
        return texts

    def confirmed(self):
        return {push[1:5] for push in self.pushes if push[0] == 0x82}

    async def until(self, condition, timeout):
        end = time.monotonic() + timeout
        while not (found := condition()) and time.monotonic() < end:
            self.arrived.clear()
            try:
                await asyncio.wait_for(self.arrived.wait(), min(0.5, max(0.01, end - time.monotonic())))
            except asyncio.TimeoutError:
                pass
        return found

    def close(self):
        self.task.cancel()
        self.writer.close()
        if self.reading:
            self.reading.close()

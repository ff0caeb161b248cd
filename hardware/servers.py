"""Repeaters, rooms and sensors for `mesh.py`, on the packets, ciphers and server handlers of `pymc_core`.

What the handlers leave to an application is here: who is let in, what a status says, a command line with a few commands,
posts. Answers have the layout of firmware 1.17.1. Passwords: `password` for administrators, `hello` for guests.
"""
import asyncio
import os
import struct
import time

from pymc_core import LocalIdentity
from pymc_core.node.handlers.login_server import LoginServerHandler
from pymc_core.node.handlers.protocol_request import ProtocolRequestHandler
from pymc_core.protocol import CryptoUtils, Packet, PacketBuilder
from pymc_core.protocol.constants import PAYLOAD_TYPE_ACK, PAYLOAD_TYPE_ANON_REQ, PAYLOAD_TYPE_REQ, PAYLOAD_TYPE_TXT_MSG

TYPES = {"repeater": 2, "room": 3, "sensor": 4}
FLAG_NAME = 0x80
ADMIN, READ_WRITE = 3, 2
PLAIN, CLI, SIGNED = 0, 1, 2
FLOOD_ROUTES = (0, 1)
ANSWER_DELAY = 0.3
POST_DELAY = 1.0


class Client:
    def __init__(self, identity, secret, permissions):
        self.id, self.shared_secret, self.permissions = identity, secret, permissions
        self.key = identity.get_public_key()
        self.out_path, self.out_path_len, self.last_time = [], -1, 0


class Server:
    """One node. It floods all it sends: who hears whom does not matter here."""

    def __init__(self, name, kind, radio, seed):
        self.name, self.kind, self.radio = name, kind, radio
        self.identity = LocalIdentity(seed=bytes([seed]) * 32)
        self.key = self.identity.get_public_key()
        self.clients, self.seen, self.posts = {}, set(), []
        self.settings = {"name": name, "radio": "869.618,62.5,8,8", "txdelay": "0.5", "tx": "22", "af": "1.0", "guest.password": "hello", "role": kind, "repeat": "on"}
        self.started = time.time()
        self.login = LoginServerHandler(self.identity, lambda text: None, self.authenticate, is_room_server=kind == "room")
        self.login.set_send_packet_callback(lambda packet, delay: self.later(packet, delay / 1000))
        self.requests = ProtocolRequestHandler(
            self.identity, None, get_client_fn=self.client, request_handlers={1: self.status, 3: self.telemetry, 5: self.access, 6: self.neighbours})
        radio.set_rx_callback(self.hear)

    async def advertise(self):
        flags = TYPES[self.kind] | FLAG_NAME
        await self.send(PacketBuilder.create_advert(self.identity, self.name, flags=flags))

    # On the air

    def later(self, packet, delay):
        asyncio.get_running_loop().call_later(delay, lambda: asyncio.ensure_future(self.send(packet)))

    async def send(self, packet):
        self.seen.add(bytes(packet.calculate_packet_hash()))
        await self.radio.send(packet.write_to())

    def hear(self, data, *_):
        packet = Packet()
        if not packet.read_from(data):
            return
        identity = bytes(packet.calculate_packet_hash())
        if identity in self.seen:
            return
        self.seen.add(identity)
        asyncio.ensure_future(self.take(packet))

    async def take(self, packet):
        kind = packet.get_payload_type()
        is_ours = bool(packet.payload) and packet.payload[0] == self.key[0]
        if kind == PAYLOAD_TYPE_ANON_REQ and is_ours:
            return await self.login(packet)
        if kind == PAYLOAD_TYPE_REQ and is_ours:
            answer = await self.requests(packet)
            return answer and self.later(answer, ANSWER_DELAY)
        if kind == PAYLOAD_TYPE_TXT_MSG and is_ours:
            return self.text(packet)
        if self.kind == "repeater" and packet.get_route_type() in FLOOD_ROUTES and packet.get_path_hash_size() == 1:
            await self.repeat(packet)

    async def repeat(self, packet):
        """A flooded packet goes on with our hash at the end of its path."""
        if packet.get_path_hash_count() < 60:
            packet.set_path(bytes(packet.path[: packet.get_path_byte_len()]) + self.key[:1])
            await asyncio.sleep(0.05)
            await self.radio.send(packet.write_to())

    # Clients

    def authenticate(self, identity, secret, password, timestamp, sync_since=0):
        permissions = {"password": ADMIN, "hello": READ_WRITE}.get(password)
        if permissions is None:
            return False, 0
        client = Client(identity, secret, permissions)
        self.clients[client.key[0]] = client
        if self.kind == "room":
            for post in self.posts:
                if post[0] > sync_since:
                    self.push(client, post)
        return True, permissions

    def client(self, first_byte):
        return self.clients.get(first_byte)

    def status(self, client, timestamp, data):
        uptime = int(time.time() - self.started)
        common = struct.pack(
            "<HHhhIIIIIIIIHhHH", 4015, 0, -112, -71, 24, 21, 3, uptime, 11, 10, 14, 10, 0, 39, 1, 2)
        return common + (struct.pack("<II", 60, 1) if self.kind == "repeater" else struct.pack("<HH", len(self.posts), 0))

    def telemetry(self, client, timestamp, data):
        return bytes([1, 116]) + struct.pack(">h", 401) + bytes([1, 103]) + struct.pack(">h", -45)

    def access(self, client, timestamp, data):
        if client.permissions != ADMIN or bytes(data[:2]) != b"\0\0":
            return None
        return b"".join(each.key[:6] + bytes([each.permissions]) for each in self.clients.values())

    def neighbours(self, client, timestamp, data):
        if self.kind != "repeater" or len(data) < 6:
            return None
        count, first, _, key_bytes = data[1], data[2] | data[3] << 8, data[4], data[5]
        known = [(bytes([0xE0 + number]) * 32, 30 * number, 40 - number) for number in range(1, 15)]
        entries = known[first:first + min(count, 11)]
        body = b"".join(key[:key_bytes] + struct.pack("<Ib", ago, snr) for key, ago, snr in entries)
        return struct.pack("<hh", len(known), len(entries)) + body

    # Texts

    def text(self, packet):
        client = self.clients.get(packet.payload[1])
        if client is None:
            return
        secret = client.shared_secret
        try:
            plain = CryptoUtils.mac_then_decrypt(secret[:16], secret, bytes(packet.payload[2:]))
        except ValueError:
            return
        moment, flags, text = struct.unpack("<I", plain[:4])[0], plain[4], plain[5:].split(b"\0")[0]
        if moment < client.last_time:
            return
        is_retry, client.last_time = moment == client.last_time, moment
        if flags >> 2 == CLI and client.permissions == ADMIN and not is_retry:
            text = text.decode(errors="replace")
            mark = text[:3] if len(text) > 4 and text[2] == "|" else ""
            self.say(client, CLI, (mark + self.command(text[len(mark):])).encode(), ANSWER_DELAY)
        if flags >> 2 == PLAIN and self.kind == "room":
            ack = CryptoUtils.sha256(plain[:4] + bytes([flags & 3]) + text + client.key)[:4]
            packet = PacketBuilder._create_packet(PacketBuilder._create_header(PAYLOAD_TYPE_ACK, "flood"), ack)
            self.later(packet, ANSWER_DELAY)
            if not is_retry:
                self.post(client.key, text)

    def say(self, client, text_type, body, delay):
        plain = struct.pack("<IB", int(time.time()), text_type << 2) + body
        packet = PacketBuilder.create_datagram(
            PAYLOAD_TYPE_TXT_MSG, client.id, self.identity, client.shared_secret, plain, route_type="flood")
        self.later(packet, delay)

    def command(self, text):
        if text.startswith("set "):
            name, _, value = text[4:].partition(" ")
            self.settings[name] = value
            return "OK"
        if text.startswith("get "):
            # As the firmware does: a name is known by its beginning.
            return next((f"> {value}" for name, value in self.settings.items() if text[4:].startswith(name)), f"??: {text[4:]}")
        return {"ver": "v1.17.1 (Build: 14 Aug 2026)", "clock sync": "OK - clock set", "board": "pymc", "region": "*^ F"}.get(text, "Unknown command")

    def post(self, author, text):
        """Posts have times of the room's own, each another."""
        moment = max(int(time.time()), self.posts[-1][0] + 1 if self.posts else 0)
        self.posts.append((moment, author[:4], bytes(text)))
        for client in self.clients.values():
            if client.key != author:
                self.push(client, self.posts[-1])

    def push(self, client, post):
        moment, author, text = post
        plain = struct.pack("<IB", moment, SIGNED << 2 | (os.urandom(1)[0] & 3)) + author + text
        packet = PacketBuilder.create_datagram(
            PAYLOAD_TYPE_TXT_MSG, client.id, self.identity, client.shared_secret, plain, route_type="flood")
        self.later(packet, POST_DELAY)

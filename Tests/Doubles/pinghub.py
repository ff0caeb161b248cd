#!/usr/bin/env python3
"""pinghub.py PORT-FILE BATCHES [PORT]: a hub that takes so many batches, and then only pings, ten times a second.

Speaks the live link of docs/hub-protocol.md without compression, to one gateway at a time. Writes its port to the file.
"""
import base64
import hashlib
import json
import pathlib
import socket
import struct
import sys
import threading
import time


def frame(opcode, data=b""):
    head = bytes([0x80 | opcode])
    head += bytes([len(data)]) if len(data) < 126 else bytes([126]) + struct.pack(">H", len(data))
    return head + data


def exactly(stream, count):
    data = stream.read(count)
    if len(data) < count:
        raise ConnectionError
    return data


def message(stream):
    """Opcode and data of the next frame."""
    first, second = exactly(stream, 2)
    length = second & 0x7F
    if length == 126:
        length = struct.unpack(">H", exactly(stream, 2))[0]
    elif length == 127:
        length = struct.unpack(">Q", exactly(stream, 8))[0]
    mask = exactly(stream, 4)
    return first & 0x0F, bytes(byte ^ mask[place % 4] for place, byte in enumerate(exactly(stream, length)))


def serve(client):
    global left
    stream = client.makefile("rb")
    headers = {}
    while line := stream.readline().strip():
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip()
    key = base64.b64encode(hashlib.sha1(headers[b"sec-websocket-key"] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    client.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + key
                   + b"\r\nSec-WebSocket-Protocol: meshpost.v1\r\n\r\n")

    def ping():
        try:
            while True:
                client.sendall(frame(9, b"still here"))
                time.sleep(0.1)
        except OSError:
            pass

    threading.Thread(target=ping, daemon=True).start()
    while True:
        opcode, data = message(stream)
        if opcode == 8:
            return
        if opcode != 1:
            continue
        said = json.loads(data)
        if said["type"] == "hello":
            welcome = {"type": "welcome", "protocol": 2, "lanes": lanes, "window": 1, "max_bytes": 65536, "at": 0}
            client.sendall(frame(1, json.dumps(welcome).encode()))
        elif said["type"] == "events" and left > 0:
            left -= 1
            lanes[said["lane"]] = said["events"][-1]["seq"]
            client.sendall(frame(1, str(said["n"]).encode()))


left, lanes = int(sys.argv[2]), {}
server = socket.create_server(("127.0.0.1", int(sys.argv[3]) if len(sys.argv) > 3 else 0))
pathlib.Path(sys.argv[1]).write_text(str(server.getsockname()[1]))
print("listening", flush=True)
while True:
    client, _ = server.accept()
    try:
        serve(client)
    except (ConnectionError, OSError, KeyError):
        pass
    client.close()

# SPDX-License-Identifier: MIT
"""hangup.py TARGET_PORT WORD: a server that hangs up whenever it receives WORD, for tests.

It stands in front of a real one and passes everything else on: plain HTTP, MQTT, and WebSockets, whose frames it unmasks and unpacks to
look into. Bodies of HTTP it unpacks, too. Prints the port that it listens on, and a line each time it hangs up.
"""
import asyncio
import pathlib
import re
import sys
import zlib

WORD = sys.argv[2].encode()
posted = {}


def dictionary():
    page = pathlib.Path(__file__).parents[2] / "docs/link-dictionary.md"
    return page.read_bytes().split(b"```text\n")[1].split(b"\n```")[0]


class Watcher:
    """Searches a client's bytes, which come in pieces of any size."""

    def __init__(self):
        self.bytes, self.is_websocket, self.is_mqtt, self.is_known, self.unpacker = b"", False, False, False, None

    def payloads(self, piece):
        if not self.is_known:
            self.is_known, self.is_mqtt = True, piece[0] == 0x10
        self.bytes += piece
        requests = []
        while not (self.is_websocket or self.is_mqtt) and self.bytes:
            head, end, rest = self.bytes.partition(b"\r\n\r\n")
            if not end:
                return requests
            if b"upgrade: websocket" in head.lower():
                self.is_websocket, self.bytes = True, rest
                break
            length = re.search(rb"content-length: (\d+)", head.lower())
            length = int(length[1]) if length else 0
            if len(rest) < length:
                return requests
            body, self.bytes = rest[:length], rest[length:]
            coding = re.search(rb"content-encoding: (\S+)", head.lower())
            if head.startswith(b"POST ") and head.split(b" ")[1].endswith(b"/v1/e"):
                # A small batch behind its key, compressed with that key's earlier batches as context.
                key, packed = body[:9], body[13:]
                body = zlib.decompressobj(-15, zdict=dictionary() + posted.get(key, b"")).decompress(packed)
                if WORD not in body:
                    posted[key] = body[-1024:]
            elif coding and coding[1] == b"gzip":
                body = zlib.decompress(body, 31)
            elif coding:
                body = zlib.decompressobj(-15, zdict=dictionary()).decompress(body)
            requests += [head, body]
        if self.is_mqtt:
            # The word may be cut in two.
            seen, self.bytes = self.bytes, self.bytes[-len(WORD):]
            return [seen]
        if not self.is_websocket:
            return requests
        frames = requests
        while frame := self.frame():
            frames.append(frame)
        return frames

    def frame(self):
        data = self.bytes
        if len(data) < 2:
            return None
        length, start = data[1] & 0x7F, 2
        if length >= 126:
            size = 2 if length == 126 else 8
            length, start = int.from_bytes(data[2:2 + size], "big"), 2 + size
        end = start + 4 + length
        if len(data) < end:
            return None
        mask, self.bytes = data[start:start + 4], data[end:]
        payload = bytes(byte ^ mask[index & 3] for index, byte in enumerate(data[start + 4:end]))
        if not data[0] & 0x40:
            return payload
        # permessage-deflate, with the context of all before it. The real server takes the dictionary whenever it is offered.
        if not self.unpacker:
            self.unpacker = zlib.decompressobj(-15, zdict=dictionary())
        return self.unpacker.decompress(payload + b"\0\0\xff\xff")


async def pump(reader, writer, watcher=None):
    while piece := await reader.read(65536):
        for payload in watcher.payloads(piece) if watcher else []:
            if WORD in payload:
                print("hung up", flush=True)
                return
        writer.write(piece)
        await writer.drain()


async def connection(reader, writer):
    try:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    except OSError:
        writer.close()
        return
    ways = [
        asyncio.ensure_future(pump(reader, far_writer, Watcher())), asyncio.ensure_future(pump(far_reader, writer))]
    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    for way in ways:
        way.cancel()
    await asyncio.gather(*ways, return_exceptions=True)
    writer.close()
    far_writer.close()


async def main():
    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    print("port", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())

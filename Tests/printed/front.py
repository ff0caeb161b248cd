# SPDX-License-Identifier: MIT
"""front.py CERTIFICATE KEY: the TLS port of the examples' servers. Which is meant, the request's host says."""
import asyncio
import re
import ssl
import sys

BEHIND = {"hub.example.org": 8787, "mqtt.analyzer.example": 9001}


async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()


async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            host = re.search(rb"(?im)^host: *([^:\r\n]+)", head)[1].decode()
            if host in BEHIND:
                behind = await asyncio.open_connection("127.0.0.1", BEHIND[host])
                behind[1].write(head)
                return await asyncio.gather(pump(reader, behind[1]), pump(behind[0], writer))
            length = re.search(rb"(?im)^content-length: *(\d+)", head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            print(host, body.decode(errors="replace"), flush=True)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        writer.close()


async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[1:3])
    server = await asyncio.start_server(serve, "127.0.0.1", 443, ssl=context)
    async with server:
        await server.serve_forever()


asyncio.run(main())

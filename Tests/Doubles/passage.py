# SPDX-License-Identifier: MIT
"""Copies the bytes of one connection to another, for doubles and benchmarks between two programs."""
import asyncio


async def pump(reader, writer):
    """Copies all bytes until either side ends."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


def to(port):
    """For `asyncio.start_server`: connects each client to 127.0.0.1:PORT."""
    async def visit(reader, writer):
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return writer.close()
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))

    return visit

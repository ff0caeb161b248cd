# SPDX-License-Identifier: MIT
"""Passes on what comes over one connection to another, for the doubles and benchmarks that stand between two programs."""
import asyncio


async def pump(reader, writer):
    """All that comes, until either side ends."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


def to(port):
    """For `asyncio.start_server`: whoever connects gets 127.0.0.1:PORT."""
    async def visit(reader, writer):
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return writer.close()
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))

    return visit

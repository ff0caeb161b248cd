# SPDX-License-Identifier: MIT
"""narrowline.py TARGET_PORT BYTES_PER_S: a line that all connections share, for tests.

Prints the port that it listens on, and each second how many bytes have gone up and down. It takes from a sender no more than
it has passed on: with ordinary buffers a kernel would take a whole batch at once, and no modem does.
"""
import asyncio
import socket
import sys

PIECE = 256


class Way:
    """One direction: so many bytes a second for all connections together."""

    def __init__(self, rate):
        self.rate, self.total, self.turn = rate, 0, asyncio.Lock()

    async def carry(self, count):
        async with self.turn:
            await asyncio.sleep(count / self.rate)
            self.total += count


async def pump(source, target, way):
    loop = asyncio.get_running_loop()
    try:
        while piece := await loop.sock_recv(source, PIECE):
            await way.carry(len(piece))
            await loop.sock_sendall(target, piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def small(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the kernel makes it its least, about 2 KiB
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)


async def connection(near, port, up, down):
    loop = asyncio.get_running_loop()
    far = socket.socket()
    far.setblocking(False)
    try:
        await loop.sock_connect(far, ("127.0.0.1", port))
        ways = [asyncio.ensure_future(pump(near, far, up)), asyncio.ensure_future(pump(far, near, down))]
        # An end that goes takes the other with it.
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
    except OSError:
        pass
    finally:
        near.close()
        far.close()


async def tell(up, down):
    while True:
        print("moved", up.total, down.total, flush=True)
        await asyncio.sleep(1)


async def main():
    loop, port, rate = asyncio.get_running_loop(), int(sys.argv[1]), float(sys.argv[2])
    listener = socket.socket()
    small(listener)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    listener.setblocking(False)
    print("port", listener.getsockname()[1], flush=True)
    up, down = Way(rate), Way(rate)
    running = {asyncio.ensure_future(tell(up, down))}
    while True:
        near, _ = await loop.sock_accept(listener)
        near.setblocking(False)
        running.add(asyncio.ensure_future(connection(near, port, up, down)))


asyncio.run(main())

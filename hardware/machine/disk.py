"""A disk with a volatile cache, as an NBD server: what was not flushed may be gone after a power cut, in part and torn.

`cut` is a power cut: of the writes since the last flush a random choice stays, and one of those may have reached the disk only in part (in sectors of
512 bytes). What was flushed stays. It counts what is written, can make every access slower, and can fail as a dying or a read-only card does.
"""
import os
import random
import socket
import struct
import subprocess
import threading
import time

FLAGS = 1 | 4 | 8 | 32  # has flags, flush, FUA, trim
READ, WRITE, DISCONNECT, FLUSH, TRIM = range(5)
EIO, EROFS = 5, 30


class Disk:
    def __init__(self, image, address):
        self.file = os.open(image, os.O_RDWR)
        self.size = os.fstat(self.file).st_size
        self.undo = []  # (offset, before, after) since the last flush
        self.lock = threading.Lock()
        self.written = self.writes = self.flushes = 0
        self.flush_seconds = 0.0
        self.failing = None  # EIO or EROFS: writes fail
        self.is_on = True
        self.trap = None  # a seed: the power goes when the machine next asks for a flush, before it is done
        self.trapped = threading.Event()
        self.log = None  # while it records: (time, offset, data) of each write, (time, None, None) of each flush
        self.address = address
        self.listener = socket.socket(socket.AF_UNIX)
        if os.path.exists(address):
            os.unlink(address)
        self.listener.bind(address)
        self.listener.listen(4)
        threading.Thread(target=self._serve, daemon=True).start()

    def power_on(self):
        with self.lock:
            self.is_on = True

    def record(self, copy):
        """From now on every write and flush is kept in the list that is returned; `copy` becomes the disk as it is now."""
        with self.lock:
            subprocess.run(["cp", "--sparse=always", "--reflink=auto", f"/proc/self/fd/{self.file}", copy], check=True, pass_fds=[self.file])
            self.log = []
            return self.log

    def stop_recording(self):
        with self.lock:
            self.log = None

    def cut(self, seed):
        """The power goes. Returns how many writes were not flushed, and how many of those stayed."""
        with self.lock:
            return self._cut(seed)

    def cut_at_flush(self, seed, patience):
        """The power goes at the worst moment: everything that a flush was asked for is at stake. Returns as `cut` does."""
        self.trapped.clear()
        with self.lock:
            self.trap = seed
        assert self.trapped.wait(patience), "the machine asked for no flush"
        return self.outcome

    def _cut(self, seed):
        chance = random.Random(seed)
        self.is_on = False
        pending, self.undo = self.undo, []
        for offset, before, _ in reversed(pending):
            os.pwrite(self.file, before, offset)
        kept = [write for write in pending if chance.random() < 0.5]
        for place, (offset, _, after) in enumerate(kept):
            if place == len(kept) - 1 and len(after) > 512:
                after = after[: 512 * chance.randrange(1, len(after) // 512 + 1)]
            os.pwrite(self.file, after, offset)
        return len(pending), len(kept)

    # What qemu asks for. Source: the NBD protocol's own description (fixed newstyle, simple replies).

    def _serve(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    @staticmethod
    def _exactly(client, count):
        data = bytearray()
        while len(data) < count:
            more = client.recv(count - len(data))
            if not more:
                raise ConnectionError
            data += more
        return bytes(data)

    def _talk(self, client):
        try:
            self._negotiate(client)
            while True:
                self._request(client)
        except (ConnectionError, OSError):
            client.close()

    def _negotiate(self, client):
        client.sendall(b"NBDMAGIC" + b"IHAVEOPT" + struct.pack(">H", 3))
        self._exactly(client, 4)
        while True:
            _, option, length = struct.unpack(">8sII", self._exactly(client, 16))
            self._exactly(client, length)
            reply = lambda kind, data=b"": client.sendall(struct.pack(">QIII", 0x3E889045565A9, option, kind, len(data)) + data)
            if option == 1:
                client.sendall(struct.pack(">QH", self.size, FLAGS))
                return
            if option in (6, 7):
                reply(3, struct.pack(">HQH", 0, self.size, FLAGS))
                reply(1)
                if option == 7:
                    return
            elif option == 2:
                reply(1)
                raise ConnectionError
            else:
                reply(0x80000001)

    def _request(self, client):
        _, flags, kind, handle, offset, length = struct.unpack(">IHHQQI", self._exactly(client, 28))
        data = self._exactly(client, length) if kind == WRITE else b""
        if kind == DISCONNECT:
            raise ConnectionError
        error, answer = 0, b""
        with self.lock:
            if not self.is_on:
                raise ConnectionError
            if kind == FLUSH and self.trap is not None and self.undo:
                self.outcome, self.trap = self._cut(self.trap), None
                self.trapped.set()
                raise ConnectionError
            if kind == READ:
                answer = os.pread(self.file, length, offset)
            elif kind == WRITE and self.failing:
                error = self.failing
            elif kind == WRITE:
                self.undo.append((offset, os.pread(self.file, length, offset), data))
                os.pwrite(self.file, data, offset)
                self.written += length
                self.writes += 1
                if self.log is not None:
                    self.log.append((time.monotonic(), offset, data))
            if kind == FLUSH or flags & 1:
                self.flushes += 1
                self.undo.clear()
                if self.log is not None:
                    self.log.append((time.monotonic(), None, None))
        if self.flush_seconds and (kind == FLUSH or flags & 1):
            time.sleep(self.flush_seconds)
        client.sendall(struct.pack(">IIQ", 0x67446698, error, handle) + answer)

"""Loopback ports for whole programs, as Tests/ProgramTests/LoopbackPort.swift gives them to the other tests."""
import fcntl
import os
import pathlib
import random
import socket

FOLDER = pathlib.Path("/tmp/meshpost-test-ports")
# Below those that outgoing connections get: the kernel gives none of them to somebody else before the program that it is for has started.
RANGE = range(21_000, 25_000)


def free_port():
    """Free just now, and kept from other tests until this process ends: while a server is down, nobody else takes its port."""
    FOLDER.mkdir(mode=0o777, exist_ok=True)
    for _ in range(200):
        port = random.choice(RANGE)
        lock = os.open(FOLDER / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            os.close(lock)
    raise RuntimeError(f"no free port between {RANGE.start} and {RANGE.stop}")

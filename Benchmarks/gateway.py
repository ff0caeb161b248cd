"""What the benchmarks share: a gateway's status by its control socket, a free port, and patience."""
import json
import socket
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def status(location):
    """What the gateway says of itself on the control socket at `location`."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(location))
        connection.sendall(b"GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b""
        while data := connection.recv(65536):
            answer += data
    return json.loads(answer.split(b"\r\n\r\n", 1)[1])


def until(what, condition, limit=120):
    end = time.monotonic() + limit
    while True:
        try:
            if condition():
                return
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            pass
        if time.monotonic() > end:
            raise RuntimeError(f"waited in vain for {what}")
        time.sleep(0.01)

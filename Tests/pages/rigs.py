"""Parts for single tests, beside the gateway that all have: another gateway, another host of the pages."""
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import run

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(CHECKOUT / "hardware"))
from ports import free_port  # noqa: E402


def until(what, seen, patience=60):
    end = time.monotonic() + patience
    while time.monotonic() < end:
        with contextlib.suppress(OSError, KeyError, ValueError):
            if value := seen():
                return value
        time.sleep(0.05)
    raise AssertionError(f"waited for {what}")


@contextlib.contextmanager
def mesh_with_servers(world):
    """A world of its own: a gateway on a mesh of `pymc_core` radios, with a repeater called Ridge, whose password is `password`."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="meshpost-pages-"))
    started = []

    def start(*words, **options):
        process = subprocess.Popen([str(word) for word in words], start_new_session=True, **options)
        started.append(process)
        return process

    another = None
    try:
        port = free_port()
        trouble = open(folder / "mesh.log", "w+")
        mesh = start(sys.executable, CHECKOUT / "hardware/mesh.py", "--nodes", "2", "--dir", folder / "mesh", "--port", port, "--tty", "", "--firmware-times", "--server", "Ridge=repeater",
                     stdout=subprocess.PIPE, stderr=trouble, text=True, cwd=CHECKOUT)
        while '"ready"' not in (line := mesh.stdout.readline()):
            assert line, f"the mesh ended: {(folder / 'mesh.log').read_text()[-1000:]}"
        threading.Thread(target=mesh.stdout.read, daemon=True).start()
        control = folder / "ctl"
        (folder / "gw.toml").write_text(f'[radio]\nlink = "tcp:127.0.0.1:{port}"\n[store]\nlocation = "{folder}/gw.db"\n[control]\nsocket = "{control}"\n')
        start(world.host.programs / "meshpostd", "--config", folder / "gw.toml", stderr=subprocess.DEVNULL)
        gateway = run.Gateway(str(control), None)
        until("the repeater", lambda: any(one["name"] == "Ridge" for one in gateway.ask("GET", "/v1/contacts")))
        host = run.Host(f"{world.host.programs / 'meshpost'} web --socket {control} --port {free_port()}", None, None)
        host.start()
        another = run.World(gateway, host)
        yield another
        refused = [words for browser in another.browsers for words in browser.refusals()]
        assert not refused, f"the browser refused or threw: {refused}"
    finally:
        if another:
            another.close()
            another.host.kill()
        for process in reversed(started):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def host_of(world, *arguments):
    """`meshpost web` for the same gateway, with these arguments, as a world of its own."""
    host = run.Host(f"{world.host.programs / 'meshpost'} web --socket {world.gateway.location} --port {free_port()} {' '.join(arguments)}", None, None)
    host.start()
    another = run.World(world.gateway, host)
    try:
        yield another
        refused = [words for browser in another.browsers for words in browser.refusals()]
        assert not refused, f"the browser refused or threw: {refused}"
    finally:
        another.close()
        host.kill()


class Answering(http.server.ThreadingHTTPServer):
    """A server on loopback whose answers are a function's: of (method, path, headers, body) a status, headers and a body."""

    daemon_threads = True

    def handle_error(self, *_):
        """A browser that is closed ends its connections as it likes."""

    def __init__(self, answer):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, headers, answered = answer(self.command, self.path, self.headers, body)
                self.send_response_only(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answered)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(answered)

            do_POST = do_DELETE = do_GET

            def log_message(self, *words):
                """No output: the test looks at the requests."""

        super().__init__(("127.0.0.1", 0), Handler)
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def base(self):
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


def with_password(world, password):
    """A host whose way in is a password, as that of `meshpostd` is; behind it is the world's own. Streams are answered as if there were none."""
    sessions = set()
    if world.cookies is None:
        world.browser()  # signs in: there is a cookie for the host behind the proxy
    inner = "; ".join(f"{one['name']}={one['value']}" for one in world.cookies)
    place = re.search(r"//([^/]+)", world.host.base).group(1)

    def answer(method, path, headers, body):
        mine = re.search(r"outer=(\w+)", headers.get("Cookie") or "")
        is_in = bool(mine) and mine.group(1) in sessions
        def told(status, value, **more):
            return status, {"Content-Type": "application/json", **more}, json.dumps(value).encode()
        if path == "/session":
            if method == "GET":
                return told(200, {"signed_in": True, "way": "password", "can_change": True} if is_in else {"signed_in": False, "ways": ["password"]})
            if method == "DELETE":
                if mine:
                    sessions.discard(mine.group(1))
                return told(200, {"signed_in": False, "ways": ["password"]})
            if json.loads(body).get("password") != password:
                return told(403, {"error": "wrong password"})
            sessions.add("abc123")
            return told(200, {"signed_in": True, "way": "password", "can_change": True}, **{"Set-Cookie": "outer=abc123; Path=/; HttpOnly; SameSite=Strict"})
        if path.startswith("/v1/"):
            if not is_in:
                return told(401, {"error": "sign in"})
            if path.startswith("/v1/live"):
                return told(503, {"error": "not here"})
        connection = http.client.HTTPConnection(place, timeout=30)
        connection.request(method, path, body or None, {"Cookie": inner, "Host": place, "Origin": f"http://{place}", **({"Content-Type": "application/json"} if body else {})})
        inside = connection.getresponse()
        given = inside.read()
        return inside.status, {name: value for name, value in inside.getheaders() if name.lower() in ("content-type", "content-security-policy")}, given

    return Answering(answer)

"""A push service (RFC 8030) and a browser's keys: it checks whose pushes come (RFC 8292), and decrypts them (RFC 8291)."""
import base64
import hashlib
import hmac
import http.server
import json
import queue
import threading
import time

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def encoded(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decoded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def point(data):
    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), data)


def public(key):
    return key.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def decrypted(body, key, auth):
    """The content of a push for the browser with this key and secret."""
    salt, size, length = body[:16], int.from_bytes(body[16:20], "big"), body[20]
    sender, cipher = body[21:21 + length], body[21 + length:]
    assert len(body) <= 4096 == size, (len(body), size)

    def mac(secret, data):
        return hmac.new(secret, data, hashlib.sha256).digest()

    material = mac(mac(auth, key.exchange(ec.ECDH(), point(sender))), b"WebPush: info\0" + public(key) + sender + b"\1")
    base = mac(salt, material)
    plain = AESGCM(mac(base, b"Content-Encoding: aes128gcm\0\1")[:16]).decrypt(mac(base, b"Content-Encoding: nonce\0\1")[:12], cipher, None)
    assert plain[-1] == 2, "the last record"
    return plain[:-1]


class PushService:
    """At `origin`. `got` has what came: the headers and the content. It answers `status`."""

    def __init__(self):
        self.key, self.auth, self.status, self.got = ec.generate_private_key(ec.SECP256R1()), b"0123456789abcdef", 201, queue.Queue()
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *words):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(service.status)
                self.send_header("Content-Length", "0")
                self.end_headers()
                service.got.put((self.headers, body))

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def push(self, key, patience=60):
        """The next push, from the hub with this public key."""
        headers, body = self.got.get(timeout=patience)
        scheme, words = headers["Authorization"].split(" ", 1)
        parts = dict(part.strip().split("=", 1) for part in words.split(","))
        assert scheme == "vapid" and parts["k"] == key, headers["Authorization"]
        signed, _, signature = parts["t"].rpartition(".")
        numbers = [int.from_bytes(half, "big") for half in (decoded(signature)[:32], decoded(signature)[32:])]
        point(decoded(key)).verify(encode_dss_signature(*numbers), signed.encode(), ec.ECDSA(hashes.SHA256()))
        claims = json.loads(decoded(signed.split(".")[1]))
        assert claims["aud"] == self.origin and time.time() < claims["exp"] <= time.time() + 86_400, claims
        assert headers["Content-Encoding"] == "aes128gcm" and int(headers["TTL"]) > 0 and headers["Topic"], str(headers)
        return json.loads(decrypted(body, self.key, self.auth))

#!/usr/bin/env python3
"""A provider of OpenID Connect that does what its codes say, right or wrong: real keys, real signatures.

openid-provider.py CLIENT SECRET [CERTIFICATE KEY]: prints its address. A code is DEED:NONCE:CHALLENGE:CLAIMS, CLAIMS as JSON in base64url.
"""
import base64
import hashlib
import hmac
import http.server
import json
import ssl
import sys
import time
import urllib.parse

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

CLIENT, SECRET = sys.argv[1:3]


def coded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def number(value, size=None):
    return coded(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


RSA = rsa.generate_private_key(65537, 2048)
OTHER = rsa.generate_private_key(65537, 2048)
LATER = rsa.generate_private_key(65537, 2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
EDWARDS = ed25519.Ed25519PrivateKey.generate()
asked_for_keys = 0


def rsa_key(key, name):
    public = key.public_key().public_numbers()
    return {"kty": "RSA", "kid": name, "use": "sig", "n": number(public.n), "e": number(public.e)}


def keys():
    point = CURVE.public_key().public_numbers()
    edwards = EDWARDS.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    some = [rsa_key(RSA, "rsa"), {"kty": "EC", "kid": "ec", "crv": "P-256", "x": number(point.x, 32), "y": number(point.y, 32)},
            {"kty": "OKP", "kid": "ed", "crv": "Ed25519", "x": coded(edwards)}, {"kty": "oct", "kid": "secret", "k": coded(SECRET.encode())}]
    # Exchanged since they were asked for first.
    return {"keys": some + ([rsa_key(LATER, "later")] if asked_for_keys > 1 else [])}


def sign(algorithm, data):
    if algorithm == "none":
        return b""
    if algorithm == "HS256":
        pem = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        return hmac.new(pem, data, hashlib.sha256).digest()
    if algorithm == "HS256-secret":
        return hmac.new(SECRET.encode(), data, hashlib.sha256).digest()
    if algorithm == "PS256":
        return RSA.sign(data, padding.PSS(padding.MGF1(hashes.SHA256()), 32), hashes.SHA256())
    if algorithm == "ES256":
        r, s = decode_dss_signature(CURVE.sign(data, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")
    if algorithm == "EdDSA":
        return EDWARDS.sign(data)
    key = {"RS256": RSA, "swapped": OTHER, "later": LATER}[algorithm]
    return key.sign(data, padding.PKCS1v15(), hashes.SHA256())


def token(deed, nonce, more):
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": CLIENT, "sub": "u-1", "iat": now, "exp": now + 300, "nonce": nonce, **more}
    algorithm, header = "RS256", {"alg": "RS256", "kid": "rsa", "typ": "JWT"}
    wrong = {"issuer": {"iss": ISSUER + "/"}, "audience": {"aud": "other"}, "audiences": {"aud": ["other", CLIENT]},
             "party": {"aud": [CLIENT], "azp": "other"}, "nonce": {"nonce": "x" + nonce[1:]}, "expired": {"exp": now - 120},
             "future": {"iat": now + 600, "exp": now + 900}, "not-before": {"nbf": now + 600}, "stale": {"iat": now - 3600},
             "large-number": {"exp": 1e300}, "text-time": {"exp": str(now + 300)}}
    claims.update(wrong.get(deed, {}))
    for missing in ("iss", "aud", "sub", "exp", "iat", "nonce"):
        if deed == "no-" + missing:
            del claims[missing]
    if deed == "several":
        claims.update({"aud": ["other", CLIENT], "azp": CLIENT})
    if deed in ("PS256", "ES256", "EdDSA", "none", "HS256", "HS256-secret", "swapped", "later"):
        algorithm = deed
        header["alg"] = {"swapped": "RS256", "later": "RS256", "HS256-secret": "HS256"}.get(deed, deed)
        header["kid"] = {"ES256": "ec", "EdDSA": "ed", "HS256-secret": "secret", "later": "later"}.get(deed, "rsa")
    if deed == "confused":
        # Signed rightly, by another kind than the header says.
        header["alg"], algorithm = "ES256", "RS256"
    if deed == "None":
        header["alg"], algorithm = "None", "none"
    if deed == "critical":
        header["crit"] = ["b64"]
    if deed == "no-key-name":
        del header["kid"]
    if deed in ("user-info", "somebody-else"):
        claims = {name: value for name, value in claims.items() if name not in ("groups", "preferred_username")}
    signed = f"{coded(json.dumps(header).encode())}.{coded(json.dumps(claims).encode())}"
    if deed == "changed":
        signature = sign(algorithm, signed.encode())
        claims["groups"] = ["mesh-admins"]
        return f"{signed.split('.')[0]}.{coded(json.dumps(claims).encode())}.{coded(signature)}"
    return f"{signed}.{coded(sign(algorithm, signed.encode()))}"


class Provider(http.server.BaseHTTPRequestHandler):
    def answer(self, status, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        global asked_for_keys
        if self.path == "/.well-known/openid-configuration":
            return self.answer(200, {
                "issuer": ISSUER, "authorization_endpoint": ISSUER + "/authorize?realm=a", "token_endpoint": ISSUER + "/token",
                "jwks_uri": ISSUER + "/keys", "userinfo_endpoint": ISSUER + "/userinfo"})
        if self.path == "/keys":
            asked_for_keys += 1
            return self.answer(200, keys())
        if self.path == "/userinfo":
            deed, claims = self.headers["Authorization"].removeprefix("Bearer ").split(":")
            return self.answer(200, {"sub": "u-1" if deed != "somebody-else" else "u-2", **json.loads(decoded(claims))})
        return self.answer(404, {})

    def do_POST(self):
        form = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        code = form.get("code", "").split(":")
        wanted = base64.b64encode(f"{urllib.parse.quote(CLIENT, safe='')}:{urllib.parse.quote(SECRET, safe='')}".encode()).decode()
        if self.path != "/token" or self.headers["Authorization"] != "Basic " + wanted:
            return self.answer(401, {"error": "invalid_client"})
        challenge = coded(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if len(code) != 4 or challenge != code[2] or not form.get("redirect_uri", "").endswith("/oidc/back"):
            return self.answer(400, {"error": "invalid_grant"})
        deed, nonce, _, claims = code
        if deed == "500":
            return self.answer(500, b"<html>")
        if deed in ("html", "empty", "list", "huge"):
            return self.answer(200, {"html": b"<html>", "empty": b"", "list": b"[]", "huge": b" " * 3_000_000}[deed])
        if deed in ("no-token", "no-jwt"):
            return self.answer(200, {"access_token": "a", **({"id_token": "a.b"} if deed == "no-jwt" else {})})
        return self.answer(200, {"id_token": token(deed, nonce, json.loads(decoded(claims))), "access_token": f"{deed}:{claims}", "token_type": "Bearer"})

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
ISSUER = f"http://127.0.0.1:{server.server_port}"
if len(sys.argv) > 3:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[3:5])
    server.socket = context.wrap_socket(server.socket, server_side=True)
    ISSUER = f"https://localhost:{server.server_port}"
print(ISSUER, flush=True)
server.serve_forever()

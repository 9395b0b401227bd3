"""An issuer of access tokens: its metadata and keys on a loopback port, and tokens of every kind, also wrong ones."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

BOTH = "memory:read memory:write"


class Issuer:
    """An issuer that runs; see ``running``."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.asked: list[str] = []
        self.status = 200
        self.names_itself = self.url
        self.names_keys = f"{self.url}/jwks"
        self._signing: dict[str, tuple[str, Any]] = {}
        self.published: list[dict[str, Any]] = []
        self.rotate("first")

    def rotate(self, kid: str, algorithm: str = "RS256") -> None:
        """Sign with a new key from now on, and publish no other."""
        key: Any
        if algorithm.startswith("ES"):
            key = ec.generate_private_key(ec.SECP256R1())
            public = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        elif algorithm == "EdDSA":
            key = ed25519.Ed25519PrivateKey.generate()
            public = OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
        else:
            key = rsa.generate_private_key(65_537, 2_048)
            public = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        self._signing[kid] = algorithm, key
        self.published = [{**public, "kid": kid, "use": "sig"}]
        self.kid = kid

    def token(self, kid: str | None = None, /, **claims: Any) -> str:
        """An access token; a claim that is None is left out."""
        kid = kid or self.kid
        algorithm, key = self._signing[kid]
        return jwt.encode(self.claims(**claims), key, algorithm, {"kid": kid, "typ": "at+jwt"})

    def claims(self, **claims: Any) -> dict[str, Any]:
        now = int(time.time())
        usual = {"iss": self.url, "sub": "anna", "exp": now + 600, "iat": now, "scope": BOTH}
        return {name: value for name, value in {**usual, **claims}.items() if value is not None}

    def answer(self, path: str) -> tuple[int, Any]:
        self.asked.append(path)
        if path == "/.well-known/openid-configuration":
            places = {"jwks_uri": self.names_keys, "token_endpoint": f"{self.url}/token"}
            return self.status, {"issuer": self.names_itself, **places}
        return (self.status, {"keys": self.published}) if path == "/jwks" else (404, {})


@contextmanager
def running() -> Iterator[Issuer]:
    """An issuer on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.say(*issuer.answer(self.path))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.say(401, {"error": "invalid_client"})  # no client is known here

        def say(self, status: int, found: Any) -> None:
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer = Issuer(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()

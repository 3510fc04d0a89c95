"""The client's side of SCRAM-SHA-256, written for tests from RFC 5802 and RFC 7677."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets


class ScramClient:
    """One exchange: first() -> answer to the server's first message -> check of its last."""

    def __init__(self, password: str, gs2: str = "n,,", binding: bytes = b"") -> None:
        """`gs2`, `binding`: the header, and what it binds to."""
        self._gs2 = gs2
        self._cbind = base64.b64encode(gs2.encode() + binding).decode()
        self.password = password.encode()
        self.nonce = base64.b64encode(secrets.token_bytes(18)).decode()
        self._bare = f"n=,r={self.nonce}"
        self._expected = b""

    def first(self) -> bytes:
        """The client's first message."""
        return f"{self._gs2}{self._bare}".encode()

    def answer(self, server_first: bytes) -> bytes:
        """The client's last message."""
        facts = dict(part.split("=", 1) for part in server_first.decode().split(","))
        if not facts["r"].startswith(self.nonce):
            raise AssertionError("the server changed our nonce")
        salted = hashlib.pbkdf2_hmac("sha256", self.password, base64.b64decode(facts["s"]), int(facts["i"]))
        without_proof = f"c={self._cbind},r={facts['r']}"
        signed = f"{self._bare},{server_first.decode()},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._expected = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        """Raises when the server does not prove that it knows the secret."""
        if server_final != b"v=" + base64.b64encode(self._expected):
            raise AssertionError(f"wrong server signature: {server_final!r}")

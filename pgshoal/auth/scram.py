"""SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802, RFC 7677), server and client, without sockets."""

import hashlib
import hmac
import os
import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final

from pgshoal.auth.failed import AuthFailed, BadMechanism
from pgshoal.auth.keys import KeyCache
from pgshoal.auth.secret import ITERATIONS_MAX, KEY_SIZE, Keys, Verifier, decode64, derive_keys, encode64

SCRAM: Final = "SCRAM-SHA-256"
SCRAM_PLUS: Final = "SCRAM-SHA-256-PLUS"
MESSAGE_MAX: Final = 1024
"""PostgreSQL's own bound for a SASL message from a client; we hold servers to it as well."""
_NONCE_SIZE: Final = 18
_NONCES_AT_ONCE: Final = 225
_BINDING: Final = b"p=tls-server-end-point"

# gs2 flag, authorization identity (refused), then the bare message with its nonce. RFC 5802 section 7.
_CLIENT_FIRST = re.compile(rb"((n|y|p=[A-Za-z0-9.-]+),,)(n=[^,\0]*,r=([!-+\--~]+)(?:,[^\0]*)?)")
_SERVER_FIRST = re.compile(rb"r=([!-+\--~]+),s=([A-Za-z0-9+/=]+),i=([0-9]{1,7})(?:,[^\0]*)?")
_SERVER_FINAL = re.compile(rb"v=([A-Za-z0-9+/=]+)(?:,[^\0]*)?")


class ScramState(StrEnum):
    """Where an exchange stands; FAILED is final."""

    FIRST = "first"
    WORK = "work"
    FINAL = "final"
    DONE = "done"
    FAILED = "failed"


def _xor(left: bytes, right: bytes) -> bytes:
    return (int.from_bytes(left) ^ int.from_bytes(right)).to_bytes(KEY_SIZE)


class _Nonces:
    """Nonces from randomness that is taken from the system at one go, for the one thread that runs logins."""

    def __init__(self) -> None:
        self._random = b""
        self._at = 0

    def new(self) -> bytes:
        """Never the same bytes again."""
        at = self._at
        if at >= len(self._random):
            self._random, at = os.urandom(_NONCE_SIZE * _NONCES_AT_ONCE), 0
        self._at = at + _NONCE_SIZE
        return encode64(self._random[at : self._at])


_new_nonce = _Nonces().new


class ScramServer:
    """The server's side of one login. Feed it the client's two messages; it raises AuthFailed for anything wrong."""

    __slots__ = ("_auth_prefix", "_cbind", "_final_prefix", "_nonce", "_plus", "_verifier", "keys", "state")

    def __init__(
        self,
        verifier: Verifier,
        mechanism: str = SCRAM,
        cbind_data: bytes | None = None,
        nonce: bytes | None = None,
    ) -> None:
        """`cbind_data` is given exactly when SCRAM-SHA-256-PLUS was offered; `nonce` is for tests."""
        if mechanism not in offered(cbind_data):
            raise BadMechanism("client selected an invalid SASL authentication mechanism")
        self._verifier = verifier
        self._plus = mechanism == SCRAM_PLUS
        self._cbind = cbind_data
        self._nonce = _new_nonce() if nonce is None else nonce
        self._auth_prefix = self._final_prefix = b""
        self.state = ScramState.FIRST
        self.keys: Keys | None = None
        """The client's keys after success, for logging in elsewhere; only if its secret is a stored SCRAM secret."""

    @property
    def done(self) -> bool:
        """True once the client has proved itself."""
        return self.state is ScramState.DONE

    def feed(self, data: bytes | None) -> bytes:
        """Take a client message (None: an initial response without data); returns the SASL data to answer with."""
        state, self.state = self.state, ScramState.FAILED
        if data is None and state is ScramState.FIRST:
            self.state = state
            return b""
        if data is None or len(data) > MESSAGE_MAX:
            raise AuthFailed("malformed SCRAM message: size")
        if state is ScramState.FIRST:
            answer = self._first(data)
            self.state = ScramState.FINAL
        elif state is ScramState.FINAL:
            answer = self._final(data)
            self.state = ScramState.DONE
        else:
            raise AuthFailed("unexpected SCRAM message")
        return answer

    def _first(self, data: bytes) -> bytes:
        found = _CLIENT_FIRST.fullmatch(data)
        if found is None:
            raise AuthFailed("malformed SCRAM client-first-message")
        header, flag, bare, client_nonce = found.groups()
        binding = header
        if flag[:1] == b"p":
            if not self._plus or flag != _BINDING or self._cbind is None:
                raise AuthFailed("client requires a channel binding that was not offered")
            binding = header + self._cbind
        elif self._plus:
            raise AuthFailed("client selected channel binding but did not use it")
        elif flag == b"y" and self._cbind is not None:
            # The client was told that no binding is offered, though we offered one: somebody stands between us.
            raise AuthFailed("channel binding offer was stripped on its way to the client")
        nonce = client_nonce + self._nonce
        answer = b"r=" + nonce + self._verifier.prepared().facts
        self._final_prefix = b"c=%b,r=%b" % (encode64(binding), nonce)
        self._auth_prefix = b"%b,%b," % (bare, answer)
        return answer

    def _final(self, data: bytes) -> bytes:
        bare, _, proof64 = data.rpartition(b",p=")
        prefix = self._final_prefix
        if bare != prefix and not bare.startswith(prefix + b","):
            raise AuthFailed("malformed SCRAM client-final-message")
        proof = decode64(proof64)
        if proof is None or len(proof) != KEY_SIZE:
            raise AuthFailed("malformed SCRAM proof")
        verifier = self._verifier
        _, stored_mac, server_mac = verifier.prepared()
        auth_message = self._auth_prefix + bare
        client_key = _xor(proof, stored_mac.digest(auth_message))
        proved = hmac.compare_digest(hashlib.sha256(client_key).digest(), verifier.stored_key)
        signature = server_mac.digest(auth_message)
        if not proved or verifier.mock:
            raise AuthFailed("password authentication failed")
        if verifier.stored:
            self.keys = Keys(client_key, verifier.server_key)
        return b"v=" + encode64(signature)


def offered(cbind_data: bytes | None) -> tuple[str, ...]:
    """The mechanisms a server offers, best first; PLUS only where the connection has something to bind to."""
    return (SCRAM,) if cbind_data is None else (SCRAM_PLUS, SCRAM)


class ScramClient:
    """The client's side of one login to a server.

    `start` gives the first message; `feed` takes each server message and gives the next one, or None while
    `needs_work` holds a heavy callable, to be run in a thread and its result handed to `resume`.
    """

    __slots__ = (
        "_auth_message", "_bare", "_cache", "_cbind_input", "_header", "_iterations", "_keys", "_nonce", "_password",
        "_salt", "_without_proof", "mechanism", "state",
    )  # fmt: skip

    def __init__(
        self,
        credential: str | bytes | Keys,
        mechanisms: Iterable[str],
        cbind_data: bytes | None = None,
        user: str = "",
        cache: KeyCache | None = None,
        nonce: bytes | None = None,
    ) -> None:
        """`user` stays empty for PostgreSQL, which knows it from the startup packet. Raises BadMechanism."""
        names = set(mechanisms)
        if SCRAM_PLUS in names and cbind_data is not None:
            self.mechanism, header = SCRAM_PLUS, _BINDING + b",,"
        elif SCRAM in names:
            self.mechanism, header = SCRAM, b"n,," if cbind_data is None else b"y,,"
            cbind_data = None
        else:
            raise BadMechanism("none of the server's SASL authentication mechanisms are supported")
        self._header = header
        self._cbind_input = encode64(header + (cbind_data or b""))
        self._keys = credential if isinstance(credential, Keys) else None
        self._password: str | bytes | None = None if isinstance(credential, Keys) else credential
        self._cache = cache
        self._nonce = _new_nonce() if nonce is None else nonce
        name = user.replace("=", "=3D").replace(",", "=2C").encode("utf-8", "surrogateescape")
        self._bare = b"n=%b,r=%b" % (name, self._nonce)
        self._auth_message = self._without_proof = self._salt = b""
        self._iterations = 0
        self.state = ScramState.FIRST

    @property
    def done(self) -> bool:
        """True once the server has proved itself; an AuthenticationOk before that is an attack."""
        return self.state is ScramState.DONE

    def start(self) -> bytes:
        """The data of SASLInitialResponse, for `mechanism`."""
        return self._header + self._bare

    def feed(self, data: bytes) -> bytes | None:
        """Take SASLContinue or SASLFinal data; returns SASLResponse data, b"" at the end, None if work is needed."""
        state, self.state = self.state, ScramState.FAILED
        if len(data) > MESSAGE_MAX:
            raise AuthFailed("malformed SCRAM message from server: size")
        if state is ScramState.FIRST:
            return self._first(data)
        if state is ScramState.FINAL:
            self._final(data)
            self.state = ScramState.DONE
            return b""
        raise AuthFailed("unexpected SCRAM message from server")

    def needs_work(self) -> Callable[[], Keys] | None:
        """The derivation the exchange waits for, free of shared state so that any thread may run it; or None."""
        password, salt, iterations = self._password, self._salt, self._iterations
        if self.state is not ScramState.WORK or password is None:
            return None
        return lambda: derive_keys(password, salt, iterations)

    def resume(self, keys: Keys) -> bytes:
        """Go on with the result of the work; returns SASLResponse data."""
        if self.state is not ScramState.WORK:
            raise AuthFailed("no SCRAM work is under way")
        self._keys = keys
        stored_key = hashlib.sha256(keys.client_key).digest()
        proof = _xor(keys.client_key, hmac.digest(stored_key, self._auth_message, "sha256"))
        self.state = ScramState.FINAL
        return self._without_proof + b",p=" + encode64(proof)

    def _first(self, data: bytes) -> bytes | None:
        found = _SERVER_FIRST.fullmatch(data)
        if found is None:
            raise AuthFailed("malformed SCRAM message from server")
        nonce, salt64, count = found.groups()
        salt = decode64(salt64)
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthFailed("SCRAM nonce mismatch")
        if not salt:
            raise AuthFailed("malformed SCRAM salt")
        iterations = int(count)
        if not 1 <= iterations <= ITERATIONS_MAX:
            raise AuthFailed(f"SCRAM iteration count out of range: {iterations}")
        self._salt, self._iterations = salt, iterations
        self._without_proof = b"c=%b,r=%b" % (self._cbind_input, nonce)
        self._auth_message = b"%b,%b,%b" % (self._bare, data, self._without_proof)
        self.state = ScramState.WORK
        keys = self._keys
        if keys is None and self._cache is not None and self._password is not None:
            keys = self._cache.salted(self._password, salt, iterations)
        return None if keys is None else self.resume(keys)

    def _final(self, data: bytes) -> None:
        found = _SERVER_FINAL.fullmatch(data)
        signature = decode64(found[1]) if found is not None else None
        if signature is None or self._keys is None:
            raise AuthFailed("server rejected the SCRAM login" if data.startswith(b"e=") else "malformed SCRAM message")
        expected = hmac.digest(self._keys.server_key, self._auth_message, "sha256")
        if not hmac.compare_digest(signature, expected):
            raise AuthFailed("invalid server signature")
        if self._cache is not None and self._password is not None:
            self._cache.remember(self._password, self._salt, self._iterations, self._keys)

"""What kind of secret a user has, and SCRAM secrets in PostgreSQL's own text form."""

import hashlib
import hmac
import os
import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from pgshoal.auth.saslprep import saslprep

SALT_SIZE: Final = 16
KEY_SIZE: Final = 32
_BLOCK_SIZE: Final = 64
ITERATIONS_MAX: Final = 1_000_000
"""A peer that names more rounds is refused: the work would be its weapon."""

_MD5 = re.compile(r"md5[0-9a-f]{32}")
_SCRAM = re.compile(r"SCRAM-SHA-256\$([0-9]{1,10}):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)")


class SecretKind(StrEnum):
    """How a secret is written in auth_file, in password= or in the answer of auth_query."""

    EMPTY = "empty"
    PLAIN = "plain"
    MD5 = "md5"
    SCRAM = "scram"


class Keys(NamedTuple):
    """The two keys a password yields for one salt and iteration count; enough to log in without the password."""

    client_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return "Keys(...)"


class Mac:
    """HMAC-SHA-256 under one key, whose two first blocks are hashed only once."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        """`key` is at most a block long, as all keys of SCRAM are."""
        block = key.ljust(_BLOCK_SIZE, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))

    def digest(self, message: bytes) -> bytes:
        """The code of a message."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()


class Prepared(NamedTuple):
    """See `Verifier.prepared`."""

    facts: bytes
    stored_mac: Mac
    server_mac: Mac

    def __repr__(self) -> str:
        return "Prepared(...)"


@dataclass(frozen=True, slots=True)
class Verifier:
    """What a SCRAM server must know of a user. `stored` if it came from a SCRAM secret, `mock` if no such user is."""

    iterations: int
    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    stored: bool = False
    mock: bool = False
    #: what every login with it needs, worked out at the first
    _prepared: list[Prepared] = field(default_factory=list, init=False, repr=False, compare=False)

    def prepared(self) -> Prepared:
        """Its part of the server's messages, and its keys ready to sign with."""
        if not self._prepared:
            facts = b",s=%b,i=%d" % (encode64(self.salt), self.iterations)
            self._prepared.append(Prepared(facts, Mac(self.stored_key), Mac(self.server_key)))
        return self._prepared[0]

    def text(self) -> str:
        """The secret as PostgreSQL writes it in pg_authid."""
        salt, stored_key, server_key = (encode64(raw).decode() for raw in (self.salt, self.stored_key, self.server_key))
        return f"SCRAM-SHA-256${self.iterations}:{salt}${stored_key}:{server_key}"


def encode64(raw: bytes) -> bytes:
    """Base64 without a newline."""
    return b2a_base64(raw, newline=False)


def decode64(text: bytes) -> bytes | None:
    """Strict base64, or None."""
    try:
        return a2b_base64(text, strict_mode=True)
    except (Base64Error, ValueError):
        return None


def to_bytes(password: str | bytes) -> bytes:
    """The bytes of a password; text read with surrogateescape gives back what was read."""
    return password if isinstance(password, bytes) else password.encode("utf-8", "surrogateescape")


def secret_kind(secret: str) -> SecretKind:
    """The kind of a secret; whatever is no md5 or SCRAM secret is a plain password."""
    if not secret:
        return SecretKind.EMPTY
    if _MD5.fullmatch(secret):
        return SecretKind.MD5
    if secret.startswith("SCRAM-SHA-256$") and parse_scram_secret(secret) is not None:
        return SecretKind.SCRAM
    return SecretKind.PLAIN


def parse_scram_secret(secret: str) -> Verifier | None:
    """The verifier in a SCRAM secret, or None if it is not one."""
    found = _SCRAM.fullmatch(secret)
    if found is None:
        return None
    iterations = int(found[1])
    salt, stored_key, server_key = (decode64(part.encode("ascii")) for part in found.groups()[1:])
    if not salt or stored_key is None or server_key is None or not 1 <= iterations <= 2**31 - 1:
        return None
    if len(stored_key) != KEY_SIZE or len(server_key) != KEY_SIZE:
        return None
    return Verifier(iterations, salt, stored_key, server_key, stored=True)


def derive_keys(password: str | bytes, salt: bytes, iterations: int) -> Keys:
    """The keys of a password. Heavy: PBKDF2, without the interpreter lock, so it belongs in a thread."""
    salted = hashlib.pbkdf2_hmac("sha256", saslprep(to_bytes(password)), salt, iterations)
    return Keys(hmac.digest(salted, b"Client Key", "sha256"), hmac.digest(salted, b"Server Key", "sha256"))


def derive_verifier(password: str | bytes, iterations: int, salt: bytes | None = None) -> Verifier:
    """A verifier for a plain password, with a random salt unless given. Heavy, like `derive_keys`."""
    salt = os.urandom(SALT_SIZE) if salt is None else salt
    keys = derive_keys(password, salt, iterations)
    return Verifier(iterations, salt, hashlib.sha256(keys.client_key).digest(), keys.server_key)


def mock_secret(user: str, mock_key: bytes, iterations: int, like: SecretKind) -> str:
    """A secret of the given kind nothing can satisfy, so that checking it costs what a real user's check costs."""
    if like is SecretKind.SCRAM:
        return mock_verifier(user, mock_key, iterations).text()
    return "md5" + "0" * 32 if like is SecretKind.MD5 else os.urandom(KEY_SIZE).hex()


def mock_verifier(user: str, mock_key: bytes, iterations: int) -> Verifier:
    """A verifier nothing can satisfy, for a user who does not exist.

    The salt depends on the name and on a secret of this process: asking twice finds the same, as for a real user.
    """
    seed = hmac.digest(mock_key, to_bytes(user), "sha256")
    return Verifier(iterations, seed[:SALT_SIZE], os.urandom(KEY_SIZE), os.urandom(KEY_SIZE), mock=True)

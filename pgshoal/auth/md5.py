"""md5 authentication: the stored secret, and the answer to a salted challenge."""

import hashlib
import hmac
import os
from typing import Final

from pgshoal.auth.secret import SecretKind, secret_kind, to_bytes

SALT_SIZE: Final = 4


def new_salt() -> bytes:
    """A salt for one challenge."""
    return os.urandom(SALT_SIZE)


def _hex(data: bytes) -> bytes:
    # Not for security in the sense of FIPS mode, which would refuse it: the protocol fixes the algorithm.
    return hashlib.md5(data, usedforsecurity=False).hexdigest().encode("ascii")


def md5_secret(password: str | bytes, user: str) -> str:
    """The secret as PostgreSQL stores it."""
    return "md5" + _hex(to_bytes(password) + to_bytes(user)).decode("ascii")


def md5_answer(secret: str, user: str, salt: bytes) -> bytes | None:
    """What the owner of a plain or md5 secret answers to a challenge; None for other kinds."""
    kind = secret_kind(secret)
    if kind is SecretKind.PLAIN:
        secret = md5_secret(secret, user)
    elif kind is not SecretKind.MD5:
        return None
    return b"md5" + _hex(secret[3:].encode("ascii") + salt)


def check_md5(answer: bytes, secret: str | None, user: str, salt: bytes) -> bool:
    """True if a client's answer fits its secret; None (no such user) costs the same and is False."""
    expected = md5_answer(secret or "md5" + "0" * 32, user, salt)
    return expected is not None and hmac.compare_digest(answer, expected) and bool(secret)

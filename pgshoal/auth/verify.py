"""Checks a cleartext password against a secret of any kind."""

import hashlib
import hmac

from pgshoal.auth.keys import KeyCache
from pgshoal.auth.md5 import md5_secret
from pgshoal.auth.secret import ITERATIONS_MAX, SecretKind, secret_kind, to_bytes


def is_heavy(secret: str) -> bool:
    """True if `check_password` may take PBKDF2's time for this secret and belongs in a thread."""
    return secret_kind(secret) is SecretKind.SCRAM


def check_password(password: bytes, secret: str, user: str, cache: KeyCache) -> bool:
    """True if the password fits the plain, md5 or SCRAM secret; an empty secret fits nothing."""
    kind = secret_kind(secret)
    if kind is SecretKind.PLAIN:
        return hmac.compare_digest(password, to_bytes(secret))
    if kind is SecretKind.MD5:
        return hmac.compare_digest(md5_secret(password, user), secret)
    verifier = cache.stored(secret) if kind is SecretKind.SCRAM else None
    # A database user may choose the rounds of its own secret, which auth_query then brings here.
    if verifier is None or verifier.iterations > ITERATIONS_MAX:
        return False
    keys = cache.derive_salted(password, verifier.salt, verifier.iterations)
    fits = hmac.compare_digest(hashlib.sha256(keys.client_key).digest(), verifier.stored_key)
    if fits:
        cache.remember(password, verifier.salt, verifier.iterations, keys)
    return fits

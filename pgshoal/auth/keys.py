"""Remembers what passwords were derived to, so that a login with a plain secret does not pay PBKDF2 each time."""

from collections.abc import Hashable, Iterable
from itertools import islice
from threading import Lock
from typing import Final, Generic, TypeVar

from pgshoal.auth.secret import Keys, Verifier, derive_keys, derive_verifier, parse_scram_secret, to_bytes

REMEMBERED_MAX: Final = 10_000
"""Entries of each kind; auth_query may bring any number of secrets."""

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class _Bounded(dict[_Key, _Value], Generic[_Key, _Value]):
    """A dict that drops its oldest entry when full; `keep` may be called from any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()

    def keep(self, key: _Key, value: _Value) -> _Value:
        with self._lock:
            if len(self) >= REMEMBERED_MAX and key not in self:
                del self[next(iter(self))]
            self[key] = value
        return value


class KeyCache:
    """Derived keys by secret text; call `forget` when secrets are reloaded.

    The `derive_…` methods are heavy and may run in a thread; all others are cheap.
    """

    def __init__(self) -> None:
        self._generation = 0
        self._adhoc: _Bounded[tuple[bytes, int], Verifier] = _Bounded()
        self._salted: _Bounded[tuple[bytes, bytes, int], Keys] = _Bounded()
        self._stored: _Bounded[str, Verifier] = _Bounded()

    def stored(self, secret: str) -> Verifier | None:
        """The verifier in a SCRAM secret, or None if it is not one."""
        verifier = self._stored.get(secret)
        if verifier is not None:
            return verifier
        parsed = parse_scram_secret(secret)
        return None if parsed is None else self._stored.keep(secret, parsed)

    def adhoc(self, password: str | bytes, iterations: int) -> Verifier | None:
        """The verifier of a plain secret if it was derived before."""
        return self._adhoc.get((to_bytes(password), iterations))

    def derive_adhoc(self, password: str | bytes, iterations: int) -> Verifier:
        """The verifier of a plain secret; derived and remembered if new."""
        key = (to_bytes(password), iterations)
        known = self._adhoc.get(key)
        if known is not None:
            return known
        generation = self._generation
        verifier = derive_verifier(key[0], iterations)
        return self._adhoc.keep(key, verifier) if generation == self._generation else verifier

    def warm(self, passwords: Iterable[str | bytes], iterations: int) -> None:
        """Derive verifiers ahead of logins, in a thread; ends early if the secrets are reloaded meanwhile.

        A first login that pays for its derivation takes longer than that of an unknown user, and so tells who exists.
        """
        generation = self._generation
        for password in islice(passwords, REMEMBERED_MAX):
            if generation != self._generation:
                return
            self.derive_adhoc(password, iterations)

    def salted(self, password: str | bytes, salt: bytes, iterations: int) -> Keys | None:
        """The keys of a password under a server's salt if they were derived before."""
        return self._salted.get((to_bytes(password), salt, iterations))

    def remember(self, password: str | bytes, salt: bytes, iterations: int, keys: Keys) -> None:
        """Keep keys that have proved right. Only those: a guess must not push out a real entry."""
        self._salted.keep((to_bytes(password), salt, iterations), keys)

    def derive_salted(self, password: str | bytes, salt: bytes, iterations: int) -> Keys:
        """The keys of a password under a server's salt; remembered ones are reused."""
        return self.salted(password, salt, iterations) or derive_keys(password, salt, iterations)

    def forget(self) -> None:
        """Drop everything; a derivation still under way is not kept either."""
        self._generation += 1
        self._adhoc.clear()
        self._salted.clear()
        self._stored.clear()

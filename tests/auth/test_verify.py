"""Tests for pgshoal.auth.verify and pgshoal.auth.keys."""

import pytest

from pgshoal.auth import keys as keys_module
from pgshoal.auth.keys import KeyCache
from pgshoal.auth.md5 import md5_secret
from pgshoal.auth.secret import Keys, SecretKind, Verifier, derive_verifier, mock_secret
from pgshoal.auth.verify import check_password, is_heavy

SCRAM = derive_verifier("pencil", 3).text()
SECRETS = ["pencil", md5_secret("pencil", "joe"), SCRAM]


@pytest.mark.parametrize("secret", SECRETS)
def test_right_password_passes_against_every_kind(secret: str) -> None:
    """A cleartext password is checked against plain, md5 and SCRAM secrets."""
    assert check_password(b"pencil", secret, "joe", KeyCache())


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("password", [b"", b"pen", b"pencil ", b"\xff\xfe", bytes(60_000)])
def test_other_passwords_fail(secret: str, password: bytes) -> None:
    """Empty, wrong, longer, binary and huge passwords fail without an exception."""
    assert not check_password(password, secret, "joe", KeyCache())


def test_the_secret_itself_is_no_password() -> None:
    """Who read the stored md5 or SCRAM secret cannot log in with it as a password."""
    for secret in SECRETS[1:]:
        assert not check_password(secret.encode(), secret, "joe", KeyCache())


def test_empty_secret_fits_nothing() -> None:
    """A user without a secret cannot log in by password, not even by an empty one."""
    assert not check_password(b"", "", "joe", KeyCache())
    assert not check_password(b"x", "", "joe", KeyCache())


def test_non_ascii_passwords_compare_as_bytes() -> None:
    """A password file in another encoding keeps its bytes."""
    assert check_password(b"p\xe9n", b"p\xe9n".decode("utf-8", "surrogateescape"), "joe", KeyCache())


def test_only_scram_secrets_are_heavy() -> None:
    """The caller learns which checks belong in a thread."""
    assert [is_heavy(secret) for secret in SECRETS] == [False, False, True]


@pytest.mark.parametrize("kind", [SecretKind.PLAIN, SecretKind.MD5, SecretKind.SCRAM])
def test_stand_in_for_an_unknown_user_never_fits(kind: SecretKind) -> None:
    """The mock secret goes through the same check and fails."""
    assert not check_password(b"pencil", mock_secret("nobody", b"k", 3, kind), "nobody", KeyCache())


# The cache


def test_plain_secret_is_derived_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later logins with the same secret and count find the verifier; another count is another entry."""
    calls: list[int] = []

    def counting(password: bytes, iterations: int) -> Verifier:
        calls.append(iterations)
        return derive_verifier(password, iterations)

    monkeypatch.setattr(keys_module, "derive_verifier", counting)
    cache = KeyCache()
    assert cache.adhoc("pencil", 2) is None
    verifier = cache.derive_adhoc("pencil", 2)
    assert cache.adhoc("pencil", 2) is verifier
    assert cache.derive_adhoc("pencil", 2) is verifier
    cache.derive_adhoc("pencil", 3)
    assert calls == [2, 3]


def test_warm_derives_ahead_and_stops_at_a_reload(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known plain secrets are derived before anyone logs in; a reload in between ends the work."""
    cache = KeyCache()
    cache.warm(["a", "b"], 2)
    assert cache.adhoc("a", 2) is not None
    assert cache.adhoc("b", 2) is not None
    calls: list[bytes] = []

    def reloading(password: bytes, iterations: int) -> Verifier:
        calls.append(password)
        cache.forget()
        return derive_verifier(password, iterations)

    monkeypatch.setattr(keys_module, "derive_verifier", reloading)
    cache.warm(["c", "d"], 2)
    assert calls == [b"c"]


def test_forget_drops_everything() -> None:
    """After a reload no earlier secret is remembered."""
    cache = KeyCache()
    cache.derive_adhoc("pencil", 2)
    cache.remember("pencil", b"salt", 2, Keys(b"", b""))
    assert cache.stored(SCRAM) is not None
    cache.forget()
    assert cache.adhoc("pencil", 2) is None
    assert cache.salted("pencil", b"salt", 2) is None


def test_derivation_that_spans_a_reload_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that finishes after `forget` returns its result but leaves nothing behind."""
    cache = KeyCache()

    def slow(password: bytes, iterations: int) -> Verifier:
        cache.forget()
        return derive_verifier(password, iterations)

    monkeypatch.setattr(keys_module, "derive_verifier", slow)
    assert cache.derive_adhoc("pencil", 2).iterations == 2
    assert cache.adhoc("pencil", 2) is None


def test_right_scram_password_is_remembered_and_wrong_ones_are_not() -> None:
    """Guesses leave no trace, so that they cannot push out real entries."""
    cache = KeyCache()
    verifier = cache.stored(SCRAM)
    assert verifier is not None
    assert not check_password(b"guess", SCRAM, "joe", cache)
    assert cache.salted("guess", verifier.salt, verifier.iterations) is None
    assert check_password(b"pencil", SCRAM, "joe", cache)
    assert cache.salted("pencil", verifier.salt, verifier.iterations) is not None


def test_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest entry goes when the cache is full."""
    monkeypatch.setattr(keys_module, "REMEMBERED_MAX", 2)
    cache = KeyCache()
    for name in ("a", "b", "c"):
        cache.remember(name, b"salt", 1, Keys(b"", b""))
    assert [cache.salted(name, b"salt", 1) is not None for name in ("a", "b", "c")] == [False, True, True]


def test_text_that_is_no_scram_secret_is_not_stored() -> None:
    """Only SCRAM secrets have a stored verifier."""
    assert KeyCache().stored("pencil") is None


def test_a_secret_with_too_many_rounds_fits_nothing() -> None:
    """It is refused without the work: whoever may set a secret must not keep the thread busy for hours."""
    good = derive_verifier("pw", 10)
    assert check_password(b"pw", good.text(), "jo", KeyCache())
    assert not check_password(b"pw", good.text().replace("$10:", "$2147483647:"), "jo", KeyCache())

"""Tests for pgshoal.auth.md5."""

import hashlib

from pgshoal.auth.md5 import check_md5, md5_answer, md5_secret, new_salt
from pgshoal.auth.secret import derive_verifier


def test_secret_is_what_postgresql_stores() -> None:
    """md5 of password and user name, in PostgreSQL's form."""
    assert md5_secret("secret", "joe") == "md5" + hashlib.md5(b"secretjoe").hexdigest()


def test_plain_and_md5_secrets_give_the_same_answer() -> None:
    """Whichever is stored, the answer to a challenge is the same."""
    inner = hashlib.md5(b"secretjoe").hexdigest().encode()
    expected = b"md5" + hashlib.md5(inner + b"salt").hexdigest().encode()
    assert md5_answer("secret", "joe", b"salt") == expected
    assert md5_answer(md5_secret("secret", "joe"), "joe", b"salt") == expected


def test_right_answer_passes_and_others_do_not() -> None:
    """Only the answer for this secret, user and salt passes."""
    answer = md5_answer("secret", "joe", b"salt")
    assert answer is not None
    assert check_md5(answer, "secret", "joe", b"salt")
    assert check_md5(answer, md5_secret("secret", "joe"), "joe", b"salt")
    assert not check_md5(answer, "secret", "joe", b"SALT")
    assert not check_md5(answer, "secret", "jim", b"salt")
    assert not check_md5(answer, "other", "joe", b"salt")


def test_hostile_answers_fail_without_an_exception() -> None:
    """Empty, short, long and non-ASCII answers are wrong answers."""
    for answer in (b"", b"md5", b"\xff" * 35, bytes(60_000)):
        assert not check_md5(answer, "secret", "joe", b"salt")


def test_users_without_a_usable_secret_always_fail() -> None:
    """Unknown users, empty secrets and SCRAM secrets cannot pass, not even with the stand-in's own answer."""
    stand_in = md5_answer("md5" + "0" * 32, "joe", b"salt")
    assert stand_in is not None
    assert not check_md5(stand_in, None, "joe", b"salt")
    assert not check_md5(stand_in, "", "joe", b"salt")
    scram = derive_verifier("secret", 2).text()
    assert md5_answer(scram, "joe", b"salt") is None
    assert not check_md5(stand_in, scram, "joe", b"salt")


def test_salts_are_four_bytes_and_differ() -> None:
    """A challenge has its own four bytes."""
    salts = {new_salt() for _ in range(20)}
    assert {len(salt) for salt in salts} == {4}
    assert len(salts) > 15

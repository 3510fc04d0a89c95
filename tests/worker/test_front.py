"""Cancel keys and remembered startup packets."""

from __future__ import annotations

from pgshoal.config.model import Config, Settings
from pgshoal.policy.cancel import made_by
from pgshoal.policy.startup import LoginWish
from pgshoal.worker.front import Front
from tests.worker.stub import Bench


def test_keys_differ_and_never_look_negative() -> None:
    """Eight bytes, the first below 0x80, as the process id of a backend would be."""
    front = Front(Config("x"))
    keys = {front.new_key(conn) for conn in range(1, 500)}
    assert len(keys) == 499
    assert all(len(key) == 8 and key[0] < 0x80 for key in keys)


def test_a_reload_changes_the_peer_id_of_new_keys() -> None:
    """The seat and the fleet's secret stay as they were."""
    front = Front(Config("x"))
    front.sit(3, 70_000, b"s" * 32)
    front.configure(Config("x", Settings(peer_id=0x0102)))
    short, long = front.new_key(1), front.new_key(2, long=True)
    assert (short[0], short[1:3]) == (3, b"\2\1")
    assert (long[5:7], long[7], made_by(long, 70_000)) == (b"\2\1", 3, True)


def test_remembered_packets_are_bounded_in_number_and_size() -> None:
    """A flood of different or of huge packets costs no memory."""
    front = Front(Config("x"))
    wish = LoginWish("db", "user", ())
    for number in range(5000):
        front.remember_wish(b"%d" % number, wish, None)
    front.remember_wish(b"x" * 9000, wish, None)
    assert len(front.wishes) <= 256
    assert all(len(packet) <= 512 for packet in front.wishes)


def test_new_settings_forget_remembered_packets() -> None:
    """A packet judged by old rules is judged again."""
    front = Front(Config("x"))
    front.remember_wish(b"a", LoginWish("db", "user", ()), None)
    front.configure(Config("x"))
    assert front.wishes == {}


def test_a_key_that_only_shares_its_hash_is_not_the_key() -> None:
    """The hash finds, the comparison decides."""
    with Bench() as bench:
        talk = bench.login()
        front = bench.worker.front
        front.keys[hash(b"12345678")] = talk.conn
        assert front.find_key(b"12345678") is None


def test_no_key_outlives_its_session() -> None:
    """Keys of clients that have left take no memory."""
    with Bench() as bench:
        talk = bench.login()
        assert len(bench.worker.front.keys) == 1
        talk.gone()
        assert bench.worker.front.keys == {}

"""What a pool's clients are told."""

from __future__ import annotations

from pgshoal.policy.startup import TRACKED
from pgshoal.worker.records import Welcome
from pgshoal.worker.welcome import WelcomePlan

WELCOME = Welcome([("server_version", "18.1"), ("TimeZone", "UTC"), ("DateStyle", "ISO"), ("search_path", "public")])


def plan() -> WelcomePlan:
    """A plan of a transaction pool."""
    return WelcomePlan(WELCOME, "transaction", 7, TRACKED)


def test_what_the_server_did_not_report_is_not_told() -> None:
    """A tracked name without a value of the pool or the client is left out."""
    told, parameters = plan().told(())
    assert b"client_encoding" not in told
    assert parameters == (("DateStyle", "ISO"), ("TimeZone", "UTC"), ("search_path", "public"))


def test_a_clients_own_text_is_told_unchanged() -> None:
    """The client hears what it asked for, even if the server would spell it otherwise."""
    told, _ = plan().told((("DateStyle", "iso"), ("client_encoding", "latin1")))
    assert b"DateStyle\0iso\0" in told
    assert b"client_encoding\0latin1\0" in told


def test_remembered_answers_do_not_grow_without_bound() -> None:
    """Any number of different wishes, one plan, and each answer is right."""
    made = plan()
    for number in range(500):
        told, _ = made.told((("application_name", str(number)),))
        assert b"application_name\0%d\0" % number in told
    assert len(made._remembered) <= 64

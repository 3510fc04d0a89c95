"""Cancel requests between workers: the supervisor finds the seat and carries the answer back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from pgshoal.fleet.cancels import Cancels
from pgshoal.fleet.channel import Channel, Message
from pgshoal.fleet.children import Child
from pgshoal.policy.cancel import LONG_RANDOM, Stamp, long_key, short_key

NOBODY = {"reason": "failed cancel request"}
SENT = {"reason": "successfully sent cancel request"}
SECRET = b"s" * 32


class End:
    """A channel whose other end is the test."""

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[Message], None]] = {}
        self.asked: list[tuple[dict[str, Any], Callable[[Message | None], None]]] = []
        self.replies: list[dict[str, Any]] = []

    def on(self, verb: str, handler: Callable[[Message], None]) -> None:
        """Kept."""
        self.handlers[verb] = handler

    def ask(self, verb: str, done: Callable[[Message | None], None], fields: dict[str, Any]) -> int:
        """Kept until the test answers."""
        assert verb == "cancel"
        self.asked.append((fields, done))
        return len(self.asked)

    def reply(self, request: Message, fields: Mapping[str, Any]) -> None:
        """Kept."""
        self.replies.append(dict(fields))


class Fleet:
    """Workers by seat, and the part under test attached to each."""

    def __init__(self) -> None:
        self.ends: dict[int, End] = {}
        self.children: dict[int, Child] = {}
        self.moved: dict[int, list[int]] = {}  # by seat: the seats its clients went to
        self.cancels = Cancels(self)

    def start(self, seat: int, generation: int, ready: bool = True) -> None:
        """A worker that serves."""
        end = self.ends[seat] = End()
        child = Child(seat, seat, generation, 1000 + seat, cast(Channel, end), 0.0, ready)
        self.children[seat] = child
        self.cancels.attach(child)

    def heirs(self, seat: int) -> list[Child]:
        """As the supervisor."""
        return [self.children[other] for other in self.moved.get(seat, ())]

    def worker_for(self, seat: int) -> Child | None:
        """As the supervisor."""
        return self.children.get(seat)

    def say(self, seat: int, key: bytes) -> None:
        """A worker asks to have a key cancelled."""
        self.ends[seat].handlers["cancel"](Message("cancel", {"key": key.hex(), "id": 1}))


@pytest.fixture
def fleet() -> Fleet:
    """Seats 0 and 3, generations 1 and 4."""
    made = Fleet()
    made.start(0, 1)
    made.start(3, 4)
    return made


def key(seat: int, generation: int = 4, long: bool = False) -> bytes:
    """A key that a worker has given out."""
    return (long_key if long else short_key)(Stamp(0, seat, generation, SECRET), bytes(range(LONG_RANDOM)))


@pytest.mark.parametrize("long", [False, True])
def test_a_key_goes_to_its_seat_and_the_answer_comes_back(fleet: Fleet, long: bool) -> None:
    """The worker that asked hears nothing before the other has done it."""
    wanted = key(3, long=long)
    fleet.say(0, wanted)
    ((fields, done),) = fleet.ends[3].asked
    assert fields == {"key": wanted.hex()}
    assert fleet.ends[0].replies == []
    done(Message("", dict(SENT)))
    assert fleet.ends[0].replies == [SENT]


def test_a_worker_that_dies_meanwhile_has_cancelled_nothing(fleet: Fleet) -> None:
    """Whoever waits is told at once."""
    fleet.say(0, key(3))
    fleet.ends[3].asked[0][1](None)
    assert fleet.ends[0].replies == [NOBODY]


@pytest.mark.parametrize("seat", [0, 1, 126])
def test_free_seats_and_the_asker_itself_hear_nothing(fleet: Fleet, seat: int) -> None:
    """A key of a seat without a process is nobody's, nor is one that a worker does not know to be its own."""
    fleet.say(0, key(seat))
    assert fleet.ends[0].replies == [NOBODY]
    assert all(end.asked == [] for end in fleet.ends.values())


def test_a_long_key_of_the_process_before_is_not_passed_on(fleet: Fleet) -> None:
    """The seat has another generation by now."""
    fleet.say(0, key(3, generation=3, long=True))
    assert fleet.ends[0].replies == [NOBODY]
    assert fleet.ends[3].asked == []


def test_a_worker_that_still_boots_has_no_clients(fleet: Fleet) -> None:
    """It could not answer before it serves."""
    fleet.start(2, 5, ready=False)
    fleet.say(0, key(2))
    assert fleet.ends[0].replies == [NOBODY]


def test_bytes_that_are_no_key_of_ours(fleet: Fleet) -> None:
    """Nothing is passed on for them."""
    fleet.say(0, b"x" * 20)
    assert fleet.ends[0].replies == [NOBODY]


@pytest.mark.parametrize("long", [False, True])
def test_a_key_of_a_client_that_moved_is_looked_for_where_it_went(fleet: Fleet, long: bool) -> None:
    """First in its seat, then with those to whom clients of the seat went, until one of them knows it."""
    fleet.start(4, 9)
    fleet.start(5, 10)
    fleet.moved[3] = [4, 5]
    fleet.say(0, key(3, long=long))
    for seat in (3, 4):
        fleet.ends[seat].asked[0][1](Message("", dict(NOBODY)))
    assert fleet.ends[0].replies == []
    fleet.ends[5].asked[0][1](Message("", dict(SENT)))
    assert fleet.ends[0].replies == [SENT]


def test_a_client_may_have_moved_to_a_later_process_in_its_old_seat(fleet: Fleet) -> None:
    """Its long key was not made by that one, and is known there all the same."""
    fleet.moved[3] = [3]
    fleet.say(0, key(3, generation=2, long=True))
    fleet.ends[3].asked[0][1](Message("", dict(SENT)))
    assert fleet.ends[0].replies == [SENT]
    fleet.say(0, key(3))
    fleet.ends[3].asked[1][1](Message("", dict(NOBODY)))
    assert len(fleet.ends[3].asked) == 2
    assert fleet.ends[0].replies == [SENT, NOBODY]

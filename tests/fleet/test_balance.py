"""Who reads which letterbox, and who is told of it, whatever dies in which order."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pgshoal.fleet.balance import Letterboxes
from pgshoal.fleet.channel import Channel
from pgshoal.fleet.children import Child

if TYPE_CHECKING:
    from pgshoal.fleet.supervisor import Supervisor


class Recorder:
    """A channel that keeps what is sent, descriptors duplicated as the kernel does."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.fds: dict[tuple[str, int], int] = {}

    def send(self, verb: str, fields: Mapping[str, Any] | None = None, blob: bytes = b"", fd: int = -1) -> None:
        """Note it."""
        self.sent.append((verb, dict(fields or {})))
        if fd >= 0:
            key = (verb, int(self.sent[-1][1]["number"]))
            if key in self.fds:
                os.close(self.fds[key])
            self.fds[key] = os.dup(fd)

    def take(self, verb: str) -> list[Any]:
        """What was said with this verb since the last look: numbers, or the rows of the roster."""
        found = [next(iter(fields.values())) for said, fields in self.sent if said == verb]
        self.sent = [row for row in self.sent if row[0] != verb]
        return found


class Fleet:
    """Letterboxes and the workers around them."""

    def __init__(self, workers: int) -> None:
        self.boxes = Letterboxes(cast("Supervisor", SimpleNamespace(workers=workers)))
        self.recorders: list[Recorder] = []

    def start(self, number: int, seat: int, clients: int = 0) -> tuple[Child, Recorder]:
        """A worker that has become ready."""
        recorder = Recorder()
        self.recorders.append(recorder)
        child = Child(number, seat, seat + 1, 1000 + seat, cast("Channel", recorder), 0.0)
        child.vitals["clients"] = clients
        self.boxes.attach(child)
        self.boxes.is_ready(child)
        return child, recorder

    def close(self) -> None:
        """Give back every descriptor."""
        self.boxes.close()
        for recorder in self.recorders:
            for fd in recorder.fds.values():
                os.close(fd)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Three numbers."""
    made = Fleet(3)
    yield made
    made.close()


def test_each_worker_reads_its_own_box_and_can_write_into_all(fleet: Fleet) -> None:
    """A letter written into the slot of a number comes out of that number's box, in another process's hands."""
    _, first = fleet.start(0, 0)
    _, second = fleet.start(1, 1)
    assert first.take("slot") == second.take("slot") == [0, 1, 2]
    assert second.take("box") == [1]
    slot = socket.socket(fileno=os.dup(first.fds["slot", 1]))
    box = socket.socket(fileno=os.dup(second.fds["box", 1]))
    with slot, box:
        slot.send(b"t")
        slot.send(b"u")
        assert (box.recv(10), box.recv(10)) == (b"t", b"u")


def test_everybody_knows_who_serves(fleet: Fleet) -> None:
    """The roster names number, seat and process of those that are ready, and follows each change."""
    _, first = fleet.start(0, 5)
    second, _ = fleet.start(1, 3)
    assert first.take("roster") == [[[0, 5, 1005]], [[0, 5, 1005], [1, 3, 1003]]]
    fleet.boxes.died(second)
    assert first.take("roster") == [[[0, 5, 1005]]]


def test_boxes_of_numbers_without_a_process_are_read_by_another(fleet: Fleet) -> None:
    """The first worker reads all boxes until the others are there."""
    _, first = fleet.start(0, 0)
    assert first.take("box") == [0, 1, 2]
    fleet.start(2, 1)
    assert first.take("unbox") == [2]
    fleet.start(1, 2)
    assert first.take("unbox") == [1]


def test_the_box_of_a_dead_worker_goes_to_the_one_with_the_fewest_clients(fleet: Fleet) -> None:
    """Until its successor is ready; what was lent to the dead one finds another reader too."""
    _, first = fleet.start(0, 0, clients=9)
    second, _ = fleet.start(1, 1, clients=1)
    third, last = fleet.start(2, 2, clients=5)
    first.take("box")
    fleet.boxes.died(second)
    assert last.take("box") == [2, 1]
    fleet.boxes.died(third)
    assert sorted(first.take("box")) == [1, 2]
    fleet.start(1, 3)
    assert first.take("unbox")[-1] == 1


def test_a_successor_takes_the_box_from_its_predecessor(fleet: Fleet) -> None:
    """While a number has two processes the new one reads, lent boxes too; the end of the old one changes nothing."""
    old, before = fleet.start(1, 0)
    _, after = fleet.start(1, 1)
    assert before.take("unbox") == [1, 0, 2]
    assert after.take("box") == [1, 0, 2]
    after.take("roster")
    fleet.boxes.died(old)
    assert after.take("roster") == []
    assert after.take("box") == []


def test_letters_wait_while_nobody_is_there(fleet: Fleet) -> None:
    """When the last worker has died, what was handed over waits for the next one."""
    child, first = fleet.start(0, 0)
    with socket.socket(fileno=os.dup(first.fds["slot", 0])) as slot:
        slot.send(b"t")
    fleet.boxes.died(child)
    _, second = fleet.start(0, 1)
    with socket.socket(fileno=os.dup(second.fds["box", 0])) as box:
        assert box.recv(10) == b"t"


def test_a_lonely_worker_has_no_boxes() -> None:
    """With one worker there is nobody to hand to."""
    fleet = Fleet(1)
    _, only = fleet.start(0, 0)
    assert only.sent == []

"""Clients on their way between two processes of a number, as the supervisor sees it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pgshoal.fleet.channel import Message
from pgshoal.fleet.children import Child
from pgshoal.policy.cancel import Stamp, short_key
from tests.fleet.stage import Stage


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Stage]:
    """Two workers that do not end when they are told to drain."""
    made = Stage(monkeypatch, tmp_path, ["slow", "slow"])
    made.begin()
    yield made
    made.close()


def leave(stage: Stage, child: Child, fd: int = -1) -> None:
    """A worker says that a client goes."""
    key = short_key(Stamp(seat=child.seat), bytes(8))
    message = Message("move", {"key": key.hex(), "number": 5}, b"state", fd)
    stage.fleet.moves._move(child, message)


def restarted(stage: Stage) -> tuple[Child, Child]:
    """Worker 0 before and after."""
    old = stage.child(0)
    stage.fleet.restart(30, lambda wrong: None)
    stage.until(lambda: not stage.fleet.rolling.busy)
    return old, stage.child(0)


def test_it_goes_to_the_process_of_the_same_number(stage: Stage) -> None:
    """And its key is looked for there from now on."""
    old, new = restarted(stage)
    assert stage.fleet.heirs(old.seat) == []
    leave(stage, old)
    stage.until(lambda: "0 move" in stage.diary.read_text())
    assert stage.fleet.heirs(old.seat) == [new, old]
    assert stage.fleet.heirs(new.seat) == []


def test_the_descriptor_is_passed_on_and_not_kept(stage: Stage) -> None:
    """Nothing leaks, also when there is nobody to pass it to."""
    old, _ = restarted(stage)
    for _ in range(2):
        fd = os.memfd_create("client")
        leave(stage, old, fd)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
        for child in stage.fleet.children:
            child.ready = False
    assert stage.log.has("is lost: nobody serves")


def test_without_its_number_any_other_takes_it(stage: Stage) -> None:
    """Better there than nowhere."""
    old, new = restarted(stage)
    os.kill(new.pid, signal.SIGKILL)
    stage.until(lambda: new not in stage.fleet.children)
    leave(stage, old)
    assert stage.fleet.heirs(old.seat)[:1] == [stage.child(1)] or stage.serves(0, but=new)


def test_the_heirs_outlive_the_program(stage: Stage) -> None:
    """An upgrade takes them over."""
    old, new = restarted(stage)
    leave(stage, old)
    exported: Any = stage.fleet.moves.export()
    assert exported == {str(old.seat): [0]}
    stage.fleet.moves.adopt({})
    assert stage.fleet.heirs(old.seat) == []
    stage.fleet.moves.adopt(exported)
    assert stage.fleet.heirs(old.seat) == [new, old]


def test_a_client_that_moved_twice_may_still_be_on_its_second_way(stage: Stage) -> None:
    """While the process in between drains, keys of the first are looked for there too, but later."""
    stage.parts = ["slow"] * 4
    old, middle = restarted(stage)
    leave(stage, old)
    _, new = restarted(stage)
    assert middle in stage.fleet.children
    # Whoever has the number now comes first; that the old seat is still taken does not matter.
    assert stage.fleet.heirs(old.seat) == [new, old, middle]

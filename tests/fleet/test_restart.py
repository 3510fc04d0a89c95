"""The rolling restart: number by number, new before old, and what stops it."""

from __future__ import annotations

import os
import signal

import pytest

from pgshoal.fleet import rolling
from tests.fleet.conftest import MakeStage
from tests.fleet.stage import Stage


def restart(stage: Stage, deadline_s: float | None = 5) -> list[str]:
    """Begin one; what it said at its end comes into the list."""
    said: list[str] = []
    stage.fleet.restart(deadline_s, said.append)
    return said


def test_each_new_process_serves_before_the_old_one_drains(begun: MakeStage) -> None:
    """One number after the other; nobody else is touched, and it is over when all numbers are served anew."""
    stage = begun(workers=3)
    old = [stage.child(number) for number in range(3)]
    said = restart(stage)
    stage.until(lambda: bool(said))
    assert said == [""]
    assert not set(old) & {post.child for post in stage.fleet.posts}
    stage.until(lambda: len(stage.fleet.children) == 3)
    lines = [line for line in stage.told() if line.endswith(("go", "drain"))][3:]
    assert [line for line in lines if "go" in line] == ["0 go", "1 go", "2 go"]
    for number in range(3):
        assert lines.index(f"{number} go") < lines.index(f"{number} drain")
    assert not any("died" in line for line in stage.log.lines)
    assert [post.restarts for post in stage.fleet.posts] == [0, 0, 0]


def test_two_processes_of_a_number_have_two_seats_and_the_same_sockets(begun: MakeStage) -> None:
    """While the old one drains; its seat is free again after that."""
    stage = begun("slow", workers=1)
    old = stage.child(0)
    said = restart(stage)
    stage.until(lambda: bool(said))
    assert len(stage.fleet.children) == 2
    assert old.draining
    assert stage.child(0).seat != old.seat
    assert stage.told().count("0 listen 1") == 2
    assert stage.fleet.others(None) == [old, stage.child(0)]


@pytest.mark.parametrize("part", ["exit 3", "mute"])
def test_a_new_process_that_does_not_come_up_stops_it(
    begun: MakeStage, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """The old ones go on as they are, and whoever asked is told."""
    stage = begun("good", "good", part)
    old = [stage.child(0), stage.child(1)]
    with monkeypatch.context() as impatient:
        impatient.setattr(rolling, "START_LIMIT_S", 0.5)
        said = restart(stage)
        stage.until(lambda: bool(said))
    assert said == ["worker 0 could not be started again; the others were left as they are"]
    assert [stage.child(0), stage.child(1)] == old
    assert not any("drain" in line for line in stage.told())
    again = restart(stage)
    stage.until(lambda: bool(again))
    assert again == [""]


def test_only_one_at_a_time(begun: MakeStage) -> None:
    """A second is refused, and does not harm the first."""
    stage = begun()
    first, second = restart(stage), restart(stage)
    assert second == ["a restart is under way"]
    stage.until(lambda: bool(first))
    assert first == [""]


def test_the_old_process_may_die_before_the_new_one_serves(begun: MakeStage) -> None:
    """Then there is nothing to drain; the number has one process, not two."""
    stage = begun(workers=2)
    old = stage.child(0)
    said = restart(stage)
    os.kill(old.pid, signal.SIGKILL)
    stage.until(lambda: bool(said))
    assert said == [""]
    stage.until(lambda: len(stage.fleet.children) == 2)
    assert sorted(child.number for child in stage.fleet.children) == [0, 1]


def test_both_processes_of_a_number_may_die(begun: MakeStage) -> None:
    """The number is served again all the same."""
    stage = begun("good", "good", "mute", workers=2)
    old = stage.child(0)
    said = restart(stage)
    stage.until(lambda: stage.told().count("0 go") == 2)
    new = stage.fleet.posts[0].successor
    assert new is not None
    os.kill(old.pid, signal.SIGKILL)
    stage.until(lambda: old not in stage.fleet.children)
    os.kill(new.pid, signal.SIGKILL)
    stage.until(lambda: stage.serves(0))
    assert said == ["worker 0 could not be started again; the others were left as they are"]


def test_a_shutdown_ends_it(begun: MakeStage) -> None:
    """Nobody is started any more."""
    stage = begun("good", "good", "mute")
    said = restart(stage)
    stage.fleet.shutdown("clients")
    assert said == ["the fleet is shutting down"]
    late = restart(stage)
    assert late == ["the fleet is starting or shutting down"]


def test_without_a_free_seat_it_waits(begun: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of dead workers may still be awaited; that has a limit too."""
    monkeypatch.setattr(rolling, "SEAT_PAUSE_S", 0.01)
    monkeypatch.setattr(rolling, "START_LIMIT_S", 0.3)
    stage = begun(workers=1)
    monkeypatch.setattr(stage.fleet.ledger, "free", lambda seat: False)
    said = restart(stage)
    stage.until(lambda: bool(said))
    assert said == ["worker 0 could not be started again"]


def test_a_new_process_that_comes_up_after_the_restart_was_stopped(begun: MakeStage) -> None:
    """The fleet begins to shut down meanwhile: the process takes over all the same, as clients may be on their way."""
    stage = begun(workers=1)
    old = stage.child(0)
    said = restart(stage)
    stage.fleet.rolling.stop()
    assert said == ["the fleet is shutting down"]
    stage.until(lambda: stage.child(0) is not old)
    stage.until(lambda: old not in stage.fleet.children)
    assert not any("garbage" in line for line in stage.log.lines)

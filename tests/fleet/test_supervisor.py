"""The supervisor: workers start, die, hang and lie; the fleet goes on, or ends as told."""

from __future__ import annotations

import os
import signal

import pytest

from pgshoal.fleet import pulse, signals
from pgshoal.fleet import supervisor as module
from tests.fleet.conftest import MakeStage


def test_every_number_gets_a_process_with_its_own_sockets(make: MakeStage) -> None:
    """Boot, sockets, go; the fleet is up once, when all serve."""
    stage = make(workers=3)
    stage.begin()
    assert stage.ups == 1
    assert [child.number for child in stage.fleet.children] == [0, 1, 2]
    assert len({child.seat for child in stage.fleet.children}) == 3
    assert sorted(stage.told()) == sorted(line for n in range(3) for line in (f"{n} go", f"{n} listen {n + 1}"))


def test_a_dead_worker_is_replaced(make: MakeStage) -> None:
    """The log says who and how; the new process has another seat or generation, so that no cancel key fits it."""
    stage = make()
    stage.begin()
    old = stage.child(1)
    old.started_s -= 10
    os.kill(old.pid, signal.SIGKILL)
    stage.until(lambda: stage.serves(1, but=old))
    new = stage.child(1)
    assert new.generation > old.generation
    assert f"worker 1 (pid {old.pid}) died: signal 9 (SIGKILL)" in stage.log.lines
    assert f"worker 1 is started again, pid {new.pid}" in stage.log.lines
    assert stage.fleet.posts[1].restarts == 1
    assert stage.ups == 1


def test_sockets_of_a_dead_worker_are_lent_and_taken_back(make: MakeStage) -> None:
    """The worker with the fewest clients accepts from them until the new process serves."""
    stage = make(workers=3)
    stage.begin()
    stage.until(lambda: all(child.vitals for child in stage.fleet.children))
    os.kill(stage.child(1).pid, signal.SIGKILL)
    stage.until(lambda: "0 unlend 2" in stage.told())
    lines = stage.told()
    assert lines.index("0 lend 2") < len(lines) - 1 - lines[::-1].index("1 go") < lines.index("0 unlend 2")


def test_a_borrower_that_dies_passes_it_on(make: MakeStage) -> None:
    """A socket never stays without a worker while there is one."""
    stage = make("good", "good", "good", "mute", "mute", workers=3)
    stage.begin()
    stage.until(lambda: all(child.vitals for child in stage.fleet.children))
    os.kill(stage.child(1).pid, signal.SIGKILL)
    stage.until(lambda: "0 lend 2" in stage.told())
    os.kill(stage.child(0).pid, signal.SIGKILL)
    stage.until(lambda: {"2 lend 1", "2 lend 2"} <= set(stage.told()))


def test_nobody_to_lend_to_is_made_good_later(make: MakeStage) -> None:
    """If all die, the first that serves again accepts for those that do not yet."""
    stage = make("good", "good", "good", "mute")
    stage.begin()
    for child in list(stage.fleet.children):
        child.started_s -= 10
        os.kill(child.pid, signal.SIGKILL)
    stage.until(lambda: any(" lend " in line for line in stage.told()))


def test_a_worker_that_dies_young_is_waited_for(make: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause doubles up to its bound, and is forgotten when one has lived."""
    monkeypatch.setattr(module, "PAUSE_FIRST_S", 0.01)
    monkeypatch.setattr(module, "PAUSE_MAX_S", 0.04)
    stage = make("good", "good", "brief", "exit 3", "exit 1", "brief")
    stage.begin()
    stage.child(0).started_s -= 10
    os.kill(stage.child(0).pid, signal.SIGKILL)
    stage.until(lambda: stage.fleet.posts[0].restarts == 5 and stage.fleet.posts[0].child is not None)
    pauses = [line.rsplit(" in ", 1)[1] for line in stage.log.lines if "is started again in" in line]
    assert pauses == ["0.01 s", "0.02 s", "0.04 s", "0.04 s"]
    stage.until(lambda: stage.serves(0))
    stage.child(0).started_s -= 10
    os.kill(stage.child(0).pid, signal.SIGKILL)
    stage.until(lambda: stage.fleet.posts[0].restarts == 6)
    assert stage.fleet.posts[0].pause_s == 0


@pytest.mark.parametrize("code", [1, 3])
def test_a_worker_that_cannot_boot_ends_the_first_start(make: MakeStage, code: int) -> None:
    """The fleet exits with 1; the worker's own log has said why."""
    stage = make("good", f"exit {code}")
    stage.fleet.begin()
    assert stage.run() == 1
    assert "worker 1 failed to start, exiting" in stage.log.lines
    assert stage.ups == 0


def test_a_kill_during_the_first_start_is_no_failure(make: MakeStage) -> None:
    """Somebody's kill -9 costs a worker, not the fleet."""
    stage = make("mute")
    stage.fleet.begin()
    stage.until(lambda: "0 go" in stage.told())
    os.kill(stage.child(0).pid, signal.SIGKILL)
    stage.until(lambda: stage.fleet.up)


def test_a_program_that_cannot_be_executed_ends_the_start(make: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason of the system."""
    stage = make()

    def refuse(*facts: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module, "spawn", refuse)
    stage.fleet.begin()
    assert stage.run() == 1
    assert any("Permission denied" in line for line in stage.log.lines)


def test_a_worker_that_does_not_answer_is_killed(make: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is stopped, or hangs, or never comes up, makes room for another."""
    monkeypatch.setattr(pulse, "PERIOD_S", 0.05)
    monkeypatch.setattr(pulse, "SILENCE_MAX_S", 1)
    stage = make("good", "deaf", "mute")
    stage.fleet.begin()
    hung = stage.child(1)
    stage.until(lambda: stage.fleet.posts[1].restarts == 2 and stage.serves(1))
    silent = [line for line in stage.log.lines if "has not answered" in line]
    assert len(silent) == 2
    assert f"(pid {hung.pid})" in silent[0]
    assert stage.fleet.posts[0].restarts == 0


GARBAGE = [
    "babbles 000000040000000000" + b"nope".hex(),
    "babbles ffffffffffffffffff",
    'says empty {"full": 1}',
    'says ready {}',
    'says bury {"server": "x"}',
    'says escrow {}',
    'says gather {"id": 1}',
    'says act {"id": "x"}',
    'says welcome {"database": 5}',
    'says totals {"databases": 7}',
    'says cancel {"id": 1, "key": "zz"}',
    'says ask {"id": 1}',
]  # fmt: skip


@pytest.mark.parametrize("part", GARBAGE)
def test_a_worker_that_sends_garbage_is_killed_and_replaced(make: MakeStage, part: str) -> None:
    """The supervisor and the other worker do not suffer."""
    stage = make("good", part)
    stage.fleet.begin()
    liar = stage.child(1)
    stage.until(lambda: stage.serves(1, but=liar))
    assert any(f"(pid {liar.pid}) sent garbage, killing it" in line for line in stage.log.lines)
    assert stage.fleet.posts[0].restarts == 0


def test_stop_ends_all_at_once(make: MakeStage) -> None:
    """Each is told, and each has ended before the fleet does."""
    stage = make()
    stage.begin()
    signals.quit_now(stage.fleet)
    assert stage.run() == 0
    assert {"0 stop", "1 stop"} <= set(stage.told())
    assert not any("died" in line for line in stage.log.lines)


def test_a_worker_that_does_not_end_is_killed(make: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody holds up the end."""
    monkeypatch.setattr(module, "END_LIMIT_S", 0.2)
    stage = make("good", "stubborn")
    stage.begin()
    stage.fleet.stop(0)
    assert stage.run() == 0


def test_a_shutdown_waits_until_all_are_empty(make: MakeStage) -> None:
    """TCP sockets are closed at once; nobody is replaced meanwhile."""
    stage = make()
    stage.begin()
    stage.fleet._is_empty(stage.child(0), True)
    signals.terminate(stage.fleet)
    assert stage.fleet.sockets.all == []
    assert stage.fleet.exit_code is None
    assert stage.run() == 0
    assert "client connections dropped, exiting" in stage.log.lines


def test_a_death_may_complete_a_shutdown(make: MakeStage) -> None:
    """Who is dead has no clients."""
    stage = make("good", "good")
    stage.begin()
    os.kill(stage.child(1).pid, signal.SIGSTOP)
    signals.interrupt(stage.fleet)
    stage.until(lambda: stage.child(0) in stage.fleet._empty)
    assert stage.fleet.exit_code is None
    os.kill(stage.child(1).pid, signal.SIGKILL)
    assert stage.run() == 0
    assert stage.fleet.posts[1].restarts == 0


def test_term_twice_does_not_wait(make: MakeStage) -> None:
    """First patience, then the end; so with any two of TERM and INT."""
    for first, second in ((signals.terminate, signals.terminate), (signals.interrupt, signals.terminate)):
        stage = make()
        stage.begin()
        for child in stage.fleet.children:
            os.kill(child.pid, signal.SIGSTOP)
        first(stage.fleet)
        assert stage.fleet.exit_code is None
        second(stage.fleet)
        assert stage.fleet.exit_code == 0
        for child in stage.fleet.children:
            os.kill(child.pid, signal.SIGCONT)
        stage.run()
        assert "got SIGTERM while shutting down, fast exit" in stage.log.lines


def test_pause_and_resume_by_signal(make: MakeStage) -> None:
    """PAUSE and RESUME, and what is said when there is nothing to do."""
    stage = make(workers=1)
    stage.begin()
    for action in (signals.resume, signals.pause, signals.pause):
        action(stage.fleet)
    assert stage.fleet.state["paused"]
    signals.resume(stage.fleet)
    assert not stage.fleet.state["paused"]
    wanted = ["got SIGUSR2, but not paused", "got SIGUSR1, pausing all activity",
              "got SIGUSR1, but already paused", "got SIGUSR2, continuing from PAUSE"]  # fmt: skip
    assert [line for line in stage.log.lines if line.startswith("got SIGUSR")] == wanted
    os.kill(stage.child(0).pid, signal.SIGSTOP)
    signals.terminate(stage.fleet)
    signals.resume(stage.fleet)
    assert "got SIGUSR2 while shutting down, ignoring" in stage.log.lines


def test_a_failed_reload_changes_nothing(make: MakeStage) -> None:
    """SIGHUP with an unreadable file is only logged."""
    stage = make(workers=1)
    stage.begin()
    before = stage.fleet.config
    signals.hangup(stage.fleet)
    assert stage.fleet.config is before
    assert stage.log.has("got SIGHUP, re-reading config")
    assert stage.log.has("config file loading failed")


def test_a_part_that_fails_does_not_stop_the_replacement(make: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is logged; the number gets its process, and the other parts are told."""
    stage = make()
    stage.begin()

    def fail(child: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(stage.fleet.undertaker, "died", fail)
    monkeypatch.setattr(stage.fleet.letterboxes, "is_ready", fail)
    told: list[object] = []
    monkeypatch.setattr(stage.fleet.relay, "died", told.append)
    old = stage.child(0)
    os.kill(old.pid, signal.SIGKILL)
    stage.until(lambda: stage.serves(0, but=old))
    assert told == [old]
    assert sum("internal error in the supervisor" in line for line in stage.log.lines) == 2

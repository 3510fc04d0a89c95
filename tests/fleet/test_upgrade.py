"""An upgrade up to the exec: the trial, what is handed over, and taking it over, in one process."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pgshoal.config.load import load
from pgshoal.config.model import Config, Secret
from pgshoal.fleet import takeover, upgrade
from pgshoal.fleet.supervisor import Supervisor
from pgshoal.fleet.takeover import CannotTakeOver, Estate
from tests.fleet.conftest import MakeStage
from tests.fleet.stage import Stage


def handed_over(stage: Stage) -> Estate:
    """Through the memfd, as the next program reads it."""
    fd = takeover.write(upgrade.export(stage.fleet))
    found = takeover.inherited({takeover.TAKE_OVER: str(fd)})
    assert found is not None
    return found


def taken_over(stage: Stage, estate: Estate) -> Supervisor:
    """The next supervisor, which the stage has from then on."""
    before = stage.fleet
    for child in before.children:
        stage.loop.remove_reader(child.pidfd)
        os.close(child.pidfd)
        stage.loop.remove_reader(child.channel.fileno())
        child.channel._sock.detach()
    for listening in before.sockets.all:
        listening.sock.detach()
    for pair in before.letterboxes._pairs:
        for sock in pair:
            sock.detach()
    before.pulse.close()
    before.ledger.close()
    stage.fleet = Supervisor(before.config, stage.log, stage.loop, estate=estate)
    upgrade.adopt(stage.fleet, estate)
    stage.fleet.pulse.begin()
    return stage.fleet


def test_everything_goes_on_where_it_was(begun: MakeStage) -> None:
    """Children, seats, sockets, state and secrets are the same; the workers notice nothing."""
    stage = begun(workers=2)
    stage.fleet.relay.order("DISABLE", "app", lambda result: None)
    stage.fleet.state["paused"] = True
    before = upgrade.export(stage.fleet)
    fleet = taken_over(stage, handed_over(stage))
    after = upgrade.export(fleet)
    for state in (before, after):
        for child in state["children"]:
            del child["age_s"], child["vitals"], child["channel"]["number"]
    assert after == before
    assert fleet.is_whole()
    assert [one.name for one in fleet.sockets.of(0)] == [f"127.0.0.1:{fleet.config.settings.listen_port}"]
    stage.until(lambda: all(child.silent_s == 0 and child.vitals for child in fleet.children))


def test_workers_are_reaped_and_replaced_after_it(begun: MakeStage) -> None:
    """They are still our children, and a restart goes through."""
    stage = begun(workers=2)
    fleet = taken_over(stage, handed_over(stage))
    old = {child.pid for child in fleet.children}
    said: list[str] = []
    fleet.restart(1, said.append)
    stage.until(lambda: bool(said) and len(fleet.children) == 2)
    assert said == [""]
    assert not old & {child.pid for child in fleet.children}
    assert min(child.generation for child in fleet.children) > 2


def test_requests_under_way_are_answered(begun: MakeStage) -> None:
    """A console that waits is told that it was not reached; half a message is completed by the next program."""
    stage = begun('says act {"id": 7, "command": "PAUSE", "argument": ""}', workers=1)
    child = stage.child(0)
    stage.until(lambda: child.channel.owes == 1)
    child.channel._in += b"\0\0\0\x10"
    state = upgrade.export(stage.fleet)["children"][0]["channel"]
    assert (state["owed"], state["in"]) == ([7], "00000010")
    child.channel._in.clear()
    taken_over(stage, handed_over(stage))
    stage.until(lambda: "0  7 False" in stage.diary.read_text())


def test_what_nobody_could_take_over_is_not_begun(begun: MakeStage) -> None:
    """While a worker is missing, or another upgrade or restart is under way."""
    stage = begun(workers=1)
    said: list[str] = []
    stage.fleet.posts[0].child.ready = False  # type: ignore[union-attr]
    stage.fleet.upgrade(said.append)
    stage.child(0).ready = True
    stage.fleet.restart(1, lambda wrong: None)
    stage.fleet.upgrade(said.append)
    assert said == [
        "the fleet is starting, shutting down, or without one of its workers",
        "an upgrade or restart is under way",
    ]


# -- the trial


@pytest.mark.parametrize(
    ("program", "wrong"),
    [
        ("pass", ""),
        ("sys.exit('it is too old')", "it is too old"),
        ("sys.exit(4)", "it ended with status 4"),
        ("os.kill(os.getpid(), 9)", "it ended with status -9"),
        ("raise ImportError('no such module')", "ImportError: no such module"),
        (f"assert os.fstat(int(os.environ[{takeover.TRY!r}])).st_size > 100", ""),
    ],
)
def test_the_new_program_is_tried_first(
    begun: MakeStage, monkeypatch: pytest.MonkeyPatch, program: str, wrong: str
) -> None:
    """It gets the state, and its last line says what is wrong; the exec comes only after it was content."""
    stage = begun(workers=1)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-c", f"import os, sys\n{program}"])
    executed: list[bool] = []
    monkeypatch.setattr(stage.fleet.upgrading, "_execute", lambda: executed.append(True))
    said: list[str] = []
    stage.fleet.upgrade(said.append)
    assert stage.fleet.upgrading.busy
    stage.until(lambda: bool(said))
    assert said == ([""] if not wrong else [f"the new program cannot take over: {wrong}"])
    assert executed == ([True] if not wrong else [])
    assert stage.fleet.upgrading.busy == (not wrong)
    assert stage.fleet.assistants == set()
    stage.fleet.upgrading.busy = False


def test_a_trial_that_hangs_is_killed(begun: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fleet does not wait for ever."""
    stage = begun(workers=1)
    monkeypatch.setattr(upgrade, "TRY_LIMIT_S", 0.2)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-c", "import time; time.sleep(60)"])
    said: list[str] = []
    stage.fleet.upgrade(said.append)
    stage.until(lambda: bool(said))
    assert said == ["the new program cannot take over: it ended with status -9"]


def test_an_exec_that_fails_leaves_all_as_it_was(begun: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The descriptors close at exec again, and signals are heard."""
    stage = begun(workers=1)

    def refuse(*facts: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "execve", refuse)
    stage.fleet.upgrading._execute()
    assert stage.log.has("Permission denied")
    assert not os.get_inheritable(stage.child(0).channel.fileno())
    assert not os.get_inheritable(stage.fleet.ledger.fd)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
    assert stage.fleet.is_whole()


# -- the estate


def test_the_variables_are_not_left_for_workers() -> None:
    """Nor is the memfd."""
    fd = takeover.write({"a": 1})
    environment = {takeover.TRY: str(fd), "OTHER": "x"}
    found = takeover.inherited(environment)
    assert found is not None
    assert (found["a"], found.tried, environment) == (1, True, {"OTHER": "x"})
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    assert takeover.inherited({}) is None


def test_a_state_of_another_format() -> None:
    """Said before anything is touched."""
    fd = os.memfd_create("state")
    os.write(fd, json.dumps({"format": takeover.FORMAT + 1}).encode())
    with pytest.raises(CannotTakeOver, match="not 2"):
        takeover.inherited({takeover.TAKE_OVER: str(fd)})


def test_a_ledger_of_another_version() -> None:
    """The shared memory must be understood too."""
    fd = os.memfd_create("ledger")
    os.ftruncate(fd, 1 << 24)
    try:
        with pytest.raises(CannotTakeOver, match="no ledger of version"):
            takeover.attempt(Estate({"ledger": fd, "bells": [0, 1]}, True))
    finally:
        os.close(fd)


def test_secrets_stay_if_the_file_is_broken(begun: MakeStage, tmp_path: Path) -> None:
    """The new program and its workers let the same users in as the old ones."""
    stage = begun(workers=2)
    secrets = {"al\udcff": Secret("plain", "geheim")}
    stage.fleet.config = replace(stage.fleet.config, secrets=secrets)
    estate = handed_over(stage)
    file = tmp_path / "p.ini"
    file.write_text(f"[pgbouncer]\nauth_type = md5\nauth_file = {tmp_path}/nope.txt\n")
    assert upgrade.fitting(load(str(file)), estate).secrets == secrets
    (tmp_path / "nope.txt").write_text('"bob" "x"')
    assert list(upgrade.fitting(load(str(file)), estate).secrets) == ["bob"]


def test_settings_that_belong_to_the_sockets_stay(begun: MakeStage) -> None:
    """What the file says of them now changes only at a restart of the whole."""
    stage = begun(workers=2)
    estate = handed_over(stage)
    fresh = upgrade.fitting(Config("other.ini"), estate)
    assert fresh.settings.workers == 2
    assert fresh.settings.listen_addr == ("127.0.0.1",)
    assert fresh.settings.listen_port == stage.fleet.config.settings.listen_port

"""Commands that wait: who is answered, when, and what a cancel request or a lost session does."""

from __future__ import annotations

import pytest

from tests.console.desk import Desk, ask, busy, tag, words
from tests.support import messages as m
from tests.support.fakeclient import Message
from tests.worker.stub import Talk


def test_pause_without_servers_answers_at_once() -> None:
    """PAUSE, RESUME and their refusals."""
    with Desk() as desk:
        talk = desk.session()
        assert tag(talk, "pause") == "PAUSE"
        assert ("pause_pool", desk.pool().id, True) in desk.engine.calls
        for text in ("pause", "pause app", "pause nix", "pause pgbouncer", "kill", "kill app", "kill pgbouncer"):
            assert tag(talk, text) == "already paused"
        assert tag(talk, "resume app") == "database app is not paused"
        assert tag(talk, "resume") == "RESUME"
        assert tag(talk, "resume") == "pooler is not paused"


def test_pause_of_a_database() -> None:
    """It may be repeated, stands beside the global one, and needs its own RESUME."""
    with Desk() as desk:
        talk = desk.session()
        assert [tag(talk, text) for text in ("pause app", "pause app", "pause", "resume")] == [
            "PAUSE",
            "PAUSE",
            "PAUSE",
            "RESUME",
        ]
        assert desk.worker.pools.databases["app"].paused
        assert tag(talk, "resume app") == "RESUME"
        assert tag(talk, "resume app") == "database app is not paused"


@pytest.mark.parametrize("text", ["pause", "pause app"])
def test_pause_waits_for_busy_servers(text: str) -> None:
    """The answer comes when the last server is gone, and the session hears nothing else meanwhile."""
    with Desk() as desk:
        server, talk = busy(desk), desk.session()
        desk.engine.calls.clear()
        assert ask(talk, text) == []
        assert not [call for call in desk.engine.calls if call[:2] == ("proceed", talk.conn)]
        desk.worker.servers.gone(server, "pause mode")
        complete, ready = talk.messages()
        assert (words(complete), ready) == ("PAUSE", Message("Z", b"I"))
        assert tag(talk, "show version") == "SHOW"


def test_waiters_are_answered_for_their_own_command_only() -> None:
    """A pause that is reached, and dirty servers that are gone, answer nobody who waits for something else."""
    with Desk() as desk:
        app, other = busy(desk), desk.server(desk.welcome("forced", "alice"))
        other.close_needed = True
        waiting = [desk.session() for _ in range(3)]
        for talk, text in zip(waiting, ("pause app", "pause forced", "wait_close"), strict=True):
            assert ask(talk, text) == []
        desk.worker.servers.gone(app, "pause mode")
        assert [len(talk.messages()) for talk in waiting] == [2, 0, 0]
        desk.worker.servers.gone(other, "close_needed")
        assert [words(talk.messages()[0]) for talk in waiting[1:]] == ["PAUSE", "WAIT_CLOSE"]


def test_wait_close_leaves_no_trace() -> None:
    """A PAUSE after a finished WAIT_CLOSE waits as any other."""
    with Desk() as desk:
        busy(desk)
        talk = desk.session()
        assert tag(talk, "wait_close app") == "WAIT_CLOSE"
        assert ask(talk, "pause app") == []


def cancel(desk: Desk, talk: Talk) -> None:
    """A cancel request for a console session."""
    key = desk.worker.front.consoles[talk.conn].cancel_key
    desk.accept().packet(m.cancel_request(key))


@pytest.mark.parametrize("text", ["pause", "pause app"])
def test_a_cancelled_pause_is_taken_back_and_answered(text: str) -> None:
    """The pooler works again, and the session may go on."""
    with Desk() as desk:
        busy(desk)
        talk = desk.session()
        ask(talk, text)
        cancel(desk, talk)
        error, ready = talk.messages()
        fields = m.error_fields(error.payload)
        assert (fields["S"], fields["C"], fields["M"]) == ("ERROR", "57014", "PAUSE was interrupted")
        assert ready.payload == b"I"
        assert not desk.worker.pause.everything
        assert not desk.worker.pools.databases["app"].paused
        assert desk.worker.pause.waiters == []
        assert tag(talk, "show version") == "SHOW"


def test_a_cancelled_wait_close_changes_nothing_else() -> None:
    """Whoever waits for replaced servers and gives up does not end a pause that others made."""
    with Desk() as desk:
        busy(desk).close_needed = True
        desk.worker.pause.everything = True
        talk = desk.session()
        ask(talk, "wait_close")
        cancel(desk, talk)
        assert words(talk.messages()[0]) == "WAIT_CLOSE was interrupted"
        assert desk.worker.pause.everything
        assert desk.worker.pause.waiters == []


def test_a_cancel_that_comes_too_late_is_a_resume() -> None:
    """The PAUSE was done a moment before: it is taken back all the same, unless a shutdown needs it."""
    with Desk() as desk:
        talk = desk.session()
        tag(talk, "pause")
        desk.worker.shutdown = "servers"
        cancel(desk, talk)
        assert desk.worker.pause.everything
        desk.worker.shutdown = ""
        cancel(desk, talk)
        assert not desk.worker.pause.everything
        assert "admin cancel request for non-waiting client?" in desk.log.texts()
        assert talk.messages() == []


def test_a_resume_by_another_ends_the_wait() -> None:
    """Both sessions are answered."""
    with Desk() as desk:
        busy(desk)
        first, second = desk.session(), desk.session()
        ask(first, "pause")
        assert tag(second, "resume") == "RESUME"
        assert words(first.messages()[0]) == "PAUSE was interrupted"


def test_a_session_that_leaves_keeps_its_pause() -> None:
    """Nobody is answered when it is reached."""
    with Desk() as desk:
        server, talk = busy(desk), desk.session()
        ask(talk, "pause")
        talk.gone()
        assert desk.worker.pause.waiters == []
        assert desk.worker.pause.everything
        desk.worker.servers.gone(server, "pause mode")
        assert talk.messages() == []

"""What stands in the fleet: which command fits to it, and what a late worker has missed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.policy.standing import ACTIONS, REGISTERS, Standing


def judge(standing: Standing, text: str, known: bool = True) -> str:
    """The refusal of `PAUSE app`; pgbouncer is the console's database."""
    command, _, database = text.partition(" ")
    return standing.judge(command, database, database == "pgbouncer", known)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("PAUSE", ""),
        ("RESUME", "not_paused"),
        ("RESUME app", "database_not_paused"),
        ("RESUME pgbouncer", "database_not_paused"),
        ("PAUSE pgbouncer", "cannot_touch_admin_db"),
        ("ENABLE", "database_required"),
        ("DISABLE", "database_required"),
        ("ENABLE app", ""),
        ("RECONNECT", ""),
        ("KILL app", ""),
    ],
)
def test_nothing_stands(text: str, refusal: str) -> None:
    """What an idle fleet says."""
    assert judge(Standing({}), text) == refusal


@pytest.mark.parametrize("text", ["PAUSE", "PAUSE app", "PAUSE nix", "PAUSE pgbouncer", "KILL", "KILL app"])
def test_paused_comes_first(text: str) -> None:
    """Whatever else is wrong with it; a shutdown that waits for servers is a PAUSE too."""
    for facts in ({"paused": True}, {"shutdown": "servers"}):
        assert judge(Standing(facts), text, known=False) == "already_paused"
    assert judge(Standing({"shutdown": "clients"}), "PAUSE") == ""


def test_a_shutdown_is_not_resumed() -> None:
    """But single databases are."""
    standing = Standing({"shutdown": "clients", "paused": True, "paused_databases": ["app"]})
    assert judge(standing, "RESUME") == "console_shutting_down"
    assert judge(standing, "RESUME app") == ""


@pytest.mark.parametrize("command", [name for name in ACTIONS if name != "PAUSE"])
def test_unknown_names(command: str) -> None:
    """Are named as such by every command that takes one."""
    assert judge(Standing({}), f"{command} nix", known=False) == "console_no_such_database"


def test_kill_pauses_what_it_meets() -> None:
    """All databases there are, each to be resumed by its name."""
    standing = Standing({})
    standing.record("KILL", "", ["a", "b"])
    assert standing.facts["paused_databases"] == ["a", "b"]
    assert not standing.everything_paused
    standing.record("RESUME", "a", ())
    assert standing.facts["paused_databases"] == ["b"]
    standing.forget(["b", "c"])
    assert standing.facts["paused_databases"] == []


_STEPS = st.lists(st.tuples(st.sampled_from([*ACTIONS]), st.sampled_from(["", "a", "b"])), max_size=12)


@given(before=_STEPS, after=_STEPS)
def test_a_late_worker_catches_up(before: list[tuple[str, str]], after: list[tuple[str, str]]) -> None:
    """Booted with the state of one moment and told what it has missed, it stands as the fleet does."""
    standing = Standing({})
    for command, database in before:
        _try(standing, command, database)
    late = Standing(json.loads(json.dumps(standing.facts)))
    then = standing.copy()
    for command, database in after:
        _try(standing, command, database)
    for command, database in standing.missed(then):
        late.record(command, database, ())
    assert _sorted(late.facts) == _sorted(standing.facts)


def _try(standing: Standing, command: str, database: str) -> None:
    if not standing.judge(command, database, console=False, known=True):
        standing.record(command, database, ["a", "b"])


def _sorted(facts: Any) -> dict[str, Any]:
    return {name: sorted(value) if isinstance(value, list) else value for name, value in facts.items()}


def test_what_undoes_makes_no_entries() -> None:
    """RESUME and ENABLE do not register what only `*` knows."""
    assert ACTIONS.keys() - REGISTERS == {"RESUME", "ENABLE"}

"""PostgreSQL's programs are found in the wheel and on the system, by version."""

from __future__ import annotations

import pytest

from pgshoal.demo import programs
from pgshoal.demo.account import can_run, unprivileged


def test_the_wheel_holds_postgresql_18() -> None:
    """The embedded programs are the newest of the wheel, and the unprivileged account can run them."""
    account = unprivileged()
    found = programs.embedded(account)
    assert found.major == 18
    assert all(can_run(found[name], account) for name in programs.NEEDED)


def test_the_system_has_postgresql() -> None:
    """The system's programs know their own version."""
    found = programs.system()
    assert programs.major_of(found["postgres"]) == found.major


def test_a_missing_version_is_named() -> None:
    """The error says which version is missing and where we looked."""
    with pytest.raises(programs.ProgramsMissing, match="PostgreSQL 7 is not installed here"):
        programs.system(7)

"""Who may do what on the console."""

import pytest

from pgshoal.policy.access import ConsoleRight, console_right, is_owner


def test_nobody_has_rights_by_default() -> None:
    """With empty lists no name may enter."""
    assert console_right("alice", (), (), "md5") is ConsoleRight.NONE


def test_lists_are_case_sensitive_and_admin_wins() -> None:
    """A name in both lists is an admin; another spelling is another name."""
    assert console_right("a", ("a",), ("a",), "md5") is ConsoleRight.ADMIN
    assert console_right("s", ("a",), ("s",), "md5") is ConsoleRight.STATS
    assert console_right("A", ("a",), ("s",), "md5") is ConsoleRight.NONE


def test_auth_type_any_lets_everybody_look_but_not_command() -> None:
    """With auth_type any an unlisted name may look, and only listed names command."""
    assert console_right("zz", ("a",), (), "any") is ConsoleRight.STATS
    assert console_right("a", ("a",), (), "any") is ConsoleRight.ADMIN


@pytest.mark.parametrize(
    ("user", "peer", "expected"),
    [("pgbouncer", 1000, True), ("pgbouncer", 1001, False), ("pgbouncer", None, False), ("alice", 1000, False)],
)
def test_only_the_own_account_on_the_unix_socket_is_the_owner(user: str, peer: int | None, expected: bool) -> None:
    """The name must be pgbouncer and the peer's account the process's own; TCP peers have none."""
    assert is_owner(user, peer, 1000) is expected

"""Whether one more client may come in."""

from pgshoal.policy.limits import over_limit, too_many_sockets


def test_the_last_allowed_client_gets_in() -> None:
    """The count includes the one who asks, so a count equal to the limit is fine."""
    assert not too_many_sockets(100, 100, is_console=False)
    assert too_many_sockets(101, 100, is_console=False)


def test_the_console_is_never_full() -> None:
    """max_client_conn does not hold for the console."""
    assert not too_many_sockets(101, 100, is_console=True)


def test_zero_is_no_limit_for_databases_and_users() -> None:
    """A limit of 0 is off; any other holds exactly."""
    assert not over_limit(1000, 0)
    assert not over_limit(2, 2)
    assert over_limit(3, 2)


def test_console_admins_are_not_held() -> None:
    """An admin's sessions do not count against the limit of a user."""
    assert not over_limit(3, 2, is_console_admin=True)

"""One connection by libpq: what it brings, and the words of what goes wrong."""

from __future__ import annotations

import pytest

from pgshoal.bench.load.link import Link, LinkLost, conninfo, tidy
from pgshoal.bench.stand import Stand
from pgshoal.demo.pgbench import Target


def test_an_answer_and_an_error_are_told_apart(stand: Stand) -> None:
    """After an error of a statement the connection goes on."""
    with Link(conninfo(stand.address())) as link:
        link.ask(b"select repeat('x', 3000000)")
        with pytest.raises(LinkLost, match=r'^ERROR: column "no_such" does not exist'):
            link.ask(b"select no_such")
        link.ask(b"select 1; select 2")


def test_a_refusal_says_why(stand: Stand) -> None:
    """Of the server, and of a port where nobody listens; a connection that breaks is one too."""
    with (
        pytest.raises(LinkLost, match=r'^FATAL: role "nobody_here" does not exist$'),
        Link(conninfo(stand.address("nobody_here"))),
    ):
        pass
    with pytest.raises(LinkLost, match=r"^Connection refused"), Link(conninfo(Target("127.0.0.1", 1))):
        pass
    with pytest.raises(LinkLost, match=r"^FATAL: terminating"), Link(conninfo(stand.address())) as link:
        link.ask(b"select pg_terminate_backend(pg_backend_pid())")


def test_a_target_is_a_connection_string() -> None:
    """Password and TLS come from its environment, quoted as libpq wants."""
    target = Target("h", 1, "u", "d", (("PGPASSWORD", "a b"), ("PGSSLMODE", "verify-ca"), ("PGSSLROOTCERT", "/ca")))
    assert conninfo(target) == "host=h port=1 user=u dbname=d password='a b' sslmode=verify-ca sslrootcert=/ca"


def test_words_of_libpq_become_one_line() -> None:
    """Without the address they came from, and without its guesses."""
    assert tidy('connection to server at "::1", port 5 failed: FATAL:  no\n') == "FATAL: no"
    assert tidy("server closed the connection unexpectedly\n\tThis probably means the worst") == (
        "server closed the connection unexpectedly"
    )

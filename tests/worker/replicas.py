"""What tests of replication clients share: how one enters, and how a server is asked."""

from __future__ import annotations

from tests.support import messages as m
from tests.worker.bench import Bench

QUERY = m.query("IDENTIFY_SYSTEM")
STREAM = m.query("START_REPLICATION 0/0")
COPY_BOTH = m.message(b"W", b"\0\0\0")


def enter(bench: Bench, kind: str = "database", user: str = "alice", **parameters: str) -> int:
    """A replication client that has sent its startup packet."""
    conn = bench.engine.accept_manual(1)
    bench.worker.drain()
    bench.say(conn, m.startup({"user": user, "database": "app", "replication": kind, **parameters}))
    return conn


def streaming(bench: Bench, **parameters: str) -> tuple[int, int]:
    """A client and its server in the middle of a stream."""
    client = enter(bench, **parameters)
    (server,) = bench.serve(1)
    bench.heard(client)
    bench.say(client, STREAM)
    bench.say(server, COPY_BOTH)
    assert bench.heard(client) == COPY_BOTH
    assert bench.heard(server).endswith(STREAM)
    return client, server


def idle_server(bench: Bench, user: str = "alice") -> int:
    """A server of the shared pool that has answered one query; its client stays."""
    client = bench.login(user)
    bench.say(client, m.query("select 1"))
    (server,) = bench.serve(1)
    bench.answer(server)
    bench.heard(server)
    return server


def asked(bench: Bench, conn: int) -> dict[str, str]:
    """The parameters of the startup packet a server got."""
    bench.connect(conn)
    bench.heard(conn)
    bench.say(conn, b"N")
    words = [word.decode() for word in bench.heard(conn)[8:].split(b"\0")]
    return dict(zip(words[0:-2:2], words[1:-1:2], strict=False))

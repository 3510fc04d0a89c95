"""PostgreSQL of the kit's own, where the programs cannot do TLS; and whether a given one is on this machine."""

from __future__ import annotations

import os
import shutil
from types import SimpleNamespace
from typing import Any, cast

from pgshoal.bench.stand import Stand
from pgshoal.bench.targets.servers import Server, local_postmaster
from pgshoal.bench.targets.tls import certificates
from pgshoal.demo import programs
from pgshoal.demo.account import unprivileged


def test_without_tls_when_the_programs_cannot() -> None:
    """The server starts all the same, and it is said."""
    folder = certificates()
    try:
        with Server(programs.embedded(unprivileged()), folder) as server:
            assert server.running
            assert server.tls_folder is None
            assert "ssl" not in server.settings
    finally:
        shutil.rmtree(folder)


def test_the_postmaster_is_found_by_a_connection(stand: Stand) -> None:
    """By TCP and by the Unix socket."""
    assert stand.cluster is not None
    for host in (stand.cluster.host, stand.cluster.socket_dir):
        with stand.connect(host=host) as conn:
            assert local_postmaster(conn) == stand.cluster.pid


def connection(pid: int, port: int | None) -> Any:
    """A connection to a backend of that number, which sees us come from that port."""
    row = SimpleNamespace(fetchone=lambda: (port,))
    return cast(Any, SimpleNamespace(info=SimpleNamespace(backend_pid=pid), execute=lambda query: row))


def test_a_process_of_the_same_number_is_not_taken_for_the_backend(stand: Stand) -> None:
    """Neither somebody else's process, nor a backend that serves another connection, nor one that has ended."""
    with stand.connect(host=stand.host) as conn:
        backend = conn.info.backend_pid
        port = conn.execute("select inet_client_port()").fetchone()
        assert port is not None
        assert local_postmaster(connection(backend, port[0])) is not None
        assert local_postmaster(connection(backend, 1)) is None
        assert local_postmaster(connection(os.getpid(), port[0])) is None
    assert local_postmaster(connection(2**22 + 1, None)) is None

"""A steady load of pgbench beside a test, and who serves which client."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Any, Self

import psutil
import psycopg

from pgshoal.demo import pgbench
from pgshoal.demo.pgbench import Report, Target
from tests.support.pooler import Pooler
from tests.support.postgres import Postgres

SCRIPT = "begin;\nselect 1;\nselect pg_sleep(0.001);\nend;\n"


class Load:
    """`with Load(pg, pooler, "-c", "50", "-T", "8") as load:`, then `load.report()`."""

    def __init__(self, pg: Postgres, pooler: Pooler, *arguments: str, script: str = SCRIPT) -> None:
        path = pooler.write(f"load{id(self)}.sql", script)
        target = Target(pooler.host, pooler.port, "alice", "app")
        given = ("-f", str(path), *arguments)
        self._found: Report | BaseException | None = None

        def run() -> None:
            try:
                self._found = pgbench.measure(pg.programs["pgbench"], target, given)
            except Exception as error:
                self._found = error

        self._thread = threading.Thread(target=run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join()

    def report(self) -> Report:
        """When it has ended; a client that was refused or cut off is an error."""
        self._thread.join()
        if isinstance(self._found, BaseException):
            raise self._found
        assert self._found is not None
        assert self._found.failed == 0
        assert self._found.transactions > 0
        return self._found


def port_of(client: psycopg.Connection[Any]) -> int:
    """The client's own port."""
    with socket.socket(fileno=socket.dup(client.fileno())) as sock:
        return int(sock.getsockname()[1])


def servants(pooler: Pooler, clients: list[psycopg.Connection[Any]]) -> dict[int, list[psycopg.Connection[Any]]]:
    """The clients of each worker, by its process id."""
    by_port = {port_of(client): client for client in clients}
    found: dict[int, list[psycopg.Connection[Any]]] = {pid: [] for pid in pooler.worker_pids()}
    for pid, mine in found.items():
        for link in psutil.Process(pid).net_connections("tcp"):
            if link.raddr and link.raddr.port in by_port:
                mine.append(by_port[link.raddr.port])
    return found


def zombies(pooler: Pooler) -> list[int]:
    """Dead children that nobody has reaped."""
    return [child.pid for child in psutil.Process(pooler.pid).children() if child.status() == psutil.STATUS_ZOMBIE]

"""One connection by libpq, driven so that threads do not wait for each other: for loads of many short connections."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from pgshoal.demo.pgbench import Target

WAIT_S: Final = 60.0
#: libpq's keywords by the environment variables that targets carry.
KEYWORDS: Final = {
    "PGPASSWORD": "password",
    "PGSSLMODE": "sslmode",
    "PGSSLROOTCERT": "sslrootcert",
    "PGAPPNAME": "application_name",
    "PGOPTIONS": "options",
}


class LinkLost(Exception):
    """A connection was refused, broke or brought an error; the text is what libpq or the server said."""


def conninfo(target: Target) -> str:
    """A target as libpq's connection string; holds the password."""
    facts = {KEYWORDS[name]: value for name, value in target.environment if name in KEYWORDS}
    return make_conninfo(host=target.host, port=target.port, user=target.user, dbname=target.dbname, **facts)


class Link:
    """Opens and closes with its block. Slimmer than psycopg's connection, by psycopg's own wrapper of libpq."""

    def __init__(self, info: str) -> None:
        self._info = info.encode()
        self._pq: pq.abc.PGconn

    def __enter__(self) -> Self:
        self._pq = pq.PGconn.connect_start(self._info)
        try:
            while (state := self._pq.connect_poll()) != pq.PollingStatus.OK:
                if state == pq.PollingStatus.FAILED:
                    raise LinkLost(self._said())
                self._wait(select.POLLIN if state == pq.PollingStatus.READING else select.POLLOUT)
        except BaseException:
            self._pq.finish()
            raise
        return self

    def ask(self, query: bytes) -> None:
        """One simple query, its results thrown away; after an error of the server's the next one may be asked."""
        said = ""
        try:
            self._pq.send_query(query)
            while (result := self._result()) is not None:
                if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
                    said = tidy(text(result.error_message)) or self._said()
        except psycopg.Error as error:
            said = said or tidy(str(error))
        if said:
            raise LinkLost(said)

    def _result(self) -> pq.abc.PGresult | None:
        while self._pq.is_busy():
            self._wait(select.POLLIN)
            self._pq.consume_input()
        return self._pq.get_result()

    def _said(self) -> str:
        return tidy(text(self._pq.error_message))

    def _wait(self, event: int) -> None:
        poller = select.poll()
        poller.register(self._pq.socket, event)
        if not poller.poll(WAIT_S * 1000):
            raise LinkLost(f"no answer for {WAIT_S:.0f} s")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pq.finish()


def text(message: bytes) -> str:
    """Words of libpq's or of the server's."""
    return message.decode(errors="replace")


def tidy(message: str) -> str:
    """An error message in one line, without the address it came from and without libpq's guesses."""
    line = " ".join(message.partition("\n\tThis probably means")[0].split())
    return line.rpartition("failed: ")[2]


def milliseconds_since(began_s: float) -> float:
    """Time gone on the monotonic clock."""
    return (time.monotonic() - began_s) * 1000

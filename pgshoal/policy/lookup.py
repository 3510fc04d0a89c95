"""auth_query as bytes and facts: one batch out, and what the server's answers mean for the user asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pgshoal.wire import build, read
from pgshoal.wire.errors import WireError

#: Where the default query may look: nobody but a superuser can put anything there.
CATALOG_PATH: Final = "pg_catalog, pg_temp"
#: Where an operator's own query may look: PostgreSQL's default, but the catalogue's functions and operators first.
OWN_QUERY_PATH: Final = 'pg_catalog, "$user", public, pg_temp'
#: Names the server cannot even read belong to nobody; everything else is a fault of the set-up.
INVALID_NAME: Final = "22021"
_SET_PATH: Final = b"SELECT pg_catalog.set_config('search_path', $1, true)"
_ERROR, _READY, _DESCRIPTION, _NO_DATA, _ROW, _EMPTY = b"EZTnDI"
_PASSED_OVER: Final = frozenset(b"12CNSA")
UNEXPECTED: Final = "unexpected response from auth_query"


def request(sql: str, user: str, own_query: bool) -> bytes:
    """The lookup as one batch. Up to its Sync it is one transaction, so the search path set in it ends with it."""
    path = OWN_QUERY_PATH if own_query else CATALOG_PATH
    return b"".join((
        build.parse(b"", _SET_PATH, (build.TEXT_OID,)),
        build.bind(b"", b"", (path.encode(),)),
        build.execute(b""),
        # The type of $1 is the query's own business: uuid = $1 must work as well as rolname = $1.
        build.parse(b"", build.encode(sql)),
        build.bind(b"", b"", (build.encode(user),)),
        build.describe(b"P", b""),
        build.execute(b""),
        build.SYNC,
    ))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """What the query gave; `secret` is "" for NULL, which no password fits."""

    user: str
    secret: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The answer is of no use: why the server is closed, and the server's error if it sent one."""

    reason: str
    error: str = ""


class Answer:
    """Reads one answer; `feed` gives None while more must come, then the Row, "nobody", or Broken."""

    __slots__ = ("_described", "_row", "_skipped")

    def __init__(self) -> None:
        self._described = self._skipped = False
        self._row: Row | None = None

    def feed(self, kind: int, payload: bytes) -> Row | Broken | str | None:
        """One message of the server."""
        try:
            return self._feed(kind, payload)
        except WireError as error:
            return Broken(error.reason)

    def _feed(self, kind: int, payload: bytes) -> Row | Broken | str | None:
        if kind == _ROW:
            if self._described:  # before that it is the row of set_config
                self._take(read.data_row(payload))
        elif kind == _DESCRIPTION:
            self._described = True
            return self._columns(len(read.row_description(payload)))
        elif kind in (_NO_DATA, _EMPTY):
            return self._columns(0)
        elif kind == _ERROR:
            fields = read.error_fields(payload)
            if fields.sqlstate != INVALID_NAME:
                return Broken("error response from auth_query", f"{fields.severity}: {fields.text}")
            self._skipped = True
        elif kind == _READY:
            return self._end(read.ready_for_query(payload))
        elif kind not in _PASSED_OVER:
            return Broken(UNEXPECTED)
        return None

    @staticmethod
    def _columns(count: int) -> Broken | None:
        return None if count == 2 else Broken(f"expected 2 columns from auth_query, not {count}")

    def _take(self, cells: list[bytes | None]) -> None:
        """The last row counts; one without a user name is no row."""
        if len(cells) != 2:
            raise WireError(UNEXPECTED)
        name, secret = cells
        if name is not None:
            self._row = Row(read.decode(name), read.decode(secret or b""))

    def _end(self, status: str) -> Row | Broken | str:
        if status != "I" or not (self._described or self._skipped):
            return Broken(UNEXPECTED)
        return "nobody" if self._row is None or self._skipped else self._row

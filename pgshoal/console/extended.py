"""The extended query protocol of one console session: statements, portals, errors until Sync."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Final

from pgshoal.console.commands import Columns, columns, execute
from pgshoal.console.courtesies import NOTHING, Courtesy, courtesies, courtesy
from pgshoal.errors import Refused, refuse
from pgshoal.wire import build, read
from pgshoal.wire.binary import binary
from pgshoal.wire.errors import WireError

if TYPE_CHECKING:
    from pgshoal.console.session import Session

#: Drivers keep up to 256 statements for themselves; a command has at most a few hundred bytes.
STATEMENTS_MAX: Final = 512
STATEMENTS_MAX_BYTES: Final = 128 * 1024
#: Portals end with their Sync.
PORTALS_MAX: Final = 64
#: Rows kept in portals. One portal may keep any number of them: a client that asks for all gets them, too.
KEPT_MAX_BYTES: Final = 16 * 1024 * 1024

_PARAMETER: Final = re.compile(r"\$[0-9]")
_HEAD: Final = Struct("!cI")
_SYNC: Final = ord("S")


@dataclass(frozen=True, slots=True)
class Statement:
    """A command that was found to be one. `answer` is what is said to a statement with nothing to do."""

    text: str
    columns: Columns | None
    answer: Courtesy | None = None


@dataclass(slots=True, eq=False)
class Portal:
    """A statement to run, or the rows of one that has run and `tag`, which ends them."""

    statement: Statement
    formats: tuple[int, ...]
    spent: bool = False
    rows: deque[bytes] = field(default_factory=deque)
    tag: bytes = b""

    def kept_bytes(self) -> int:
        """Of rows that were not asked for yet."""
        return sum(map(len, self.rows))


class Extended:
    """What a session has prepared. Commands run as by the simple protocol; their replies are taken apart here."""

    __slots__ = ("failed", "portals", "running", "session", "statements", "used")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.statements: dict[bytes, Statement] = {}
        self.portals: dict[bytes, Portal] = {}
        #: after an error everything is passed over until the next Sync
        self.failed = False
        #: whether anything was ever prepared; what has nothing prepared is answered as PgBouncer does
        self.used = False
        #: the portal whose command is under way, and its row limit
        self.running: tuple[Portal, int] | None = None

    # -- messages

    def take(self, kind: int, payload: bytes) -> bytes | None:
        """The answer to one message; None if it comes later, by `finish`, or if the session has ended."""
        if self.failed and kind != _SYNC:
            return b""
        try:
            return _TAKERS[kind](self, payload)
        except Refused as refused:
            return self._fail(refused)
        except WireError as error:
            return self._fail(refuse("console_broken_message", text=str(error)))

    def _fail(self, refused: Refused) -> bytes:
        self.failed = True
        self.running = None
        return self.session.error(refused)

    def _parse(self, payload: bytes) -> bytes:
        self.used = True
        message = read.parse(payload)
        text = read.decode(message.query)
        if message.tail != b"\0\0" or _PARAMETER.search(text):
            raise refuse("console_parameters")
        if not message.name:
            self.statements.pop(b"", None)
        answer = courtesy(text)
        found = Statement(text, columns(text) if answer is None else answer.columns, answer)
        self._hold(message.name, found)
        return build.PARSE_COMPLETE

    def _hold(self, name: bytes, statement: Statement) -> None:
        if name in self.statements:
            raise refuse("console_statement_exists", name=read.decode(name))
        held = sum(len(key) + len(one.text) for key, one in self.statements.items())
        size = len(name) + len(statement.text)
        if len(self.statements) >= STATEMENTS_MAX or held + size > STATEMENTS_MAX_BYTES:
            raise refuse("console_too_many_statements")
        self.statements[name] = statement

    def _bind(self, payload: bytes) -> bytes:
        message = read.bind(payload)
        parameters, codes = read.bind_formats(message.tail)
        statement = self._statement(message.statement)
        if parameters:
            raise refuse("console_bind_parameters", count=parameters, name=read.decode(message.statement))
        if message.portal:
            if message.portal in self.portals:
                raise refuse("console_portal_exists", name=read.decode(message.portal))
        else:
            self.portals.pop(b"", None)
        if len(self.portals) >= PORTALS_MAX:
            raise refuse("console_too_many_portals")
        self.portals[message.portal] = Portal(statement, _formats(statement, codes))
        return build.BIND_COMPLETE

    def _describe(self, payload: bytes) -> bytes:
        kind, name = read.describe(payload)
        if kind == b"S":
            shape = self._statement(name).columns
            return build.NO_PARAMETERS + (build.NO_DATA if shape is None else build.row_description(shape))
        portal = self._portal(name)
        shape = portal.statement.columns
        return build.NO_DATA if shape is None else build.row_description(shape, portal.formats)

    def _close(self, payload: bytes) -> bytes:
        try:
            kind, name = read.close(payload)
        except WireError:
            # Answered whatever it names, as before anything is prepared.
            return build.CLOSE_COMPLETE
        (self.statements if kind == b"S" else self.portals).pop(name, None)
        return build.CLOSE_COMPLETE

    def _execute(self, payload: bytes) -> bytes | None:
        name, limit = read.execute(payload)
        portal = self._portal(name)
        if portal.spent:
            if portal.statement.columns is None:
                raise refuse("console_portal_spent", name=read.decode(name))
            return self._fetch(portal, limit)
        answer = portal.statement.answer
        # Nothing can be done as often as one likes.
        portal.spent = answer is not NOTHING
        session = self.session
        session.worker.stats.console_queries += 1
        self.running = portal, limit
        reply = execute(session, portal.statement.text) if answer is None else self._courteous(answer)
        return None if reply is None else self.finish(reply)

    def _sync(self, payload: bytes) -> bytes:
        self.failed = False
        self.portals.clear()
        return build.READY_IDLE

    def _flush(self, payload: bytes) -> bytes:
        # Nothing is ever held back.
        return b""

    # -- what they name

    def _statement(self, name: bytes) -> Statement:
        found = self.statements.get(name)
        if found is None:
            key = "console_no_statement" if name else "console_no_unnamed_statement"
            raise refuse(key, name=read.decode(name))
        return found

    def _portal(self, name: bytes) -> Portal:
        found = self.portals.get(name)
        if found is None:
            raise refuse("console_no_portal", name=read.decode(name))
        return found

    # -- replies

    def finish(self, reply: bytes) -> bytes:
        """A command has its reply, as the simple protocol would send it: what its Execute is answered."""
        if self.running is None:
            raise RuntimeError("no Execute is under way")
        (portal, limit), self.running = self.running, None
        told = []
        for kind, message in _messages(reply):
            if kind == b"D":
                portal.rows.append(_formatted(portal, message))
            elif kind == b"C":
                portal.tag = message
            elif kind != b"T":
                self.failed = self.failed or kind == b"E"
                told.append(message)
        if not portal.tag:
            # An error, or the answer to an empty statement.
            return b"".join(told)
        try:
            told.append(self._fetch(portal, limit))
        except Refused as refused:
            told.append(self._fail(refused))
        return b"".join(told)

    def _fetch(self, portal: Portal, limit: int) -> bytes:
        """The next rows; as PostgreSQL, which looks no further, when the limit is met exactly, more are promised."""
        rows = portal.rows
        if limit <= 0 or len(rows) < limit:
            found = b"".join(rows) + portal.tag
            rows.clear()
            return found
        found = b"".join([rows.popleft() for _ in range(limit)])
        keeping = [one.kept_bytes() for one in self.portals.values() if one.rows]
        if len(keeping) > 1 and sum(keeping) > KEPT_MAX_BYTES:
            rows.clear()
            raise refuse("console_too_many_portals")
        return found + build.PORTAL_SUSPENDED

    # -- the simple protocol

    def query(self, text: str) -> bytes | None:
        """A Query ends what has no name. The reply to what a driver sends unasked, None for everything else."""
        self.statements.pop(b"", None)
        self.portals.clear()
        if not self.used:
            return None
        answers = courtesies(text)
        return None if answers is None else b"".join([self._courteous(answer) for answer in answers])

    def _courteous(self, answer: Courtesy) -> bytes:
        if answer.forgets_all:
            self.statements.clear()
        elif answer.forgets:
            name = build.encode(answer.forgets)
            self._statement(name)
            del self.statements[name]
        return answer.reply


def _formats(statement: Statement, codes: tuple[int, ...]) -> tuple[int, ...]:
    """One format for each column: 0 is text, 1 is binary."""
    for code in codes:
        if code not in (0, 1):
            raise refuse("console_format_code", code=code)
    count = len(statement.columns or ())
    if len(codes) < 2:
        return (codes or (0,)) * count
    if statement.columns is not None and len(codes) != count:
        raise refuse("console_bind_formats", count=len(codes), columns=count)
    return codes


def _messages(reply: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(type, the whole message) of each message."""
    at = 0
    while at < len(reply):
        kind, length = _HEAD.unpack_from(reply, at)
        yield kind, reply[at : at + 1 + length]
        at += 1 + length


def _formatted(portal: Portal, row: bytes) -> bytes:
    """A DataRow in text format as this portal wants it."""
    if 1 not in portal.formats:
        return row
    cells: list[bytes | None] = []
    kinds = portal.statement.columns or []
    for value, code, (_, oid, _) in zip(read.data_row(row[5:]), portal.formats, kinds, strict=True):
        cells.append(value if value is None or not code else binary(oid, value))
    return build.data_row(cells)


_TAKERS: Final[Mapping[int, Callable[[Extended, bytes], bytes | None]]] = {
    ord("P"): Extended._parse,
    ord("B"): Extended._bind,
    ord("D"): Extended._describe,
    ord("E"): Extended._execute,
    ord("C"): Extended._close,
    ord("S"): Extended._sync,
    ord("H"): Extended._flush,
}
#: The types of its messages.
EXTENDED: Final = frozenset(_TAKERS)

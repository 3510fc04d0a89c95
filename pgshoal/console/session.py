"""A connection to the admin console: its welcome, one message at a time, and commands that wait."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final

from pgshoal.console.commands import execute
from pgshoal.console.stats import ConsoleCounts
from pgshoal.errors import Refused, refuse
from pgshoal.wire import build
from pgshoal.wire.read import decode
from pgshoal.worker import clients
from pgshoal.worker.handler import Handler
from pgshoal.worker.welcome import PGBOUNCER_VERSION

if TYPE_CHECKING:
    from pgshoal.engine.contract import ConnId
    from pgshoal.worker.app import Worker
    from pgshoal.worker.handler import ConsoleLogin
    from pgshoal.worker.pause import Done, Waiter

_QUERY: Final = ord("Q")
_TERMINATE: Final = ord("X")
_CLOSE: Final = ord("C")
_EXTENDED: Final = frozenset(b"PBE")
_UNSUPPORTED: Final = frozenset(b"DSHF")
#: What may still be on its way when a COPY has failed; discarded here as everywhere.
_LATE: Final = frozenset(b"dcf")
_LENGTH: Final = Struct("!i")

_WELCOME: Final = build.parameter_statuses(
    (
        ("pgbouncer.version", PGBOUNCER_VERSION),
        ("server_version", f"{PGBOUNCER_VERSION}/bouncer"),
        ("client_encoding", "UTF8"),
        ("server_encoding", "UTF8"),
        ("DateStyle", "ISO"),
        ("TimeZone", "GMT"),
        ("standard_conforming_strings", "on"),
        ("is_superuser", "on"),
    )
)
_TOLD: Final = frozenset({"client_encoding", "datestyle", "timezone", "standard_conforming_strings"})


class AdminConsole:
    """The console of one worker: all its sessions, and what they have in common."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.sessions: dict[ConnId, Session] = {}
        self.counts: ConsoleCounts = ConsoleCounts(worker.engine.now_us())

    def open(self, login: ConsoleLogin) -> Session:
        """Welcome a client that was let in."""
        session = self.sessions[login.conn] = Session(self, login)
        self.counts.logins += 1
        own = tuple(pair for pair in login.parameters if pair[0].lower() not in _TOLD)
        engine = self.worker.engine
        engine.send(login.conn, build.welcome(_WELCOME, own, login.cancel_key))
        session.listen()
        return session

    def cancel(self, login: ConsoleLogin) -> None:
        """A cancel request ends what the session waits for; with nothing to end it is a RESUME, as in PgBouncer."""
        session = self.sessions.get(login.conn)
        if session is not None and session.pending is not None:
            session.interrupt()
            return
        worker = self.worker
        worker.log.warning(f"{clients.console_prefix(login)}admin cancel request for non-waiting client?")
        if worker.pause.everything and not worker.shutdown:
            worker.pause.resume(None)


@dataclass(slots=True, eq=False)
class Pending:
    """A command that waits; `undo` takes back what it has begun."""

    verb: str
    undo: Callable[[], None]
    waiter: Waiter | None = None


class Session(Handler):
    """One console connection. Its ReadyForQuery is always idle: the console has no transactions."""

    __slots__ = ("conn", "console", "login", "pending", "request_us", "worker")

    def __init__(self, console: AdminConsole, login: ConsoleLogin) -> None:
        self.console = console
        self.worker = console.worker
        self.login = login
        self.conn = login.conn
        self.pending: Pending | None = None
        self.request_us = login.connect_us

    def listen(self) -> None:
        """Ask for the next message. A command that does not fit into pkt_buf is refused, as in PgBouncer."""
        self.worker.engine.proceed(self.conn, self.worker.config.settings.pkt_buf)

    # -- events

    def message(self, kind: int, payload: bytes) -> None:
        """One message of the client."""
        self.request_us = self.worker.engine.now_us()
        if kind == _QUERY:
            self._query(payload)
        elif kind == _TERMINATE:
            self._end("client close request", None)
        elif kind in _EXTENDED:
            self._reject(refuse("console_extended_protocol"))
        elif kind in _UNSUPPORTED:
            self._reject(refuse("console_packet_type", byte=kind))
        elif kind in _LATE:
            self.listen()
        elif kind == _CLOSE:
            self.worker.engine.send(self.conn, build.CLOSE_COMPLETE)
            self.listen()
        else:
            self.close(refuse("unknown_pkt"))

    def oversize(self, header: bytes) -> None:
        """A length that is wrong, or larger than a console command may be."""
        length = _LENGTH.unpack_from(header, 1)[0] if len(header) >= 5 else 0
        if 4 <= length < self.worker.config.settings.max_packet_size:
            self.close(refuse("console_incomplete_pkt"))
        else:
            self.close(refuse("bad_packet_header", hex=header.hex()))

    def closed(self, reason: str) -> None:
        """The client has gone; a PAUSE it began stands."""
        lead = clients.console_prefix(self.login)
        self._forget()
        clients.log_closing(self.worker, lead, reason, self.login.connect_time, told=False)

    # -- answers

    def _query(self, payload: bytes) -> None:
        end = payload.find(b"\0")
        if end < 0:
            self.close(refuse("console_incomplete_query"))
            return
        self.console.counts.queries += 1
        try:
            reply = execute(self, decode(payload[:end]))
        except Refused as refused:
            reply = self._error(refused)
        # A session may have ended itself by KILL_CLIENT.
        if reply is not None and self.conn in self.console.sessions:
            self.answer(reply)

    def answer(self, reply: bytes) -> None:
        """Finish a command and ask for the next."""
        self.worker.engine.send(self.conn, reply + build.READY_IDLE)
        self.listen()

    def _error(self, refused: Refused) -> bytes:
        log, settings = self.worker.log, self.worker.config.settings
        log.error(refused.text)
        if settings.log_pooler_errors:
            log.warning(f"{clients.console_prefix(self.login)}pooler error: {refused.text}")
        return clients.error_packet(refused)

    def _reject(self, refused: Refused) -> None:
        """Say why, as an answer, and close."""
        self.worker.engine.send(self.conn, self._error(refused) + build.READY_IDLE)
        self.close(refuse("console_bad_packet"))

    # -- waiting

    def wait(self, verb: str, begin: Callable[[Done], Waiter | None], undo: Callable[[], None]) -> None:
        """Begin a command that is answered when it is done, which may be at once."""
        pending = self.pending = Pending(verb, undo)
        try:
            pending.waiter = begin(lambda reached: self._done(pending, reached))
        except Refused:
            self.pending = None
            raise

    def _done(self, pending: Pending, reached: bool) -> None:
        if self.pending is not pending:
            return
        self.pending = None
        # This may be called while another connection is served, and this one may be dead already.
        with suppress(KeyError):
            if reached:
                self.answer(build.command_complete(pending.verb))
            else:
                self.answer(self._error(refuse("console_interrupted", verb=pending.verb)))

    def interrupt(self) -> None:
        """Take back the command under way, and answer it."""
        pending = self.pending
        if pending is None:
            return
        with suppress(Refused):  # it was taken back by others, or a shutdown does not allow it
            pending.undo()
        self._abandon(pending)
        self._done(pending, False)

    def _abandon(self, pending: Pending) -> None:
        if pending.waiter is not None:
            self.worker.pause.abandon(pending.waiter)

    # -- the end

    def close(self, refused: Refused) -> None:
        """Tell the client why, and close."""
        self._end(refused.text, refused)

    def _end(self, reason: str, refused: Refused | None) -> None:
        lead = clients.console_prefix(self.login)
        self._forget()
        self.worker.handlers.pop(self.conn, None)
        packet = b"" if refused is None else clients.error_packet(refused)
        clients.log_closing(self.worker, lead, reason, self.login.connect_time, bool(packet))
        self.worker.engine.close(self.conn, packet, reason)

    def _forget(self) -> None:
        pending, self.pending = self.pending, None
        if pending is not None:
            self._abandon(pending)
        self.console.sessions.pop(self.conn, None)
        clients.console_gone(self.worker, self.conn)

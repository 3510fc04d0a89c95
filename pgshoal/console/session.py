"""A connection to the admin console: its welcome, one message at a time, and commands that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from pgshoal.console.commands import execute
from pgshoal.console.extended import EXTENDED, Extended
from pgshoal.console.orders import Orders
from pgshoal.errors import Refused, refuse
from pgshoal.wire import build
from pgshoal.wire.read import decode
from pgshoal.worker import clients
from pgshoal.worker.handler import Handler
from pgshoal.worker.reload import Reloading
from pgshoal.worker.welcome import PGBOUNCER_VERSION

if TYPE_CHECKING:
    from pgshoal.engine.contract import ConnId
    from pgshoal.fleet.channel import Message
    from pgshoal.worker.app import Worker
    from pgshoal.worker.handler import ConsoleLogin

_QUERY: Final = ord("Q")
_TERMINATE: Final = ord("X")
_FUNCTION_CALL: Final = ord("F")
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
#: PgBouncer's log has other words for it than its console.
_LOGGED: Final = {"reload_failed": "RELOAD Failed, see logs for more details"}
_TOLD: Final = frozenset({"client_encoding", "datestyle", "timezone", "standard_conforming_strings"})


class AdminConsole:
    """The console of one worker: all its sessions, and what they have in common."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.sessions: dict[ConnId, Session] = {}
        self.orders = Orders(self)
        self.reloading = Reloading(worker)

    def open(self, login: ConsoleLogin) -> Session:
        """Welcome a client that was let in."""
        session = self.sessions[login.conn] = Session(self, login)
        self.worker.stats.console_logins += 1
        own = tuple(pair for pair in login.parameters if pair[0].lower() not in _TOLD)
        engine = self.worker.engine
        message = self.worker.config.settings.login_notify_message
        notices = build.notice(message) if message else b""
        engine.send(login.conn, build.welcome(_WELCOME, own, login.cancel_key, notices))
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
        if session is not None and session.extended.used:
            # Of a driver whose patience has ended just now. It may not undo what an operator has done.
            return
        if worker.pause.everything and not worker.shutdown:
            worker.fleet.ask("act", lambda answer: None, {"command": "RESUME", "argument": ""})


#: The rest of a command: what the fleet has answered (None: nothing in time) becomes the reply.
Finish = Callable[[Mapping[str, Any] | None], bytes]


@dataclass(slots=True, eq=False)
class Pending:
    """A command that waits for the fleet; `undo` is an act that takes back what it has begun."""

    command: str
    finish: Finish
    undo: Mapping[str, str] | None = None
    number: int = 0  # of the request to the supervisor
    timer: asyncio.TimerHandle | None = None


class Session(Handler):
    """One console connection. Its ReadyForQuery is always idle: the console has no transactions."""

    __slots__ = ("conn", "console", "extended", "login", "pending", "request_us", "worker")

    def __init__(self, console: AdminConsole, login: ConsoleLogin) -> None:
        self.console = console
        self.worker = console.worker
        self.login = login
        self.conn = login.conn
        self.pending: Pending | None = None
        self.request_us = login.connect_us
        self.extended = Extended(self)

    def listen(self) -> None:
        """Ask for the next message. A command that does not fit into pkt_buf is refused, as in PgBouncer."""
        self.worker.engine.proceed(self.conn, self.worker.config.settings.pkt_buf)

    # -- events

    def message(self, kind: int, payload: bytes) -> None:
        """One message of the client."""
        self.request_us = self.worker.engine.now_us()
        if kind in EXTENDED:
            self._reply(self.extended.take(kind, payload))
        elif kind == _QUERY:
            self._query(payload)
        elif kind == _TERMINATE:
            self._end("client close request", None)
        elif kind == _FUNCTION_CALL:
            self._reject(refuse("console_packet_type", byte=kind))
        elif kind in _LATE:
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
        if self.extended.failed:
            self.listen()
            return
        end = payload.find(b"\0")
        if end < 0:
            self.close(refuse("console_incomplete_query"))
            return
        self.worker.stats.console_queries += 1
        text = decode(payload[:end])
        try:
            reply = self.extended.query(text)
            if reply is None:
                reply = execute(self, text)
        except Refused as refused:
            reply = self.error(refused)
        self._reply(None if reply is None else reply + build.READY_IDLE)

    def _reply(self, reply: bytes | None) -> None:
        """Send what there is and ask for the next message; nothing while a command waits."""
        # A session may have ended itself by KILL_CLIENT.
        if reply is None or self.conn not in self.console.sessions:
            return
        if reply:
            self.worker.engine.send(self.conn, reply)
        self.listen()

    def answer(self, reply: bytes) -> None:
        """A command that has waited is done: this is its reply. Ask for the next message."""
        rest = reply + build.READY_IDLE if self.extended.running is None else self.extended.finish(reply)
        self.worker.engine.send(self.conn, rest)
        self.listen()

    def error(self, refused: Refused) -> bytes:
        """An error that ends a command, not the session; it is logged."""
        log, settings = self.worker.log, self.worker.config.settings
        log.error(_LOGGED.get(refused.key, refused.text))
        if settings.log_pooler_errors:
            log.warning(f"{clients.console_prefix(self.login)}pooler error: {refused.text}")
        return clients.error_packet(refused)

    def _reject(self, refused: Refused) -> None:
        """Say why, as an answer, and close."""
        self.worker.engine.send(self.conn, self.error(refused) + build.READY_IDLE)
        self.close(refuse("console_bad_packet"))

    # -- waiting

    def ask(
        self,
        verb: str,
        fields: Mapping[str, Any],
        finish: Finish,
        undo: Mapping[str, str] | None = None,
        limit_s: float = 0,
    ) -> None:
        """Put a request to the fleet; the session is answered when that is, or after `limit_s` seconds."""
        worker = self.worker
        pending = self.pending = Pending(str(fields.get("command", "SHOW")).upper(), finish, undo)
        if limit_s:
            pending.timer = worker.loop.call_later(limit_s, self._late, pending)
        number = worker.fleet.ask(verb, lambda answer: self._heard(pending, answer), fields)
        pending.number = number

    def _heard(self, pending: Pending, answer: Message | None) -> None:
        self._finish(pending, None if answer is None else answer.fields)

    def _finish(self, pending: Pending, answer: Mapping[str, Any] | None) -> None:
        if self.pending is not pending:
            return
        self._release(pending)
        try:
            if answer is not None and answer.get("reached") is False:
                # By a RESUME, or because another supervisor has taken over in the middle.
                raise refuse("console_interrupted", verb=pending.command)
            reply = pending.finish(answer)
        except Refused as refused:
            reply = self.error(refused)
        except Exception:
            # A bug, which whoever called us logs; the client must not wait for ever.
            self._end("internal error", None)
            raise
        # This may be called while another connection is served, and this one may be dead already.
        with suppress(KeyError):
            self.answer(reply)

    def _late(self, pending: Pending) -> None:
        """Time is over, and the loop has called us."""
        self._finish(pending, None)
        self.worker.settle()

    def _release(self, pending: Pending) -> None:
        """It waits no more."""
        self.pending = None
        self.worker.fleet.forget(pending.number)
        if pending.timer is not None:
            pending.timer.cancel()

    def interrupt(self) -> None:
        """A cancel request: take back the command under way, which answers it, or just answer it."""
        pending = self.pending
        if pending is None:
            return
        if pending.undo is None:
            self._give_up(pending)
            return

        def undone(answer: Message | None) -> None:
            # Taken back by others before, or a shutdown does not allow it.
            if self.pending is pending and (answer is None or answer.fields.get("error")):
                self._give_up(pending)

        self.worker.fleet.ask("act", undone, pending.undo)

    def _give_up(self, pending: Pending) -> None:
        self._abandon(pending)
        with suppress(KeyError):
            self.answer(self.error(refuse("console_interrupted", verb=pending.command)))

    def _abandon(self, pending: Pending) -> None:
        self._release(pending)
        self.worker.fleet.send("abandon", {"act": pending.number})

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
        if self.pending is not None:
            self._abandon(self.pending)
        self.console.sessions.pop(self.conn, None)
        clients.console_gone(self.worker, self.conn)

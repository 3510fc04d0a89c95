"""COMMANDS: every console command as data: who may use it, what argument it takes, and what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pgshoal.config import load
from pgshoal.console.grammar import BadCommand, Command, parse
from pgshoal.console.rows import ROWS
from pgshoal.console.tables import FAKE_VARIABLES, HELP, TABLES, TYPES
from pgshoal.errors import ConfigError, refuse
from pgshoal.policy.access import CONSOLE_DATABASE
from pgshoal.wire import build
from pgshoal.worker import clients, reload

if TYPE_CHECKING:
    from pgshoal.config.model import Config
    from pgshoal.console.session import AdminConsole, Session
    from pgshoal.worker.app import Worker
    from pgshoal.worker.pause import ShutdownMode
    from pgshoal.worker.records import Database

_TLS_NOT_APPLIED: Final = "TLS settings could not be applied, still using old configuration"
_SHUTDOWN_MODES: Final[Mapping[str, ShutdownMode]] = {
    "": "now",
    "WAIT_FOR_SERVERS": "servers",
    "WAIT_FOR_CLIENTS": "clients",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One command of one session; `text` is what was sent."""

    session: Session
    command: Command
    text: str

    @property
    def worker(self) -> Worker:
        """The worker it is for."""
        return self.session.worker

    @property
    def console(self) -> AdminConsole:
        """The console it came to."""
        return self.session.console

    def log(self) -> None:
        """The line that says a command was issued."""
        argument = self.command.argument
        quoted = argument if self.command.verb == "SHUTDOWN" else f"'{argument}'"
        words = f"{self.command.verb} {quoted}" if argument else self.command.verb
        self.worker.log.log(f"{words} command issued")


#: Gives back the whole reply but ReadyForQuery, or None if the session is answered later, or never.
Runner = Callable[[Request], bytes | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """One command. Without `stats` only admins may use it: a command added here is closed unless it says otherwise.

    `arguments`: None takes any; else the upper-case words allowed, and a wrong one is noticed before the rights.
    """

    run: Runner
    arguments: frozenset[str] | None = None
    stats: bool = False


def execute(session: Session, text: str) -> bytes | None:
    """Carry out one command. Raises Refused with the console's texts."""
    try:
        command = parse(text)
    except BadCommand as bad:
        raise refuse(bad.args[0], query=text) from None
    rule = COMMANDS.get(command.verb)
    if rule is None or (rule.arguments is not None and command.argument.upper() not in rule.arguments):
        raise refuse("invalid_command", query=text)
    if not rule.stats:
        _require_admin(session)
    return rule.run(Request(session, command, text))


def _require_admin(session: Session) -> None:
    if not session.login.is_admin:
        raise refuse("admin_access_needed")


# -- SHOW


def _show(request: Request) -> bytes:
    item = request.command.argument
    table = TABLES.get(item.upper())
    if table is not None:
        columns = [(column.name, *TYPES[column.kind]) for column in table.columns]
        parts = [build.row_description(columns)]
        for values in ROWS[table.name](request.worker, request.console):
            parts.append(build.data_row([str(value) if isinstance(value, int) else value for value in values]))
        parts.append(build.command_complete("SHOW"))
        return b"".join(parts)
    if item.upper() == "HELP":
        detail = "".join(f"\n\t{line}" for line in HELP)
        return build.notice("Console usage", detail) + build.command_complete("SHOW")
    value = FAKE_VARIABLES.get(item.lower())
    if value is None:
        raise refuse("invalid_command", query=request.text)
    columns = [(item.lower(), *TYPES["text"])]
    return build.row_description(columns) + build.data_row([value]) + build.command_complete("SHOW")


# -- SET and RELOAD


def _set(request: Request) -> bytes:
    key, value = request.command.argument, request.command.value or ""
    if key.lower() in FAKE_VARIABLES:
        # Drivers set these on every connection; nobody needs to be admin for that.
        return build.notice("SET ignored") + build.command_complete("SET")
    _require_admin(request.session)
    notice = b"" if set_value(request.worker, key, value) else build.notice(_TLS_NOT_APPLIED)
    return notice + build.command_complete(f"SET {key}={value}")


def set_value(worker: Worker, key: str, value: str) -> bool:
    """Change one setting; False if TLS could not be set up with it, so that the old set-up stays in use."""
    tls = "_tls_" in key or "_tls13_" in key
    try:
        fresh = load.set_value(worker.config, key, value)
    except ConfigError as error:
        worker.log.error(str(error))
        raise refuse("set_failed") from None
    if fresh is worker.config:
        return True
    try:
        _require_consistent(fresh, key, tls)
        reload.apply(worker, fresh, tls)
    except (ConfigError, OSError, ValueError) as error:
        worker.log.error(str(error))
        if not tls:
            raise refuse("set_failed") from None
        # Kept all the same: the next SET may bring the file that is still missing.
        worker.config = fresh
        return False
    return True


def _require_consistent(fresh: Config, key: str, tls: bool) -> None:
    """A TLS setting must fit to all others; another one is not to blame for TLS settings that do not fit yet."""
    try:
        load.require_consistent(fresh)
    except ConfigError as error:
        if tls or error.key == key:
            raise


def _reload(request: Request) -> bytes:
    request.log()
    if not reload.reload(request.worker):
        raise refuse("reload_failed")
    return build.command_complete("RELOAD")


# -- databases


def _found(request: Request, action: str, register: bool = True) -> Database | None:
    """The database named, None for all. `register`: a name that only `*` knows becomes an entry."""
    name, pools = request.command.argument, request.worker.pools
    if not name:
        return None
    if name == CONSOLE_DATABASE:
        raise refuse("cannot_touch_admin_db", action=action, db=name)
    database = pools.database(name) if register else pools.databases.get(name)
    if database is None:
        raise refuse("console_no_such_database", db=name)
    return database


def _named(request: Request, action: str, register: bool) -> Database:
    database = _found(request, action, register)
    if database is None:
        raise refuse("database_required")
    return database


def _not_paused(request: Request) -> None:
    if request.worker.pause.everything:
        raise refuse("already_paused")


def _pause(request: Request) -> None:
    _not_paused(request)
    database, pause = _found(request, "pause"), request.worker.pause
    request.log()
    request.session.wait("PAUSE", lambda done: pause.pause(database, done), lambda: pause.resume(database))


def _resume(request: Request) -> bytes:
    request.log()
    if request.command.argument == CONSOLE_DATABASE:
        raise refuse("database_not_paused", db=CONSOLE_DATABASE)
    request.worker.pause.resume(_found(request, "resume", register=False))
    return build.command_complete("RESUME")


def _kill(request: Request) -> bytes:
    _not_paused(request)
    database = _found(request, "kill")
    request.log()
    request.worker.pause.kill(database)
    return build.command_complete("KILL")


def _disable(request: Request) -> bytes:
    database = _named(request, "disable", register=True)
    request.log()
    request.worker.pause.disable(database)
    return build.command_complete("DISABLE")


def _enable(request: Request) -> bytes:
    database = _named(request, "enable", register=False)
    request.log()
    request.worker.pause.enable(database)
    return build.command_complete("ENABLE")


def _reconnect(request: Request) -> bytes:
    database = _found(request, "reconnect")
    request.log()
    request.worker.pause.reconnect(database)
    return build.command_complete("RECONNECT")


def _wait_close(request: Request) -> None:
    database, pause = _found(request, "wait in"), request.worker.pause
    request.log()
    request.session.wait("WAIT_CLOSE", lambda done: pause.wait_close(database, done), lambda: None)


# -- clients and the process


def _kill_client(request: Request) -> bytes:
    word = request.command.argument
    if not (word.isascii() and word.isdigit()):
        raise refuse("invalid_client_pointer")
    if not kill_client(request.worker, request.console, int(word)):
        raise refuse("client_not_found")
    return build.command_complete("KILL_CLIENT")


def kill_client(worker: Worker, console: AdminConsole, number: int) -> bool:
    """Disconnect the client with this `id`; False if no logged-in client, cancel request or session has it."""
    why = refuse("admin_disconnect")
    for client in worker.front.clients.values():
        if client.number == number:
            clients.close(worker, client, why)
            return True
    for session in console.sessions.values():
        if session.login.number == number:
            session.close(why)
            return True
    for job in worker.front.cancels.values():
        if job.number == number:
            job.finish(why.text)
            return True
    return False


def _shutdown(request: Request) -> bytes | None:
    word = request.command.argument.upper()
    request.log()
    request.worker.pause.shutdown(_SHUTDOWN_MODES[word])
    # An immediate shutdown is not answered: the connection just closes.
    return build.command_complete("SHUTDOWN") if word else None


_NO_ARGUMENT: Final = frozenset({""})

COMMANDS: Mapping[str, Rule] = {
    "SHOW": Rule(_show, stats=True),
    "SET": Rule(_set, stats=True),  # of PostgreSQL's variables; all else in it is for admins
    "RELOAD": Rule(_reload, _NO_ARGUMENT),
    "PAUSE": Rule(_pause),
    "RESUME": Rule(_resume),
    "KILL": Rule(_kill),
    "KILL_CLIENT": Rule(_kill_client),
    "DISABLE": Rule(_disable),
    "ENABLE": Rule(_enable),
    "RECONNECT": Rule(_reconnect),
    "WAIT_CLOSE": Rule(_wait_close),
    "SHUTDOWN": Rule(_shutdown, frozenset(_SHUTDOWN_MODES)),
}

"""COMMANDS: every console command as data: who may use it, what argument it takes, and what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pgshoal.console import ledger
from pgshoal.console.grammar import BadCommand, Command, parse
from pgshoal.console.merge import gathered, merge
from pgshoal.console.rows import ROWS
from pgshoal.console.sockets import Row, Value
from pgshoal.console.tables import FAKE_VARIABLES, HELP, TABLES, TYPES, Table
from pgshoal.errors import escape_bytes, refuse
from pgshoal.policy.standing import ACTIONS
from pgshoal.wire import build

if TYPE_CHECKING:
    from pgshoal.console.session import AdminConsole, Finish, Session
    from pgshoal.worker.app import Worker

_TLS_NOT_APPLIED: Final = "TLS settings could not be applied, still using old configuration"
_SHUTDOWN_MODES: Final[Mapping[str, str]] = {
    "": "now",
    "WAIT_FOR_SERVERS": "servers",
    "WAIT_FOR_CLIENTS": "clients",
}
#: The supervisor waits for slow workers; this is for a supervisor that does not answer itself.
_GATHER_LIMIT_S: Final = 3.0
_SECONDS_DIGITS: Final = 6


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
    command, rule = _judge(text)
    if not rule.stats:
        _require_admin(session)
    return rule.run(Request(session, command, text))


#: (name, type oid, type size) of each column
Columns = list[tuple[str, int, int]]


def columns(text: str) -> Columns | None:
    """What the rows of a command look like, without running it; None if it has none. Raises as `execute` would."""
    command, _ = _judge(text)
    if command.verb != "SHOW" or command.argument.upper() == "HELP":
        return None
    table = TABLES.get(command.argument.upper())
    if table is not None:
        return _columns(table)
    _fake_value(command, text)
    return [(command.argument.lower(), *TYPES["text"])]


def _judge(text: str) -> tuple[Command, Rule]:
    try:
        command = parse(text)
    except BadCommand as bad:
        raise refuse(bad.args[0], query=text) from None
    rule = COMMANDS.get(command.verb)
    if rule is None or (rule.arguments is not None and command.argument.upper() not in rule.arguments):
        raise refuse("invalid_command", query=text)
    return command, rule


def _require_admin(session: Session) -> None:
    if not session.login.is_admin:
        raise refuse("admin_access_needed")


# -- SHOW


def _show(request: Request) -> bytes | None:
    item = request.command.argument
    table = TABLES.get(item.upper())
    if table is not None:
        return _show_table(request, table)
    if item.upper() == "HELP":
        detail = "".join(f"\n\t{line}" for line in HELP)
        return build.notice("Console usage", detail) + build.command_complete("SHOW")
    value = _fake_value(request.command, request.text)
    head = build.row_description([(item.lower(), *TYPES["text"])])
    return head + build.data_row([value]) + build.command_complete("SHOW")


def _fake_value(command: Command, text: str) -> str:
    value = FAKE_VARIABLES.get(command.argument.lower())
    if value is None:
        raise refuse("invalid_command", query=text)
    return value


def _columns(table: Table) -> Columns:
    return [(column.name, *TYPES[column.kind]) for column in table.columns]


def _show_table(request: Request, table: Table) -> bytes | None:
    source = table.source or table.name

    def own() -> list[Row]:
        return ROWS[source](request.worker, request.console)

    if table.local:
        return _rows(table, own())

    def finish(answer: Mapping[str, Any] | None) -> bytes:
        found = gathered(own(), answer)
        rows = ledger.rows(request.worker, found) if table.name == "LEDGER" else merge(table, found)
        return _missing(answer) + _rows(table, rows)

    request.session.ask("gather", {"what": source}, finish, limit_s=_GATHER_LIMIT_S)
    return None


def _missing(answer: Mapping[str, Any] | None) -> bytes:
    if answer is None:
        return build.notice("the supervisor does not answer: only this worker's rows are shown")
    numbers = ", ".join(str(number) for number in sorted(answer.get("missing", ())))
    return build.notice(f"no answer from worker {numbers}: its rows are missing") if numbers else b""


def _rows(table: Table, rows: list[Row]) -> bytes:
    parts = [build.row_description(_columns(table))]
    parts += [build.data_row([_text(value) for value in values]) for values in rows]
    parts.append(build.command_complete("SHOW"))
    return b"".join(parts)


def _text(value: Value) -> str | None:
    """As sent to a client that was told client_encoding UTF8: bytes of a name that are not are escaped."""
    if isinstance(value, str):
        return escape_bytes(value)
    return None if value is None else str(value)


# -- SET, RELOAD and other requests to the supervisor


def _set(request: Request) -> bytes | None:
    key, value = request.command.argument, request.command.value or ""
    if key.lower() in FAKE_VARIABLES:
        # Drivers set these on every connection; nobody needs to be admin for that.
        return build.notice("SET ignored") + build.command_complete("SET")
    _require_admin(request.session)

    def finish(answer: Mapping[str, Any] | None) -> bytes:
        if answer is None or answer.get("error"):
            raise refuse("set_failed")
        notice = build.notice(_TLS_NOT_APPLIED) if answer.get("tls_kept") else b""
        return notice + build.command_complete(f"SET {key}={value}")

    request.session.ask("ask", {"command": "set", "key": key, "value": value}, finish)
    return None


def _reload(request: Request) -> None:
    def finish(answer: Mapping[str, Any] | None) -> bytes:
        if answer is None or answer.get("error"):
            raise refuse("reload_failed")
        return build.command_complete("RELOAD")

    request.session.ask("ask", {"command": "reload"}, finish)


def _restart(request: Request) -> None:
    word = request.command.argument
    if word and not (word.isascii() and word.isdigit() and len(word) <= _SECONDS_DIGITS):
        raise refuse("invalid_seconds")
    fields = {"command": "restart"} | ({"deadline_s": int(word)} if word else {})
    request.session.ask("ask", fields, _plain("RESTART"))


def _upgrade(request: Request) -> None:
    request.session.ask("ask", {"command": "upgrade"}, _plain("UPGRADE"))


def _plain(tag: str) -> Finish:
    def finish(answer: Mapping[str, Any] | None) -> bytes:
        if answer is None:
            raise refuse("supervisor_silent")
        if answer.get("error"):
            raise refuse("supervisor_refused", command=tag, text=answer["error"])
        return build.command_complete(tag)

    return finish


def _shutdown(request: Request) -> None:
    word = request.command.argument.upper()
    # An immediate shutdown is not answered: the connection just closes.
    fields = {"command": "shutdown", "word": word, "mode": _SHUTDOWN_MODES[word]}
    request.session.ask("ask", fields, _plain("SHUTDOWN"))


# -- commands that all workers carry out


def _act(request: Request, undo: Mapping[str, str] | None = None) -> None:
    command, argument = request.command.verb, request.command.argument

    def finish(answer: Mapping[str, Any] | None) -> bytes:
        if answer is None:
            raise refuse("supervisor_silent")
        error = answer.get("error")
        if error:
            raise refuse(str(error), action=ACTIONS.get(command, ""), db=argument)
        return build.command_complete(command)

    registered = argument in request.worker.pools.databases
    fields = {"command": command, "argument": argument, "registered": registered}
    request.session.ask("act", fields, finish, undo)


def _pause(request: Request) -> None:
    _act(request, undo={"command": "RESUME", "argument": request.command.argument})


def _kill_client(request: Request) -> None:
    word = request.command.argument
    if not (word.isascii() and word.isdigit()):
        raise refuse("invalid_client_pointer")
    _act(request)


_NO_ARGUMENT: Final = frozenset({""})

COMMANDS: Mapping[str, Rule] = {
    "SHOW": Rule(_show, stats=True),
    "SET": Rule(_set, stats=True),  # of PostgreSQL's variables; all else in it is for admins
    "RELOAD": Rule(_reload, _NO_ARGUMENT),
    "PAUSE": Rule(_pause),
    "RESUME": Rule(_act),
    "KILL": Rule(_act),
    "KILL_CLIENT": Rule(_kill_client),
    "DISABLE": Rule(_act),
    "ENABLE": Rule(_act),
    "RECONNECT": Rule(_act),
    "WAIT_CLOSE": Rule(_act),
    "SHUTDOWN": Rule(_shutdown, frozenset(_SHUTDOWN_MODES)),
    "RESTART": Rule(_restart),
    "UPGRADE": Rule(_upgrade, _NO_ARGUMENT),
}

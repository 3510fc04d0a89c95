"""What a client's startup parameters mean: who it is, what is tracked, ignored or refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pgshoal.wire.errors import WireError
from pgshoal.wire.options import parse_options
from pgshoal.wire.startup import NEWEST_MINOR, Startup

TRACKED: Final = (
    "DateStyle", "client_encoding", "TimeZone", "standard_conforming_strings", "application_name",
    "default_transaction_read_only", "IntervalStyle", "search_path", "scram_iterations",
)  # fmt: skip
"""What a client may set at its startup whatever the server reports, in the order clients are told."""

#: Names that servers of some version do not report, so that somebody must remember what was set.
UNREPORTED: Final = ("search_path",)

USERNAME_MAX: Final = 127
_BOOLEANS: Final = (
    ("true", True), ("false", False), ("yes", True), ("no", False), ("on", True), ("off", False),
    ("1", True), ("0", False),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StartupRules:
    """The settings this policy needs: names that may be set, by lower case, and names that are dropped."""

    tracked: dict[str, str]
    ignored: frozenset[str]
    order: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoginWish:
    """A login as asked for. `parameters`: tracked ones only, canonical names, in the order clients are told."""

    database: str
    user: str
    parameters: tuple[tuple[str, str], ...]
    replication: str = "none"
    options: str = ""
    minor: int = 0
    """The version of protocol 3 that is spoken from now on, at most NEWEST_MINOR."""


@dataclass(frozen=True, slots=True)
class Unwelcome:
    """Why a startup packet is refused: key and facts of REFUSALS, and the line the log gets first."""

    key: str
    name: str = ""
    warning: str = ""


def make_rules(extra: Iterable[str], ignored: Iterable[str]) -> StartupRules:
    """The rules for `track_extra_parameters` and `ignore_startup_parameters`."""
    order = [*TRACKED]
    known = {name.lower(): name for name in TRACKED}
    for name in extra:
        if name.lower() not in known:
            known[name.lower()] = name
            order.append(name)
    return StartupRules(known, frozenset(ignored), tuple(order))


def remembered_names(extra: Iterable[str]) -> tuple[str, ...]:
    """The names the engine tracks beyond those a server reports."""
    names = {name.lower(): name for name in (*UNREPORTED, *extra)}
    return tuple(names.values())


def read_wish(startup: Startup, rules: StartupRules) -> LoginWish | Unwelcome:
    """Judge every parameter. `ignore_startup_parameters` (exact names) wins over tracking; the last value counts."""
    database = user = options = ""
    replication = _replication(startup.get("replication"))
    found: dict[str, str] = {}
    for name, value in startup.parameters:
        if name == "database":
            database = value
        elif name == "user":
            user = value
        elif name == "options":
            options = value
            refused = _read_options(value, rules, found, replication)
            if refused is not None:
                return refused
        elif name == "replication" or name in rules.ignored:
            continue
        elif (known := rules.tracked.get(name.lower())) is not None:
            found[known] = value
        else:
            return Unwelcome("unsupported_parameter", name, f"unsupported startup parameter: {name}={_short(value)}")
    if not user:
        return Unwelcome("no_username")
    if len(user.encode("utf-8", "surrogateescape")) > USERNAME_MAX:
        return Unwelcome("username_too_long")
    for name, value in found.items():
        # A backslash byte can be half of a character in encodings such as SJIS: quoted, it could end a literal early.
        if "\\" in value and not value.isascii():
            return Unwelcome("unsupported_parameter", name, f"{name} mixes backslash and non-ASCII text")
    parameters = tuple((name, found[name]) for name in rules.order if name in found) if found else ()
    kept = options if replication != "none" else ""
    return LoginWish(database or user, user, parameters, replication, kept, min(startup.minor, NEWEST_MINOR))


def _read_options(text: str, rules: StartupRules, found: dict[str, str], replication: str) -> Unwelcome | None:
    """Settings inside `options`; those of a replication client go to its server as they are."""
    if "options" in rules.ignored or replication != "none":
        return None
    try:
        settings = parse_options(text)
    except WireError:
        return Unwelcome("unsupported_options")
    for name, value in settings:
        if name in rules.ignored:
            continue
        known = rules.tracked.get(name.lower())
        if known is None:
            warning = f"unsupported startup parameter in options: {name}={_short(value)}"
            return Unwelcome("unsupported_parameter_in_options", name, warning)
        found[known] = value
    return None


def _short(value: str) -> str:
    return value[:200]


def _replication(value: str | None) -> str:
    """`database` is logical; a true boolean, or a unique beginning of one, is physical; anything else is none."""
    if not value:
        return "none"
    if value == "database":
        return "logical"
    word = value.lower()
    meanings = {meaning for name, meaning in _BOOLEANS if name.startswith(word)}
    return "physical" if meanings == {True} else "none"


def merge_parameters(
    defaults: Iterable[tuple[str, str]], wished: Iterable[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    """A client's full set of tracked values: its own where it named one, else the pool's."""
    own = dict(wished)
    merged = [(name, own.pop(name, value)) for name, value in defaults]
    merged += own.items()
    return tuple(merged)


def with_host(
    wished: tuple[tuple[str, str], ...], host: str, port: int, pid: int, machine: str
) -> tuple[tuple[str, str], ...]:
    """application_name with the client's address behind it, as `application_name_add_host` asks.

    A Unix socket has no address: there it is the client's process on this `machine`.
    """
    where = f"unix({pid}@{machine}):{port}" if host == "unix" else f"{host}:{port}"
    name = dict(wished).get("application_name") or "app"
    rest = [pair for pair in wished if pair[0] != "application_name"]
    return (*rest, ("application_name", f"{name} - {where}"))

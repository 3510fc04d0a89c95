"""Knobs: every size of the experiments as one table, by option, by environment variable, in full and quick."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Final, Literal

from pgshoal.bench.model import Value

Kind = Literal["int", "float", "text", "flag", "ints", "texts"]
Setting = Value | bool | tuple[int, ...] | tuple[str, ...]
Whole = int  # inside Knobs `int` is a method
PREFIX: Final = "PGSHOAL_BENCH_"
ENGINES: Final = ("auto", "uring", "epoll", "python")
TARGETS: Final = ("direct", "pgshoal", "pgbouncer")
PORT_MOST: Final = 65_535
WORDS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("1", "on", "true", "yes"), True),
    **dict.fromkeys(("0", "off", "false", "no"), False),
}


@dataclass(frozen=True)
class Knob:
    """One size: its value in full and quick runs, and the environment names it has beside PGSHOAL_BENCH_<NAME>."""

    name: str
    kind: Kind
    full: str
    quick: str
    env: tuple[str, ...] = ()
    text: str = ""
    common: bool = False  # of all experiments
    least: float = 0  # of numbers, each of them in a list
    most: float = math.inf
    choices: tuple[str, ...] = ()
    addresses: bool = False  # HOST:PORT is a choice, too
    secret: bool = False

    @property
    def option(self) -> str:
        """As the command line has it."""
        return "--" + self.name.replace("_", "-")

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that set it, the first one set counts."""
        return (PREFIX + self.name.upper(), *self.env)

    def read(self, text: str, where: str) -> Setting:
        """The value a text means; ValueError names the option or variable it came from."""
        if self.secret:
            return text
        try:
            value = self._parse(text)
            self._judge(value)
        except ValueError as reason:
            raise ValueError(f"{where}: {text!r} {reason}") from None
        return value

    def _parse(self, text: str) -> Setting:
        parts = tuple(part.strip() for part in text.split(",") if part.strip())
        match self.kind:
            case "int":
                return whole(text)
            case "float":
                return number(text)
            case "ints":
                return tuple(whole(part) for part in parts)
            case "texts":
                return parts
            case "flag":
                if text.strip().lower() not in WORDS:
                    raise ValueError(f"is none of {', '.join(WORDS)}")
                return WORDS[text.strip().lower()]
            case "text":
                return text.strip()

    def _judge(self, value: Setting) -> None:
        several = value if isinstance(value, tuple) else (value,)
        if self.kind in ("ints", "texts") and not several:
            raise ValueError("is an empty list")
        for one in several:
            if isinstance(one, int | float) and one < self.least:
                raise ValueError(f"is less than {self.least:g}")
            if isinstance(one, int | float) and one > self.most:
                raise ValueError(f"is more than {self.most:g}")
            if self.choices and one not in self.choices and not (self.addresses and is_address(str(one))):
                whose = f"has {one!r}, which " if len(several) > 1 else ""
                allowed = (*self.choices, *(["HOST:PORT"] if self.addresses else []))
                raise ValueError(f"{whose}is none of {', '.join(allowed)}")


def is_address(text: str) -> bool:
    """Whether it is HOST:PORT."""
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 1 <= int(port) <= PORT_MOST


def whole(text: str) -> int:
    """A whole number; ValueError with the end of a sentence."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("is no whole number") from None


def number(text: str) -> float:
    """A finite number; ValueError with the end of a sentence."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError("is no number") from None
    if not math.isfinite(value):
        raise ValueError("is no number")
    return value


def _made(
    common: bool,
    name: str,
    kind: Kind,
    full: str,
    quick: str | None,
    text: str,
    *env: str,
    least: float = 0,
    most: float = math.inf,
) -> Knob:
    return Knob(name, kind, full, full if quick is None else quick, env, text, common, least, most)


_common, _own = partial(_made, True), partial(_made, False)
_port = partial(_common, most=PORT_MOST)


#: The quick value None is the full one.
TABLE: Final[Sequence[Knob]] = (
    _common("seconds", "float", "60", "2.5", "length of the load interval", least=0.1),
    _common("warmup", "float", "5", "1", "seconds of load before the interval"),
    _common("cooldown", "float", "2", "0.3", "seconds of load after the interval"),
    _common("repeats", "int", "3", "1", "runs of each cell; medians are reported", least=1),
    _common("seed", "int", "0", None, "of the order of runs; 0 draws one and records it"),
    _common("results", "text", "bench-results", None, "folder that gets a folder of each run", "RESULTS_DIR"),
    Knob(
        "targets",
        "texts",
        *(",".join(TARGETS),) * 2,
        text="direct, pgshoal, pgbouncer, or HOST:PORT",
        common=True,
        choices=TARGETS,
        addresses=True,
    ),
    Knob("engine", "text", "auto", "auto", (), "engine of pgshoal", common=True, choices=ENGINES),
    _common("processes", "ints", "1,2,4,8", "1,2", "pgshoal's workers, or PgBouncers on one port", least=1),
    _common("budget", "int", "128", "32", "server connections in all, divided among the processes", least=1),
    Knob("pin", "flag", "off", "off", (), "bind each pooler process to a processor", common=True),
    _common("pg_host", "text", "", None, "a PostgreSQL that runs already; empty: the kit starts one", "PG_HOST"),
    _port("pg_port", "int", "5432", None, "port of that PostgreSQL", "PG_PORT", least=1),
    _common("pg_user", "text", "postgres", None, "role on that PostgreSQL", "PG_USER"),
    Knob("pg_password", "text", "", "", ("PG_PASSWORD",), "password of that role", common=True, secret=True),
    _common("pg_database", "text", "postgres", None, "database there, with room for tables", "PG_DATABASE"),
    _port("direct_port", "int", "0", None, "port of that PostgreSQL, when it is not pg_port", "DIRECT_PORT"),
    _common("pooler_host", "text", "127.0.0.1", None, "host of a pooler that runs already", "POOLER_HOST"),
    _port("pooler_port", "int", "0", None, "port of that pooler; 0: there is none", "POOLER_PORT"),
    _common("pgbouncer", "text", "", None, "program of PgBouncer; empty: found or fetched", "PGBOUNCER"),
    # What pooling buys: connect, burst, backends.
    _own(
        "pg_max_connections",
        "int",
        "25",
        None,
        "max_connections of the kit's PostgreSQL",
        "PG_MAX_CONNECTIONS",
        least=4,
    ),
    _own("default_pool_size", "int", "10", None, "of the pooler", "DEFAULT_POOL_SIZE", least=1),
    _own("max_client_conn", "int", "1000", None, "of the pooler", "MAX_CLIENT_CONN", least=1),
    _own("server_idle_timeout", "int", "5", None, "of the pooler, in seconds", "SERVER_IDLE_TIMEOUT"),
    _own("units", "int", "5000", "1500", "connections of `connect`", "UNITS", least=1),
    _own("a_concurrency", "int", "15", None, "threads of `connect`", "A_CONCURRENCY", least=1),
    _own("b_concurrency", "int", "100", None, "clients at once of `burst`", "B_CONCURRENCY", least=1),
    _own("b_hold_ms", "int", "50", "200", "how long each of them holds its connection", "B_HOLD_MS"),
    _own("c_hold", "int", "20", None, "clients of `backends`", "C_HOLD", least=1),
    # pgbench that reconnects, and a thousand clients.
    _own("churn_clients", "int", "20", None, "clients of `churn`", least=1),
    _own("churn_transactions", "int", "100", "50", "transactions of each of them", least=1),
    _own("ceiling_clients", "int", "1000", "300", "clients of `ceiling`", least=1),
    _own("ceiling_seconds", "float", "60", "4", "length of the load of `ceiling`", least=0.1),
    _own("ceiling_max_connections", "int", "110", None, "max_connections of the kit's PostgreSQL there", least=4),
    _own("ceiling_pool_size", "int", "100", None, "server connections of the pooler there", least=1),
    # Scaling, TLS, mixed traffic.
    _own("scaling_clients", "ints", "8,64,256,1024", "8,256", "persistent clients of `scaling`", least=1),
    _own("scaling_tls", "flag", "on", "off", "TLS on both sides in `scaling`"),
    _own("rows", "int", "1000000", "100000", "rows of the table `events`", least=1),
    _own("tls_clients", "int", "64", "16", "persistent clients of `tls`", least=1),
    _own("api_rate", "int", "8000", "1000", "requests a second of `mixed`, open loop", least=1),
    _own("api_clients", "int", "64", "16", "connections that carry them", least=1),
    _own("exports", "int", "4", "2", "streams that export beside them", least=1),
    _own("export_mb", "int", "150", "50", "megabytes of one export", least=1),
    _own("mixed_processes", "int", "4", None, "processes of `mixed`; isolated: one of them for exports", least=2),
    _own("scale", "int", "5", None, "of pgbench's tables", least=1),
    # Cancels, nodes, comparison.
    _own("cancel_attempts", "int", "100", "40", "cancels of `cancel`", least=1),
    _own("cancel_processes", "int", "4", None, "processes of `cancel` where there are several", least=2),
    _own("nodes_clients", "int", "20", "8", "pgbench's clients of `nodes`", least=1),
    _own("idle_clients", "int", "10000", "2000", "clients whose memory is measured", least=1),
    _own("copy_mb", "int", "150", None, "megabytes of one COPY", least=1),
    _own("only", "text", "", None, "cases of `compare`, by the beginnings of their names"),
    Knob("engines", "texts", "uring,epoll,python", "auto", (), "engines of `compare`", choices=ENGINES),
    _own("compare_seconds", "float", "5", "2", "length of the load interval of `compare`", least=0.1),
)
KNOBS: Final[Mapping[str, Knob]] = MappingProxyType({knob.name: knob for knob in TABLE})


@dataclass(frozen=True)
class Knobs:
    """All sizes of one run, read. Asking for a knob by the wrong kind is a mistake of the asker: TypeError."""

    quick: bool
    values: Mapping[str, Setting] = field(repr=False)
    #: names of those that an option or a variable has set
    given: frozenset[str] = frozenset()

    def int(self, name: str) -> int:
        """A whole number."""
        value = self._of("int", name)
        assert isinstance(value, int)
        return value

    def float(self, name: str) -> float:
        """A number."""
        value = self._of("float", name)
        assert isinstance(value, float)
        return value

    def text(self, name: str) -> str:
        """A text, stripped."""
        return str(self._of("text", name))

    def flag(self, name: str) -> bool:
        """On or off."""
        return bool(self._of("flag", name))

    def ints(self, name: str) -> tuple[Whole, ...]:
        """Whole numbers, in the order given; never none."""
        value = self._of("ints", name)
        assert isinstance(value, tuple)
        return tuple(one for one in value if isinstance(one, int))

    def texts(self, name: str) -> tuple[str, ...]:
        """Texts, in the order given; never none."""
        value = self._of("texts", name)
        assert isinstance(value, tuple)
        return tuple(map(str, value))

    def _of(self, kind: Kind, name: str) -> Setting:
        if KNOBS[name].kind != kind:
            raise TypeError(f"the knob {name} is of kind {KNOBS[name].kind}, not {kind}")
        return self.values[name]

    def as_dict(self) -> dict[str, object]:
        """What a record of the run may show: everything but secrets."""
        return {name: value for name, value in self.values.items() if not KNOBS[name].secret}

    def secrets(self) -> tuple[str, ...]:
        """The passwords that were given: no output may hold one of them."""
        return tuple(str(value) for name, value in self.values.items() if KNOBS[name].secret and value)


def resolve(options: Mapping[str, str | None], environ: Mapping[str, str], quick: bool) -> Knobs:
    """Reads all knobs: an option beats the environment, the environment beats the size; ValueError names the culprit.

    An option that is None, and a variable that is empty, is not given.
    """
    if unknown := [name for name in options if name not in KNOBS]:
        raise ValueError(f"no knob {', '.join(unknown)}; there are {', '.join(KNOBS)}")
    given = {knob.name: found for knob in TABLE if (found := _given(knob, options, environ))}
    values = {k.name: k.read(*given.get(k.name, (k.quick if quick else k.full, k.option))) for k in TABLE}
    return Knobs(quick, MappingProxyType(values), frozenset(given))


def _given(knob: Knob, options: Mapping[str, str | None], environ: Mapping[str, str]) -> tuple[str, str] | None:
    """A value that somebody asked for, and the option or variable it came by."""
    option = options.get(knob.name)
    if option is not None:
        return option, knob.option
    return next(((environ[name], name) for name in knob.variables if environ.get(name)), None)

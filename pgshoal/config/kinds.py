"""The kinds of value a setting may hold: how each is read, shown, and described when it is wrong."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

TLS_VERSIONS = ("tlsv1.0", "tlsv1.1", "tlsv1.2", "tlsv1.3")
_TLS_WORDS: dict[str, tuple[str, ...]] = {
    "all": TLS_VERSIONS,
    "tlsv1": TLS_VERSIONS,
    "secure": TLS_VERSIONS[2:],
    "default": TLS_VERSIONS[2:],
    **{version: (version,) for version in TLS_VERSIONS},
}
_INTEGER = re.compile(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]{0,19})")
_DECIMAL = re.compile(r"\s*[+-]?[0-9]{1,20}")
_SECONDS = re.compile(r"\s*\+?(0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|-0)")
_INT32_MAX = 2**31 - 1
# Microseconds in a signed 64-bit integer: longer times overflow wherever they are counted that way.
_SECONDS_MAX = 9e12


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value: `parse` raises ValueError, and `allowed` is what the error says."""

    name: str
    allowed: str
    parse: Callable[[str], object]
    show: Callable[[object], str] = str


def _reject() -> ValueError:
    return ValueError("not allowed")


def _integer(text: str) -> int:
    """Read a whole number as C's strtol does with base 0: 10, 0x0a and 012 are all ten."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise _reject()
    sign, digits = match.groups()
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits.startswith("0") else 10
    value = int(digits, base)
    return -value if sign == "-" else value


def integer(minimum: int = 0, maximum: int = _INT32_MAX, unit: str = "") -> Kind:
    """A whole number in a range; hexadecimal (0x..) and octal (0..) are understood."""

    def parse(text: str) -> int:
        value = _integer(text)
        if not minimum <= value <= maximum:
            raise _reject()
        return value

    what = f"a whole number of {unit}" if unit else "a whole number"
    return Kind("integer", f"{what} from {minimum} to {maximum}", parse)


def inheriting_integer() -> Kind:
    """A whole number in a connection string; a negative one means unset, as PgBouncer reads it."""

    def parse(text: str) -> int | None:
        if _DECIMAL.fullmatch(text) is None or abs(int(text)) > _INT32_MAX:
            raise _reject()
        value = int(text)
        return None if value < 0 else value

    return Kind("integer", f"a decimal whole number up to {_INT32_MAX}, or -1 to inherit", parse, _show_inherited)


def port() -> Kind:
    """A TCP port of a server or peer, in decimal."""

    def parse(text: str) -> int:
        if _DECIMAL.fullmatch(text) is None or not 1 <= int(text) <= 65535:
            raise _reject()
        return int(text)

    return Kind("port", "a port number from 1 to 65535", parse)


def _seconds(text: str) -> float:
    match = _SECONDS.fullmatch(text)
    if match is None:
        raise _reject()
    digits = match[1]
    value = float(int(digits, 16)) if digits[:2] in ("0x", "0X") else abs(float(digits))
    if not math.isfinite(value) or value > _SECONDS_MAX:
        raise _reject()
    return value


def show_seconds(value: object) -> str:
    """Show a time as PgBouncer does: six significant digits."""
    return f"{value:g}"


def _inheriting_seconds(text: str) -> float | None:
    # Entries are read in decimal throughout, unlike the main section.
    if "x" in text.lower():
        raise _reject()
    return None if re.fullmatch(r"\s*-[0-9]*[1-9][0-9]*", text) else _seconds(text)


def _show_inherited(value: object) -> str:
    return "-1" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _flag(text: str) -> bool:
    value = _integer(text)
    if value not in (0, 1):
        raise _reject()
    return value == 1


def _show_flag(value: object) -> str:
    return "1" if value else "0"


def choice(*words: str, also: tuple[str, ...] = ()) -> Kind:
    """One of some words, in any case; `also` are accepted but not advertised."""

    def parse(text: str) -> str:
        word = text.lower()
        if word not in words and word not in also:
            raise _reject()
        return word

    return Kind("choice", "one of " + ", ".join(words), parse)


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[^,\s]+", text))


def _show_words(value: object) -> str:
    assert isinstance(value, tuple)
    return ", ".join(value)


def _tls_protocols(text: str) -> tuple[str, ...]:
    """Read a list of versions; "!" takes one away, and a list that starts so begins with all."""
    words = [word.strip().lower() for word in re.split(r"[,:]", text)] if text.strip() else ["secure"]
    chosen = set(TLS_VERSIONS) if words[0].startswith("!") else set()
    for word in words:
        versions = _TLS_WORDS.get(word.removeprefix("!"))
        if versions is None:
            raise _reject()
        chosen = chosen - set(versions) if word.startswith("!") else chosen | set(versions)
    if not chosen:
        raise _reject()
    return tuple(version for version in TLS_VERSIONS if version in chosen)


def _workers(text: str) -> int:
    return 0 if text.lower() == "auto" else int(str(integer(1, 1024).parse(text)))


def _show_workers(value: object) -> str:
    return "auto" if value == 0 else str(value)


def _affinity(text: str) -> str:
    word = text.lower()
    if word not in ("none", "auto") and not re.fullmatch(r"[0-9]+(-[0-9]+)?(,\s*[0-9]+(-[0-9]+)?)*", word):
        raise _reject()
    return word


def _http_listen(text: str) -> str:
    if text.lower() == "off":
        return "off"
    host, colon, number = text.rpartition(":")
    if not (host and colon and number.isascii() and number.isdigit() and 1 <= int(number) <= 65535):
        raise _reject()
    return text


def _networks(text: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    try:
        return tuple(ipaddress.ip_network(word) for word in _words(text))
    except ValueError:
        raise _reject() from None


def _show_networks(value: object) -> str:
    assert isinstance(value, tuple)
    return ", ".join(map(str, value))


def _not_console(text: str) -> str:
    if text == "pgbouncer":
        raise _reject()
    return text


TEXT = Kind("text", "any text", str)
SQL = Kind("SQL", "an SQL statement", str)
PATH = Kind("path", "a path", str)
NAMES = Kind("list", "names separated by commas", _words, _show_words)
FLAG = Kind("flag", "0 or 1", _flag, _show_flag)
SECONDS = Kind(
    "seconds", "a number of seconds, 0 or more, without a unit (fractions with a dot)", _seconds, show_seconds
)
INHERITING_SECONDS = Kind(
    "seconds", "a number of seconds without a unit, or -1 to inherit", _inheriting_seconds, _show_inherited
)
TLS_PROTOCOLS = Kind(
    "TLS versions",
    "all, secure, tlsv1, tlsv1.0, tlsv1.1, tlsv1.2, tlsv1.3, separated by commas, ! before one to leave it out",
    _tls_protocols,
    _show_words,
)
WORKERS = Kind("workers", "auto, or a whole number from 1 to 1024", _workers, _show_workers)
CPU_LIST = Kind("CPU list", "none, auto, or CPU numbers such as 0,2-5", _affinity)
NETWORKS = Kind(
    "networks",
    "addresses or networks such as 10.0.0.0/8, separated by commas, with no bits behind the mask",
    _networks,
    _show_networks,
)
HTTP_LISTEN = Kind("address", "off, or host:port", _http_listen)
DATABASE_NAME = Kind("database name", 'the name of a database entry other than "pgbouncer"', _not_console)

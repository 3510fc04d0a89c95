"""Reads an auth_hba_file: who may come from where, and how they prove who they are."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from pgshoal.config.fields import BadLine, Word, lists, words
from pgshoal.config.ldap import BadLdapOption, LdapOptions, parse_ldap_options
from pgshoal.errors import ConfigError

LineKind = Literal["local", "host", "hostssl", "hostnossl"]
Method = Literal["trust", "reject", "md5", "password", "peer", "cert", "scram-sha-256", "ldap"]

KINDS: Final[tuple[LineKind, ...]] = ("local", "host", "hostssl", "hostnossl")
METHODS: Final[tuple[Method, ...]] = ("trust", "reject", "md5", "password", "peer", "cert", "scram-sha-256", "ldap")
NESTING_MAX: Final = 10
_KEYWORDS: Final = ("all", "sameuser", "replication")
_NAMES: Final = "all, sameuser, replication, names, names in quotes, and @file, separated by commas"
_ADDRESS: Final = "all, address/bits, or an address and a mask; IPv4 or IPv6; host names are not looked up"


@dataclass(frozen=True, slots=True)
class Names:
    """A list of databases or users: names, and keywords that stand for more."""

    names: frozenset[str] = frozenset()
    keywords: frozenset[str] = frozenset()

    @property
    def everybody(self) -> bool:
        """Whether `all` is among them."""
        return "all" in self.keywords


@dataclass(frozen=True, slots=True)
class Network:
    """Addresses of one IP version whose bits under the mask are those of `address`."""

    version: int
    address: int
    mask: int


@dataclass(frozen=True, slots=True)
class HbaRule:
    """One line. `network` None is any address; `ldap` None with the method ldap is a line that lets nobody in."""

    line: int
    kind: LineKind
    databases: Names
    users: Names
    network: Network | None
    method: Method
    map: str | None = None
    ldap: LdapOptions | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class HbaFile:
    """What a file gave, and what was wrong with lines that were passed over."""

    rules: tuple[HbaRule, ...] = ()
    warnings: tuple[ConfigError, ...] = ()


def read_hba(path: str, maps: Collection[str]) -> HbaFile:
    """Read a file; `maps` are the known ident maps. A file that cannot be read has no rules, so lets nobody in."""
    try:
        text = _read(path)
    except OSError as error:
        reason = f"could not open hba config file {path}: {error.strerror}"
        return HbaFile((), (ConfigError(path, 0, "", None, reason),))
    return parse_hba(text, path, maps)


def parse_hba(text: str, path: str, maps: Collection[str] = ()) -> HbaFile:
    """Read the text of a file. A line that cannot be used is passed over with a warning, as PgBouncer does.

    One that would have rejected somebody raises ConfigError instead: passing it over would open the door.
    """
    rules: list[HbaRule] = []
    warnings: list[ConfigError] = []

    for number, line in enumerate(text.split("\n"), start=1):
        try:
            rule = _rule(_Line(line, number, path, maps, warnings))
        except BadLine as bad:
            reason = f"could not parse hba config line {number}: {bad.allowed}"
            warnings.append(ConfigError(path, number, bad.field, bad.value, reason))
            if _rejects(line):
                raise warnings[-1] from None
        else:
            if rule is not None:
                rules.append(rule)
    return HbaFile(tuple(rules), tuple(warnings))


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    number: int
    path: str
    maps: Collection[str]
    warnings: list[ConfigError]


def _rule(line: _Line) -> HbaRule | None:
    fields = lists(line.text)
    first = next(fields, None)
    if first is None:
        return None
    kind = _kind(_single(first[0], "type", "one of " + ", ".join(KINDS)))
    databases = _names(line, "database", next(fields, None))
    users = _names(line, "user", next(fields, None))
    network = _network(fields) if kind != "local" else None
    found = next(fields, None)
    allowed = "one of " + ", ".join(METHODS)
    if found is None:
        raise BadLine("method", None, allowed)
    word = _single(found[0], "method", allowed)
    method = next((known for known in METHODS if word.is_keyword(known)), None)
    if method is None:
        raise BadLine("method", word.text, allowed)
    if method == "ldap":
        return HbaRule(line.number, kind, databases, users, network, method, ldap=_ldap(line, found[1]))
    return HbaRule(line.number, kind, databases, users, network, method, _map(line, found[1]))


def _kind(word: Word) -> LineKind:
    for known in KINDS:
        if word.is_keyword(known):
            return known
    raise BadLine("type", word.text, "one of " + ", ".join(KINDS))


def _single(field: list[Word], name: str, allowed: str) -> Word:
    if len(field) != 1:
        raise BadLine(name, None, allowed)
    return field[0]


def _names(line: _Line, name: str, found: tuple[list[Word], int] | None) -> Names:
    if found is None:
        raise BadLine(name, None, _NAMES)
    names: set[str] = set()
    keywords: set[str] = set()
    for word in _expanded(found[0], os.path.dirname(line.path), name, 0):
        if word.quoted:
            names.add(word.text)
        elif word.text in _KEYWORDS:
            keywords.add(word.text)
        elif word.text in ("samerole", "samegroup") or word.text[0] in "+/":
            raise BadLine(name, word.text, f"roles and regular expressions are not supported; allowed: {_NAMES}")
        else:
            names.add(word.text)
    return Names(frozenset(names), frozenset(keywords))


def _expanded(found: list[Word], folder: str, name: str, depth: int) -> Iterator[Word]:
    """The words of a list, those of the @files it names in their place."""
    for word in found:
        if word.quoted or not word.text.startswith("@"):
            yield word
            continue
        if depth == NESTING_MAX:
            raise BadLine(name, word.text, f"files may name each other {NESTING_MAX} deep")
        try:
            text = _read(_beside(word.text[1:], folder))
        except OSError as error:
            raise BadLine(name, word.text, f"could not read the file: {error.strerror}") from None
        inner = [each for row in text.split("\n") for each in words(row) if not each.is_keyword(",")]
        yield from _expanded(inner, folder, name, depth + 1)


def _beside(path: str, folder: str) -> str:
    """A relative path means the working directory, and if there is nothing, the folder of the hba file."""
    return path if os.path.exists(path) else os.path.join(folder, path)


def _network(fields: Iterator[tuple[list[Word], int]]) -> Network | None:
    found = next(fields, None)
    word = _single(found[0] if found is not None else [], "address", _ADDRESS)
    if word.is_keyword("all"):
        return None
    text, slash, bits = word.text.partition("/")
    try:
        address = ipaddress.ip_address(text)
        if slash:
            if not (bits.isascii() and bits.isdigit() and int(bits) <= address.max_prefixlen):
                raise ValueError
            full = (1 << address.max_prefixlen) - 1
            mask = full ^ (full >> int(bits))
        else:
            mask = _mask(next(fields, None), address.version)
    except ValueError:
        raise BadLine("address", word.text, _ADDRESS) from None
    if int(address) & ~mask:
        raise BadLine("address", word.text, "bits behind the mask must be 0, or nobody could match")
    return Network(address.version, int(address), mask)


def _mask(found: tuple[list[Word], int] | None, version: int) -> int:
    word = _single(found[0] if found is not None else [], "mask", _ADDRESS)
    try:
        mask = ipaddress.ip_address(word.text)
    except ValueError:
        raise BadLine("mask", word.text, _ADDRESS) from None
    if mask.version != version:
        raise BadLine("mask", word.text, "a mask of the same IP version as the address")
    return int(mask)


def _map(line: _Line, end: int) -> str | None:
    """The one option of these methods: the rest of the line is empty, a comment, or map=name."""
    rest = line.text[end:].split("#", 1)[0].strip()
    if not rest:
        return None
    key, equals, name = rest.partition("=")
    name = name[1:-1] if len(name) > 1 and name[0] == name[-1] == '"' else name
    if key != "map" or not equals or not name or any(char in ' \t,"' for char in name):
        raise BadLine("options", None, "map=name and nothing else")
    if name not in line.maps:
        raise BadLine("map", name, "a map of auth_ident_file")
    return name


def _ldap(line: _Line, end: int) -> LdapOptions | None:
    """The options are the rest of the line. With bad ones the rule stays, and lets nobody in."""
    try:
        return parse_ldap_options(line.text[end:], comments=True)
    except BadLdapOption as bad:
        line.warnings.append(
            ConfigError(line.path, line.number, bad.key, None, f"{bad.allowed}; this line lets nobody in")
        )
        return None


def _rejects(line: str) -> bool:
    """Whether a line that cannot be read speaks of rejecting anybody."""
    return "reject" in line.split("#", 1)[0].replace('"', " ").split()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except ValueError:
        raise OSError(22, "a path cannot hold a zero byte") from None

"""Tracked parameters: interned sets, the SET text that turns one into another, and what servers report."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from pgshoal.engine.python.frames import LENGTH
from pgshoal.wire.params import canonical_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgshoal.engine.python.conn import Client, Conn, Server

NOT_TRACKED = frozenset(
    {
        "server_version",
        "server_encoding",
        "integer_datetimes",
        "is_superuser",
        "session_authorization",
        "in_hot_standby",
    }
)
NAME_LISTS = frozenset({"search_path", "temp_tablespaces", "local_preload_libraries", "session_preload_libraries"})


_NAME = re.compile(r"[a-z_][a-z0-9_.$]*\Z")


class ParameterSet:
    """A set of values, made once for all connections that have it, so that comparing is one identity test."""

    __slots__ = ("__weakref__", "known_equal")

    def __init__(self) -> None:
        #: The set last found to need no SET against this one.
        self.known_equal: ParameterSet | None = None


class Parameters:
    """The process-wide table of sets, and the extra names."""

    def __init__(self) -> None:
        self._sets: WeakValueDictionary[frozenset[tuple[str, str | None]], ParameterSet] = WeakValueDictionary()
        self.extra: tuple[str, ...] = ()
        self.extra_bytes: tuple[tuple[str, bytes], ...] = ()

    def set_extra(self, names: Iterable[str]) -> None:
        """Take the names of track_extra_parameters."""
        self.extra = tuple(sorted({name.lower() for name in names}))
        self.extra_bytes = tuple((name, name.encode()) for name in self.extra)

    def intern(self, conn: Conn) -> None:
        """Renew `conn.pset` after a change of its values."""
        pairs: set[tuple[str, str | None]] = {(name, value.lower()) for name, (_, value) in conn.values.items()}
        if conn.is_server:
            for name, value in conn.extras.items():  # type: ignore[attr-defined]
                pairs.add((name, None if value is None else value.lower()))
        key = frozenset(pairs)
        found = self._sets.get(key)
        if found is None:
            found = self._sets[key] = ParameterSet()
        conn.pset = found

    def admit(self, conn: Conn, pairs: Iterable[tuple[str, str]]) -> None:
        """The first full set of a connection."""
        conn.values = {}
        for name, value in pairs:
            lower = name.lower()
            if trackable(lower):
                conn.values[lower] = (name, value)
        self.intern(conn)

    def report(self, conn: Conn, name: str, value: str) -> None:
        """A ParameterStatus that concerns this connection."""
        lower = name.lower()
        if not trackable(lower):
            return
        if conn.values.get(lower) == (name, value):
            return
        conn.values[lower] = (name, value)
        self.intern(conn)

    def difference(self, client: Client, server: Server) -> list[tuple[str, str | None]]:
        """What must be set on the server for this client: [(lower-case name, value or None for DEFAULT)]."""
        mine, theirs = client.pset, server.pset
        if mine is theirs or (mine is not None and mine.known_equal is theirs and not server.extras):
            return []
        found: list[tuple[str, str | None]] = []
        for name in sorted(client.values):
            value = client.values[name][1]
            held = server.values.get(name)
            has: str | None = held[1] if held is not None else server.extras.get(name)
            if has is None or has.lower() != value.lower():
                found.append((name, value))
        found += [(name, None) for name in sorted(server.extras) if name not in client.values]
        if not found and mine is not None and not server.extras:
            mine.known_equal = theirs
        return found

    def mentioned(self, text: bytes) -> tuple[str, ...]:
        """The extra names that occur in a text."""
        if not self.extra_bytes:
            return ()
        lower = text.lower()
        return tuple(name for name, raw in self.extra_bytes if raw in lower)

    def doubt(self, server: Server, names: Iterable[str]) -> None:
        """The values of these names on this server are not known any more, unless it reports them."""
        changed = False
        for name in names:
            if name not in server.values and server.extras.get(name, "") is not None:
                server.extras[name] = None
                changed = True
        if changed:
            self.intern(server)

    def settled(self, client: Client, server: Server) -> None:
        """The SETs of `server.sets` have succeeded."""
        for name, value in server.sets:
            held = server.values.get(name)
            server.extras.pop(name, None)
            if value is not None:
                if held is not None:
                    client.values[name] = held
                if held is None or name in self.extra:
                    server.extras[name] = value
        server.sets = []
        self.intern(client)
        self.intern(server)


def trackable(lower: str) -> bool:
    """A plain word that a server lets us SET."""
    return _NAME.match(lower) is not None and lower not in NOT_TRACKED


def quoted(value: str) -> str:
    """A string literal."""
    text = value.replace("\0", "").replace("'", "''")
    return "E'" + text.replace("\\", "\\\\") + "'" if "\\" in text else f"'{text}'"


def set_query(sets: Iterable[tuple[str, str | None]]) -> bytes:
    """The simple Query that sets all of them."""
    parts = []
    for lower, value in sets:
        name = canonical_name(lower)
        if value is None:
            parts.append(f"SET {name}=DEFAULT;")
        elif lower in NAME_LISTS:
            parts.append(f"SELECT pg_catalog.set_config('{name}',{quoted(value)},false);")
        else:
            parts.append(f"SET {name}={quoted(value)};")
    text = "".join(parts).encode("utf-8", "surrogateescape") + b"\0"
    return b"Q" + LENGTH.pack(len(text) + 4) + text


def status_pair(message: bytes) -> tuple[str, str] | None:
    """Name and value of a whole ParameterStatus, or None if it is broken."""
    parts = message[5:].split(b"\0", 2)
    if len(parts) != 3:
        return None
    return parts[0].decode("utf-8", "surrogateescape"), parts[1].decode("utf-8", "surrogateescape")

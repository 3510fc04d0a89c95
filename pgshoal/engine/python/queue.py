"""The entries of a link's queue of expected responses, and what each kind lets pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pgshoal.engine.python.prepared import Statement, UnnamedCopy
    from pgshoal.engine.python.reading import Reading

QUERY: Final = 0
FUNCTION: Final = 1
PARSE: Final = 2
BIND: Final = 3
DESCRIBE_STATEMENT: Final = 4
DESCRIBE_PORTAL: Final = 5
EXECUTE: Final = 6
CLOSE: Final = 7
SYNC: Final = 8
COPY_END: Final = 9

FORWARDED: Final = 0
SKIPPED: Final = 1
INJECTED: Final = 2

#: By kind: types that end the entry, types that pass before. `Z` is treated apart.
ENDS: Final = tuple(frozenset(text) for text in (b"", b"", b"1", b"2", b"Tn", b"Tn", b"CIs", b"3", b"", b""))
PASSES: Final = tuple(frozenset(text) for text in (b"cCDdTGHWVI", b"V", b"", b"", b"t", b"", b"DGHWdc", b"", b"", b""))
#: By kind: an error leaves the entry in place until `Z`.
ENDED_BY_READY: Final = (True, True, False, False, False, False, False, False, True, False)


class Entry:
    """One expected response. Plain entries are shared; those with something to undo are made for one request."""

    __slots__ = (
        "answer",
        "dealloc",
        "duplicate",
        "kind",
        "mapping",
        "name",
        "origin",
        "plain",
        "saved",
        "serial",
        "stale",
        "statement",
        "unnamed",
        "void",
    )

    def __init__(self, kind: int, origin: int = FORWARDED, plain: bool = False) -> None:
        self.kind = kind
        self.origin = origin
        self.plain = plain
        self.answer = b""
        #: Parse, Close: the client's name that was mapped or dropped.
        self.name: bytes | None = None
        #: Parse, injected Close: what the server's cache gained or lost; Bind, Describe: what they use.
        self.statement: Statement | None = None
        #: Parse, Close: the statement the client's name was mapped to.
        self.mapping: Statement | None = None
        #: Parse of a name that is mapped: (name, this Parse's own tail, the mapped statement, how the tail is read).
        self.duplicate: tuple[bytes, bytes, Statement, Reading] | None = None
        #: Injected Close: undone, it leaves a stale statement.
        self.stale = False
        #: Query, Execute: the maps set aside by a reset.
        self.saved: tuple[Any, ...] | None = None
        #: Query, Execute: the client's name a DEALLOCATE speaks of.
        self.dealloc: bytes | None = None
        #: Parse or Close of the unnamed statement: (the copy before it, the server's mark before it), and its serial.
        self.unnamed: tuple[UnnamedCopy | None, int] | None = None
        self.serial = 0
        self.void = False


PLAIN: Final = tuple(Entry(kind, FORWARDED, plain=True) for kind in range(10))
PLAIN_QUERY: Final = PLAIN[QUERY]
PLAIN_SYNC: Final = PLAIN[SYNC]
PLAIN_COPY_END: Final = PLAIN[COPY_END]

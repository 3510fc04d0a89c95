"""What the engine knows of one connection: a client, a server, and the line between them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pgshoal.engine.python.params import ParameterSet
    from pgshoal.engine.python.pool import Pool
    from pgshoal.engine.python.prepared import Cached, Statement, UnnamedCopy
    from pgshoal.engine.python.queue import Entry

DIALOGUE: Final = "dialogue"
PARKED: Final = "parked"
WAITING: Final = "waiting"
LINKING: Final = "linking"
LINKED: Final = "linked"
IDLE: Final = "idle"
HELD: Final = "held"
MOVING: Final = "moving"
FROZEN: Final = "frozen"
CLOSING: Final = "closing"

#: A mark that no client's copy of an unnamed statement has.
UNNAMED_UNKNOWN: Final = -1


class Conn:
    """Both kinds of connection: input not yet parsed, output not yet sent, and the driver's socket."""

    __slots__ = (
        "closing_us",
        "dirty",
        "forwarding",
        "full",
        "gone",
        "id",
        "inbuf",
        "last_us",
        "limit",
        "mode",
        "need",
        "out",
        "out_size",
        "pool",
        "pset",
        "skip",
        "socket",
        "values",
    )

    is_server = False

    def __init__(self, conn_id: int) -> None:
        self.id = conn_id
        self.mode = DIALOGUE
        self.pool: Pool | None = None
        #: Received and not yet parsed; nothing is tried before it has `need` bytes.
        self.inbuf = bytearray()
        self.need = 0
        #: Bytes of the current message still to come, and whether they are passed on or thrown away.
        self.skip = 0
        self.forwarding = False
        self.out: list[bytes] = []
        self.out_size = 0
        self.full = False
        self.dirty = False
        self.gone = False
        self.limit = 0
        self.last_us = 0
        self.closing_us = 0
        #: Tracked parameters: lower-case name -> (name, value); `pset` is the interned set of them.
        self.values: dict[str, tuple[str, str]] = {}
        self.pset: ParameterSet | None = None
        self.socket: Any = None


class Client(Conn):
    """A connection we accepted."""

    __slots__ = (
        "announced",
        "answered",
        "awaiting",
        "errored",
        "framing_startup",
        "fresh",
        "idle_limit_us",
        "leaving",
        "link",
        "listener",
        "notified",
        "portals",
        "prepared",
        "unnamed",
        "wait_limit_us",
        "wait_us",
    )

    def __init__(self, conn_id: int, listener: int) -> None:
        super().__init__(conn_id)
        self.listener = listener
        #: ACCEPTED was given.
        self.announced = False
        #: Requests for encryption the engine has answered itself.
        self.answered: bytes = b""
        #: It moves to another process as soon as it is released.
        self.leaving = False
        self.link: Server | None = None
        self.framing_startup = True
        self.fresh = True
        #: Python has been given something and must say how to go on.
        self.awaiting = False
        self.errored = False
        self.wait_us = 0
        self.notified = False
        self.idle_limit_us = 0
        self.wait_limit_us = -1
        self.prepared: dict[bytes, Statement] = {}
        self.unnamed: UnnamedCopy | None = None
        #: Portals bound to a statement that resets or deallocates: name -> True or the deallocated name.
        self.portals: dict[bytes, bool | bytes] = {}


class Server(Conn):
    """A connection we made, and the state of the link it is in."""

    __slots__ = (
        "answer_due",
        "answered",
        "batch",
        "busy",
        "cache",
        "connecting",
        "copy_in",
        "decide",
        "described",
        "enrolled",
        "extras",
        "gen",
        "holds",
        "idle_us",
        "link",
        "query_us",
        "queue",
        "released",
        "sets",
        "status",
        "unnamed",
        "unnamed_gen",
        "unnamed_waits",
        "unsure",
        "unsure_in_block",
        "void",
        "withheld",
        "xact_us",
    )

    is_server = True

    def __init__(self, conn_id: int) -> None:
        super().__init__(conn_id)
        self.link: Client | None = None
        self.connecting = True
        self.enrolled = False
        #: SSLRequest was sent: one bare byte answers it; then nothing is parsed until Python goes on.
        self.answer_due = False
        self.answered = False
        self.queue: deque[Entry] = deque()
        self.status = ""
        self.busy = False
        self.copy_in = False
        #: Counts the Syncs forwarded: an entry with an older number has a Sync behind it.
        self.gen = 0
        self.holds = 0
        #: It comes from a link, so `decide` concerns it.
        self.released = False
        self.decide = False
        self.idle_us = 0
        self.query_us = 0
        self.xact_us = 0
        #: Least recently used first.
        self.cache: dict[Statement, Cached] = {}
        self.void = False
        #: Serial of the unnamed statement it holds; 0 none. Parses of it in the queue, Syncs before.
        self.unnamed = 0
        self.unnamed_waits = 0
        self.unnamed_gen = 0
        #: What requests under way may change of how texts are read; what this transaction has changed.
        self.unsure = 0
        self.unsure_in_block = 0
        #: A ParameterDescription has been seen for the head.
        self.described = False
        #: What we have set and must remember: lower-case name -> value, None when not known.
        self.extras: dict[str, str | None] = {}
        self.sets: list[tuple[str, str | None]] = []
        #: What the client sent since its Bind, as long as it may have to be sent again; the error that came instead.
        self.batch: bytearray | None = None
        self.withheld = b""

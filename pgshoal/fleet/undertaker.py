"""Holds a duplicate of every server socket, and gives slots back only when the backend behind it is really gone."""

from __future__ import annotations

import asyncio
import errno
import math
import socket
import ssl
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from pgshoal.config import effective
from pgshoal.config.model import ServerTls
from pgshoal.fleet import servertls
from pgshoal.fleet.channel import Message
from pgshoal.fleet.children import Child, Keeper
from pgshoal.fleet.delivery import SslRefused, deliver
from pgshoal.fleet.escrow import Held, Host, ended, shut
from pgshoal.worker.log import place

#: Read from one socket in one turn of the loop.
_READ: Final = 256 * 1024
#: A polite backend exits within this; only those that do not are looked after.
_POLITE_S: Final = 1.0
#: The same after a worker's death, when many idle ones see the end of file and a few busy ones need a cancel request.
_ORPHAN_S: Final = 0.02
_REPEAT_MAX_S: Final = 8.0
_CONTEXT_S: Final = 10.0
_COMPLAINT_S: Final = 60.0
_PATIENCE_S: Final = 15.0  # where server_connect_timeout is off
#: The network gave up, and nobody knows what became of the backend.
_UNKNOWN: Final = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})


class Slots(Protocol):
    """What of the ledger is needed here."""

    def give_for(self, seat: int, rows: Sequence[int]) -> None:
        """Take one off each row of a seat whose process is dead."""

    def settle(self, seat: int, left: Mapping[int, int]) -> None:
        """A dead seat counts no more in each row than this."""


class LedgerKeeper(Keeper, Protocol):
    """What of the supervisor is needed here."""

    @property
    def ledger(self) -> Slots:
        """The fleet's limits."""


class Undertaker:
    """A duty of the supervisor: `escrow`, `backend`, `lost`, `bury` from workers, `gone` to them."""

    def __init__(self, supervisor: LedgerKeeper) -> None:
        self._supervisor = supervisor
        self._loop = supervisor.loop
        self._children: dict[int, Child] = {}
        #: seat -> server -> its socket
        self._held: dict[int, dict[int, Held]] = {}
        self._dying: Counter[int] = Counter()
        #: seats whose process is dead and whose backends are not all gone, and since when
        self._orphaned: dict[int, float] = {}
        #: adopted servers that were gone before their worker was attached
        self._untold: dict[int, list[int]] = {}
        self._hosts: dict[tuple[str, int], Host] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._contexts: dict[ServerTls, tuple[float, ssl.SSLContext]] = {}
        self._scratch = bytearray(_READ)

    # -- a part of the supervisor

    def attach(self, child: Child) -> None:
        """Listen to a worker."""
        seat = child.seat
        self._children[seat] = child
        self._orphaned.pop(seat, None)
        channel = child.channel
        channel.on("escrow", lambda message: self._escrow(seat, message))
        channel.on("backend", lambda message: self._backend(seat, message))
        channel.on("lost", lambda message: self._lost(seat, message))
        channel.on("bury", lambda message: self._bury(seat, message))
        for number in self._untold.pop(seat, ()):
            self._tell_gone(seat, number)

    def is_ready(self, child: Child) -> None:
        """Nothing to do."""

    def died(self, child: Child) -> None:
        """Nobody uses its servers any more: end each, and free the seat when the last backend is gone."""
        seat = child.seat
        self._children.pop(seat, None)
        for held in list(self._held.get(seat, {}).values()):
            if ended(held.sock):
                # The worker may have given its slots back already, and died before we heard of it.
                self._drop(held)
        left = list(self._held.get(seat, {}).values())
        if left:
            self._supervisor.ledger.settle(seat, Counter(row for held in left for row in held.rows))
            what = f"{len(left)} server connection{'s' if len(left) > 1 else ''}"
            self._supervisor.log.log(f"worker {child.number} (pid {child.pid}) leaves {what}; waiting for their end")
        self._orphan(seat)
        for held in left:
            if not held.dying:
                # At once, so that backends that wait for a query exit without any more ado.
                shut(held.sock)
                self._end(held, _ORPHAN_S)

    def dying(self, seat: int) -> int:
        """Servers of the seat that nobody uses and whose backends may still live."""
        return self._dying[seat]

    def dying_rows(self) -> Counter[int]:
        """Ledger rows in which such servers of any seat count, and how many in each."""
        every = (held for servers in self._held.values() for held in servers.values())
        return Counter(row for held in every if held.dying for row in held.rows)

    def counted(self, seat: int) -> Counter[int]:
        """Ledger rows in which the servers of a seat count, and how many in each."""
        return Counter(row for held in self._held.get(seat, {}).values() for row in held.rows)

    def idle(self) -> bool:
        """No seat waits for anything."""
        return not self._orphaned and not any(self._dying.values())

    def close(self) -> None:
        """The fleet ends: drop all that is held."""
        for task in self._tasks:
            task.cancel()
        for servers in list(self._held.values()):
            for held in list(servers.values()):
                self._drop(held)

    # -- across a re-execution

    def export(self) -> list[dict[str, Any]]:
        """Everything as JSON, with descriptor numbers: they must stay open across exec. Nothing changes here."""
        found: list[dict[str, Any]] = [{"orphaned": seat} for seat in self._orphaned]
        found.extend(held.export() for servers in self._held.values() for held in servers.values())
        return found

    def adopt(self, exported: list[dict[str, Any]]) -> None:
        """Go on where `export` stopped, before or after the workers are attached."""
        for state in exported:
            if "orphaned" not in state:
                held = Held.adopted(state)
                self._held.setdefault(held.seat, {})[held.server] = held
                if state["dying"]:
                    self._end(held, _ORPHAN_S)
        for state in exported:
            if "orphaned" in state:
                self._orphan(int(state["orphaned"]))

    # -- what workers say

    def _escrow(self, seat: int, message: Message) -> None:
        number = int(message["server"])
        if message.fd < 0:
            self._supervisor.log.error(f"the socket of server {number} did not arrive: too few descriptors?")
            return
        sock = socket.socket(fileno=message.fd)
        sock.setblocking(False)
        old = self._held.get(seat, {}).get(number)
        if old is not None:
            self._drop(old)
        rows = [int(row) for row in message["rows"]]
        where, tls = (message["host"], int(message["port"])), bool(message["tls"])
        # A worker of a version before this one does not say the entry.
        held = Held(seat, number, rows, *where, tls, sock, str(message.fields.get("database", "")))
        self._held.setdefault(seat, {})[number] = held

    def _backend(self, seat: int, message: Message) -> None:
        held = self._held.get(seat, {}).get(int(message["server"]))
        if held is not None:
            held.key = bytes.fromhex(message["key"])

    def _lost(self, seat: int, message: Message) -> None:
        held = self._held.get(seat, {}).get(int(message["server"]))
        if held is not None:
            self._drop(held)

    def _bury(self, seat: int, message: Message) -> None:
        number = int(message["server"])
        held = self._held.get(seat, {}).get(number)
        if held is None:
            # Nothing to wait for; a worker without an answer would count it for ever.
            self._tell_gone(seat, number)
        elif not held.dying:
            # The engine has shut its side, and may still be writing what goes before: we do so only after a while.
            self._end(held, 0.0 if message["busy"] else _POLITE_S)

    # -- the end of a backend

    def _end(self, held: Held, patience_s: float) -> None:
        """Read to the end of file, and after `patience_s` see why it does not come."""
        held.dying = True
        held.since_s = self._loop.time()
        self._dying[held.seat] += 1
        # A backend that writes into a socket nobody reads would never see that we are gone.
        self._loop.add_reader(held.sock.fileno(), self._discard, held)
        if patience_s > 0:
            held.timer = self._loop.call_later(patience_s, self._press, held)
        else:
            self._press(held)

    def _discard(self, held: Held) -> None:
        try:
            # MSG_TRUNC: TCP throws the bytes away without copying them. One piece for each turn of the loop.
            count = held.sock.recv_into(self._scratch, _READ, socket.MSG_TRUNC)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            # A reset: the backend has exited. PostgreSQL leaves its socket to the kernel, which closes it at the end.
            if error.errno in _UNKNOWN:
                self._warn([held], error.strerror or str(error))
            self._gone(held)
            return
        if count == 0:
            self._gone(held)
        else:
            held.since_s = self._loop.time()  # a sign of life

    def _press(self, held: Held) -> None:
        """The backend still lives: make sure that it sees the end of file, cancel its query, and come again."""
        held.timer = None
        shut(held.sock)
        host = self._host(held)
        now_s, deadline_s = self._loop.time(), self._deadline_s(held, host)
        if now_s >= deadline_s:
            self._abandon(held.where, now_s)
            return
        if held.key and not held.cancelling:
            held.cancelling = True
            task = self._loop.create_task(self._cancel(held, host))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        delay_s = min(2.0**held.tries, _REPEAT_MAX_S, deadline_s - now_s)
        held.tries += 1
        held.timer = self._loop.call_later(delay_s, self._press, held)

    async def _cancel(self, held: Held, host: Host) -> None:
        try:
            async with host.gate:
                if held.sock.fileno() < 0:
                    return
                if host.silent_since_s is None:
                    host.silent_since_s = self._loop.time()
                async with asyncio.timeout(self._patience_s()):
                    await self._deliver(held)
                self._answered(host)
        except TimeoutError:
            pass  # also what the kernel says of a host that is off
        except (ConnectionError, ssl.SSLError, SslRefused, ValueError) as error:
            # The host lives, so the end of the connection will come from its kernel.
            self._answered(host)
            if not isinstance(error, ConnectionError):
                self._complain(held, host, error)
        except OSError as error:
            if held.host.startswith(("/", "@")):
                self._answered(host)
            self._complain(held, host, error)
        finally:
            held.cancelling = False

    def _complain(self, held: Held, host: Host, error: Exception) -> None:
        now_s = self._loop.time()
        if now_s - host.complained_s > _COMPLAINT_S:
            host.complained_s = now_s
            where = place(held.host, held.port)
            self._supervisor.log.warning(f"cannot send a cancel request to {where}: {error}")

    async def _deliver(self, held: Held) -> None:
        config = self._supervisor.config
        tls = effective.server_tls(config.settings, config.database(held.database) if held.database else None)
        mode = tls.server_tls_sslmode
        context: ssl.SSLContext | None = None
        if mode in servertls.STRICT or (held.tls and mode != "disable"):
            context = self._tls(tls)
        await deliver(held.host, held.port, held.key, context, mode in servertls.STRICT)

    def _tls(self, tls: ServerTls) -> ssl.SSLContext:
        """One context for the many requests after a worker's death; files may change, so it is not kept long."""
        now_s = self._loop.time()
        self._contexts = {each: made for each, made in self._contexts.items() if now_s - made[0] <= _CONTEXT_S}
        if tls not in self._contexts:
            # The address is all that is known here, and all a false server could get is a cancel key.
            self._contexts[tls] = now_s, servertls.context(tls, verify_name=False)
        return self._contexts[tls][1]

    # -- hosts that do not answer

    def _patience_s(self) -> float:
        return self._supervisor.config.settings.server_connect_timeout or _PATIENCE_S

    def _host(self, held: Held) -> Host:
        return self._hosts.setdefault(held.where, Host())

    def _answered(self, host: Host) -> None:
        host.silent_since_s, host.answered_s = None, self._loop.time()

    def _deadline_s(self, held: Held, host: Host) -> float:
        """When a whole server_connect_timeout will have passed without any sign of the host; loop time."""
        if not held.key:
            # Nothing to ask with: a server that has not even said its key, so no session counts in it yet.
            since_s = max(host.answered_s, held.since_s)
        elif host.silent_since_s is None:
            return math.inf
        else:
            since_s = max(host.silent_since_s, held.since_s)
        return since_s + self._patience_s()

    def _abandon(self, where: tuple[str, int], now_s: float) -> None:
        """Give back all slots of one silent host whose time is over, with one line for all."""
        host = self._hosts[where]
        dying = [held for servers in self._held.values() for held in servers.values() if held.dying]
        over = [held for held in dying if held.where == where and now_s >= self._deadline_s(held, host)]
        self._warn(over, "does not answer (server_connect_timeout)")
        for held in over:
            self._gone(held)

    def _warn(self, lost: list[Held], reason: str) -> None:
        where = place(*lost[0].where)
        text = f"server {where}: {reason}: {len(lost)} connection{'s' if len(lost) > 1 else ''} given up"
        self._supervisor.log.warning(f"{text}, though the backend may still live")

    # -- giving back

    def _gone(self, held: Held) -> None:
        self._drop(held)
        if held.seat in self._orphaned:
            self._supervisor.ledger.give_for(held.seat, held.rows)
            self._settle(held.seat)
        else:
            self._tell_gone(held.seat, held.server)

    def _tell_gone(self, seat: int, number: int) -> None:
        child = self._children.get(seat)
        if child is None:
            self._untold.setdefault(seat, []).append(number)
        else:
            child.channel.send("gone", {"server": number})

    def _drop(self, held: Held) -> None:
        """Close the duplicate and forget the server."""
        if held.timer is not None:
            held.timer.cancel()
            held.timer = None
        if held.dying:
            self._loop.remove_reader(held.sock.fileno())
            self._dying[held.seat] -= 1
        held.sock.close()
        servers = self._held[held.seat]
        del servers[held.server]
        if not servers:
            del self._held[held.seat]

    def _orphan(self, seat: int) -> None:
        self._orphaned[seat] = self._loop.time()
        self._settle(seat)

    def _settle(self, seat: int) -> None:
        """Free a dead seat of which nothing is left."""
        if seat in self._orphaned and seat not in self._held:
            took_ms = round((self._loop.time() - self._orphaned.pop(seat)) * 1000)
            self._dying.pop(seat, None)
            self._untold.pop(seat, None)
            self._supervisor.ledger.settle(seat, {})
            self._supervisor.log.debug(f"seat {seat} is free, {took_ms} ms after its worker's end")

"""One worker: its engine, its registries, and the table that hands each engine event to whoever it is for."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pgshoal.auth.keys import REMEMBERED_MAX, KeyCache
from pgshoal.engine.contract import ConnId, EngineLimits, Event
from pgshoal.policy.startup import remembered_names
from pgshoal.worker import cancel, client_login, clients
from pgshoal.worker.admissions import Admissions
from pgshoal.worker.askers import Askers
from pgshoal.worker.auth_lookup import Lookups
from pgshoal.worker.balance import Balance
from pgshoal.worker.budget import Budget
from pgshoal.worker.dns import Dns
from pgshoal.worker.escrow import Escrow
from pgshoal.worker.front import Front
from pgshoal.worker.giving import Giving
from pgshoal.worker.growth import Growth
from pgshoal.worker.handler import Handler
from pgshoal.worker.janitor import PERIOD_S, Janitor
from pgshoal.worker.listeners import Listeners
from pgshoal.worker.moving import Moving
from pgshoal.worker.offload import Offload
from pgshoal.worker.pause import Pause
from pgshoal.worker.peers import Peers
from pgshoal.worker.pools import Pools, microseconds
from pgshoal.worker.proxied import Proxied
from pgshoal.worker.records import Pool
from pgshoal.worker.replication import Replication
from pgshoal.worker.resolver import Resolver
from pgshoal.worker.servers import Servers
from pgshoal.worker.stats import Stats
from pgshoal.worker.tlsfiles import TlsFiles
from pgshoal.worker.welcomes import Welcomes

if TYPE_CHECKING:
    from pgshoal.config.model import Config
    from pgshoal.engine.contract import Engine
    from pgshoal.worker.handler import Console
    from pgshoal.worker.link import Fleet
    from pgshoal.worker.log import Log

T = TypeVar("T")

#: Rounds of events one wake may cause by itself; more wait for the next wake, so that a loop cannot hang here.
ROUNDS_MAX: Final = 16
#: Ids of clients and servers are taken from the fleet in blocks.
_IDS: Final = 1000


def engine_limits(config: Config, refuse_encryption: bool) -> EngineLimits:
    """Process-wide settings the relay needs."""
    settings = config.settings
    return EngineLimits(
        settings.max_packet_size,
        settings.disable_pqexec,
        remembered_names(settings.track_extra_parameters),
        microseconds(settings.query_timeout),
        refuse_encryption,
    )


class Worker:
    """Everything one worker process holds. All of it runs on one thread, the loop's."""

    def __init__(self, config: Config, engine: Engine, log: Log, loop: asyncio.AbstractEventLoop, fleet: Fleet) -> None:
        """`fleet` is the way to the supervisor and all other workers."""
        self.config = config
        self.fleet = fleet
        self.overrides = fleet.place.overrides
        self.engine = engine
        self.log = log
        self.loop = loop
        self.handlers: dict[ConnId, Handler] = {}
        self.console: Console | None = None
        self.shutdown = ""
        self.draining = False  # another process has our number
        self.exit_code: int | None = None
        self.key_cache = KeyCache()
        self.threads = Offload(loop.call_soon_threadsafe)
        self.askers = Askers(loop.call_soon_threadsafe)
        self.pause = Pause(self)
        self.stats = Stats(self)
        self.admissions = Admissions(fleet.ledger)
        self.budget = Budget(self)
        self.escrow = Escrow(self)
        self.giving = Giving(self)
        self.welcomes = Welcomes(self)
        self.growth = Growth(self)
        self.lookups = Lookups(self)
        self.replication = Replication(self)
        self.pools = Pools(self)
        self.resolver = Resolver(Dns(loop, config.settings.resolv_conf), log, engine.now_us)
        self.resolver.settle = self.settle
        self.servers = Servers(self)
        self.resolver.changed = self.servers.lost_addresses
        self.front = Front(config)
        self.front.sit(fleet.seat, fleet.generation, fleet.key_secret)
        self.peers = Peers(self)
        cancel.listen(self)
        self.tls = TlsFiles(engine)
        self.listeners = Listeners(self)
        self.proxied = Proxied(self)
        self.balance = Balance(self)
        self.moving = Moving(self)
        self.janitor = Janitor(self)
        #: called once when the worker is to end
        self.on_stop: Callable[[], None] = lambda: None
        self._numbers: Iterator[int] = iter(())  # those left of the block that is in use
        self._timer: asyncio.TimerHandle | None = None
        self._table = self._make_table()
        self.configure()

    def configure(self) -> None:
        """Hand settings to those who keep a copy."""
        settings = self.config.settings
        self.engine.set_limits(engine_limits(self.config, self.tls.client is None))
        self.resolver.max_ttl_s = settings.dns_max_ttl
        self.resolver.nxdomain_ttl_s = settings.dns_nxdomain_ttl
        self.resolver.zone_check_period_s = settings.dns_zone_check_period
        self.resolver.limit_s = settings.server_connect_timeout
        self.servers.read_settings()
        self.lookups.cache.clear()

    # -- what others ask

    def next_number(self) -> int:
        """The next id, one counter for clients and servers."""
        for number in self._numbers:
            return number
        first = self.fleet.ledger.reserve_ids(_IDS)
        self._numbers = iter(range(first + 1, first + _IDS))
        return first

    def grow(self, pool: Pool) -> None:
        """Somebody needs a server of this pool."""
        self.growth.want(pool)

    def offload(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Heavy work in a thread; `done` is called on the loop."""

        def finish(result: T) -> None:
            done(result)
            self.settle()

        self.threads.run(work, finish)

    def ask_outside(self, question: Callable[[], T], done: Callable[[T], None], wanted: Callable[[], bool]) -> bool:
        """A question to somebody who may take long; `done` is called on the loop. False if too many wait."""

        def finish(answer: T) -> None:
            done(answer)
            self.settle()

        return self.askers.ask(question, finish, wanted)

    # -- life

    def start(self) -> None:
        """Make the records and begin the maintenance; listeners are opened by the caller."""
        self.pools.load()
        self.pause.adopt(self.fleet.state)
        self.giving.start()
        self.warm()
        self._tick()

    def warm(self) -> None:
        """Derive what SCRAM logins with plain secrets need, one secret after another: logins get in between."""
        config, cache = self.config, self.key_cache
        rounds = config.settings.scram_iterations
        if config.settings.auth_type != "scram-sha-256" and all(rule.method != "scram-sha-256" for rule in config.hba):
            return
        plain = islice((secret.text for secret in config.secrets.values() if secret.kind == "plain"), REMEMBERED_MAX)

        def step(_: None = None) -> None:
            text = next((text for text in plain if cache.adhoc(text, rounds) is None), None)
            if text is not None and self.config is config and self.exit_code is None:
                self.offload(lambda: cache.warm((text,), rounds), step)

        step()

    def stop(self, code: int) -> None:
        """End the worker."""
        if self.exit_code is None:
            self.exit_code = code
            self.stats.report()
            self.on_stop()

    def close(self) -> None:
        """Give everything back but the engine, which the loop still needs to end."""
        if self._timer is not None:
            self._timer.cancel()
        self.giving.close()
        self.listeners.close()
        self.balance.close()
        self.proxied.close()
        self.resolver.close()
        self.threads.close()
        self.askers.close()
        self.log.flush()

    def _tick(self) -> None:
        self._timer = self.loop.call_later(PERIOD_S, self._tick)
        try:
            self.janitor.tick()
            self.balance.tick()
            self.proxied.tick()
            self.resolver.tick()
            self.servers.hosts.tick()
        except Exception:
            self.log.error(f"internal error in maintenance: {traceback.format_exc()}")
        self.settle()

    # -- events

    def _make_table(self) -> tuple[Callable[..., None], ...]:
        table: dict[int, Callable[..., None]] = {
            Event.ACCEPTED: self._accepted,
            Event.ACCEPT_FAILED: self.listeners.accept_failed,
            Event.PACKET: self._packet,
            Event.DIRECT_TLS: lambda conn: self._to(conn).direct_tls(),
            Event.MESSAGE: self._message,
            Event.OVERSIZE: lambda conn, header: self._to(conn).oversize(header),
            Event.CONNECTED: lambda conn: self._to(conn).connected(),
            Event.SECURED: lambda conn, *facts: self._to(conn).secured(*facts),
            Event.CLOSED: self._closed,
            Event.FAULT: self._fault,
            Event.STARVED: self.growth.starved,
            Event.RETURNED: self.servers.returned,
            Event.DIVERTED: self.balance.diverted,
            Event.RESTED: self.giving.rested,
            Event.MOVED: self.moving.moved,
        }
        return tuple(table.get(number, self._unknown) for number in range(max(Event) + 1))

    def _to(self, conn: ConnId) -> Handler:
        return self.handlers.get(conn) or _NOBODY

    def _accepted(self, conn: ConnId, listener: int) -> None:
        self.balance.accepted()
        try:
            login = client_login.ClientLogin(self, conn)
        except KeyError:  # reset before anybody looked: it has no addresses any more
            with suppress(KeyError):
                self.engine.close(conn)
            return
        self.handlers[conn] = self.front.logins[conn] = login
        if self.proxied.on:
            self.proxied.announce(login)

    def _packet(self, conn: ConnId, payload: bytes) -> None:
        handler = self.handlers.get(conn)
        if handler is not None:
            handler.packet(payload)

    def _message(self, conn: ConnId, kind: int, payload: bytes) -> None:
        handler = self.handlers.get(conn)
        if handler is not None:
            handler.message(kind, payload)

    def _closed(self, conn: ConnId, reason: str) -> None:
        handler = self.handlers.pop(conn, None)
        if handler is not None:
            handler.closed(reason)
            return
        server = self.servers.by_conn.get(conn)
        if server is not None:
            self.servers.gone(server, reason)
        else:
            clients.closed(self, conn, reason)

    def _fault(self, conn: ConnId, key: str, detail: str) -> None:
        handler = self.handlers.get(conn)
        if handler is not None:
            handler.fault(key, detail)
        else:
            clients.fault(self, conn, key, detail)

    def _unknown(self, *facts: object) -> None:
        self.log.error(f"internal error: unknown engine event {facts!r}")

    def drain(self) -> None:
        """Handle what the engine has to tell. One bad connection never stops the others."""
        table = self._table
        for _ in range(ROUNDS_MAX):
            batch = self.engine.events()
            for event in batch:
                try:
                    table[event[0]](*event[1:])
                except Exception:
                    self._broken(event)
            try:
                self.growth.run()
            except Exception:
                self.log.error(f"internal error while looking for servers: {traceback.format_exc()}")
            if not self.engine.pending():
                break
        self.log.flush()

    #: After Python has acted on its own (a timer, a thread, a signal): the same end as after a wake.
    settle = drain

    def _broken(self, event: tuple[Any, ...]) -> None:
        """A handler failed: expected if its connection died in this very wake, else a bug that costs one connection."""
        conn = event[1]
        try:
            self.engine.facts(conn)
        except KeyError:
            return
        self.log.error(f"internal error, closing connection {conn:#x}: {traceback.format_exc()}")
        handler = self.handlers.pop(conn, None)
        server, client = self.servers.by_conn.get(conn), self.front.clients.get(conn)
        if server is not None:
            self.servers.close(server, "internal error")
            return
        self.engine.close(conn)
        try:
            if handler is not None:
                handler.closed("internal error")
            elif client is not None:
                clients.closed(self, conn, "internal error")
        except Exception:
            self.log.error(f"internal error while closing: {traceback.format_exc()}")


_NOBODY: Final = Handler()

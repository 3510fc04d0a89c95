"""PAUSE, RESUME, KILL, DISABLE, ENABLE, RECONNECT, WAIT_CLOSE and SHUTDOWN, as methods for the console and signals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pgshoal.errors import refuse
from pgshoal.policy import lifetimes
from pgshoal.worker import clients
from pgshoal.worker.cancel_job import CancelDelivery
from pgshoal.worker.records import Database, Pool, ServerState

if TYPE_CHECKING:
    from pgshoal.worker.app import Worker

#: Called once: True when what was asked for is reached, False when a RESUME came first.
Done = Callable[[bool], None]
ShutdownMode = Literal["servers", "clients"]


@dataclass(slots=True, eq=False)
class Waiter:
    """Somebody who waits for a pause or for dirty servers to be gone."""

    reached: Callable[[], bool]
    done: Done
    database: Database | None
    pause: bool


class Pause:
    """Carries out what is decided for the whole fleet; to repeat anything changes nothing.

    A waiter is answered by nothing but its own condition.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.everything = False
        self.waiters: list[Waiter] = []
        #: names, because entries of `*` come and go
        self.disabled: set[str] = set()
        self._told: bool | None = None  # what the supervisor knows of an end under way

    def adopt(self, state: Mapping[str, Any]) -> None:
        """A worker that is started later stands as the others do."""
        pools = self.worker.pools
        self.everything = bool(state.get("paused"))
        for name in state.get("paused_databases", ()):
            if (database := pools.database(name)) is not None:
                database.paused = True
        for name in state.get("disabled_databases", ()):
            if (database := pools.database(name)) is not None:
                self.disable(database)
        self._apply(None)
        if state.get("shutdown"):
            self.shutdown(state["shutdown"])

    # -- pause and resume

    def pause(self, database: Database | None, done: Done) -> Waiter | None:
        """Stop handing out servers; `done` when none is busy any more. Returns what `abandon` takes, None if done."""
        if database is None:
            self.everything = True
        else:
            database.paused = True
        self._apply(database)
        pools = self.worker.pools
        return self._wait(lambda: not any(map(self._busy, pools.of_database(database))), done, database, pause=True)

    def _apply(self, database: Database | None) -> None:
        """Bring the engine's pools and the servers nobody uses in line with what is paused now."""
        for pool in self.worker.pools.of_database(database):
            paused = self.worker.pools.paused(pool)
            if pool.stream is None:  # a replication client keeps its server until it leaves
                self.worker.engine.pause_pool(pool.id, paused)
            self.worker.pools.refresh(pool)
            if paused:
                self._close_unused(pool, lifetimes.PAUSED)
            else:
                self.worker.growth.want(pool)

    def _close_unused(self, pool: Pool, reason: str) -> None:
        for server in list(pool.servers.values()):
            if server.state in (ServerState.USED, ServerState.LOGIN) or self.worker.servers.take(server):
                self.worker.servers.close(server, reason)

    def _busy(self, pool: Pool) -> bool:
        return self._ending(pool) or any(server.state is not ServerState.CANCEL for server in pool.servers.values())

    def _ending(self, pool: Pool) -> bool:
        """Backends of servers we have closed may still live, if not for long: whoever waits wants them gone."""
        return self.worker.escrow.coming(pool.rows.pool) > 0

    def resume(self, database: Database | None) -> None:
        """End a pause; those who wait for it to be reached are told so."""
        if database is None:
            self.everything = self.worker.shutdown == "servers"
        else:
            database.paused = False
        self._apply(database)
        interrupted = [w for w in self.waiters if w.pause and w.database is database]
        for waiter in interrupted:
            self.abandon(waiter)
            waiter.done(False)

    # -- waiting

    def _wait(self, reached: Callable[[], bool], done: Done, database: Database | None, pause: bool) -> Waiter | None:
        if reached():
            done(True)
            return None
        waiter = Waiter(reached, done, database, pause)
        self.waiters.append(waiter)
        return waiter

    def abandon(self, waiter: Waiter) -> None:
        """Whoever waited is gone."""
        if waiter in self.waiters:
            self.waiters.remove(waiter)

    def changed(self) -> None:
        """A server was closed or released: some may have waited for that."""
        if not self.waiters:
            return
        for waiter in [w for w in self.waiters if w.reached()]:
            self.abandon(waiter)
            waiter.done(True)

    # -- the other commands

    def disable(self, database: Database) -> None:
        """New logins are refused; clients that are in stay."""
        database.disabled = True
        self.disabled.add(database.name)

    def enable(self, database: Database) -> None:
        """Undo `disable`."""
        database.disabled = False
        self.disabled.discard(database.name)

    def reconnect(self, database: Database | None) -> None:
        """Every server is replaced as soon as nobody uses it, and what the first one reported is asked anew."""
        for pool in self.worker.pools.of_database(database):
            self.make_dirty(pool)
        self.worker.welcomes.doubt(lambda name: database is None or name == database.name)

    def make_dirty(self, pool: Pool) -> None:
        """`reconnect` for one pool."""
        self.worker.welcomes.forget(pool)
        for server in list(pool.servers.values()):
            if server.state is ServerState.CANCEL:
                continue
            if server.state is ServerState.USED or self.worker.servers.take(server):
                self.worker.servers.close(server, lifetimes.CLOSE_NEEDED)
            else:
                self.worker.servers.dirty(server)

    def wait_close(self, database: Database | None, done: Done) -> Waiter | None:
        """`done` when no server waits to be replaced."""
        pools = self.worker.pools

        def reached() -> bool:
            chosen = pools.of_database(database)
            return not any(self._ending(p) or any(s.close_needed for s in p.servers.values()) for p in chosen)

        return self._wait(reached, done, database, pause=False)

    def kill(self, database: Database | None) -> None:
        """Drop all clients and servers, and leave the databases paused; each needs a RESUME."""
        chosen = list(self.worker.pools.databases.values()) if database is None else [database]
        for each in chosen:
            each.paused = True
            self.remove(each)

    def remove(self, database: Database) -> None:
        """Drop the clients, servers and pools of a database."""
        gone = refuse("database_removed")
        for pool in self.worker.pools.of_database(database):
            self.worker.engine.pause_pool(pool.id, True)
            clients.close_pool(self.worker, pool, gone)
            self.worker.welcomes.forget(pool)
            for server in list(pool.servers.values()):
                carrier = self.worker.handlers.get(server.conn)
                if isinstance(carrier, CancelDelivery):
                    carrier.end(gone.text)
                else:
                    self.worker.servers.close(server, gone.text)
            self.worker.pools.drop(pool)

    # -- shutdown

    def shutdown(self, mode: ShutdownMode) -> None:
        """Begin to end: no new clients, until all servers are released or all clients have left.

        Waiting for servers may follow waiting for clients; to repeat either changes nothing.
        """
        worker = self.worker
        if worker.shutdown in (mode, "servers"):
            return
        worker.shutdown = mode
        self._told = None
        worker.listeners.close_tcp()
        if mode == "servers":
            self.everything = True
            self._apply(None)
            gone = refuse("server_shutting_down")
            for pool in self.worker.pools.of_database(None):
                clients.refuse_waiting(worker, pool, gone)
        self.report()

    def report(self) -> None:
        """Tell the supervisor, who ends the fleet, whether this worker has nothing left to wait for."""
        worker = self.worker
        if not worker.shutdown:
            return
        empty = not (worker.front.connections() if worker.shutdown == "clients" else worker.servers.by_conn)
        if empty != self._told:
            self._told = empty
            worker.fleet.send("empty", {"empty": empty})

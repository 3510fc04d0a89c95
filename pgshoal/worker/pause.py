"""PAUSE, RESUME, KILL, DISABLE, ENABLE, RECONNECT, WAIT_CLOSE and SHUTDOWN, as methods for the console and signals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pgshoal.errors import refuse
from pgshoal.policy import lifetimes
from pgshoal.worker import clients
from pgshoal.worker.cancel import CancelDelivery
from pgshoal.worker.records import Database, Pool, ServerState

if TYPE_CHECKING:
    from pgshoal.worker.app import Worker

#: Called once: True when what was asked for is reached, False when a RESUME came first.
Done = Callable[[bool], None]
ShutdownMode = Literal["now", "servers", "clients"]


@dataclass(slots=True, eq=False)
class Waiter:
    """Somebody who waits for a pause or for dirty servers to be gone."""

    reached: Callable[[], bool]
    done: Done
    database: Database | None
    pause: bool


class Pause:
    """Methods raise Refused with the console's own texts; a waiter is answered by nothing but its own condition."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.everything = False
        self.waiters: list[Waiter] = []

    # -- pause and resume

    def pause(self, database: Database | None, done: Done) -> Waiter | None:
        """Stop handing out servers; `done` when none is busy any more. Returns what `abandon` takes, None if done."""
        if database is None:
            if self.everything:
                raise refuse("already_paused")
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

    @staticmethod
    def _busy(pool: Pool) -> bool:
        return any(server.state is not ServerState.CANCEL for server in pool.servers.values())

    def resume(self, database: Database | None) -> None:
        """End a pause; those who wait for it to be reached are told so."""
        if database is None:
            if self.worker.shutdown:
                raise refuse("console_shutting_down")
            if not self.everything:
                raise refuse("not_paused")
            self.everything = False
        elif not database.paused:
            raise refuse("database_not_paused", db=database.name)
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

    def enable(self, database: Database) -> None:
        """Undo `disable`."""
        database.disabled = False

    def reconnect(self, database: Database | None) -> None:
        """Every server is replaced as soon as nobody uses it, and what the first one reported is asked anew."""
        for pool in self.worker.pools.of_database(database):
            self.make_dirty(pool)

    def make_dirty(self, pool: Pool) -> None:
        """`reconnect` for one pool."""
        pool.welcome = None
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
            return not any(s.close_needed for p in pools.of_database(database) for s in p.servers.values())

        return self._wait(reached, done, database, pause=False)

    def kill(self, database: Database | None) -> None:
        """Drop all clients and servers, and leave the databases paused; each needs a RESUME."""
        if self.everything:
            raise refuse("already_paused")
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
            for server in list(pool.servers.values()):
                carrier = self.worker.handlers.get(server.conn)
                if isinstance(carrier, CancelDelivery):
                    carrier.end(gone.text)
                else:
                    self.worker.servers.close(server, gone.text)
            self.worker.pools.drop(pool)

    # -- shutdown

    def shutdown(self, mode: ShutdownMode) -> None:
        """End the process: at once, when all servers are released, or when all clients have left.

        Waiting for servers may follow waiting for clients; to repeat either changes nothing.
        """
        worker = self.worker
        if mode == "now":
            worker.stop(0)
            return
        if worker.shutdown in (mode, "servers"):
            return
        worker.shutdown = mode
        worker.listeners.close_tcp()
        if mode == "servers":
            self.everything = True
            self._apply(None)
            gone = refuse("server_shutting_down")
            for pool in self.worker.pools.of_database(None):
                clients.refuse_waiting(worker, pool, gone)

    def finished(self) -> str:
        """Why a shutdown under way may end now, or ""."""
        mode = self.worker.shutdown
        if mode == "clients" and not self.worker.front.connections():
            return "client connections dropped, exiting"
        if mode == "servers" and not self.worker.servers.by_conn:
            return "server connections dropped, exiting"
        return ""

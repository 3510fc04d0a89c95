"""The hosts of a pool's entry: which comes next, what an attempt there has taught, and whether its sessions fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from pgshoal.config import effective
from pgshoal.errors import Refused
from pgshoal.policy.growth import RETRY_LEAST_S
from pgshoal.policy.hosts import BAD, GOOD, SECOND, Health, Place, Session, Turns, best, fits, misfit, session_of
from pgshoal.worker.records import Pool, Server, ServerState
from pgshoal.worker.server_queries import UNSAID, SessionQuery

if TYPE_CHECKING:
    from pgshoal.engine.contract import ConnId
    from pgshoal.worker.app import Worker

#: A refusal that says something of this host and its hour, not of who asks: another host may do.
_PASSING: Final = frozenset({"57P01", "57P02", "57P03", "53300"})
#: How often the sessions of one host are looked at again. A standby that is promoted keeps its connections.
RECHECK_US: Final = 2_000_000


class Hosts:
    """Knowledge is shared by all pools of the worker; turns are each pool's own."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.health = Health()
        self.turns = Turns()
        self._checked_us: dict[tuple[int, Place], int] = {}
        #: by pool: how often its servers were given out, and since when that has not changed
        self._uses: dict[int, tuple[int, int]] = {}
        #: servers that were asked again and have not answered, and since when
        self._asked: dict[ConnId, tuple[Server, int]] = {}

    # -- choosing

    def pick(self, pool: Pool) -> str:
        """The host, as configured, of the next attempt."""
        entry = pool.database.config
        hosts = effective.server_hosts(self.worker.config, entry)
        ranks = [self._rank(pool, host) for host in hosts] if len(hosts) > 1 else [GOOD]
        in_turn = entry.load_balance_hosts == "round-robin"
        return hosts[self.turns.pick(pool.id, ranks, in_turn, pool.last_connect_failed_us > 0)]

    def address(self, pool: Pool, host: str, addresses: list[str]) -> str:
        """One of a host's addresses, which are in the order to try them; the attempt begins."""
        entry, now_us = pool.database.config, self.worker.engine.now_us()
        if host not in addresses:
            self.health.succeeded((host, entry.port))  # it has a name again
        places = [(address, entry.port) for address in addresses]
        ranks = [self.health.rank(place, entry.target_session_attrs, now_us) for place in places]
        place = places[best(ranks, 0)]
        self.health.chosen(place, now_us, max(self._retry_us(), self._patience_us()))
        return place[0]

    def _rank(self, pool: Pool, host: str) -> int:
        """That of a host's best address, as far as they are known."""
        entry, now_us = pool.database.config, self.worker.engine.now_us()
        rank = self.health.rank((host, entry.port), entry.target_session_attrs, now_us)
        name = self.worker.resolver.names.get(host)
        if name is None or not name.addresses:
            return rank
        places = [(address, entry.port) for address in name.addresses]
        return max(rank, min(self.health.rank(place, entry.target_session_attrs, now_us) for place in places))

    def _another(self, pool: Pool, least: int = SECOND) -> bool:
        """Whether some host of the pool is as good as that."""
        hosts = effective.server_hosts(self.worker.config, pool.database.config)
        return any(self._rank(pool, host) <= least for host in hosts)

    def doubtful(self, pool: Pool) -> int:
        """Attempts under way at places where another one has failed, if there is a better place: nobody waits for them.

        A host that does not even refuse holds an attempt for all of server_connect_timeout.
        """
        if not self.health.troubled:
            return 0
        wanted, now_us = pool.database.config.target_session_attrs, self.worker.engine.now_us()
        places = [_place(server) for server in pool.servers.values() if server.state is ServerState.LOGIN]
        count = sum(self.health.rank(place, wanted, now_us) == BAD for place in places)
        return count if count and self._another(pool) else 0

    def _patience_us(self) -> int:
        """How long an attempt may last."""
        return round(self.worker.config.settings.server_connect_timeout * 1e6)

    def _retry_us(self) -> int:
        return round(max(self.worker.config.settings.server_login_retry, RETRY_LEAST_S) * 1e6)

    def forget(self, pool: int) -> None:
        """The pool is gone."""
        self.turns.forget(pool)
        self._uses.pop(pool, None)
        for key in [key for key in self._checked_us if key[0] == pool]:
            del self._checked_us[key]

    # -- learning

    def unknown(self, pool: Pool, host: str) -> bool:
        """A name has no address; True if another host may do at once."""
        now_us = self.worker.engine.now_us()
        self.health.failed((host, pool.database.config.port), now_us, self._retry_us())
        return self._another(pool)

    def unreachable(self, pool: Pool, address: str) -> bool:
        """This machine cannot even try an address; as `unknown`."""
        self.health.failed((address, pool.database.config.port), self.worker.engine.now_us(), self._retry_us())
        return self._another(pool)

    def failed(self, server: Server, refused: Refused | None) -> bool:
        """An attempt did not succeed; True if another host may do at once."""
        if refused is not None and refused.sqlstate not in _PASSING:
            return False
        self.health.failed(_place(server), self.worker.engine.now_us(), self._retry_us())
        return self._another(server.pool)

    def succeeded(self, server: Server) -> None:
        """A login was done."""
        self.health.succeeded(_place(server))

    # -- target_session_attrs

    def check(self, server: Server, parameters: list[tuple[str, str]], good: Callable[[], None]) -> None:
        """Call `good` if a fresh session is as the entry wants it, else go on to the next host."""
        if server.pool.database.config.target_session_attrs == "any":
            good()
            return
        session = session_of(parameters)
        if session is not None:
            self._judge(server, session, good)
        elif server.pool.stream is not None and server.pool.stream.kind == "physical":
            good()  # an old server that reports nothing, and knows no SQL here
        else:
            # It is still logging in, so server_connect_timeout holds for this too.
            SessionQuery(self.worker, server, lambda found: self._judge(server, found, good))

    def _judge(self, server: Server, session: Session | None, good: Callable[[], None]) -> None:
        pool, servers = server.pool, self.worker.servers
        wanted = pool.database.config.target_session_attrs
        if session is None:
            servers.login_failed(server, "server does not say what its sessions are like")
            return
        self.health.learned(_place(server), session, self.worker.engine.now_us(), self._retry_us())
        if fits(session, wanted) or (wanted == "prefer-standby" and not self._another(pool, GOOD)):
            self._checked_us[pool.id, _place(server)] = self.worker.engine.now_us()
            good()
            return
        reason = f"{misfit(session)} (target_session_attrs={wanted})"
        servers.close(server, reason)
        servers.missed(pool, reason, self._another(pool, GOOD))

    def tick(self) -> None:
        """Look again at what the sessions of open servers are like, one of each host."""
        now_us = self.worker.engine.now_us()
        self._give_up(now_us)
        for pool in list(self.worker.pools.by_id.values()):
            wanted = pool.database.config.target_session_attrs
            if wanted in ("any", "prefer-standby") or pool.stream is not None or self._resting(pool, now_us):
                continue
            by_place: dict[Place, list[Server]] = {}
            for server in pool.servers.values():
                if server.state is ServerState.POOLED and not server.close_needed:
                    by_place.setdefault(_place(server), []).append(server)
            for place, standing in by_place.items():
                if now_us - self._checked_us.get((pool.id, place), 0) >= RECHECK_US:
                    self._checked_us[pool.id, place] = now_us
                    self._recheck(standing)

    def _resting(self, pool: Pool, now_us: int) -> bool:
        """Nobody has used the pool for server_idle_timeout: our questions must not keep its servers from that end."""
        uses = self.worker.engine.pool_stats(pool.id).server_assignment_count
        known, since_us = self._uses.get(pool.id, (-1, 0))
        if uses != known:
            self._uses[pool.id] = uses, now_us
            return False
        limit_us = self.worker.config.settings.server_idle_timeout * 1e6
        return 0 < limit_us <= now_us - since_us

    def _give_up(self, now_us: int) -> None:
        """Servers that do not answer are closed after server_connect_timeout."""
        limit_us = self._patience_us()
        for conn, (server, since_us) in list(self._asked.items()):
            if self.worker.servers.by_conn.get(conn) is not server:
                del self._asked[conn]
            elif 0 < limit_us <= now_us - since_us:
                del self._asked[conn]
                self.worker.servers.close(server, UNSAID)

    def _recheck(self, standing: Iterable[Server]) -> None:
        """An idle one at once, else a busy one when it is released."""
        servers = self.worker.servers
        busy = None
        for server in standing:
            if servers.take(server):
                self.look(server, lambda server=server: servers.checked(server))  # type: ignore[misc]
                return
            busy = server
        if busy is not None:
            busy.recheck = True
            servers.mark(busy)

    def look(self, server: Server, good: Callable[[], None]) -> None:
        """Ask a server in dialogue what it is now; if it does not fit, all of its host are replaced."""
        server.recheck = False
        server.state = ServerState.TESTED
        self._asked[server.conn] = server, self.worker.engine.now_us()

        def found(session: Session | None) -> None:
            pool = server.pool
            self._asked.pop(server.conn, None)
            if session is None or fits(session, pool.database.config.target_session_attrs):
                good()  # one that does not answer this shows it otherwise
                return
            self.health.learned(_place(server), session, self.worker.engine.now_us(), self._retry_us())
            self.worker.log.log(f"{self.worker.servers.prefix(server)}{misfit(session)}, replacing its servers")
            for other in list(pool.servers.values()):
                if other is not server and _place(other) == _place(server) and other.state is not ServerState.CANCEL:
                    self.worker.servers.dirty(other)
            self.worker.servers.close(server, misfit(session))

        SessionQuery(self.worker, server, found)


def _place(server: Server) -> Place:
    return server.address, server.port

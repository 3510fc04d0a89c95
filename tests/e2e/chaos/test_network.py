"""Bad networks on either side of the pooler, TLS among it: nobody gets another's answer, and afterwards all is well."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.e2e.chaos.crowd import Crowd, settled
from tests.e2e.conftest import until
from tests.support.certs import Authority
from tests.support.pooler import Pooler, tls_client_side
from tests.support.postgres import Postgres
from tests.support.proxy import BrokenProxy, Ending, Fault

#: Towards the target and back.
DELAYS: dict[str, tuple[Fault, Fault]] = {
    "pieces": (Fault(chunk=(1, 5, 900)), Fault(chunk=(1, 7, 4096))),
    "joined": (Fault(join_s=0.01), Fault(join_s=0.01)),
    "answers overtake each other": (Fault(), Fault(jitter_s=0.04)),
    "requests overtake each other": (Fault(jitter_s=0.04), Fault()),
}
ENDS: dict[str, tuple[Fault, Fault]] = {
    "cut": (Fault(cut_within=2000), Fault(cut_within=100_000)),
    "reset": (Fault(cut_within=2000, ending=Ending.RESET), Fault(cut_within=100_000, ending=Ending.RESET)),
    "half-closed towards the target": (Fault(cut_within=2000, ending=Ending.HALF), Fault()),
    "half-closed on the way back": (Fault(), Fault(cut_within=100_000, ending=Ending.HALF)),
}


@dataclass(frozen=True)
class Street:
    """Clients, a network, the pooler, another network, PostgreSQL."""

    pooler: Pooler
    pg: Postgres
    clients: BrokenProxy
    servers: BrokenProxy
    tls: ssl.SSLContext

    def crowd(self) -> Crowd:
        """Half of it asks for TLS, half of it for servers behind TLS."""
        address = (self.clients.host, self.clients.port)
        return Crowd(self.pooler, ["app", "sealed"], address=address, tls=self.tls, long=True)


@pytest.fixture(scope="module")
def street(pg15: Postgres, engine: str, authority: Authority) -> Iterator[Street]:
    """Two pools of three servers for each user, one of them behind TLS."""
    settings = {"pool_mode": "transaction", "default_pool_size": 3, "server_login_retry": 0.2, "query_wait_timeout": 10}
    with ExitStack() as stack:
        servers = stack.enter_context(BrokenProxy((pg15.host, pg15.port)))
        entries = {
            "app": servers.database(server_tls_sslmode="disable"),
            "sealed": servers.database(server_tls_sslmode="require"),
        }
        offered = tls_client_side(authority.server, "allow")
        pooler = stack.enter_context(Pooler(entries, engine=engine, **settings, **offered))
        clients = stack.enter_context(BrokenProxy((pooler.host, pooler.port)))
        yield Street(pooler, pg15, clients, servers, ssl.create_default_context(cafile=str(authority.ca_file)))


def begin(proxy: BrokenProxy, faults: tuple[Fault, Fault]) -> None:
    """From now on."""
    proxy.up.become(faults[0])
    proxy.down.become(faults[1])


def end(proxy: BrokenProxy) -> None:
    """The network is good again."""
    begin(proxy, (Fault(), Fault()))


@pytest.mark.parametrize("name", DELAYS)
def test_delays(street: Street, name: str) -> None:
    """Bytes that come late and in other pieces, on both sides, cost time and nothing else: nobody is lost."""
    with street.crowd() as crowd:
        for proxy in (street.clients, street.servers):
            begin(proxy, DELAYS[name])
        crowd.more(40)
        for proxy in (street.clients, street.servers):
            end(proxy)
        crowd.more()
    assert crowd.lost == {}
    settled(street.pooler, street.pg)


@pytest.mark.parametrize("side", ["clients", "servers"])
@pytest.mark.parametrize("name", ENDS)
def test_ends(street: Street, side: str, name: str) -> None:
    """Connections that end anywhere, in the middle of a login, a message or a TLS record, cost their own clients."""
    proxy: BrokenProxy = getattr(street, side)
    with street.crowd() as crowd:
        crowd.more()
        begin(proxy, ENDS[name])
        until(lambda: sum(crowd.lost.values()) >= 12, "a dozen ends")
        end(proxy)
        crowd.more(40)
    assert crowd.strange == {}
    settled(street.pooler, street.pg)


def stands_still(crowd: Crowd) -> bool:
    """Whether nobody is answered for a while."""
    before = crowd.answered
    time.sleep(0.15)
    return crowd.answered == before


def test_stalls(street: Street) -> None:
    """A network that stands still for a moment loses nobody, whichever side and direction it is."""
    with street.crowd() as crowd:
        for proxy in (street.clients, street.servers):
            for fault in (proxy.up, proxy.down):
                crowd.more(5)
                fault.stalled = True
                until(lambda: stands_still(crowd), "nobody is answered")
                fault.stalled = False
        crowd.more()
    assert crowd.lost == {}
    settled(street.pooler, street.pg)


def test_all_servers_are_reset_in_transactions(street: Street) -> None:
    """Every link is lost at once, again and again; the pool opens new ones, and no client is left waiting."""
    with street.crowd() as crowd:
        for ending in (Ending.RESET, Ending.CLOSE) * 3:
            crowd.more()
            street.servers.cut(ending)
        crowd.more(60)
    assert sum(crowd.lost.values()) > 0
    assert crowd.strange == {}
    settled(street.pooler, street.pg)

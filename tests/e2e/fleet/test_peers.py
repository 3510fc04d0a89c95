"""Nodes behind one address: with peering every cancel arrives, whoever of them gets it and whatever it runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from pgshoal.bench.targets.balancer import Balancer
from tests.e2e.conftest import until
from tests.support import messages as m
from tests.support.cancelling import cancelled
from tests.support.fakeclient import Closed, FakeClient
from tests.support.hosts import Host, Hosts, NodePgBouncer, NodePooler
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

CLIENTS = 20
PORT = 6432


@contextmanager
def behind_one_address(
    pg: Postgres, engine: str, kinds: tuple[type[NodePooler | NodePgBouncer], ...], peering: bool = True
) -> Iterator[tuple[Balancer, list[NodePooler | NodePgBouncer]]]:
    """Two nodes, each on a host of its own, that know each other as peers 1 and 2, behind HAProxy."""
    with ExitStack() as stack:
        hosts = stack.enter_context(Hosts(len(kinds)))
        peers = {at + 1: f"host={host.address} port={PORT} pool_size=5" for at, host in enumerate(hosts)}
        nodes: list[NodePooler | NodePgBouncer] = []
        for at, (kind, host) in enumerate(zip(kinds, hosts, strict=True)):
            more = {"peer_id": at + 1, "peers": peers} if peering else {}
            # PostgreSQL listens on this machine's loopback; the path of its Unix socket leads there from every host.
            entry = f"host={pg.socket_dir} port={pg.port} dbname=app"
            node = kind(
                host, {"app": entry}, engine=engine, workers=2, listen_port=PORT, listen_addr=host.address,
                pool_mode="transaction", default_pool_size=30, **more,
            )  # fmt: skip
            stack.enter_context(node)
            nodes.append(node)
        yield stack.enter_context(Balancer([(host.address, PORT) for host in hosts])), nodes


def dsn(balancer: Balancer, protocol: str = "3.0") -> str:
    """To whichever node comes next."""
    return (
        f"host={balancer.host} port={balancer.port} dbname=app user=alice sslmode=disable "
        f"max_protocol_version={protocol}"
    )


def bring(host: Host, key: bytes) -> None:
    """A cancel request to one node, and the end of its connection."""
    with FakeClient((host.address, PORT)) as c:
        c.send(m.cancel_request(key))
        with pytest.raises(Closed):
            c.read_bytes(1)


@pytest.mark.parametrize(("protocol", "rounds"), [("3.0", 5), ("latest", 2)])
def test_two_fleets(pg15: Postgres, engine: str, protocol: str, rounds: int) -> None:
    """100 of 100, and long keys find their node too."""
    with behind_one_address(pg15, engine, (NodePooler, NodePooler)) as (balancer, nodes):
        found = asyncio.run(cancelled(dsn(balancer, protocol), pg15, CLIENTS, rounds))
        print(f"two fleets, protocol {protocol}: {sum(found)} of {CLIENTS * rounds} cancels arrived")
        assert found == [CLIENTS] * rounds
        for node, other in zip(nodes, (2, 1), strict=True):
            assert f"peer-{other}@{nodes[other - 1].host}:{PORT} closing because: successfully sent" in node.log_text()


def test_without_peering_it_is_chance(pg15: Postgres, engine: str) -> None:
    """Each node knows its own keys only, so about half of the cancels are lost."""
    with behind_one_address(pg15, engine, (NodePooler, NodePooler), peering=False) as (balancer, _):
        (found,) = asyncio.run(cancelled(dsn(balancer), pg15, 40, patience_s=1.0))
        print(f"two fleets without peering: {found} of 40 cancels arrived")
        assert 0 < found < 40


@pytest.mark.parametrize("ours_first", [True, False])
def test_pgbouncer_is_a_peer(pg15: Postgres, engine: str, ours_first: bool) -> None:
    """A real PgBouncer and a fleet pass cancels to each other, both ways.

    One after the other: of several at once for the same peer, PgBouncer sends some and lets the others wait until
    cancel_wait_timeout, between two PgBouncers as well.
    """
    kinds: tuple[type[NodePooler | NodePgBouncer], ...] = (NodePooler, NodePgBouncer)
    with behind_one_address(pg15, engine, kinds if ours_first else kinds[::-1]) as (balancer, nodes):
        found = asyncio.run(cancelled(dsn(balancer), pg15, CLIENTS, 5, at_once=False))
        print(f"a fleet and PgBouncer: {sum(found)} of {CLIENTS * 5} cancels arrived")
        assert found == [CLIENTS] * 5
        for node, other in zip(nodes, (2, 1), strict=True):
            assert f"peer-{other}@{nodes[other - 1].host}:{PORT} closing because: successfully sent" in node.log_text()


def test_keys_that_nodes_send_round_in_a_ring_die_out(pg15: Postgres, engine: str) -> None:
    """Two nodes that both think the other one is peer 9: a key of peer 9 is dropped after three hops."""
    with ExitStack() as stack:
        hosts = stack.enter_context(Hosts(2))
        nodes = [
            stack.enter_context(
                NodePooler(
                    host, {"app": f"host={pg15.socket_dir} port={pg15.port} dbname=app"}, engine=engine, workers=2,
                    listen_port=PORT, peer_id=at + 1, peers={9: f"host={hosts[1 - at].address} port={PORT}"},
                )
            )
            for at, host in enumerate(hosts)
        ]  # fmt: skip
        for key in (b"\0\x09\0" + os.urandom(4) + b"\xff", b"\1abc\3\x09\0" + os.urandom(25)):
            bring(hosts[0], key)
        gone = "failed to forward cancel request because its TTL was exhausted"
        until(lambda: sum(node.log_text().count(gone) for node in nodes) == 2, "both are dropped")
        # Node 1 passes each on twice and node 2 once, with a line for each side of that.
        sent = "closing because: successfully sent cancel request"
        until(lambda: [node.log_text().count(sent) for node in nodes] == [8, 4], "three hops each")

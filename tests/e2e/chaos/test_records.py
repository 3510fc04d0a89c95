"""TLS records that straddle reads, on both sides at once: cut anywhere, everything arrives whole and in order."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support import messages as m
from tests.support.certs import Authority
from tests.support.fakeclient import FakeClient
from tests.support.pooler import Pooler, tls_client_side
from tests.support.postgres import Postgres
from tests.support.proxy import BrokenProxy, Fault

#: Of a record of 16 KB: its type, its head, a page, the head and all of its content without what encryption adds.
SIZES: dict[str, tuple[int | tuple[int, ...], int]] = {
    "1": (1, 20_000),
    "5": (5, 60_000),
    "4096": (4096, 300_000),
    "16389": (16389, 300_000),
    "all": ((16389, 1, 4096, 5, 16406, 4, 60_000), 300_000),
}
PAUSE_S = 0.0001


@pytest.fixture(scope="module")
def sealed(pg15: Postgres, engine: str, authority: Authority) -> Iterator[tuple[Pooler, BrokenProxy, BrokenProxy]]:
    """TLS from the client to the pooler and from there to PostgreSQL, each through a network of its own."""
    settings = {"pool_mode": "transaction", "server_tls_sslmode": "require", **tls_client_side(authority.server)}
    with ExitStack() as stack:
        servers = stack.enter_context(BrokenProxy((pg15.host, pg15.port)))
        pooler = stack.enter_context(Pooler({"app": servers.database()}, engine=engine, **settings))
        yield pooler, stack.enter_context(BrokenProxy((pooler.host, pooler.port))), servers


@pytest.mark.parametrize(
    ("size", "version"), [*((size, ssl.TLSVersion.TLSv1_3) for size in SIZES), ("all", ssl.TLSVersion.TLSv1_2)], ids=str
)
def test_records_in_pieces(
    sealed: tuple[Pooler, BrokenProxy, BrokenProxy], authority: Authority, size: str, version: ssl.TLSVersion
) -> None:
    """A login, a long parameter there and back, rows, and COPY in both directions, byte for byte."""
    _, *proxies = sealed
    chunk, length = SIZES[size]
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.minimum_version = context.maximum_version = version
    for proxy in proxies:
        for fault in (proxy.up, proxy.down):
            fault.become(Fault(chunk=chunk, delay_s=PAUSE_S if length > 100_000 else 0.0))
    with FakeClient((proxies[0].host, proxies[0].port), wait_s=30) as client:
        client.encrypt(context)
        client.login("alice", "app")
        there = hashlib.shake_256(size.encode()).hexdigest(length // 2).encode()
        found = client.ask(m.parse("", "select $1::text"), m.bind("", "", (there,)), m.execute(), m.SYNC)
        assert [message.payload[6:] for message in found if message.kind == "D"] == [there]
        client.query("begin; create temp table kept(body text) on commit drop")
        client.send(m.query("copy kept from stdin"))
        client.read_until("G")
        lines = [there[at : at + 997] for at in range(0, len(there), 997)]
        client.send(b"".join(m.message(b"d", line + b"\n") for line in lines), m.COPY_DONE)
        client.read_until("Z")
        back = client.query("copy kept to stdout")
        assert [message.payload[:-1] for message in back if message.kind == "d"] == lines
        assert client.query("commit")[-1].payload == b"I"

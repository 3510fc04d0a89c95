"""The bare client and the deaf server do what the measurements rely on."""

from __future__ import annotations

import socket

import pytest

from pgshoal.bench.load.deaf import DeafServer
from pgshoal.bench.load.raw import RawClient
from tests.support.postgres import Postgres

BLOCK = b"d" + (65532).to_bytes(4, "big") + b"x" * 65528


def test_a_result_is_read_to_its_end(pg15: Postgres) -> None:
    """The count covers the whole result, and the connection is ready for the next query."""
    with RawClient(pg15.host, pg15.port, "postgres", "postgres") as client:
        for _ in range(2):
            client.query("select repeat('x', 3000000)")
            assert 3_000_000 < client.drain() < 3_000_300


def test_an_error_is_not_taken_for_a_result(pg15: Postgres) -> None:
    """A failing query and a refused login both raise."""
    with RawClient(pg15.host, pg15.port, "postgres", "postgres") as client:
        client.query("select no_such_column")
        with pytest.raises(RuntimeError, match="no_such_column"):
            client.drain()
    with pytest.raises(RuntimeError, match="nobody"):
        RawClient(pg15.host, pg15.port, "nobody", "postgres")


def test_the_deaf_server_takes_a_copy_and_stops_reading() -> None:
    """After CopyInResponse only what fits into the kernel's buffers goes out."""
    with DeafServer() as server, RawClient(server.host, server.port, "alice", "app") as client:
        client.query("copy t from stdin")
        assert client.socket.recv(64)[:1] == b"G"
        assert len(BLOCK) < client.push(BLOCK, 256 << 20, 0.5) < 256 << 20


def test_the_deaf_server_outlives_a_port_probe() -> None:
    """A connection that leaves before it has said anything is let go, and the next one is served."""
    with DeafServer() as server:
        for said in (b"", b"\0\0\0"):
            with socket.create_connection((server.host, server.port), 5) as probe:
                probe.sendall(said)
        with RawClient(server.host, server.port, "alice", "app") as client:
            client.query("copy t from stdin")
            assert client.socket.recv(64)[:1] == b"G"

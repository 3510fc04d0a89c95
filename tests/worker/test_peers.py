"""Cancel requests for clients of other nodes: budget, waiting, the wire and the log."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from pgshoal.config.model import PeerConfig
from pgshoal.fleet.ledger import Kind
from pgshoal.worker import cancel
from pgshoal.worker.cancel_job import SENT
from tests.support import messages as m
from tests.worker.stub import Bench, Talk

KEY = b"A\7\0DEFG\3"


class Node(Bench):
    """A worker of node 5 that knows node 7; what it would do later is kept in `later`."""

    def __init__(self, peer: PeerConfig | None = None, **settings: Any) -> None:
        super().__init__(**{"peer_id": 5, "log_connections": 1, "log_disconnections": 1, **settings})
        self.peer(peer or PeerConfig(7, "10.0.0.7", 6432, 2))
        self.later: list[tuple[Any, ...]] = []
        self.worker.settle = lambda: None  # type: ignore[method-assign]
        self.loop.call_later = lambda *arguments: self.later.append(arguments)  # type: ignore[method-assign,assignment]

    def peer(self, *peers: PeerConfig) -> None:
        """Make these the only peers."""
        self.config.peers.clear()  # type: ignore[attr-defined]
        self.config.peers.update({peer.peer_id: peer for peer in peers})  # type: ignore[attr-defined]

    def bring(self, key: bytes = KEY) -> Talk:
        """A connection that brings a cancel request."""
        talk = self.accept()
        talk.packet(m.cancel_request(key))
        return talk

    def up(self, conn: int) -> None:
        """A connection to a peer is made."""
        self.event(7, conn)

    def done(self, conn: int, reason: str = "server conn crashed?") -> None:
        """It ends."""
        self.event(9, conn, reason)

    @property
    def forwards(self) -> list[int]:
        """Connections to peers begun so far."""
        return list(self.engine.connected)

    @property
    def used(self) -> int:
        """What the fleet's ledger counts for the peer."""
        ledger = self.fleet.ledger
        row = ledger.row(Kind.PEER, "7")
        ledger.forget(row)
        return ledger.used(row)


def request(key: bytes) -> bytes:
    """The packet a peer must get."""
    return struct.pack("!II", 8 + len(key), 80877102) + key


def test_a_request_for_another_node_is_passed_on_with_one_hop_less() -> None:
    """Plain, over a connection of its own; who brought it waits until the peer has closed that."""
    with Node() as node:
        asking = node.bring()
        (forward,) = node.forwards
        assert node.engine.connected[forward] == ("10.0.0.7", 6432)
        assert forward not in node.engine.sent
        node.up(forward)
        assert node.engine.sent[forward] == request(b"A\7\0DEFG\2")
        assert asking.open
        node.done(forward)
        assert node.engine.closed[asking.conn].reason == SENT
        assert asking.refused() == ""


def test_log_lines_name_the_peer() -> None:
    """On both sides, as PgBouncer writes them."""
    with Node() as node:
        asking = node.bring()
        (forward,) = node.forwards
        node.up(forward)
        node.done(forward)
        lines = node.log.texts()
        assert f"S-0x{forward:x}: peer-7@10.0.0.7:6432 new connection to server (from 127.0.0.1:6432)" in lines
        assert f"S-0x{forward:x}: peer-7@10.0.0.7:6432 closing because: {SENT} (age=0s)" in lines
        assert f"C-0x{asking.conn:x}: peer-7@127.0.0.1:{40000 + asking.conn} closing because: {SENT} (age=0s)" in lines


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (b"A\7\0DEFG\0", "failed to forward cancel request because its TTL was exhausted"),
        (b"A\x08\0DEFG\3", "could not find peer to forward request to"),
        (b"A\5\0DEFG\3", "failed cancel request"),
    ],
)
def test_requests_that_go_nowhere(key: bytes, reason: str) -> None:
    """Without hops, for a peer we do not know, and with our own number but nobody's key."""
    with Node() as node:
        asking = node.bring(key)
        assert node.engine.closed[asking.conn].reason == reason
        assert node.forwards == []


def test_our_own_keys_work_as_before() -> None:
    """They carry the peer id, spent hops do not matter, and keys from before the id was set are found too."""
    with Node() as node:
        talk = node.login()
        assert talk.client is not None
        key = talk.client.cancel_key
        assert (key[1] | key[2] << 8, key[7] & 3) == (5, 3)
        node.engine.links[talk.conn] = node.server(talk.client.pool).conn
        node.bring(key[:7] + bytes((key[7] & ~3,)))
        assert list(node.engine.connected.values()) == [("127.0.0.1", 5432)]
        node.worker.front.clients[talk.conn].cancel_key = old = b"\0\7\0DEFG\3"
        node.worker.front.keys[hash(old)] = talk.conn
        node.bring(old)
        assert set(node.engine.connected.values()) == {("127.0.0.1", 5432)}


def test_pool_size_of_the_peer_counts_for_the_fleet() -> None:
    """Others of the fleet count too; what waits goes out as slots become free, in order."""
    with Node() as node:
        first, second, third = node.bring(), node.bring(), node.bring()
        one, two = node.forwards
        assert node.used == 2
        node.up(one)
        assert third.open
        node.done(one)
        (_, _, three) = node.forwards
        assert not first.open
        assert node.used == 2
        node.up(three)
        node.done(three)
        node.done(two, "connect failed: Connection refused")
        assert (second.open, third.open, node.used) == (False, False, 0)
        assert node.engine.closed[second.conn].reason == "failed to send cancel request"


def test_slots_that_others_give_back_are_looked_for() -> None:
    """Nobody rings for them, so while somebody waits we look again after a moment."""
    with Node(PeerConfig(7, "10.0.0.7", 6432, 1)) as node:
        ledger = node.fleet.ledger
        row = ledger.row(Kind.PEER, "7")
        assert ledger.admit(row, 1)
        node.bring()
        node.bring()
        assert node.forwards == []
        ((_, look, line),) = node.later
        look(line)
        assert node.forwards == []
        ledger.leave(row)
        (_, (_, look, line)) = node.later
        look(line)
        assert len(node.forwards) == 1


def test_a_request_that_waits_too_long_is_dropped() -> None:
    """cancel_wait_timeout for the line, server_connect_timeout for a peer that does not answer."""
    with Node(PeerConfig(7, "10.0.0.7", 6432, 1), cancel_wait_timeout=10.0, server_connect_timeout=15.0) as node:
        active, waiting = node.bring(), node.bring()
        cancel.expire(node.worker, node.engine.clock_us + 11_000_000)
        assert node.engine.closed[waiting.conn].reason == "cancel_wait_timeout"
        assert active.open
        cancel.expire(node.worker, node.engine.clock_us + 16_000_000)
        assert node.engine.closed[active.conn].reason == "connect timeout"
        assert node.engine.closed[node.forwards[0]].reason == "connect timeout"
        assert node.used == 0


def test_requests_for_other_nodes_leave_room_for_our_own() -> None:
    """A storm of foreign keys takes half of the worker's budget, and no client's place."""
    with Node(PeerConfig(7, "10.0.0.7", 6432, 1), max_client_conn=1) as node:
        asking = [node.bring() for _ in range(300)]
        assert sum(talk.open for talk in asking) == 50
        assert len(node.forwards) == 1
        assert node.login().client is not None


def test_a_client_that_does_not_wait_is_served_all_the_same() -> None:
    """Its request is passed on, and its slot is given back."""
    with Node() as node:
        asking = node.bring()
        asking.gone()
        (forward,) = node.forwards
        node.up(forward)
        assert node.engine.sent[forward] == request(b"A\7\0DEFG\2")
        node.done(forward)
        assert node.used == 0
        assert node.worker.front.carriers == {}


def test_a_peer_that_speaks_is_left() -> None:
    """No peer has anything to say to a cancel request."""
    with Node() as node:
        asking = node.bring()
        (forward,) = node.forwards
        node.up(forward)
        node.event(5, forward, ord("E"), b"")
        assert not asking.open
        assert forward in node.engine.closed
        assert node.used == 0


def test_a_removed_peer_takes_its_requests_with_it() -> None:
    """After a RELOAD without its entry neither those under way nor those that wait go on."""
    with Node(PeerConfig(7, "10.0.0.7", 6432, 1)) as node:
        active, waiting = node.bring(), node.bring()
        node.peer()
        cancel.expire(node.worker, node.engine.clock_us)
        assert {node.engine.closed[talk.conn].reason for talk in (active, waiting)} == {"peer removed"}
        assert node.worker.peers.lines == {}
        assert node.used == 0
        node.peer(PeerConfig(7, "10.0.0.8", 6433))
        node.bring()
        assert node.engine.connected[node.forwards[-1]] == ("10.0.0.8", 6433)


def test_a_peer_on_a_unix_socket() -> None:
    """Its directory and port make the path."""
    with Node(PeerConfig(7, "/run/pooler", 6433)) as node:
        node.bring()
        (forward,) = node.forwards
        assert node.engine.connected[forward] == "/run/pooler/.s.PGSQL.6433"
        node.up(forward)
        assert "peer-7@unix(0):6433 new connection to server\n" in node.log.texts() + "\n"


def test_rows_of_the_console() -> None:
    """SHOW PEERS lists the entries; SHOW PEER_POOLS those that were used, with what is under way."""
    with Node() as node:
        node.peer(PeerConfig(9, "/run/x"), PeerConfig(7, "10.0.0.7", 6432, 2))
        assert node.worker.peers.rows() == [(7, "10.0.0.7", 6432, 2), (9, "/run/x", 6432, 20)]
        assert node.worker.peers.pool_rows() == []
        asking = [node.bring() for _ in range(3)]
        node.up(node.forwards[0])
        assert node.worker.peers.pool_rows() == [(7, 1, 2, 1, 1)]
        assert [forward.conn for forward in node.worker.peers.connections()] == node.forwards
        carriers = node.worker.front.carriers
        states = [carriers[talk.conn].job for talk in asking]
        assert [job is not None and job.active for job in states] == [True, True, False]


def test_a_peer_with_a_name_is_looked_up() -> None:
    """The slot is taken before; a name without an address ends the request, an answer that comes too late does not."""
    with Node(PeerConfig(7, "db.example", 6432, 1), server_connect_timeout=15.0) as node:
        asked: list[Any] = []
        node.worker.resolver.find = lambda host, found: asked.append((host, found))  # type: ignore[method-assign]
        first, second = node.bring(), node.bring()
        ((host, found),) = asked
        assert host == "db.example"
        assert node.worker.peers.pool_rows() == [(7, 0, 2, 0, 1)]
        assert list(node.worker.peers.connections()) == []
        found([])
        assert node.engine.closed[first.conn].reason == "server DNS lookup failed"
        cancel.expire(node.worker, node.engine.clock_us + 16_000_000)
        assert not second.open
        asked[1][1](["10.0.0.7"])
        assert node.forwards == []
        node.bring()
        asked[2][1](["10.0.0.7"])
        assert node.engine.connected[node.forwards[0]] == ("10.0.0.7", 6432)

"""Cancel requests from the key to the server and back."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from pgshoal.config.model import DatabaseConfig
from pgshoal.fleet.channel import Message
from pgshoal.policy.cancel import LONG_BYTES, PER_CLIENT_MAX
from pgshoal.worker import cancel, cancel_job
from pgshoal.worker.cancel_job import SENT
from tests.support import messages as m
from tests.worker.stub import Bench, Talk


def cancel_with(bench: Bench, key: bytes) -> Talk:
    """A connection that brings a cancel request."""
    talk = bench.accept()
    talk.packet(m.cancel_request(key))
    return talk


def busy(bench: Bench, **server: object) -> tuple[Talk, bytes, int]:
    """A client with a running query: (client, its key, its server)."""
    talk = bench.login()
    assert talk.client is not None
    record = bench.server(talk.client.pool, **server)
    bench.engine.links[talk.conn] = record.conn
    return talk, talk.client.cancel_key, record.conn


def sent_packet() -> bytes:
    """What PostgreSQL must get: the backend's key, not the client's."""
    return struct.pack("!II", 16, 80877102) + b"backend!"


def unanswered(bench: Bench) -> list[tuple[Any, ...]]:
    """What the worker asks of its fleet, which does not answer."""
    asked: list[tuple[Any, ...]] = []

    def ask(*arguments: Any) -> int:
        asked.append(arguments)
        return len(asked)

    bench.worker.fleet.ask = ask  # type: ignore[method-assign,assignment]
    return asked


def test_a_cancel_holds_its_server_until_it_has_been_delivered() -> None:
    """Held before the connection is made, released when PostgreSQL has closed it; only then does the client hear."""
    with Bench() as bench:
        _, key, server = busy(bench)
        asking = cancel_with(bench, key)
        ((delivery, address),) = bench.engine.connected.items()
        assert address == ("127.0.0.1", 5432)
        assert ("hold", server) in bench.engine.calls
        bench.event(7, delivery)
        assert bench.engine.sent[delivery] == sent_packet()
        assert asking.open
        assert ("unhold", server) not in bench.engine.calls
        bench.event(9, delivery, "server conn crashed?")
        assert ("unhold", server) in bench.engine.calls
        assert asking.refused() == ""
        assert bench.engine.closed[asking.conn].reason == SENT
        assert f"app/(nouser)@127.0.0.1:{40000 + asking.conn} closing because: {SENT}" in bench.log.texts()
        assert bench.worker.front.connections() == 1
        assert bench.worker.servers.by_conn[server].cancels == 0


def test_a_client_that_does_not_wait_is_served_all_the_same() -> None:
    """Closing the cancel connection early does not take the request back."""
    with Bench() as bench:
        _, key, server = busy(bench)
        asking = cancel_with(bench, key)
        asking.gone()
        (delivery,) = bench.engine.connected
        bench.event(7, delivery)
        assert bench.engine.sent[delivery] == sent_packet()
        bench.event(9, delivery, "server conn crashed?")
        assert ("unhold", server) in bench.engine.calls
        assert (bench.worker.front.carriers, bench.worker.front.deliveries) == ({}, {})


def test_a_wrong_key_closes_without_a_word() -> None:
    """One wrong bit is another key."""
    with Bench() as bench:
        _, key, _ = busy(bench)
        asking = cancel_with(bench, key[:7] + bytes((key[7] ^ 1,)))
        assert asking.refused() == ""
        assert "closing because: failed cancel request" in bench.log.texts()
        assert bench.engine.connected == {}


@pytest.mark.parametrize("payload", [b"1234", b"", b"x" * 300])
def test_bad_cancel_requests_close_without_a_word(payload: bytes) -> None:
    """Keys of impossible lengths."""
    with Bench() as bench:
        talk = bench.accept()
        talk.packet(struct.pack("!II", 8 + len(payload), 80877102) + payload)
        assert talk.refused() == ""


def test_an_idle_or_waiting_client_is_left_alone() -> None:
    """Without a linked server nothing happens to anybody."""
    with Bench() as bench:
        talk = bench.login()
        assert talk.client is not None
        talk.messages()
        asking = cancel_with(bench, talk.client.cancel_key)
        assert "cancel request for idle client" in bench.log.texts()
        assert not asking.open
        assert (talk.open, talk.got, bench.engine.connected) == (True, b"", {})


def test_a_key_dies_with_its_session() -> None:
    """A key of a client that has left cancels nobody."""
    with Bench() as bench:
        talk, key, _ = busy(bench)
        talk.gone()
        cancel_with(bench, key)
        assert "failed cancel request" in bench.log.texts()


def test_requests_beyond_twice_the_pool_size_wait_their_turn() -> None:
    """When a connection ends the next request goes out, if its query still runs."""
    with Bench(default_pool_size=1) as bench:
        _, first_key, _ = busy(bench)  # one server
        second, second_key, _ = busy(bench)  # two servers: the limit
        one, two = cancel_with(bench, first_key), cancel_with(bench, second_key)
        assert bench.engine.connected == {}
        (gone, _) = list(bench.worker.servers.by_conn.values())
        bench.worker.servers.gone(gone, "x")
        cancel_job.retry(bench.worker)
        assert not one.open  # its server has gone
        assert two.open
        assert len(bench.engine.connected) == 1
        assert second.open


def test_a_request_that_waits_too_long_is_dropped() -> None:
    """cancel_wait_timeout, without a word to the client."""
    with Bench(default_pool_size=1, cancel_wait_timeout=10.0) as bench:
        _, key, _ = busy(bench)
        busy(bench)
        asking = cancel_with(bench, key)
        cancel.expire(bench.worker, bench.engine.clock_us + 9_000_000)
        assert asking.open
        cancel.expire(bench.worker, bench.engine.clock_us + 11_000_000)
        assert asking.refused() == ""
        assert bench.engine.closed[asking.conn].reason == "cancel_wait_timeout"


def test_a_query_that_has_ended_meanwhile_is_not_cancelled() -> None:
    """A request that waited looks again whom it would hit."""
    with Bench(default_pool_size=1) as bench:
        talk, key, _ = busy(bench)
        _, _, other = busy(bench)
        asking = cancel_with(bench, key)
        bench.engine.links.pop(talk.conn)
        bench.worker.servers.gone(bench.worker.servers.by_conn[other], "x")
        cancel_job.retry(bench.worker)
        assert bench.engine.connected == {}
        assert bench.engine.closed[asking.conn].reason == "not sending cancel request for client that is now idle"


def test_a_delivery_that_cannot_connect_releases_its_server() -> None:
    """A refused connection, and one that takes too long."""
    with Bench(server_connect_timeout=15.0) as bench:
        _, key, server = busy(bench)
        cancel_with(bench, key)
        (delivery,) = bench.engine.connected
        bench.event(9, delivery, "connect failed: Connection refused")
        assert bench.engine.calls.count(("unhold", server)) == 1
        asking = cancel_with(bench, key)
        cancel.expire(bench.worker, bench.engine.clock_us + 16_000_000)
        assert bench.engine.calls.count(("unhold", server)) == 2
        assert not asking.open


def test_over_tls_where_the_server_was_reached_over_tls() -> None:
    """SSLRequest, handshake, and only then the key."""
    with Bench(server_tls_sslmode="verify-full") as bench:
        bench.worker.tls.apply(bench.config.settings)
        _, key, _ = busy(bench, tls="TLSv1.3/x", server_name="db.example")
        cancel_with(bench, key)
        (delivery,) = bench.engine.connected
        bench.event(7, delivery)
        assert bench.engine.sent.pop(delivery) == struct.pack("!II", 8, 80877103)
        bench.event(5, delivery, ord("S"), b"")
        assert bench.engine.calls[-1][::3] == ("start_tls", "db.example")
        bench.event(8, delivery, "TLSv1.3", "x", "", "", None)
        assert bench.engine.sent[delivery] == sent_packet()


def test_a_server_that_wants_no_tls_for_cancel_gets_no_key_in_the_clear_under_require() -> None:
    """With sslmode require the request is given up rather than sent plain."""
    with Bench(server_tls_sslmode="require") as bench:
        _, key, server = busy(bench, tls="TLSv1.3/x")
        asking = cancel_with(bench, key)
        (delivery,) = bench.engine.connected
        bench.event(7, delivery)
        bench.engine.sent.pop(delivery)
        bench.event(5, delivery, ord("N"), b"")
        assert delivery not in bench.engine.sent
        assert ("unhold", server) in bench.engine.calls
        assert not asking.open


def test_peering_keys_carry_the_peer_and_the_hop_budget() -> None:
    """The key has PgBouncer's layout, spent hops do not change whose it is, another peer's key is not ours."""
    with Bench(peer_id=0x0102) as bench:
        _, key, _ = busy(bench)
        assert (key[1], key[2], key[7] & 3) == (2, 1, 3)
        assert key[0] < 0x80
        cancel_with(bench, key[:1] + b"\x09" + key[2:])
        assert "could not find peer to forward request to" in bench.log.texts()
        assert bench.engine.connected == {}
        cancel_with(bench, key[:7] + bytes((key[7] & ~3,)))
        assert len(bench.engine.connected) == 1


def test_targets_and_askers_that_died_in_the_same_wake() -> None:
    """A dead client is idle, a dead server is waited for until its CLOSED, a dead asker changes nothing."""
    with Bench() as bench:
        talk, key, server = busy(bench)
        bench.engine.dead.add(server)
        asking = cancel_with(bench, key)
        assert bench.engine.connected == {}
        bench.worker.servers.gone(bench.worker.servers.by_conn[server], "server conn crashed?")
        bench.engine.dead.add(asking.conn)
        cancel_job.retry(bench.worker)
        assert (bench.worker.front.carriers, bench.worker.front.cancels) == ({}, {})
        bench.engine.dead.add(talk.conn)
        late = cancel_with(bench, key)
        assert bench.engine.closed[late.conn].reason == "cancel request for idle client"


def test_requests_that_come_before_the_first_is_sent_share_its_connection() -> None:
    """One signal will do for all that have come by then; each of them waits until it has been sent."""
    with Bench() as bench:
        _, key, server = busy(bench)
        first, second = cancel_with(bench, key), cancel_with(bench, key)
        (delivery,) = bench.engine.connected
        assert bench.engine.calls.count(("hold", server)) == 1
        bench.event(7, delivery)
        third = cancel_with(bench, key)
        assert len(bench.engine.connected) == 1
        bench.event(9, delivery, "server conn crashed?")
        assert (first.open, second.open, third.open) == (False, False, True)


def test_a_request_that_comes_after_the_first_was_sent_is_another_cancel() -> None:
    """It may be meant for the client's next query: it goes out when the first has been delivered, and not before."""
    with Bench() as bench:
        _, key, server = busy(bench)
        cancel_with(bench, key)
        (one,) = bench.engine.connected
        bench.event(7, one)
        late = cancel_with(bench, key)
        assert list(bench.engine.connected) == [one]
        bench.event(9, one, "server conn crashed?")
        (_, two) = bench.engine.connected
        assert bench.worker.servers.by_conn[server].cancels == 1
        bench.event(7, two)
        assert bench.engine.sent[two] == sent_packet()
        bench.event(9, two, "server conn crashed?")
        assert not late.open
        assert bench.engine.calls.count(("unhold", server)) == 2


def test_a_storm_for_one_client_opens_one_connection() -> None:
    """Those beyond a few are refused without a word, and take nobody's place."""
    with Bench(max_client_conn=2) as bench:
        _, key, _ = busy(bench)
        asking = [cancel_with(bench, key) for _ in range(200)]
        assert len(bench.engine.connected) == 1
        assert sum(talk.open for talk in asking) == PER_CLIENT_MAX
        assert bench.login().client is not None


def test_a_worker_keeps_a_bounded_number_of_carriers() -> None:
    """What comes beyond its budget is closed at once, and what is closed makes room."""
    with Bench(max_client_conn=3) as bench:
        unanswered(bench)
        key = b"\1" + bytes(7)
        asking = [cancel_with(bench, key) for _ in range(150)]
        assert sum(talk.open for talk in asking) == 100
        asking[0].gone()
        assert cancel_with(bench, key).open


def test_parameters_being_set_are_not_cancelled() -> None:
    """While the server is being prepared for the client nothing of the client's runs there."""
    with Bench() as bench:
        talk, key, _ = busy(bench)
        bench.engine.links.pop(talk.conn)
        bench.engine.modes[talk.conn] = "linking"
        asking = cancel_with(bench, key)
        assert bench.engine.connected == {}
        assert bench.engine.closed[asking.conn].reason == "ignoring cancel request for server that is setting vars"


def test_clients_of_protocol_3_2_get_long_keys() -> None:
    """32 bytes in BackendKeyData, and the request with them arrives; changed, they are nobody's."""
    with Bench() as bench:
        talk = bench.accept()
        talk.startup(protocol=0x30002)
        (sent,) = [message.payload for message in talk.messages() if message.kind == "K"]
        assert len(sent) == LONG_BYTES
        assert talk.client is not None
        assert talk.client.cancel_key == sent
        bench.engine.links[talk.conn] = bench.server(talk.client.pool).conn
        forged = cancel_with(bench, sent[:-1] + bytes((sent[-1] ^ 1,)))
        assert bench.engine.closed[forged.conn].reason == "failed cancel request"
        cancel_with(bench, sent)
        assert len(bench.engine.connected) == 1


# Within the fleet


def test_a_key_of_another_seat_goes_over_the_channel() -> None:
    """The connection stays open until the other worker has delivered; its words end up in our log."""
    with Bench() as bench:
        asked = unanswered(bench)
        asking = cancel_with(bench, b"\2bcdefgh")
        ((verb, done, fields),) = asked
        assert (verb, fields) == ("cancel", {"key": b"\2bcdefgh".hex()})
        assert asking.open
        done(Message("", {"reason": SENT, "database": "app"}))
        assert bench.engine.closed[asking.conn].reason == SENT
        assert f"app/(nouser)@127.0.0.1:{40000 + asking.conn} closing because: {SENT}" in bench.log.texts()
        done(None)


def test_without_an_answer_the_connection_is_closed_after_cancel_wait_timeout() -> None:
    """A worker that has stopped does not hold it for ever, nor does the end of the supervisor."""
    with Bench(cancel_wait_timeout=10.0) as bench:
        asked = unanswered(bench)
        asking, other = cancel_with(bench, b"\2bcdefgh"), cancel_with(bench, b"\2bcdefgh")
        cancel.expire(bench.worker, bench.engine.clock_us + 9_000_000)
        assert asking.open
        asked[1][1](None)
        assert not other.open
        cancel.expire(bench.worker, bench.engine.clock_us + 11_000_000)
        assert bench.engine.closed[asking.conn].reason == "cancel_wait_timeout"
        asked[0][1](Message("", {"reason": SENT}))


def test_a_seat_the_fleet_does_not_have_costs_the_supervisor_nothing() -> None:
    """Such a key is nobody's here and now."""
    with Bench() as bench:
        asking = cancel_with(bench, b"\x50bcdefgh")
        assert bench.engine.closed[asking.conn].reason == "failed cancel request"
        assert bench.fleet.sent == []


def test_what_reached_another_worker_is_delivered_here() -> None:
    """As if it had come to us: the server is held, and the other worker hears when it is done."""
    with Bench() as bench:
        _, key, server = busy(bench)
        bench.fleet.hear("cancel", key=key.hex())
        (delivery,) = bench.engine.connected
        assert ("hold", server) in bench.engine.calls
        bench.event(7, delivery)
        assert bench.fleet.sent == []
        bench.event(9, delivery, "server conn crashed?")
        assert bench.fleet.sent == [("re cancel", {"reason": SENT, "database": "app"})]
        bench.fleet.hear("cancel", key=b"12345678".hex())
        assert bench.fleet.sent[1:] == [("re cancel", {"reason": "failed cancel request", "database": ""})]


def test_keys_of_the_worker_before_us_in_this_seat_are_nobodys() -> None:
    """The key names our seat, but we have not given it out."""
    with Bench() as bench:
        asking = cancel_with(bench, b"\0bcdefgh")
        assert bench.engine.closed[asking.conn].reason == "failed cancel request"
        assert bench.engine.connected == {}


def test_a_cancel_uses_the_tls_of_its_entry() -> None:
    """The entry's own mode and files, not the global ones."""
    entry = DatabaseConfig("app", server_tls_sslmode="verify-full", server_tls_protocols=("tlsv1.3",))
    with Bench(server_tls_sslmode="disable", databases={"app": entry}) as bench:
        bench.worker.tls.apply(bench.config.settings, bench.config.entries())
        _, key, _ = busy(bench, tls="TLSv1.3/x", server_name="db.example")
        cancel_with(bench, key)
        (delivery,) = bench.engine.connected
        bench.event(7, delivery)
        bench.event(5, delivery, ord("S"), b"")
        _, _, context, name = bench.engine.calls[-1]
        assert name == "db.example"
        assert (context[1].versions, context[1].verify_name) == (("TLSv1.3",), True)

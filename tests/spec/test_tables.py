"""Columns of the console's tables, each with what it must show while known things go on behind it."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from tests.e2e.conftest import MakePooler, until
from tests.support import messages as m
from tests.support.fakeclient import FakeClient
from tests.support.fakeserver import FakeServer, ServerSide
from tests.support.nameserver import NameServer
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

Row = Mapping[str, Any]
Expected = Mapping[str, Any]
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+")
POINTER = re.compile(r"0x[0-9a-f]+")


def is_time(value: Any) -> bool:
    """A time as PgBouncer writes it."""
    return TIME.fullmatch(value) is not None


def is_pointer(value: Any) -> bool:
    """An identity."""
    return POINTER.fullmatch(value) is not None


def natural(value: Any) -> bool:
    """A count, above zero."""
    return int(value) > 0


def small(value: Any) -> bool:
    """A count or a rest."""
    return 0 <= int(value) < 1_000_000


def differing(row: Row, expected: Expected) -> dict[str, Any]:
    """The columns that are not as they should be; all must be there, in this order."""
    assert list(row) == list(expected)
    return {
        name: row[name]
        for name, wanted in expected.items()
        if not (wanted(row[name]) if callable(wanted) else row[name] == wanted)
    }


def working(client: FakeClient) -> None:
    """A transaction with a prepared statement in it."""
    client.login("alice", "app", application_name="till")
    client.query("begin")
    client.ask(m.parse("one", "select 1"), m.bind("one"), m.execute(), m.SYNC)


def sockets(pooler: Pooler, pg: Postgres, client: FakeClient) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the 21 columns of the client and of its server must show."""
    host, port = client.socket.getsockname()
    common = {"local_addr": "127.0.0.1", "connect_time": is_time, "request_time": is_time, "wait": small}
    rest = {"wait_us": small, "close_needed": 0, "ptr": is_pointer, "link": is_pointer}
    ours: dict[str, Any] = {"type": "C", "user": "alice", "database": "app", "replication": "none", "state": "active"}
    ours |= {"addr": host, "port": port, "local_addr": "127.0.0.1", "local_port": pooler.port, **common, **rest}
    ours |= {"remote_pid": 0, "tls": "", "application_name": "till", "prepared_statements": 1, "id": natural}
    theirs = {**ours, "type": "S", "addr": pg.host, "port": pg.port, "local_port": natural, "remote_pid": natural}
    return ours, theirs


def row_of(pooler: Pooler, command: str, kind: str) -> Row:
    """The row of alice's connection."""
    (found,) = [row for row in pooler.admin(command) if (row["type"], row["user"]) == (kind, "alice")]
    return found


def test_clients_and_servers(make: MakePooler, pg15: Postgres) -> None:
    """SHOW CLIENTS and SHOW SERVERS: every column of a client in a transaction and of its server."""
    pooler = make(server_tls_sslmode="disable")
    with FakeClient((pooler.host, pooler.port)) as client:
        working(client)
        ours, theirs = sockets(pooler, pg15, client)
        shown, server = row_of(pooler, "show clients", "C"), row_of(pooler, "show servers", "S")
        assert differing(shown, ours) == {}
        assert differing(server, theirs) == {}
        assert (shown["link"], shown["ptr"]) == (server["ptr"], server["link"])
        pooler.admin("reconnect")
        assert row_of(pooler, "show servers", "S")["close_needed"] == 1


def test_sockets_and_what_they_hold(make: MakePooler, pg15: Postgres) -> None:
    """SHOW SOCKETS: the same with seven more; SHOW ACTIVE_SOCKETS: only those with a piece of a message."""
    pooler = make(server_tls_sslmode="disable")
    with FakeClient((pooler.host, pooler.port)) as client:
        working(client)
        places = ("recv_pos", "pkt_pos", "pkt_remain", "send_pos", "send_remain", "pkt_avail", "send_avail")
        ours, theirs = sockets(pooler, pg15, client)
        buffers = dict.fromkeys(places, small)
        for kind, wanted in (("C", ours), ("S", theirs)):
            assert (
                differing(
                    row_of(pooler, "show sockets", kind),
                    {**wanted, "state": f"{kind.lower()}l_active" if kind == "C" else "sv_active", **buffers},
                )
                == {}
            )
        assert [row for row in pooler.admin("show active_sockets") if row["user"] == "alice"] == []
        client.send(m.query("select 1")[:3])

        def held() -> list[Row]:
            return [row for row in pooler.admin("show active_sockets") if row["user"] == "alice"]

        until(lambda: bool(held()), "the piece of a message")
        (row,) = held()
        assert differing(row, {**ours, "state": "cl_active", **buffers}) == {}
        assert row["recv_pos"] == 3


def test_sums_of_a_database(make: MakePooler) -> None:
    """SHOW STATS, STATS_TOTALS, STATS_AVERAGES and TOTALS: what known traffic adds up to, in each column."""
    pooler = make(stats_period=1, default_pool_size=1)
    with FakeClient((pooler.host, pooler.port)) as client, FakeClient((pooler.host, pooler.port)) as other:
        client.login("alice", "app")
        other.login("alice", "app")
        client.query("begin")
        other.send(m.query("select 1"))  # it waits for the only server
        until(lambda: any(row["cl_waiting"] for row in pooler.admin("show pools")), "the waiting client")
        client.query("commit")
        other.read_until("Z")
        for _ in range(3):
            client.ask(m.parse("one", "select 1"), m.bind("one"), m.execute(), m.SYNC, m.query("select pg_sleep(0.01)"))
            client.read_until("Z")
            client.ask(m.close("S", "one"), m.SYNC)
        stats = next(row for row in pooler.admin("show stats") if row["database"] == "app")
        totals = next(row for row in pooler.admin("show stats_totals") if row["database"] == "app")
        exact = {"client_login_count": 2, "client_parse_count": 3, "bind_count": 3}
        counted = {"server_assignment_count": natural, "xact_count": natural, "query_count": natural}
        bytes_ = {"bytes_received": natural, "bytes_sent": natural}
        times = {"xact_time": natural, "query_time": natural, "wait_time": natural}
        ends = {"client_parse_count": 3, "server_parse_count": 1, "bind_count": 3, "client_login_count": 2}
        assert differing(totals, {"database": "app", **counted, **bytes_, **times, **ends}) == {}
        first: dict[str, Any] = {
            "total_server_assignment_count": natural,
            "total_xact_count": natural,
            "total_query_count": natural,
        }
        first |= {"total_received": natural, "total_sent": natural}
        first |= {"total_xact_time": natural, "total_query_time": natural, "total_wait_time": natural}
        first |= {"total_client_parse_count": 3, "total_server_parse_count": 1, "total_bind_count": 3}
        first |= {"total_client_login_count": 2}
        averages: tuple[str, ...] = (
            "avg_server_assignment_count",
            "avg_xact_count",
            "avg_query_count",
            "avg_recv",
            "avg_sent",
        )
        averages += ("avg_xact_time", "avg_query_time", "avg_wait_time")
        averages += ("avg_client_parse_count", "avg_server_parse_count", "avg_bind_count", "avg_client_login_count")
        assert differing(stats, {"database": "app", **first, **dict.fromkeys(averages, small)}) == {}
        sums = {row["name"]: row["value"] for row in pooler.admin("show totals")}
        assert all(sums[f"total_ps_{name}"] == value for name, value in exact.items() if "login" not in name)


def test_averages_of_a_period(make: MakePooler) -> None:
    """SHOW STATS and STATS_AVERAGES: under steady traffic each average is above zero, and the log's line says so."""
    pooler = make(stats_period=1)
    wanted: tuple[str, ...] = (
        "server_assignment_count",
        "xact_count",
        "query_count",
        "bytes_received",
        "bytes_sent",
        "xact_time",
    )
    wanted += ("query_time", "avg_client_parse_count", "avg_bind_count")
    also: tuple[str, ...] = (
        "avg_server_assignment_count",
        "avg_recv",
        "avg_sent",
        "avg_query_time",
        "avg_client_parse_count",
    )
    also += ("avg_bind_count",)
    with FakeClient((pooler.host, pooler.port)) as client:
        client.login("alice", "app")

        def steady() -> bool:
            for _ in range(40):
                client.ask(m.parse("one", "select 1"), m.bind("one"), m.execute(), m.SYNC)
                client.ask(m.close("S", "one"), m.SYNC)
                client.query("select pg_sleep(0.001)")
            parts = next(row for row in pooler.admin("show stats_averages") if row["database"] == "app")
            stats = next(row for row in pooler.admin("show stats") if row["database"] == "app")
            return all(parts[name] > 0 for name in wanted) and all(stats[name] > 0 for name in also)

        until(steady, "averages above zero")
        row = next(row for row in pooler.admin("show stats_averages") if row["database"] == "app")
        rare = ("wait_time", "avg_server_parse_count", "avg_client_login_count")
        assert all(small(row[name]) for name in rare)
    line = re.compile(
        r"LOG stats: \d+ xacts/s, \d+ queries/s, \d+ client parses/s, \d+ server parses/s, \d+ binds/s, "
        r"\d+ client logins/s, in \d+ B/s, out \d+ B/s, xact \d+ us, query \d+ us, wait \d+ us"
    )
    assert line.search(pooler.log_text())


def test_memory_of_the_engine(make: MakePooler) -> None:
    """SHOW MEM: PgBouncer's rows come first, in its order; the total of each is what its items take."""
    rows = make().admin("show mem")
    assert [row["name"] for row in rows][:12] == [
        "user_cache", "credentials_cache", "db_cache", "peer_cache", "peer_pool_cache", "pool_cache",
        "outstanding_request_cache", "server_cache", "client_cache", "iobuf_cache", "var_list_cache",
        "server_prepared_statement_cache",
    ]  # fmt: skip
    for row in rows:
        assert list(row) == ["name", "size", "used", "free", "memtotal"]
        assert row["name"]
        assert row["memtotal"] >= row["size"] * row["used"] >= 0
        assert row["free"] >= 0


def test_settings_and_their_defaults(start: MakePooler) -> None:
    """SHOW CONFIG: value, default and whether it changes while the pooler runs."""
    rows = {row["key"]: row for row in start(default_pool_size=7).admin("show config")}
    port = rows["listen_port"]
    assert (port["value"] != "6432", port["default"], port["changeable"]) == (True, "6432", "no")
    size = rows["default_pool_size"]
    assert (size["value"], size["default"], size["changeable"]) == ("7", "20", "yes")


def test_workers_age(start: MakePooler) -> None:
    """SHOW WORKERS: uptime counts the seconds since the worker's start."""
    pooler = start()
    (row,) = pooler.admin("show workers")
    until(lambda: pooler.admin("show workers")[0]["uptime"] > row["uptime"], "a second")


def silent(server: ServerSide) -> None:
    """A peer that takes a cancel request and never closes."""
    server.hold()


def test_requests_on_their_way_to_a_peer(start: MakePooler, pg15: Postgres) -> None:
    """SHOW PEER_POOLS counts requests for a peer: [peers] pool_size are under way, the others wait."""
    with FakeServer(silent) as peer:
        peers = {"2": f"host={peer.host} port={peer.port} pool_size=1"}
        pooler = start({"app": database(pg15)}, peer_id=1, peers=peers)
        (known,) = pooler.admin("show peers")
        assert known == {"peer_id": 2, "host": peer.host, "port": peer.port, "pool_size": 1}
        with ExitStack() as stack:
            for number in range(3):
                client = stack.enter_context(FakeClient((pooler.host, pooler.port)))
                client.send(m.cancel_request(struct.pack("<BHIB", 0, 2, number, 3)))

            def counts() -> dict[str, int]:
                rows = pooler.admin("show peer_pools")
                return dict(rows[0]) if rows else {}

            wanted = {"peer_id": 2, "cl_active_cancel_req": 1, "cl_waiting_cancel_req": 2}
            wanted |= {"sv_active_cancel": 1, "sv_login": 0}
            until(lambda: counts() == wanted, f"{wanted}")


def test_zones_of_names(start: MakePooler, pg15: Postgres) -> None:
    """SHOW DNS_ZONES: the zone of each name, its serial once that was asked for, and how many names it has."""
    with NameServer() as server:
        server.hosts |= {f"{name}.example.test": [pg15.host] for name in ("db", "standby")}
        server.serials["example.test"] = 7
        lines = {name: f"host={name}.example.test port={pg15.port} dbname=app" for name in ("db", "standby")}
        pooler = start(lines, resolv_conf=server.resolv_conf(), dns_zone_check_period=0.2)
        assert [pooler.query("select 1", name) for name in lines] == [[(1,)]] * 2
        wanted = [{"zonename": "example.test", "serial": 7, "count": 2}]
        until(lambda: pooler.admin("show dns_zones") == wanted, str(wanted))


def test_variables_that_drivers_ask_for(start: MakePooler) -> None:
    """They have an answer, under their own name."""
    pooler = start()
    answers = {
        "show client_encoding": {"client_encoding": "UTF-8"},
        "show default_transaction_isolation": {"default_transaction_isolation": "read committed"},
        "show standard_conforming_strings": {"standard_conforming_strings": "on"},
        "show datestyle": {"datestyle": "ISO"},
        "show timezone": {"timezone": "GMT"},
    }
    assert {command: pooler.admin(command)[0] for command in answers} == answers

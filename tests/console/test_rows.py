"""The rows of every SHOW: their columns, their types, and where each value comes from."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from pgshoal.config.model import DatabaseConfig, Secret, UserConfig
from pgshoal.console import rows as builders
from pgshoal.console import sockets
from pgshoal.console.tables import COUNTERS, TABLES
from pgshoal.engine.contract import ConnFacts, PoolCounts, PoolStats
from pgshoal.worker.records import Found, ServerState
from pgshoal.worker.resolver import Name
from tests.console.desk import EMPTY, IDLE, Desk, ask, busy, columns, rows, values
from tests.support import messages as m

TEXT, INT4, INT8, NUMERIC = 25, 23, 20, 1700

SOCKET = """type user database replication state addr port# local_addr local_port# connect_time request_time wait#
 wait_us# close_needed# ptr link remote_pid# tls application_name prepared_statements# id#"""
BUFFERS = " recv_pos# pkt_pos# pkt_remain# send_pos# send_remain# pkt_avail# send_avail#"
#: Item -> its columns; # marks int4, ^ int8 and % numeric, all else is text.
COLUMNS = {
    "CLIENTS": SOCKET,
    "SERVERS": SOCKET,
    "SOCKETS": SOCKET + BUFFERS,
    "ACTIVE_SOCKETS": SOCKET + BUFFERS,
    "POOLS": """database user cl_active# cl_waiting# cl_active_cancel_req# cl_waiting_cancel_req# sv_active#
 sv_active_cancel# sv_being_canceled# sv_idle# sv_used# sv_tested# sv_login# maxwait# maxwait_us# pool_mode
 load_balance_hosts""",
    "DATABASES": """name host port# database force_user pool_size# min_pool_size# reserve_pool_size# server_lifetime#
 pool_mode load_balance_hosts max_connections# current_connections# max_client_connections#
 current_client_connections# paused# disabled#""",
    "USERS": """name pool_size reserve_pool_size pool_mode max_user_connections# current_connections#
 max_user_client_connections# current_client_connections#""",
    "STATS": """database total_server_assignment_count% total_xact_count% total_query_count% total_received%
 total_sent% total_xact_time% total_query_time% total_wait_time% total_client_parse_count%
 total_server_parse_count% total_bind_count% total_client_login_count% avg_server_assignment_count%
 avg_xact_count% avg_query_count% avg_recv% avg_sent% avg_xact_time% avg_query_time% avg_wait_time%
 avg_client_parse_count% avg_server_parse_count% avg_bind_count% avg_client_login_count%""",
    "STATS_TOTALS": """database server_assignment_count% xact_count% query_count% bytes_received% bytes_sent%
 xact_time% query_time% wait_time% client_parse_count% server_parse_count% bind_count% client_login_count%""",
    "STATS_AVERAGES": """database server_assignment_count% xact_count% query_count% bytes_received% bytes_sent%
 xact_time% query_time% wait_time% avg_client_parse_count% avg_server_parse_count% avg_bind_count%
 avg_client_login_count%""",
    "TOTALS": "name value%",
    "LISTS": "list items#",
    "CONFIG": "key value default changeable",
    "VERSION": "version",
    "STATE": "key value",
    "MEM": "name size# used# free# memtotal#",
    "DNS_HOSTS": "hostname ttl^ addrs",
    "DNS_ZONES": "zonename serial^ count#",
    "PEERS": "peer_id# host port# pool_size#",
    "PEER_POOLS": "peer_id# cl_active_cancel_req# cl_waiting_cancel_req# sv_active_cancel# sv_login#",
}
#: Ours.
OURS = {
    "LEDGER": "kind database user limit# used# waiting# workers dying#",
    "WORKERS": """worker# seat# pid# state engine clients# servers# cpu% loop_lag_us# uptime# restarts# rss^""",
}


def spelled(text: str) -> list[tuple[str, int]]:
    """(name, type oid) of a line of COLUMNS."""
    kinds = {"#": INT4, "%": NUMERIC, "^": INT8}
    return [(word.rstrip("#%^"), kinds.get(word[-1], TEXT)) for word in text.split()]


def test_the_table_above_is_complete() -> None:
    """No SHOW item goes without a comparison."""
    assert COLUMNS.keys() | OURS.keys() == TABLES.keys()
    assert OURS.keys() == {name for name, table in TABLES.items() if table.ours}
    assert builders.ROWS.keys() == {table.source or name for name, table in TABLES.items()}


@pytest.mark.parametrize("item", [*COLUMNS, *OURS])
def test_columns_are_those_of_pgbouncer(item: str) -> None:
    """Names, order and types on the wire, and as many values in each row."""
    with Desk() as desk:
        desk.login()
        desk.server(desk.pool())
        talk = desk.session()
        head, *shown, _, _ = ask(talk, f"show {item.lower()}")
        wanted = spelled({**COLUMNS, **OURS}[item])
        assert columns(head) == wanted
        assert {len(values(row)) for row in shown} <= {len(wanted)}


@pytest.mark.parametrize(
    ("item", "getters"),
    [
        ("POOLS", builders.POOL_GETTERS),
        ("DATABASES", builders.DATABASE_GETTERS),
        ("USERS", builders.USER_GETTERS),
        ("SOCKETS", sockets.GETTERS),
    ],
)
def test_every_column_has_its_getter(item: str, getters: dict[str, Any]) -> None:
    """Getters and columns name the same things, so that no getter is left over."""
    assert getters.keys() == {column.name for column in TABLES[item].columns}


def test_version_is_what_tools_parse() -> None:
    """The version text is PgBouncer's and nothing else."""
    with Desk() as desk:
        assert rows(desk.session("stats"), "show version") == [{"version": "PgBouncer 1.26.1"}]


def test_pools_count_clients_and_servers_by_state() -> None:
    """Each column of a pool's row counts one state; the console's own row counts its sessions."""
    with Desk() as desk:
        pool = desk.pool()
        desk.counts[pool.id] = PoolCounts(3, 2, 5, 7, 11, 1, 9, 4_000_250)
        for state in (ServerState.USED, ServerState.TESTED, ServerState.TESTED, ServerState.LOGIN, ServerState.CANCEL):
            desk.server(pool).state = state
        desk.worker.servers.resolving[pool.id] += 2
        first, second = rows(desk.session("stats"), "show pools")
        assert first == {
            "database": "app", "user": "alice", "cl_active": "5", "cl_waiting": "5", "cl_active_cancel_req": "0",
            "cl_waiting_cancel_req": "0", "sv_active": "11", "sv_active_cancel": "1", "sv_being_canceled": "1",
            "sv_idle": "7", "sv_used": "1", "sv_tested": "2", "sv_login": "3", "maxwait": "4", "maxwait_us": "250",
            "pool_mode": "session", "load_balance_hosts": None,
        }  # fmt: skip
        assert (second["database"], second["user"], second["pool_mode"]) == ("pgbouncer", "pgbouncer", "statement")
        assert second["cl_active"] == "1"
        assert second["sv_idle"] == second["maxwait"] == "0"


def test_a_client_before_its_pools_first_server_counts_as_waiting() -> None:
    """It waits for a server like any other, and maxwait says for how long."""
    with Desk(databases={"cold": DatabaseConfig("cold")}, autodb=DatabaseConfig("*")) as desk:
        desk.login(database="cold", application_name="early")
        desk.engine.clock_us += 2_500_000
        talk = desk.session("stats")
        pool = rows(talk, "show pools")[1]
        assert (pool["database"], pool["cl_waiting"], pool["maxwait"], pool["maxwait_us"]) == (
            "cold",
            "1",
            "2",
            "500000",
        )
        client = next(row for row in rows(talk, "show clients") if row["database"] == "cold")
        assert (client["state"], client["wait"], client["wait_us"]) == ("waiting", "2", "500000")
        assert client["application_name"] == "early"


def test_pools_count_cancel_requests() -> None:
    """A request under way and one that waits for a connection stand in two columns, and among the clients."""
    with Desk(default_pool_size=2) as desk:
        desk.server(desk.pool())
        busy = [desk.login(), desk.login()]
        for talk in busy:
            desk.engine.links[talk.conn] = desk.server(desk.pool()).conn
        for talk in busy:
            assert talk.client is not None
            desk.accept().packet(m.cancel_request(talk.client.cancel_key))
        console = desk.session("stats")
        pool = rows(console, "show pools")[0]
        assert (pool["cl_active_cancel_req"], pool["cl_waiting_cancel_req"], pool["sv_active_cancel"]) == (
            "1",
            "1",
            "1",
        )
        states = [row["state"] for row in rows(console, "show clients")]
        assert states == ["idle", "idle", "active_cancel_req", "waiting_cancel_req", "idle"]
        assert [row["state"] for row in rows(console, "show servers")][3:] == ["active_cancel"]


def test_clients_show_who_where_and_since_when() -> None:
    """A client's row: identity, addresses, link, wait, counters; the console's session is listed last."""
    with Desk(pool_mode="transaction") as desk:
        talk = desk.login()
        client = talk.client
        assert client is not None
        desk.engine.clock_us = 60_000_000
        desk.facts[talk.conn] = ConnFacts("linked", 0xABC, 59_000_000, 57_999_000, "T", 1, 4, 12, 34, 0, False)
        desk.parameters[talk.conn] = {"application_name": "shop"}
        first, console = rows(desk.session("stats", application_name="top"), "show clients")
        seen = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+")
        assert all(seen.fullmatch(str(first[name])) for name in ("connect_time", "request_time"))
        times = {"connect_time": first["connect_time"], "request_time": first["request_time"]}
        assert first == {
            "type": "C", "user": "alice", "database": "app", "replication": "none", "state": "active",
            "addr": "127.0.0.1", "port": str(40000 + talk.conn), "local_addr": "127.0.0.1", "local_port": "6432",
            **times, "wait": "2", "wait_us": "1000", "close_needed": "0", "ptr": hex(talk.conn), "link": "0xabc",
            "remote_pid": "0", "tls": "", "application_name": "shop", "prepared_statements": "4",
            "id": str(client.number),
        }  # fmt: skip
        assert (console["user"], console["database"], console["state"]) == ("stats", "pgbouncer", "idle")
        assert (console["application_name"], console["wait"], console["link"]) == ("top", "0", "")


@pytest.mark.parametrize(("mode", "state"), [("parked", "idle"), ("linking", "active"), ("waiting", "waiting")])
def test_client_states(mode: str, state: str) -> None:
    """The engine's modes in PgBouncer's words."""
    with Desk() as desk:
        desk.facts[desk.login().conn] = replace(IDLE, mode=mode)
        assert rows(desk.session(), "show clients")[0]["state"] == state


def test_a_client_about_to_be_closed_is_left_out() -> None:
    """What is frozen or dead is no client any more."""
    with Desk() as desk:
        desk.facts[desk.login().conn] = replace(IDLE, mode="frozen")
        assert [row["database"] for row in rows(desk.session(), "show clients")] == ["pgbouncer"]


def test_unix_clients_show_their_process() -> None:
    """A Unix peer has no address; its port is listen_port and its process id is known."""
    with Desk(listen_port=7000) as desk:
        talk = desk.accept(unix=(4711, 0, 0))
        talk.startup()
        row = rows(desk.session(), "show clients")[0]
        assert (row["addr"], row["port"], row["local_addr"], row["local_port"]) == ("unix", "7000", "unix", "7000")
        assert row["remote_pid"] == "4711"


@pytest.mark.parametrize(
    ("state", "mode", "shown", "in_sockets"),
    [
        (ServerState.LOGIN, "dialogue", "new", "sv_login"),
        (ServerState.USED, "dialogue", "used", "sv_used"),
        (ServerState.TESTED, "dialogue", "tested", "sv_tested"),
        (ServerState.CANCEL, "dialogue", "active_cancel", "sv_active_cancel"),
        (ServerState.POOLED, "idle", "idle", "sv_idle"),
        (ServerState.POOLED, "linked", "active", "sv_active"),
        (ServerState.POOLED, "linking", "active", "sv_active"),
        (ServerState.POOLED, "held", "being_canceled", "sv_being_canceled"),
    ],
)
def test_server_states(state: ServerState, mode: str, shown: str, in_sockets: str) -> None:
    """Where a server stands, from its record and the engine together."""
    with Desk() as desk:
        server = desk.server(desk.pool())
        server.state = state
        desk.facts[server.conn] = replace(IDLE, mode=mode)
        talk = desk.session("stats")
        assert [row["state"] for row in rows(talk, "show servers")] == [shown]
        assert [row["state"] for row in rows(talk, "show sockets") if row["type"] == "S"] == [in_sockets]


def test_servers_show_backend_and_partner() -> None:
    """A server's row: the backend's process id, its partner, whether it is to be replaced."""
    with Desk() as desk:
        server = desk.server(desk.pool(), tls="TLSv1.3/X", close_needed=True, local_host="127.0.0.9", local_port=5)
        server.cancel_key = (70000).to_bytes(4, "big") + b"key!"
        desk.facts[server.conn] = replace(IDLE, mode="linked", link=0x77, prepared_statements=3)
        desk.parameters[server.conn] = {"application_name": "shop"}
        (row,) = rows(desk.session("stats"), "show servers")
        assert (row["type"], row["user"], row["database"], row["addr"], row["port"]) == (
            "S",
            "alice",
            "app",
            "127.0.0.1",
            "5432",
        )
        assert (row["local_addr"], row["local_port"], row["tls"]) == ("127.0.0.9", "5", "TLSv1.3/X")
        assert (row["remote_pid"], row["link"], row["close_needed"]) == ("70000", "0x77", "1")
        assert (row["application_name"], row["prepared_statements"]) == ("shop", "3")


def test_sockets_list_logins_and_buffers() -> None:
    """Everything connected is listed; ACTIVE_SOCKETS keeps those with bytes in a buffer."""
    with Desk() as desk:
        client, login = desk.login(), desk.accept()
        desk.facts[client.conn] = replace(IDLE, recv_pending=12, send_pending=34)
        talk = desk.session("stats")
        found = rows(talk, "show sockets")
        assert [row["state"] for row in found] == ["cl_active", "cl_active", "cl_login"]
        assert (found[2]["ptr"], found[2]["user"], found[2]["database"]) == (hex(login.conn), "(nouser)", "(nodb)")
        (row,) = rows(talk, "show active_sockets")
        assert (row["ptr"], row["recv_pos"], row["pkt_avail"], row["send_avail"]) == (
            hex(client.conn),
            "12",
            "12",
            "34",
        )


def test_databases_show_effective_limits() -> None:
    """Sizes and limits are those in effect, modes and users only what the entry says, in order of names."""
    entry = DatabaseConfig(
        "b", dbname="x", hosts=("h1", "h2"), port=1, user="bob", pool_size=3, server_lifetime=90.0,
        pool_mode="statement", load_balance_hosts="disable", max_db_client_connections=7,
    )  # fmt: skip
    plain = DatabaseConfig("a", hosts=("/run",))
    with Desk(
        databases={"b": entry, "a": plain, "app": DatabaseConfig("app")},
        reserve_pool_size=4, min_pool_size=2, max_db_connections=11, listen_port=7000,
    ) as desk:  # fmt: skip
        desk.worker.pools.databases["b"].server_connections = 6
        desk.worker.pools.databases["b"].paused = desk.worker.pools.databases["a"].disabled = True
        found = {row["name"]: row for row in rows(desk.session("stats"), "show databases")}
        assert list(found) == ["a", "app", "b", "pgbouncer"]
        assert found["b"] == {
            "name": "b", "host": "h1,h2", "port": "1", "database": "x", "force_user": "bob", "pool_size": "3",
            "min_pool_size": "2", "reserve_pool_size": "4", "server_lifetime": "90", "pool_mode": "statement",
            "load_balance_hosts": "disable", "max_connections": "11", "current_connections": "6",
            "max_client_connections": "7", "current_client_connections": "0", "paused": "1", "disabled": "0",
        }  # fmt: skip
        a = found["a"]
        assert (a["host"], a["database"], a["force_user"], a["pool_mode"]) == ("/run", "a", None, None)
        assert (a["pool_size"], a["load_balance_hosts"], a["disabled"]) == ("20", None, "1")
        own = found["pgbouncer"]
        assert (own["host"], own["port"], own["force_user"], own["pool_size"]) == (None, "7000", "pgbouncer", "2")
        assert (own["min_pool_size"], own["reserve_pool_size"], own["current_client_connections"]) == ("0", "0", "1")


def test_users_show_their_own_settings() -> None:
    """Unset sizes are empty, set ones nine wide; forced users and the console's own user are listed too."""
    users = {"bob": UserConfig("bob", pool_size=5, reserve_pool_size=0, pool_mode="session", max_user_connections=9)}
    databases = {"app": DatabaseConfig("app"), "f": DatabaseConfig("f", user="zoe")}
    with Desk(users=users, databases=databases, max_user_client_connections=14) as desk:
        desk.welcome("f", "alice")
        desk.login()
        found = {row["name"]: row for row in rows(desk.session("stats"), "show users")}
        assert list(found) == ["admin", "alice", "bob", "pgbouncer", "stats", "zoe"]
        assert found["bob"] == {
            "name": "bob", "pool_size": "        5", "reserve_pool_size": "        0", "pool_mode": "session",
            "max_user_connections": "9", "current_connections": "0", "max_user_client_connections": "14",
            "current_client_connections": "0",
        }  # fmt: skip
        alice = found["alice"]
        assert (alice["pool_size"], alice["reserve_pool_size"], alice["pool_mode"]) == ("", "", None)
        assert (alice["max_user_connections"], alice["current_client_connections"]) == ("0", "1")


def test_stats_count_by_database() -> None:
    """Pools of one database are added up; the console counts its commands and logins as a database of its own."""
    with Desk() as desk:
        other = desk.welcome("app", "bob")
        desk.totals[desk.pool().id] = PoolStats(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
        desk.totals[other.id] = PoolStats(*[100] * 11)
        desk.login()
        talk = desk.session("stats")
        app, console = rows(talk, "show stats_totals")
        assert list(app.values()) == ["app", *map(str, range(101, 112)), "1"]
        assert (console["database"], console["query_count"], console["client_login_count"]) == ("pgbouncer", "1", "1")
        full = rows(talk, "show stats")[0]
        assert [full[name] for name in ("total_received", "total_sent", "total_client_login_count")] == [
            "104",
            "105",
            "1",
        ]


def test_averages_are_those_of_the_last_period() -> None:
    """Counts become a rate, times become a time per transaction, query or wait; the console has its own row."""
    with Desk(stats_period=10) as desk:
        pool, talk = desk.pool(), desk.session("stats")
        for _ in range(30):
            ask(talk, "show version")
        desk.totals[pool.id] = PoolStats(
            server_assignment_count=20, xact_count=40, query_count=80, xact_time_us=4000, query_time_us=4000,
            wait_time_us=200, client_bytes=1000,
        )  # fmt: skip
        desk.worker.stats.report()
        desk.head.relay.figures.tick(desk.head.clock_s + 10)
        mean, console = rows(talk, "show stats_averages")
        assert (mean["xact_count"], mean["query_count"], mean["bytes_received"]) == ("4", "8", "100")
        assert (mean["xact_time"], mean["query_time"], mean["wait_time"]) == ("100", "50", "10")
        assert (console["database"], console["query_count"]) == ("pgbouncer", "3")
        totals = {row["name"]: row["value"] for row in rows(talk, "show totals")}
        assert (totals["avg_xact_count"], totals["avg_xact_time"], totals["total_client_bytes"]) == ("7", "100", "1000")
        assert totals["total_query_count"] == "112"


def test_totals_name_each_counter_twice() -> None:
    """Twelve totals, then twelve averages, in PgBouncer's names."""
    with Desk() as desk:
        names = [str(row["name"]) for row in rows(desk.session(), "show totals")]
        counters = [name for _, _, name, _ in COUNTERS]
        assert counters[3:5] == ["client_bytes", "server_bytes"]
        assert names == [f"total_{name}" for name in counters] + [f"avg_{name}" for name in counters]


def test_lists_count_what_there_is() -> None:
    """Databases, users and pools include the console's; clients include all that are connected."""
    with Desk() as desk:
        desk.login()
        desk.accept()
        desk.server(desk.pool())
        desk.worker.resolver.names["db.example"] = Name()
        desk.worker.resolver.zones["example"] = 7
        found = {row["list"]: row["items"] for row in rows(desk.session("stats"), "show lists")}
        assert " ".join(map(str, found)) == (
            "databases users peers pools peer_pools free_clients used_clients login_clients free_servers used_servers "
            "dns_names dns_zones dns_queries dns_pending"
        )
        assert (found["databases"], found["users"], found["pools"]) == ("3", "5", "2")
        assert (found["used_clients"], found["login_clients"], found["used_servers"]) == ("3", "1", "1")
        assert (found["dns_names"], found["dns_zones"]) == ("1", "1")
        assert (found["dns_queries"], found["dns_pending"]) == ("0", "0")


def test_names_and_zones_are_shown() -> None:
    """Seconds left, never below 0; addresses with port 0; zones with their serials and how many names they have."""
    with Desk() as desk:
        resolver, now_us = desk.worker.resolver, desk.worker.engine.now_us()
        resolver.names["b.example.test"] = Name(["10.0.0.1", "fd00::1"], now_us + 9_900_000)
        resolver.names["a.example.test"] = Name([], max(0, now_us - 5_000_000))
        resolver.zones["example.test"] = 7
        talk = desk.session("stats")
        assert [tuple(row.values()) for row in rows(talk, "show dns_hosts")] == [
            ("a.example.test", "0", ""),
            ("b.example.test", "9", "10.0.0.1:0,[fd00::1]:0"),
        ]
        assert [tuple(row.values()) for row in rows(talk, "show dns_zones")] == [("example.test", "7", "2")]


def test_config_shows_value_default_and_whether_it_can_change() -> None:
    """One row for each setting; unset is NULL."""
    with Desk(max_client_conn=55) as desk:
        found = {row["key"]: row for row in rows(desk.session("stats"), "show config")}
        assert list(found["max_client_conn"].values()) == ["max_client_conn", "55", "100", "yes"]
        assert found["listen_port"]["changeable"] == "no"
        assert found["auth_dbname"]["value"] is None


def test_memory_has_pgbouncers_rows_and_then_ours() -> None:
    """Our records are counted, the engine's caches are as it says, and what there is nothing of is 0."""
    with Desk() as desk:
        server = busy(desk)
        desk.facts[server.conn] = replace(IDLE, queue_length=2, prepared_statements=5)
        desk.worker.pools.users["alice"].found["app"] = Found(Secret("plain", "x"))
        shown = {row["name"]: [int(row[key] or 0) for key in list(row)[1:]] for row in rows(desk.session(), "show mem")}
        assert list(shown) == [
            "user_cache", "credentials_cache", "db_cache", "peer_cache", "peer_pool_cache", "pool_cache",
            "outstanding_request_cache", "server_cache", "client_cache", "iobuf_cache", "var_list_cache",
            "server_prepared_statement_cache", "own_cache",
        ]  # fmt: skip
        used = {name: facts[1] for name, facts in shown.items()}
        assert (used["user_cache"], used["credentials_cache"], used["db_cache"]) == (5, 1, 2)
        assert (used["outstanding_request_cache"], used["server_prepared_statement_cache"]) == (2, 5)
        assert shown["client_cache"] == [100, 3, 2, 500]
        assert shown["own_cache"] == [7, 2, 0, 14]
        assert shown["iobuf_cache"] == [0, 0, 0, 0]
        assert all(size * (taken + free) == total for size, taken, free, total in shown.values())


def test_state_follows_pause() -> None:
    """Active is the opposite of paused; a paused database does not count."""
    with Desk() as desk:
        talk = desk.session()
        ask(talk, "pause app")
        assert [row["value"] for row in rows(talk, "show state")] == ["yes", "no"]
        ask(talk, "pause")
        assert [tuple(row.values()) for row in rows(talk, "show state")] == [("active", "no"), ("paused", "yes")]


def test_an_empty_pool_has_no_wait() -> None:
    """A pool nobody uses is a row of zeros."""
    with Desk() as desk:
        desk.counts[desk.pool().id] = EMPTY
        row = rows(desk.session(), "show pools")[0]
        assert {row[name] for name, oid in spelled(COLUMNS["POOLS"]) if oid == INT4} == {"0"}

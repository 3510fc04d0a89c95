"""Servers by name: name servers of our own, answers that change, zones, and names that do not exist."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

from tests.e2e.conftest import MakePooler, until
from tests.support.nameserver import NameServer
from tests.support.pooler import Pooler
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
DEAD = "127.0.0.99"


@pytest.fixture(scope="module")
def everywhere() -> Iterator[Postgres]:
    """A PostgreSQL that listens on several addresses of loopback."""
    with AtAll(15) as server:
        yield server


class AtAll(Postgres):
    """Listens on all IPv4 addresses of this machine's loopback that are used here."""

    host = ",".join(ADDRESSES)

    def dsn(self, dbname: str = "postgres", user: str | None = None, **more: object) -> str:
        """By the first address."""
        return super().dsn(dbname, user, **{"host": ADDRESSES[0], **more})


@pytest.fixture
def names() -> Iterator[NameServer]:
    """A name server that knows `db.example.test`."""
    with NameServer() as server:
        server.hosts["db.example.test"] = [ADDRESSES[0]]
        server.serials["example.test"] = 7
        yield server


def entry(pg: Postgres, host: str = "db.example.test", **more: object) -> str:
    """A [databases] line that names a host."""
    return " ".join(f"{k}={v}" for k, v in {"host": host, "port": pg.port, "dbname": "app", **more}.items())


def servers(pooler: Pooler) -> list[str]:
    """Addresses of the servers that stand."""
    return sorted(str(row["addr"]) for row in pooler.admin("show servers") if row["state"] != "new")


def shown(pooler: Pooler) -> dict[str, tuple[int, str]]:
    """SHOW DNS_HOSTS."""
    return {row["hostname"]: (row["ttl"], row["addrs"]) for row in pooler.admin("show dns_hosts")}


def refused(pooler: Pooler) -> None:
    """A client that gets nothing."""
    with pytest.raises(psycopg.Error):
        pooler.query("select 1")


def test_names_are_looked_up_and_shown(everywhere: Postgres, names: NameServer, make: MakePooler) -> None:
    """resolv_conf names the server that is asked, with its search domains; the console shows what it said."""
    pooler = make(
        {"app": entry(everywhere), "short": entry(everywhere, "db"), "local": entry(everywhere, "localhost")},
        resolv_conf=names.resolv_conf("search example.test"),
        stats_period=1,
    )
    assert [pooler.query("select 1", dbname) for dbname in ("app", "short", "local")] == [[(1,)]] * 3
    found = shown(pooler)
    assert found["db.example.test"][1] == found["db"][1] == "127.0.0.1:0"
    assert 0 <= found["db.example.test"][0] <= 15
    assert "127.0.0.1:0" in found["localhost"][1]
    assert ("localhost", "A") not in names.asked  # the hosts file knows it
    zones = [tuple(row.values()) for row in pooler.admin("show dns_zones")]
    assert zones == [("example.test", 0, 1)]
    lists = {row["list"]: row["items"] for row in pooler.admin("show lists")}
    assert [lists[f"dns_{what}"] for what in ("names", "zones", "queries", "pending")] == [3, 1, 0, 0]


def test_addresses_take_turns(everywhere: Postgres, names: NameServer, make: MakePooler) -> None:
    """Each new connection goes to the next address of the name."""
    names.hosts["db.example.test"] = list(ADDRESSES)
    pooler = make({"app": entry(everywhere, pool_size=6)}, resolv_conf=names.resolv_conf(), pool_mode="session")
    clients = [pooler.connect() for _ in range(6)]
    for client in clients:
        client.execute("select 1")
    assert servers(pooler) == sorted(ADDRESSES * 2)
    assert names.count("db.example.test") == 1
    for client in clients:
        client.close()


def test_changed_answers_drain_old_servers(everywhere: Postgres, names: NameServer, make: MakePooler) -> None:
    """After dns_max_ttl (0 s) the next connection asks anew, whatever the answer's TTL; lost addresses go."""
    pooler = make({"app": entry(everywhere, pool_size=2)}, resolv_conf=names.resolv_conf(), dns_max_ttl=0)
    with pooler.connect() as held:
        held.execute("begin")
        assert servers(pooler) == [ADDRESSES[0]]
        names.hosts["db.example.test"] = [ADDRESSES[1]]
        asked = names.count("db.example.test")
        assert pooler.query("select 1") == [(1,)]
        assert names.count("db.example.test") == asked + 1
        assert held.execute("select 7").fetchone() == (7,)  # nobody loses a transaction
        assert servers(pooler) == [ADDRESSES[0], ADDRESSES[1]]
        held.execute("commit")
    until(lambda: servers(pooler) == [ADDRESSES[1]], "the end of the old server")


def test_a_grown_serial_renews_its_names(everywhere: Postgres, names: NameServer, make: MakePooler) -> None:
    """dns_zone_check_period finds changes long before the answers expire, without any new connection."""
    pooler = make(
        {"app": entry(everywhere)}, resolv_conf=names.resolv_conf(), dns_max_ttl=3600, dns_zone_check_period=0.5
    )
    pooler.query("select 1")
    until(lambda: [row["serial"] for row in pooler.admin("show dns_zones")] == [7], "the serial")
    names.hosts["db.example.test"] = [ADDRESSES[2]]
    names.serials["example.test"] = 8
    until(lambda: shown(pooler)["db.example.test"][1] == f"{ADDRESSES[2]}:0", "the new address")
    assert "zone 'example.test' serial changed: old=7 new=8" in pooler.log_text()
    until(lambda: servers(pooler) == [], "the end of the old server")
    pooler.query("select 1")
    assert servers(pooler) == [ADDRESSES[2]]


def test_names_that_do_not_exist(everywhere: Postgres, names: NameServer, make: MakePooler) -> None:
    """The failure is logged and kept for dns_nxdomain_ttl; when the name appears its client is served."""
    pooler = make(
        {"app": entry(everywhere, "new.example.test")},
        resolv_conf=names.resolv_conf(), dns_nxdomain_ttl=0.5, server_login_retry=0.3, query_wait_timeout=20,
    )  # fmt: skip
    found: list[object] = []
    client = threading.Thread(target=lambda: found.append(pooler.query("select 1")))
    client.start()
    until(lambda: "DNS lookup failed: new.example.test: result=4" in pooler.log_text(), "the failure")
    assert "app/alice@(bad-af):0 closing because: server DNS lookup failed (age=0s)" in pooler.log_text()
    assert shown(pooler)["new.example.test"][1] == ""
    names.hosts["new.example.test"] = [ADDRESSES[0]]
    client.join()
    assert found == [[(1,)]]


def test_a_silent_name_server_hangs_nobody_for_ever(everywhere: Postgres, names: NameServer, make: MakePooler) -> None:
    """A look-up ends after server_connect_timeout, is shown until then, and keeps no worker from ending."""
    names.silent = True
    pooler = make(
        {"app": entry(everywhere), "other": entry(everywhere, ADDRESSES[0])},
        resolv_conf=names.resolv_conf("options timeout:60"), server_connect_timeout=1.5, server_login_retry=60,
        query_wait_timeout=3,
    )  # fmt: skip
    with socket.create_connection(("127.0.0.1", pooler.port)):
        client = threading.Thread(target=refused, args=(pooler,))
        client.start()
        until(lambda: lists(pooler)["dns_queries"] == 1, "the question")
        assert pooler.query("select 1", "other") == [(1,)]
        until(lambda: "DNS lookup failed: db.example.test: result=12" in pooler.log_text(), "the end of the question")
        assert lists(pooler)["dns_queries"] == 0
        client.join()


def lists(pooler: Pooler) -> dict[str, int]:
    """SHOW LISTS."""
    return {row["list"]: row["items"] for row in pooler.admin("show lists")}


def test_a_worker_ends_with_a_question_open(everywhere: Postgres, names: NameServer, make: MakePooler) -> None:
    """SHUTDOWN does not wait for name servers, and nothing is said about it."""
    names.silent = True
    pooler = make({"app": entry(everywhere)}, resolv_conf=names.resolv_conf("options timeout:60"))
    client = threading.Thread(target=refused, args=(pooler,))
    client.start()
    until(lambda: lists(pooler)["dns_queries"] == 1, "the question")
    pooler.stop()
    client.join()
    text = pooler.log_text()
    assert "Traceback" not in text
    assert "Exception" not in text


def test_a_dead_address_is_passed_over(everywhere: Postgres, names: NameServer, make: MakePooler) -> None:
    """An address where nobody listens costs one attempt, not every second client a pause."""
    names.hosts["db.example.test"] = [DEAD, ADDRESSES[0]]
    pooler = make({"app": entry(everywhere, pool_size=4)}, resolv_conf=names.resolv_conf(), server_login_retry=60)
    clients = [pooler.connect() for _ in range(4)]
    for client in clients:
        client.execute("begin")
    assert servers(pooler) == [ADDRESSES[0]] * 4
    for client in clients:
        client.close()


def test_both_families(everywhere: Postgres, names: NameServer, make: MakePooler) -> None:
    """Addresses of IPv4 and IPv6 are kept side by side, and those that work are used."""
    names.hosts["db.example.test"] = ["::1", "127.0.0.1"]
    pooler = make({"app": entry(everywhere, pool_size=2)}, resolv_conf=names.resolv_conf(), server_login_retry=60)
    with pooler.connect() as one, pooler.connect() as two:
        one.execute("begin")
        two.execute("begin")
        assert shown(pooler)["db.example.test"][1] in ("[::1]:0,127.0.0.1:0", "127.0.0.1:0,[::1]:0")
        assert servers(pooler) == ["127.0.0.1"] * 2


def test_names_of_several_workers(everywhere: Postgres, names: NameServer, make: MakePooler) -> None:
    """Each worker asks for itself; the console shows each name and each zone once."""
    pooler = make({"app": entry(everywhere, pool_size=4)}, resolv_conf=names.resolv_conf(), workers=2)
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(pooler.connect()).execute("begin")
        assert names.count("db.example.test") == 2
        assert list(shown(pooler)) == ["db.example.test"]
        assert [tuple(row.values()) for row in pooler.admin("show dns_zones")] == [("example.test", 0, 1)]
        counts = lists(pooler)
        assert (counts["dns_names"], counts["dns_zones"]) == (1, 1)


def test_answers_that_change_under_load(everywhere: Postgres, names: NameServer, make: MakePooler) -> None:
    """Servers move from address to address while clients work, and no client notices."""
    pooler = make(
        {"app": entry(everywhere, pool_size=4)},
        resolv_conf=names.resolv_conf(), dns_max_ttl=0.2, dns_zone_check_period=0.2,
    )  # fmt: skip
    over = threading.Event()
    seen: set[str] = set()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with pooler.connect() as conn:
                while not over.is_set():
                    with conn.transaction():
                        first = conn.execute("select host(inet_server_addr())").fetchone()
                        second = conn.execute("select host(inet_server_addr())").fetchone()
                        assert first == second
                        assert first is not None
                        seen.add(first[0])
        except BaseException as error:
            failures.append(error)

    clients = [threading.Thread(target=work) for _ in range(8)]
    for client in clients:
        client.start()
    until(lambda: [row["serial"] for row in pooler.admin("show dns_zones")] == [7], "the first serial")
    for turn in range(12):
        address = ADDRESSES[turn % len(ADDRESSES)]
        names.hosts["db.example.test"] = [address]
        names.serials["example.test"] += 1
        until(lambda: shown(pooler).get("db.example.test", (0, ""))[1] == f"{address}:0", "the next answer")  # noqa: B023
    over.set()
    for client in clients:
        client.join()
    assert failures == []
    assert seen == set(ADDRESSES)

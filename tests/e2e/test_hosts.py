"""Host lists: order, dead hosts, and target_session_attrs on a real primary with a streaming standby."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

from tests.e2e.conftest import MakePooler, until
from tests.support.pooler import Pooler
from tests.support.postgres import Postgres
from tests.support.standby import Primary, Standby

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

ONE, TWO, THREE = "127.0.0.1", "127.0.0.2", "127.0.0.3"
DEAD, SILENT = "127.0.0.99", "127.0.0.98"


@pytest.fixture(scope="module")
def primary() -> Iterator[Postgres]:
    """A primary at the first address."""
    with Primary(15) as server:
        yield server


@pytest.fixture(scope="module")
def standby(primary: Postgres) -> Iterator[Standby]:
    """Its standby at the second address."""
    with Standby(primary) as server:
        yield server


def entry(pg: Postgres, hosts: str, **more: object) -> str:
    """A [databases] line with a list of hosts."""
    return " ".join(f"{k}={v}" for k, v in {"host": hosts, "port": pg.port, "dbname": "app", **more}.items())


def at_once(pooler: Pooler, count: int, dbname: str = "app") -> list[str]:
    """The addresses of the servers of so many clients, each in a transaction of its own."""
    with ExitStack() as stack:
        for _ in range(count):
            client = stack.enter_context(pooler.connect(dbname))
            client.execute("begin")
        return [a for d, a in servers(pooler) if d == dbname]


def servers(pooler: Pooler) -> list[tuple[str, str]]:
    """(database, address) of all servers."""
    return sorted((row["database"], row["addr"]) for row in pooler.admin("show servers") if row["state"] != "new")


def where(pooler: Pooler, dbname: str = "app") -> str:
    """Where a query goes: the server's address, and whether it is a standby."""
    found = pooler.query("select host(inet_server_addr()) || ' ' || pg_is_in_recovery()", dbname)
    return str(found[0][0])


def test_round_robin_and_disable(primary: Postgres, standby: Standby, make: MakePooler) -> None:
    """Each new connection goes to the next host, or all to the first."""
    pooler = make(
        {
            "app": entry(primary, f"{ONE},{TWO}"),
            "stick": entry(primary, f"{TWO},{ONE}", load_balance_hosts="disable"),
        },
        server_check_delay=30,
    )
    assert at_once(pooler, 4) == [ONE, ONE, TWO, TWO]
    assert at_once(pooler, 3, "stick") == [TWO] * 3
    shown = {row["name"]: row["load_balance_hosts"] for row in pooler.admin("show databases")}
    assert (shown["app"], shown["stick"]) == ("round-robin", "disable")


@pytest.mark.parametrize("order", ["round-robin", "disable"])
def test_a_dead_host_is_passed_over(primary: Postgres, make: MakePooler, order: str) -> None:
    """It costs one attempt and no pause, however long server_login_retry is; a name that does not exist counts too."""
    hosts = f"{DEAD},no-such-name.invalid,{ONE}"
    pooler = make({"app": entry(primary, hosts, load_balance_hosts=order)}, server_login_retry=60)
    assert at_once(pooler, 4) == [ONE] * 4


def test_a_host_that_is_silent(primary: Postgres, make: MakePooler) -> None:
    """It is found out by server_connect_timeout; from then on clients do not wait for attempts at it."""
    with socket.create_server((SILENT, primary.port)):
        pooler = make(
            {"app": entry(primary, f"{SILENT},{ONE}")},
            server_connect_timeout=1,
            server_login_retry=1,
            server_lifetime=0,  # each transaction has a server of its own
            server_tls_sslmode="disable",
        )
        assert at_once(pooler, 1) == [ONE]
        assert "connect timeout" in pooler.log_text()
        pooler.settings["server_connect_timeout"] = 60
        pooler.write_config()
        pooler.admin("reload")
        # The next attempt at the silent host hangs for a minute, and nobody hangs with it.
        until(lambda: at_once(pooler, 3) == [ONE] * 3 and attempts(pooler) > 0, "an attempt at the silent host")
        assert at_once(pooler, 5) == [ONE] * 5


def attempts(pooler: Pooler) -> int:
    """Logins to servers under way."""
    return sum(row["sv_login"] for row in pooler.admin("show pools"))


def test_a_host_that_comes_back_gets_its_turns(primary: Postgres, standby: Standby, make: MakePooler) -> None:
    """While it is down all goes to the other; after server_login_retry it is tried again, by one client at a time."""
    pooler = make({"app": entry(primary, f"{ONE},{TWO}")}, server_login_retry=1)
    assert set(at_once(pooler, 2)) == {ONE, TWO}
    standby.stop()
    try:
        until(lambda: servers(pooler) == [("app", ONE)], "the end of its servers")
        assert at_once(pooler, 4) == [ONE] * 4
    finally:
        standby.start()
    pooler.admin("reconnect app")
    until(lambda: TWO in at_once(pooler, 4) or not pooler.admin("reconnect app"), "a server of the second host")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("any", {ONE, TWO}),
        ("primary", {ONE}),
        ("read-write", {ONE}),
        ("standby", {TWO}),
        ("read-only", {TWO}),
        ("prefer-standby", {TWO}),
    ],
)
def test_sessions_as_wanted(
    primary: Postgres, standby: Standby, make: MakePooler, wanted: str, found: set[str]
) -> None:
    """Each value of target_session_attrs, whichever host stands first, without any pause."""
    pooler = make(
        {
            name: entry(primary, hosts, target_session_attrs=wanted)
            for name, hosts in (("a", f"{ONE},{TWO}"), ("b", f"{TWO},{ONE}"))
        },
        server_login_retry=60,
    )
    for name in ("a", "b"):
        assert set(at_once(pooler, 4, name)) == found


def test_prefer_standby_takes_what_there_is(primary: Postgres, make: MakePooler) -> None:
    """Without a standby that lives, the primary will do, and at once."""
    hosts = f"{ONE},{DEAD}"
    pooler = make({"app": entry(primary, hosts, target_session_attrs="prefer-standby")}, server_login_retry=60)
    assert at_once(pooler, 3) == [ONE] * 3


def test_nobody_fits(primary: Postgres, standby: Standby, make: MakePooler) -> None:
    """Clients wait for a host that fits; the log says what was found instead."""
    pooler = make({"app": entry(primary, f"{TWO},{TWO}", target_session_attrs="primary")}, query_wait_timeout=2)
    with pytest.raises(psycopg.Error, match="query_wait_timeout"):
        pooler.query("select 1")
    assert "server is in hot standby mode (target_session_attrs=primary)" in pooler.log_text()


def test_read_only_by_default_is_no_read_write(primary: Postgres, standby: Standby, make: MakePooler) -> None:
    """default_transaction_read_only counts as read-only; servers that stand are found, the busy one at its release."""
    with Primary(15) as other:
        pooler = make({"app": entry(other, ONE, target_session_attrs="read-write")}, server_login_retry=0.5)
        with pooler.connect() as held:
            held.execute("begin")
            other.query("alter system set default_transaction_read_only = on")
            other.reload()
            until(lambda: other.query("show default_transaction_read_only") == [("on",)], "the new default")
            held.execute("commit")
        until(lambda: servers(pooler) == [], "the end of the server")
        waiting = threading.Thread(target=pooler.query, args=("select 1",))
        waiting.start()
        until(lambda: "(target_session_attrs=read-write)" in pooler.log_text(), "the refusal")
        with other.connect(options="-c default_transaction_read_only=off") as conn:
            conn.execute("alter system reset default_transaction_read_only")
            conn.execute("select pg_reload_conf()")
        waiting.join()


def test_failover_under_load(make: MakePooler) -> None:
    """Writers that repeat what failed go on after the promotion, and never meet a server that cannot write."""
    with Primary(15) as old, Standby(old) as new:
        old.query("create table counts (n int)", "app")
        old.query("grant all on counts to public", "app")
        pooler = make(
            {"app": entry(old, f"{TWO},{ONE}", target_session_attrs="read-write")},
            server_login_retry=0.5, query_wait_timeout=60,
        )  # fmt: skip
        over = threading.Event()
        done = [0] * 6
        wrong: list[BaseException] = []

        def work(number: int) -> None:
            while not over.is_set():
                try:
                    with pooler.connect() as conn:
                        while not over.is_set():
                            conn.execute("insert into counts values (%s)", (number,))
                            done[number] += 1
                except psycopg.errors.ReadOnlySqlTransaction as error:
                    wrong.append(error)
                    return
                except psycopg.OperationalError:
                    continue  # the server died under it

        clients = [threading.Thread(target=work, args=(number,)) for number in range(len(done))]
        for client in clients:
            client.start()
        until(lambda: min(done) > 5, "some work")
        old.stop()
        new.promote()
        before = list(done)
        until(lambda: all(now > then + 5 for now, then in zip(done, before, strict=True)), "work after the failover")
        over.set()
        for client in clients:
            client.join()
        assert wrong == []
        written = dict(new.query("select n, count(*) from counts group by n", "app"))
        assert all(written[number] >= done[number] for number in range(len(done)))


def test_failover(make: MakePooler) -> None:
    """The primary dies and its standby is promoted: writers go there without a restart; readers leave it."""
    with Primary(15) as old, Standby(old) as new:
        pooler = make(
            {
                "app": entry(old, f"{ONE},{TWO}", target_session_attrs="primary"),
                "reader": entry(old, f"{ONE},{TWO}", target_session_attrs="standby"),
            },
            server_login_retry=0.5,
        )
        assert where(pooler) == f"{ONE} false"
        assert where(pooler, "reader") == f"{TWO} true"
        old.stop()
        waiting: list[str] = []
        client = threading.Thread(target=lambda: waiting.append(where(pooler)))
        client.start()
        until(lambda: "(target_session_attrs=primary)" in pooler.log_text(), "an attempt at the standby")
        new.promote()
        client.join()
        assert waiting == [f"{TWO} false"]
        # The reader's server has lived through the promotion, and no longer fits.
        until(lambda: ("reader", TWO) not in servers(pooler), "the end of the reader's server")

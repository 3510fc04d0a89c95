"""One console for four workers: tables that add up, commands that act everywhere, workers that stop and die."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.e2e.conftest import until
from tests.support.pooler import Pooler, Rows, database
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

WORKERS = 4
ORDERS = (
    "pause", "resume", "pause app", "resume app", "disable app", "enable app", "kill other", "resume other",
    "reconnect", "wait_close", "reload", "set default_pool_size = 25", "kill_client 999999",
    "show clients", "show pools", "show stats", "show lists", "show ledger", "show workers",
)  # fmt: skip
REFUSED = (
    "already paused", "pooler is not paused", "database app is not paused", "database other is not paused",
    "client not found", "PAUSE was interrupted",
)  # fmt: skip
Session = psycopg.Connection[dict[str, Any]]


@pytest.fixture
def fleet(pg15: Postgres, engine: str) -> Iterator[Pooler]:
    """Four workers; what is reloaded is written to its files."""
    with Pooler(
        {"app": database(pg15), "other": database(pg15, "other")},
        engine=engine, workers=WORKERS, pool_mode="transaction", default_pool_size=30,
    ) as pooler:  # fmt: skip
        yield pooler


def console(pooler: Pooler, user: str = "admin") -> Session:
    """A session that stays open."""
    dsn = pooler.dsn("pgbouncer", user, connect_timeout=20)
    return psycopg.connect(dsn, autocommit=True, row_factory=dict_row)


def seat(row: dict[str, Any]) -> int:
    """In whose worker a connection is."""
    return int(row["ptr"], 16) >> 64


def seats(pooler: Pooler, what: str = "clients", **wanted: object) -> Counter[int]:
    """How many connections each worker has."""
    return Counter(seat(row) for row in pooler.admin(f"show {what}") if wanted.items() <= row.items())


@contextmanager
def spread(pooler: Pooler, each: int = 2) -> Iterator[dict[int, list[psycopg.Connection[Any]]]]:
    """Clients of app in every worker, by seat."""
    with ExitStack() as stack:
        found: dict[int, list[psycopg.Connection[Any]]] = {}
        for number in range(200):
            name = f"client{number}"
            conn = pooler.connect(application_name=name)
            stack.callback(conn.close)
            found.setdefault(next(iter(seats(pooler, application_name=name))), []).append(conn)
            if len(found) == WORKERS and all(len(conns) >= each for conns in found.values()):
                yield found
                return
        raise AssertionError(f"the kernel never chose some worker: {found.keys()}")


def workers(pooler: Pooler) -> Rows:
    """SHOW WORKERS."""
    return pooler.admin("show workers", user="stats")


def test_merged_tables_equal_the_sum_of_the_workers(fleet: Pooler) -> None:
    """POOLS, DATABASES, USERS, LISTS, STATS and LEDGER against the connections of each worker, one by one."""
    with spread(fleet) as found, console(fleet, "stats") as session:
        conns = [conn for each in found.values() for conn in each]
        for each in found.values():
            each[0].execute("begin")
            each[1].execute("select 1")
        by_seat = Counter({number: len(each) for number, each in found.items()})
        clients = session.execute("show clients").fetchall()
        servers = session.execute("show servers").fetchall()
        assert Counter(seat(row) for row in clients if row["database"] == "app") == by_seat
        assert len({row["id"] for row in (*clients, *servers)}) == len(clients) + len(servers)
        pool = next(row for row in session.execute("show pools") if row["database"] == "app")
        assert pool["cl_active"] == len(conns)
        assert pool["sv_active"] == sum(row["state"] == "active" for row in servers) == WORKERS
        assert pool["sv_idle"] == sum(row["state"] == "idle" for row in servers)
        lists = {row["list"]: row["items"] for row in session.execute("show lists")}
        assert (lists["databases"], lists["pools"], lists["used_servers"]) == (3, 2, len(servers))
        assert lists["used_clients"] == len(clients)
        app = next(row for row in session.execute("show databases") if row["name"] == "app")
        assert (app["current_client_connections"], app["current_connections"]) == (len(conns), len(servers))
        stats = next(row for row in session.execute("show stats_totals") if row["database"] == "app")
        assert (stats["client_login_count"], stats["query_count"]) == (len(conns), 2 * WORKERS)
        row = next(row for row in session.execute("show ledger") if row["kind"] == "pool" and row["database"] == "app")
        assert (row["limit"], row["used"]) == (30, len(servers))
        held = Counter(seat(row) for row in servers)
        assert row["workers"] == " ".join(f"{number}:{count}" for number, count in sorted(held.items()))


def test_workers_are_shown(fleet: Pooler) -> None:
    """Their processes, what they carry and how they do."""
    with spread(fleet, each=1) as found:
        pids = sorted(fleet.worker_pids())
        until(lambda: sum(row["clients"] for row in workers(fleet)) >= sum(map(len, found.values())), "vitals")
        shown = workers(fleet)
        assert [row["worker"] for row in shown] == [0, 1, 2, 3]
        assert sorted(row["pid"] for row in shown) == pids
        assert {(row["state"], row["engine"]) for row in shown} == {("running", fleet.settings["engine"])}
        assert all(row["rss"] > 5_000_000 and row["cpu"] >= 0 for row in shown)


def test_pause_waits_for_the_worker_with_a_transaction(fleet: Pooler) -> None:
    """Whichever worker the admin talks to; nobody gets a server until RESUME, in any worker."""
    with spread(fleet, each=1) as found, console(fleet) as admin, ThreadPoolExecutor(8) as threads:
        conns = [each[0] for each in found.values()]
        for busy in conns[1:]:
            busy.execute("select 1")
        conns[0].execute("begin")
        paused = threads.submit(admin.execute, "pause")
        until(lambda: fleet.admin("show state")[1]["value"] == "yes", "the pause")
        for _ in range(2 * WORKERS):
            with pytest.raises(psycopg.Error, match="already paused"):
                fleet.admin("pause")
        assert not paused.done()
        conns[0].execute("commit")
        assert paused.result(20).statusmessage == "PAUSE"
        assert fleet.admin("show servers") == []
        asked = [threads.submit(conn.execute, "select 1") for conn in conns]
        until(lambda: sum(row["cl_waiting"] for row in fleet.admin("show pools")) == WORKERS, "all in line")
        fleet.admin("resume")
        assert [one.result(20).fetchone() for one in asked] == [(1,)] * WORKERS


def test_two_admins_and_one_that_vanishes(fleet: Pooler) -> None:
    """A PAUSE whose admin is gone stands everywhere; one that is cancelled is taken back everywhere."""
    with spread(fleet, each=1) as found, ThreadPoolExecutor(4) as threads:
        conns = [each[0] for each in found.values()]
        conns[0].execute("begin")
        gone = console(fleet)
        waiting = threads.submit(gone.execute, "pause")
        until(lambda: fleet.admin("show state")[1]["value"] == "yes", "the pause")
        with console(fleet) as other, pytest.raises(psycopg.Error, match="already paused"):
            other.execute("pause")
        _hang_up(gone)
        with pytest.raises(psycopg.Error):
            waiting.result(20)
        until(lambda: len([row for row in fleet.admin("show clients") if row["user"] == "admin"]) == 1, "its end")
        assert fleet.admin("show state")[1]["value"] == "yes"
        fleet.admin("resume")
        with console(fleet) as admin:
            waiting = threads.submit(admin.execute, "pause app")
            until(lambda: fleet.admin("show databases")[0]["paused"] == 1, "the pause of app")
            admin.cancel()
            with pytest.raises(psycopg.errors.QueryCanceled, match="PAUSE was interrupted"):
                waiting.result(20)
        assert fleet.admin("show databases")[0]["paused"] == 0
        conns[0].execute("commit")
        for conn in conns:
            assert conn.execute("select 1").fetchone() == (1,)


def _hang_up(session: Session) -> None:
    """The network is gone, without a word of the client."""
    with socket.socket(fileno=os.dup(session.fileno())) as sock:
        sock.shutdown(socket.SHUT_RDWR)


def test_kill_client_in_any_worker(fleet: Pooler) -> None:
    """From one session, a client of each worker."""
    with spread(fleet, each=1) as found, console(fleet) as admin:
        for number, (conn, *_) in found.items():
            row = next(row for row in admin.execute("show clients") if seat(row) == number and row["database"] == "app")
            assert admin.execute(f"kill_client {row['id']}".encode()).statusmessage == "KILL_CLIENT"
            with pytest.raises(psycopg.Error, match="client not found"):
                admin.execute(f"kill_client {row['id']}".encode())
            with pytest.raises(psycopg.Error, match="admin forced disconnect"):
                [each.execute("select 1") for each in (conn, *found[number])]


def test_set_and_reload_reach_all(fleet: Pooler) -> None:
    """A SET counts in every worker at once; a TLS file that no worker can read changes nothing in any."""
    with console(fleet) as admin:
        admin.execute("set pool_mode = 'statement'")
        with spread(fleet, each=1) as found:
            for each in found.values():
                with pytest.raises(psycopg.Error, match="transaction blocks not allowed"):
                    each[0].execute("begin")
        admin.execute("reload")
        fleet.settings.update(
            client_tls_sslmode="require", client_tls_cert_file="/nowhere", client_tls_key_file="/nowhere"
        )
        fleet.settings["pool_mode"] = "session"
        fleet.write_config()
        with pytest.raises(psycopg.Error, match="RELOAD failed, see logs for additional details") as failed:
            admin.execute("reload")
        assert failed.value.sqlstate == "F0000"
        assert "client_tls_cert_file = /nowhere: No such file or directory" in fleet.log_text()
        shown = {row["key"]: row["value"] for row in admin.execute("show config")}
        assert shown["pool_mode"] == "transaction"
        with spread(fleet, each=1) as found:
            for each in found.values():
                with each[0].transaction():
                    each[0].execute("select 1")


def test_a_stopped_worker_does_not_hang_the_console(fleet: Pooler) -> None:
    """Its rows are missing after two seconds, and a NOTICE says whose."""
    with spread(fleet, each=1), console(fleet) as admin:
        own = next(seat(row) for row in admin.execute("show clients") if row["database"] == "pgbouncer")
        victim = next(row for row in workers(fleet) if row["seat"] != own)
        notices: list[str | None] = []
        admin.add_notice_handler(lambda diagnostic: notices.append(diagnostic.message_primary))
        os.kill(victim["pid"], signal.SIGSTOP)
        try:
            before = time.monotonic()
            found = {seat(row) for row in admin.execute("show clients")}
            assert time.monotonic() - before < 10
            assert victim["seat"] not in found
            assert notices == [f"no answer from worker {victim['worker']}: its rows are missing"]
        finally:
            os.kill(victim["pid"], signal.SIGCONT)
        until(lambda: victim["seat"] in {seat(row) for row in admin.execute("show clients")}, "its rows")


def test_a_worker_that_dies_during_a_pause(fleet: Pooler) -> None:
    """The PAUSE ends with it; its successor comes up paused, and statistics are kept."""
    with spread(fleet, each=1) as found, console(fleet) as admin, ThreadPoolExecutor(4) as threads:
        own = next(seat(row) for row in admin.execute("show clients") if row["database"] == "pgbouncer")
        number = next(number for number in found if number != own)
        for each in found.values():
            each[0].execute("select 1")
        found[number][0].execute("begin")
        before = next(row for row in admin.execute("show stats_totals") if row["database"] == "app")
        time.sleep(1.6)  # what was counted in the last second may be lost
        paused = threads.submit(admin.execute, "pause")
        until(lambda: fleet.admin("show state")[1]["value"] == "yes", "the pause")
        victim = next(row for row in workers(fleet) if row["seat"] == number)
        os.kill(victim["pid"], signal.SIGKILL)
        assert paused.result(20).statusmessage == "PAUSE"
        until(lambda: [row["state"] for row in workers(fleet)] == ["running"] * WORKERS, "its successor")
        late = next(row for row in workers(fleet) if row["worker"] == victim["worker"])
        assert (late["restarts"], late["pid"] != victim["pid"]) == (1, True)
        after = next(row for row in admin.execute("show stats_totals") if row["database"] == "app")
        assert after["query_count"] >= before["query_count"]
        with fleet.connect(application_name="late") as conn:
            asked = threads.submit(conn.execute, "select 1")
            until(lambda: any(row["cl_waiting"] for row in fleet.admin("show pools")), "the client in line")
            fleet.admin("resume")
            assert asked.result(20).fetchone() == (1,)


def test_statistics_outlive_a_restart(fleet: Pooler) -> None:
    """RESTART is answered when every number has a new process; nothing that was counted before is lost."""

    def counted() -> tuple[int, int]:
        row = next(row for row in fleet.admin("show stats_totals") if row["database"] == "app")
        return row["query_count"], row["client_login_count"]

    with spread(fleet, each=1) as found:
        for each in found.values():
            for _ in range(5):
                each[0].execute("select 1")
    before, pids = counted(), set(fleet.worker_pids())
    assert before[0] == 5 * WORKERS
    with console(fleet) as admin:
        assert admin.execute("restart 5").statusmessage == "RESTART"
    assert pids.isdisjoint(row["pid"] for row in workers(fleet) if row["state"] == "running")
    assert counted() == before
    until(lambda: [row["state"] for row in workers(fleet)] == ["running"] * WORKERS, "the end of the old ones")
    assert counted() == before


def test_admins_while_workers_die(fleet: Pooler) -> None:
    """No command hangs or is answered wrongly, whoever is killed; in the end all workers stand alike."""
    until_s = time.monotonic() + 10
    wrong: list[str] = []

    def admin(seed: int) -> int:
        dice = random.Random(seed)
        answered = 0
        while time.monotonic() < until_s:
            command = dice.choice(ORDERS)
            try:
                fleet.admin(command)
                answered += 1
            except psycopg.OperationalError:
                pass  # its worker was killed
            except psycopg.Error as error:
                answered += 1
                if str(error) not in REFUSED:
                    wrong.append(f"{command}: {error}")
        return answered

    with ThreadPoolExecutor(4) as threads:
        admins = [threads.submit(admin, seed) for seed in range(4)]
        while time.monotonic() < until_s:
            time.sleep(1)
            victim = fleet.worker_pids()[0]
            os.kill(victim, signal.SIGKILL)
            until(lambda victim=victim: victim not in fleet.worker_pids(), "its end")  # type: ignore[misc]
        assert min(each.result(60) for each in admins) > 10
    assert wrong == []
    until(lambda: [row["state"] for row in workers(fleet)] == ["running"] * WORKERS, "all workers")
    for command in ("resume", "resume app", "enable app"):
        with contextlib.suppress(psycopg.Error):
            fleet.admin(command)
    with spread(fleet, each=1) as found:
        for each in found.values():
            assert each[0].execute("select 1").fetchone() == (1,)
    assert "internal error" not in fleet.log_text()
    assert "garbage" not in fleet.log_text()

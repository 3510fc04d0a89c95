"""The HTTP page of a fleet under load, through a restart, an upgrade and a worker that stands still."""

from __future__ import annotations

import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pgshoal.demo.cluster import free_port
from tests.e2e.conftest import until
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

Samples = dict[tuple[str, tuple[str, ...]], float]


@pytest.fixture(scope="module")
def fleet(pg15: Postgres, engine: str) -> Iterator[Pooler]:
    """Two workers with a page."""
    address = f"127.0.0.1:{free_port()}"
    with Pooler(
        {"app": database(pg15)}, engine=engine, workers=2, pool_mode="transaction", http_listen=address
    ) as pooler:
        yield pooler


def get(pooler: Pooler, path: str, **headers: str) -> tuple[int, str, str]:
    """Status, content type and text."""
    request = urllib.request.Request(f"http://{pooler.settings['http_listen']}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def scrape(pooler: Pooler) -> Samples:
    """All samples of the page."""
    status, content_type, text = get(pooler, "/metrics")
    assert (status, content_type.split(";")[0]) == (200, "text/plain")
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def queries(pooler: Pooler) -> float:
    """All that were pooled since the start."""
    return scrape(pooler).get(("pgbouncer_stats_queries_pooled_total", ("app",)), 0)


def restarts(pooler: Pooler) -> float:
    """Of both workers."""
    found = scrape(pooler)
    return sum(found["pgshoal_worker_restarts_total", (str(number),)] for number in range(2))


def test_the_whole_fleet_is_counted(fleet: Pooler) -> None:
    """Transactions of both workers add up; clients that stay connected are seen wherever they are."""
    before = queries(fleet)
    with ThreadPoolExecutor(6) as pool:
        sessions = list(pool.map(lambda _: psycopg.connect(fleet.dsn("app", "alice"), autocommit=True), range(6)))
    try:
        for session in sessions:
            for _ in range(5):
                session.execute("select 1")
        until(lambda: queries(fleet) == before + 30, "all queries counted")
        found = scrape(fleet)
        assert found["pgbouncer_pools_client_active_connections", ("app", "alice")] == 6
        assert found["pgbouncer_used_clients", ()] == 6
        assert sum(found["pgshoal_worker_up", (str(number),)] for number in range(2)) == 2
        assert found["pgshoal_workers_missing", ()] == 0
        named = {labels[0] for name, labels in found if name == "pgbouncer_databases_current_connections"}
        assert named == {"app", "pgbouncer"}
    finally:
        for session in sessions:
            session.close()


def test_other_paths_and_methods(fleet: Pooler) -> None:
    """There is nothing else, and nothing can be written."""
    assert get(fleet, "/")[0] == 404
    assert get(fleet, "/metrics", Accept="application/openmetrics-text")[1].startswith("application/openmetrics-text")
    request = urllib.request.Request(f"http://{fleet.settings['http_listen']}/metrics", data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(request, timeout=20)


def test_many_scrapes_at_once(fleet: Pooler) -> None:
    """Whoever scrapes too much gets answers, and clients are served beside."""
    with ThreadPoolExecutor(16) as pool:
        pages = [pool.submit(scrape, fleet) for _ in range(60)]
        with psycopg.connect(fleet.dsn("app", "alice")) as session:
            assert session.execute("select 42").fetchone() == (42,)
        assert all(page.result()["pgbouncer_up", ()] == 1 for page in pages)


def test_a_worker_that_stands_still(fleet: Pooler) -> None:
    """The page comes without its rows, and says so."""
    stopped = fleet.worker_pids()[0]
    os.kill(stopped, signal.SIGSTOP)
    try:
        assert scrape(fleet)["pgshoal_workers_missing", ()] == 1
    finally:
        os.kill(stopped, signal.SIGCONT)
    until(lambda: scrape(fleet)["pgshoal_workers_missing", ()] == 0, "its rows again")


def test_health(fleet: Pooler) -> None:
    """Well while every number is served; not while one is missing."""
    assert get(fleet, "/health")[::2] == (200, "ok\n")
    before = restarts(fleet)
    os.kill(fleet.worker_pids()[0], signal.SIGKILL)
    until(lambda: get(fleet, "/health")[0] == 503, "one is missing")
    until(lambda: get(fleet, "/health")[0] == 200, "whole again")
    assert restarts(fleet) == before + 1


def test_through_an_upgrade(fleet: Pooler) -> None:
    """The new program opens the page again at the same address, and counters go on from where they were."""
    counted = queries(fleet)
    with psycopg.connect(fleet.dsn("app", "alice"), autocommit=True) as session:
        for _ in range(5):
            session.execute("select 1")
    until(lambda: queries(fleet) == counted + 5, "all queries counted")
    before = fleet.worker_pids()
    with psycopg.connect(fleet.dsn("pgbouncer", "admin"), autocommit=True) as console:
        console.execute("UPGRADE")

    def again() -> bool:
        with suppress(OSError):
            return queries(fleet) == counted + 5 and not set(before) & set(fleet.worker_pids())
        return False

    until(again, "the page of the new program")


def test_an_address_that_is_taken(pg15: Postgres, engine: str, fleet: Pooler) -> None:
    """A second pooler with the same page does not start, and says which setting is wrong."""
    address = str(fleet.settings["http_listen"])
    second = Pooler({"app": database(pg15)}, engine=engine, http_listen=address)
    try:
        second.launch()
        assert second.wait(20) == 1
        assert f"FATAL http_listen: cannot listen on {address}: Address already in use" in second.log_text()
    finally:
        second.remove()

"""Databases, users and pools: found, made on demand, kept alive, forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from pgshoal.config.model import UserConfig
from pgshoal.engine.contract import PoolMode
from tests.support import messages as m


def test_pools_are_keyed_by_database_and_server_user(benches: Any) -> None:
    """Two users of one entry have two pools; of an entry with a forced user, one."""
    pools = benches({"app": "", "forced": "user=carol"}).worker.pools
    alice, bob = pools.users["alice"], pools.users["bob"]
    app, forced = pools.database("app"), pools.database("forced")
    assert pools.pool(app, alice) is pools.pool(app, alice)
    assert pools.pool(app, alice) is not pools.pool(app, bob)
    assert pools.pool(forced, alice) is pools.pool(forced, bob)
    assert pools.pool(forced, alice).user is pools.users["carol"]


def test_a_forced_user_alone_cannot_log_in(benches: Any) -> None:
    """A name that stands only in user= is no login."""
    pools = benches({"app": "user=service"}).worker.pools
    assert pools.pool(pools.database("app"), pools.users["alice"]).user.name == "service"
    assert pools.user("service") is None


def test_automatic_databases(benches: Any) -> None:
    """`*` registers a name at its first use, never the console's."""
    bench = benches(autodb="port=6000")
    pools = bench.worker.pools
    found = pools.database("anything")
    assert found is not None
    assert found.auto
    assert found.config.port == 6000
    assert bench.log.has("registered new auto-database: anything")
    assert pools.database("pgbouncer") is None


def test_spec_follows_the_scopes(benches: Any) -> None:
    """The engine gets the pool user's values first, then the database's, then the global ones."""
    users = {"bob": UserConfig("bob", pool_mode="session", query_timeout=3.0)}
    bench = benches({"app": "pool_mode=statement"}, users, query_timeout=9.0, max_prepared_statements=50)
    pools = bench.worker.pools
    app = pools.database("app")
    alice, bob = pools.spec(app, "alice"), pools.spec(app, "bob")
    assert (alice.mode, alice.query_timeout_us, alice.max_prepared_statements) == (PoolMode.STATEMENT, 9_000_000, 50)
    assert (bob.mode, bob.query_timeout_us, bob.max_prepared_statements) == (PoolMode.SESSION, 3_000_000, 0)


@pytest.mark.parametrize(
    ("settings", "decide"),
    [
        ({}, False),
        ({"pool_mode": "session"}, True),
        ({"pool_mode": "session", "server_reset_query": ""}, False),
        ({"server_reset_query_always": True}, True),
        ({"server_lifetime": 0.0}, True),
        ({"server_check_query": "<empty>", "server_check_delay": 0.0}, True),
        ({"server_check_query": "", "server_check_delay": 0.0}, False),
    ],
)
def test_releases_python_must_see(benches: Any, settings: dict[str, Any], decide: bool) -> None:
    """Only pools whose releases need a reset, a check or an end ask the engine for each one."""
    pools = benches(**settings).worker.pools
    assert pools.spec(pools.database("app"), "alice").decide is decide


def test_unused_pools_are_forgotten(benches: Any) -> None:
    """pool_idle_timeout counts from the last client and server; a new login makes a new pool and is greeted at once."""
    bench = benches(pool_idle_timeout=10.0, server_idle_timeout=1.0)
    client = bench.login()
    bench.serve()
    bench.say(client, m.message(b"X"))
    bench.pass_time(2)
    bench.pass_time(9)
    assert len(bench.worker.pools.by_id) == 1
    bench.pass_time(1.1)
    assert len(bench.worker.pools.by_id) == 0
    assert bench.log.has("cleaning up idle pool for user alice on db app because: pool idle timeout (age= 10s)")
    late = bench.login()
    assert bench.heard(late).endswith(m.ready())
    bench.say(late, m.query("select 1"))
    (server,) = bench.serve()
    assert bench.heard(server).endswith(m.query("select 1"))


def test_forced_pools_with_a_minimum_stay(benches: Any) -> None:
    """A pool that min_pool_size keeps filled is not forgotten between two of its servers."""
    bench = benches({"app": "user=bob min_pool_size=1"}, pool_idle_timeout=1.0, server_login_retry=1000.0)
    (server,) = bench.new_servers()
    bench.leave(server)
    bench.pass_time(50)
    assert len(bench.worker.pools.by_id) == 1


def test_unused_automatic_databases_are_forgotten(benches: Any) -> None:
    """autodb_idle_timeout drops the entry and its pools, unless it is paused."""
    bench = benches(autodb="", autodb_idle_timeout=10.0, server_idle_timeout=1.0)
    client = bench.login(dbname="auto")
    bench.serve()
    bench.say(client, m.message(b"X"))
    bench.pass_time(2)
    database = bench.worker.pools.databases["auto"]
    database.paused = True
    bench.pass_time(11)
    assert "auto" in bench.worker.pools.databases
    database.paused = False
    bench.pass_time(0.4)
    assert "auto" not in bench.worker.pools.databases
    assert not bench.worker.pools.by_id

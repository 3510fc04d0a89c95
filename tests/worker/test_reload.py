"""What a new configuration does to records, pools, servers and clients; without files."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pgshoal.config.model import Config, Origin, Secret, UserConfig
from pgshoal.errors import ConfigError
from pgshoal.fleet.channel import Message
from pgshoal.worker.reload import Reloading, apply
from tests.support import messages as m
from tests.worker.bench import Bench, close, entry


@pytest.fixture
def bench() -> Iterator[Bench]:
    """One worker with two databases; TLS to servers is off, so that no file is read."""
    made = Bench({"app": "", "other": ""}, default_pool_size=2, server_tls_sslmode="disable")
    yield made
    close(made)


def change(bench: Bench, **values: object) -> None:
    """Put a changed Config in effect."""
    apply(bench.worker, replace(bench.worker.config, **values))  # type: ignore[arg-type]
    bench.worker.drain()


def settings(bench: Bench, **values: object) -> None:
    """Put changed settings in effect."""
    change(bench, settings=replace(bench.worker.config.settings, **values))  # type: ignore[arg-type]


def databases(bench: Bench, **lines: str) -> None:
    """Put other databases in effect."""
    change(bench, databases={name: entry(name, text) for name, text in lines.items()})


def test_settings_reach_the_engine(bench: Bench) -> None:
    """A new timeout holds for pools that exist."""
    client = bench.login()
    bench.serve()
    bench.heard(client)
    settings(bench, query_timeout=5.0)
    bench.say(client, m.query("select 1"))
    bench.pass_time(5.1)
    assert bench.error(client) == "query timeout"


def test_boot_settings_stay(bench: Bench) -> None:
    """A setting that needs a restart keeps its value."""
    port = bench.worker.config.settings.listen_port
    settings(bench, listen_port=port + 1)
    assert bench.worker.config.settings.listen_port == port


def test_a_log_file_that_cannot_be_opened(bench: Bench, tmp_path: Path) -> None:
    """Nothing changes, and the error names file, line, setting and value."""
    path = str(tmp_path / "nowhere" / "log")
    before = bench.worker.config
    changed = replace(before.settings, logfile=path)
    fresh = replace(before, settings=changed, origins={("pgbouncer", "logfile"): Origin("a.ini", 7, path)})
    with pytest.raises(ConfigError, match=rf"a\.ini:7: logfile = {path}: cannot open the file: No such file"):
        apply(bench.worker, fresh)
    assert bench.worker.config is before


def test_two_steps(bench: Bench) -> None:
    """What is prepared has no effect before it is committed, and none at all if it is discarded."""
    before = bench.worker.config
    fresh = replace(before, settings=replace(before.settings, default_pool_size=7))
    step = Stepping(bench)
    assert step.prepare(fresh) == {}
    assert bench.worker.config is before
    step.hear("discard")
    step.hear("commit")
    assert bench.worker.config is before
    step.prepare(fresh)
    step.hear("commit")
    assert bench.worker.config.settings.default_pool_size == 7


def test_a_worker_that_refuses_says_why(bench: Bench, tmp_path: Path) -> None:
    """TLS files that cannot be read: the answer to `prepare` names setting and file, and nothing is kept of it."""
    before = bench.worker.config
    path = str(tmp_path / "missing.pem")
    changed = replace(
        before.settings, client_tls_sslmode="require", client_tls_cert_file=path, client_tls_key_file=path
    )
    step = Stepping(bench)
    found = step.prepare(replace(before, settings=changed))
    assert found == {"error": f"test.ini: client_tls_cert_file = {path}: No such file or directory"}
    step.hear("commit")
    assert bench.worker.config is before
    assert step.prepare(replace(before, settings=changed), tls=False) == {}


class Stepping:
    """The supervisor's words to one worker."""

    def __init__(self, bench: Bench) -> None:
        self.fleet = bench.fleet
        Reloading(bench.worker)

    def hear(self, verb: str, blob: bytes = b"", **fields: object) -> dict[str, object]:
        """A request, and its answer."""
        self.fleet.handlers[verb](Message(verb, {"id": 1, **fields}, blob))
        answer, found = self.fleet.sent.pop()
        assert answer == f"re {verb}"
        return found

    def prepare(self, fresh: Config, tls: bool = True) -> dict[str, object]:
        """The first step."""
        return self.hear("prepare", pickle.dumps(fresh), tls=tls)


def test_sizes_apply_without_closing(bench: Bench) -> None:
    """pool_size of an entry may grow while clients wait."""
    one, two = bench.login(), bench.login()
    (server,) = bench.serve()
    databases(bench, app="pool_size=1", other="")
    for client in (one, two):
        bench.say(client, m.query("select 1"))
    assert bench.new_servers() == []
    databases(bench, app="pool_size=2", other="")
    assert len(bench.new_servers()) == 1
    assert bench.alive(server)


def test_another_target_replaces_servers(bench: Bench) -> None:
    """A busy server goes at its release, an idle one at once; the client stays and gets a new one."""
    client, idle = bench.login(), bench.login(dbname="other")
    busy_server, idle_server = bench.serve(2)
    bench.say(client, m.query("select 1"))
    databases(bench, app="dbname=new", other="port=5433")
    assert bench.alive(busy_server)
    assert not bench.alive(idle_server)
    bench.answer(busy_server)
    assert not bench.alive(busy_server)
    bench.heard(client)
    bench.say(client, m.query("select 2"))
    (fresh,) = bench.serve()
    bench.answer(fresh)
    assert bench.heard(client).endswith(m.ready())
    assert bench.heard(idle).endswith(m.ready())


def test_removed_database(bench: Bench) -> None:
    """Its clients and servers go; the same name added again starts afresh."""
    client = bench.login()
    (server,) = bench.serve()
    bench.heard(client)
    databases(bench, other="")
    assert bench.error(client) == "database removed"
    assert not bench.alive(server)
    assert bench.error(bench.login()) == "no such database: app"
    databases(bench, app="", other="")
    late = bench.login()
    bench.serve()
    assert bench.heard(late).endswith(m.ready())


def test_new_forced_user_moves_clients_out(bench: Bench) -> None:
    """Clients of the old pool are closed; the next login is in the forced user's pool."""
    client = bench.login()
    bench.serve()
    bench.heard(client)
    databases(bench, app="user=bob", other="")
    assert bench.error(client) == "database removed"
    bench.login()
    (server,) = bench.new_servers()
    assert bench.worker.servers.by_conn[server].pool.user.name == "bob"


def test_removed_user_cannot_log_in(bench: Bench) -> None:
    """A name that left auth_file is unknown, and its secret is gone from memory."""
    alice = bench.worker.pools.users["alice"]
    change(bench, secrets={"bob": Secret("plain", "x")})
    assert alice.secret is None
    assert bench.worker.pools.user("alice") is None


def test_changed_secret_forgets_derived_keys(bench: Bench) -> None:
    """Keys kept from a client's login end with the secret they prove."""
    alice = bench.worker.pools.users["alice"]
    alice.scram_keys = (b"", b"")  # type: ignore[assignment]
    change(bench, secrets={**bench.worker.config.secrets, "alice": Secret("plain", "new")})
    assert alice.secret == Secret("plain", "new")
    assert alice.scram_keys is None


def test_user_settings_come_and_go(bench: Bench) -> None:
    """A [users] line takes effect at once and, removed, has none."""
    change(bench, users={"alice": UserConfig("alice", pool_mode="session")})
    client = bench.login()
    (server,) = bench.serve()
    bench.say(client, m.query("select 1"))
    bench.answer(server)
    assert bench.engine.link_of(client) == server
    change(bench, users={})
    bench.say(client, m.query("select 1"))
    bench.answer(server)
    assert bench.engine.link_of(client) == 0


def test_server_fast_close(bench: Bench) -> None:
    """With server_fast_close a dirty session ends between two queries, and its client is told."""
    settings(bench, pool_mode="session", server_fast_close=True)
    client = bench.login()
    (server,) = bench.serve()
    bench.say(client, m.query("select 1"))
    databases(bench, app="dbname=new", other="")
    bench.pass_time(0.4)
    assert bench.alive(server)
    bench.answer(server)
    bench.heard(client)
    bench.pass_time(0.4)
    assert not bench.alive(server)
    assert bench.error(client) == "database configuration changed"


def test_server_tls_makes_only_changed_pools_dirty(bench: Bench) -> None:
    """A global change reaches the pools that have no value of their own; an entry's change reaches that entry."""
    databases(bench, app="", other="server_tls_sslmode=disable")
    dirty: list[str] = []
    for name in ("app", "other"):
        bench.login(dbname=name)
    bench.worker.pause.make_dirty = lambda pool: dirty.append(pool.database.name)  # type: ignore[method-assign]
    settings(bench, server_tls_sslmode="prefer")
    assert dirty == ["app"]
    databases(bench, app="", other="server_tls_sslmode=require")
    assert dirty == ["app", "other"]
    settings(bench, server_tls_sslmode="prefer", default_pool_size=3)
    assert dirty == ["app", "other"]

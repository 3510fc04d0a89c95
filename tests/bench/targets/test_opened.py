"""An opened target is what the cell says: its processes, limits, TLS and addresses; and it leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgshoal.bench.knobs import Knobs, resolve
from pgshoal.bench.load.link import conninfo
from pgshoal.bench.model import Cell, Load, NotHere, Target, Tls
from pgshoal.bench.stand import Stand
from pgshoal.bench.targets import opened as module
from pgshoal.bench.targets import pgbouncer, poolers
from pgshoal.bench.targets.fleets import members
from pgshoal.bench.targets.opened import Opened, opened
from pgshoal.bench.targets.servers import SCRAM_USER
from pgshoal.demo.pooler import Pooler


@pytest.fixture
def bouncer(knobs: Knobs) -> Path:
    """The PgBouncer of this machine."""
    try:
        return poolers.bouncer(knobs)
    except NotHere as missing:
        pytest.skip(f"nothing to compare with: {missing}")


NO_LOAD = cast(Load, None)
SCRAM = {"auth_type": "scram-sha-256"}


def cell(target: Target, **facts: Any) -> Cell:
    """A cell whose load is never run."""
    return Cell("test", target, NO_LOAD, **facts)


def ask(opened: Opened, query: str, name: str = "main") -> Any:
    """The one row of a query by an address."""
    with psycopg.connect(conninfo(opened.address(name)), autocommit=True) as conn:
        return conn.execute(query.encode()).fetchone()


def config(opened: Opened, name: str = "") -> Mapping[str, str]:
    """What the pooler says its settings are."""
    console = opened.console(name)
    assert console is not None
    with console as conn:
        return {row[0]: row[1] for row in conn.execute("show config").fetchall()}


WHO = "select current_user::text, inet_server_port(), (select ssl from pg_stat_ssl where pid = pg_backend_pid())"


@pytest.mark.parametrize("tls", ["none", "both"])
def test_direct_is_postgresql_itself(stand: Stand, knobs: Knobs, tls: Tls) -> None:
    """With TLS or without; there are no processes of a pooler, nor a console."""
    with opened(stand, cell(Target("direct"), tls=tls), knobs) as found:
        assert ask(found, WHO) == ("postgres", stand.port, tls == "both")
        assert found.address().port == stand.port
        assert (found.roots(), found.console(), found.log_text(), found.running) == ({}, None, "", True)


@pytest.mark.parametrize("tls", ["client", "server"])
def test_tls_is_on_the_sides_that_the_cell_names(stand: Stand, knobs: Knobs, tls: Tls) -> None:
    """Clients must use it where it is on, and are told to check by whom it was signed; so is the pooler."""
    with opened(stand, cell(Target("pgshoal"), tls=tls), knobs) as found:
        assert ask(found, WHO) == ("postgres", stand.port, tls in ("server", "both"))
        modes = {key: value for key, value in config(found).items() if key.endswith("_tls_sslmode")}
        to_clients = "require" if tls in ("client", "both") else "disable"
        to_server = "verify-ca" if tls in ("server", "both") else "disable"
        assert modes == {"client_tls_sslmode": to_clients, "server_tls_sslmode": to_server}
        with psycopg.connect(conninfo(found.address())) as conn:
            assert conn.pgconn.ssl_in_use == (tls in ("client", "both"))
            assert make_conninfo(conninfo(found.address())).count("sslrootcert") == (tls in ("client", "both"))


def test_pgshoal_in_its_shapes(stand: Stand, knobs: Knobs) -> None:
    """Workers, engine, budget and balance are the cell's; its limits are the fleet's, undivided."""
    options = (("engine", "python"), ("budget", "static"), ("accept", "pack"), ("pin", "on"))
    one = cell(Target("pgshoal", 2, options), budget=6, settings={"max_client_conn": 50})
    with opened(stand, one, knobs) as found:
        says = config(found)
        assert {key: says[key] for key in ("workers", "engine", "budget", "accept_balance")} == {
            "workers": "2", "engine": "python", "budget": "static", "accept_balance": "pack",
        }  # fmt: skip
        assert (says["default_pool_size"], says["max_client_conn"]) == ("6", "50")
        (root,) = found.roots().values()
        workers = Path(f"/proc/{root}/task/{root}/children").read_text().split()
        usable = sorted(os.sched_getaffinity(0))
        assert [os.sched_getaffinity(int(pid)) for pid in workers] == [{usable[n % len(usable)]} for n in range(2)]


def test_a_fleet_of_pgbouncers(stand: Stand, knobs: Knobs, bouncer: Path) -> None:
    """Each on a processor of its own, with its part of the budget, known to the other; the end of one is noticed."""
    one = cell(Target("pgbouncer", 2, (("pin", "on"),)), budget=9)
    with opened(stand, one, knobs) as found:
        says = config(found)
        assert (says["default_pool_size"], says["so_reuseport"], says["peer_id"]) == ("4", "1", "1")
        assert list(found.roots()) == ["main/0", "main/1"]
        usable = sorted(os.sched_getaffinity(0))
        cpus = [os.sched_getaffinity(pid) for pid in found.roots().values()]
        assert cpus == [{usable[n % len(usable)]} for n in range(2)]
        assert ask(found, WHO) == ("postgres", stand.port, False)
        members(found.poolers["main"])[1].stop()
        assert not found.running


def test_pgbouncers_without_peers(stand: Stand, knobs: Knobs, bouncer: Path) -> None:
    """peers = off leaves them strangers: cancels arrive by chance."""
    with opened(stand, cell(Target("pgbouncer", 2, (("peers", "off"),))), knobs) as found:
        assert config(found)["peer_id"] == "0"


def isolated(stand: Stand, knobs: Knobs, target: Target, budget: int) -> tuple[list[int], list[str]]:
    """The pool sizes of both poolers, and whose the processes are."""
    one = cell(target, budget=budget, user=SCRAM_USER, settings=SCRAM)
    with opened(stand, one, knobs) as found:
        assert found.address("exports").port != found.address().port
        assert [ask(found, WHO, name)[0] for name in ("main", "exports")] == [SCRAM_USER, SCRAM_USER]
        sizes = [int(config(found, name)["default_pool_size"]) for name in ("main", "exports")]
        return sizes, list(found.roots())


def test_isolated_exports_have_a_worker_of_their_own(stand: Stand, knobs: Knobs) -> None:
    """Two fleets with the budget divided by processes; clients log in by SCRAM."""
    sizes, roots = isolated(stand, knobs, Target("pgshoal", 2, (("isolated", "on"),)), budget=9)
    assert (sizes, roots) == ([4, 4], ["main", "exports"])


def test_isolated_exports_have_a_pgbouncer_of_their_own(stand: Stand, knobs: Knobs, bouncer: Path) -> None:
    """The others are a fleet on one port; each process has its part of the budget."""
    sizes, roots = isolated(stand, knobs, Target("pgbouncer", 3, (("isolated", "on"),)), budget=9)
    assert (sizes, roots) == ([3, 3], ["main/0", "main/1", "exports"])


def test_nodes_and_a_standby_behind_one_address(stand: Stand, knobs: Knobs) -> None:
    """Nodes serve in turn, each with half of the budget; writer is the primary, reader the standby."""
    options = (("standby", "on"),)
    one = cell(Target("pgshoal", options=options, nodes=2), budget=8, tls="both", user=SCRAM_USER, settings=SCRAM)
    with opened(stand, one, knobs) as found:
        replay = "select pg_is_in_recovery()"
        assert [ask(found, replay, name)[0] for name in ("main", "writer", "reader")] == [False, False, True]
        assert len({found.address(name).port for name in ("main", "writer", "reader")}) == 1
        assert [config(found, name)["default_pool_size"] for name in ("node1", "node2")] == ["4", "4"]
        assert [config(found, name)["peer_id"] for name in ("node1", "node2")] == ["1", "2"]
        assert min(transactions(found, name) for name in ("node1", "node2")) > 0
        assert found.balancer is not None
        found.balancer.remove()
        assert not found.running


def transactions(opened: Opened, name: str) -> int:
    """How many a node has served, its console apart."""
    console = opened.console(name)
    assert console is not None
    with console as conn:
        cursor = conn.execute("show stats_totals")
        at = [column.name for column in cursor.description or ()].index("xact_count")
        return sum(int(row[at]) for row in cursor.fetchall() if row[0] != "pgbouncer")


def test_a_direct_standby(stand: Stand, knobs: Knobs) -> None:
    """Without a pooler, reader and writer are the two servers."""
    with opened(stand, cell(Target("direct", options=(("standby", "on"),))), knobs) as found:
        assert [ask(found, "select pg_is_in_recovery()", name)[0] for name in ("writer", "reader")] == [False, True]
        assert found.address("reader").port != found.address("writer").port


def test_what_fails_in_the_middle_leaves_nothing(stand: Stand, knobs: Knobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second pooler does not start: the first one is stopped, and the files of both are removed."""
    began: list[Pooler] = []

    def start(pooler: Pooler) -> None:
        began.append(pooler)
        if len(began) == 2:
            raise RuntimeError("planted")
        pooler.launch()

    monkeypatch.setattr(Pooler, "start", start)
    target = Target("pgshoal", 2, (("isolated", "on"),))
    with pytest.raises(RuntimeError, match="planted"), opened(stand, cell(target), knobs):
        raise AssertionError("it must not open")
    assert [one.running for one in began] == [False, False]
    assert [one.folder.exists() for one in began] == [False, False]


def lacking(stand: Stand, one: Cell, knobs: Knobs) -> str:
    """Why the cell cannot be run."""
    with pytest.raises(NotHere) as reason, opened(stand, one, knobs):
        raise AssertionError("it must not open")
    return str(reason.value)


def test_what_this_machine_lacks_is_said(stand: Stand, knobs: Knobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS, PgBouncer, HAProxy, and the PostgreSQL behind somebody else's pooler."""

    def missing() -> Path:
        raise pgbouncer.NoPgBouncer("none on PATH")

    strange = resolve({"pgbouncer": "/bin/true"}, {}, quick=True)
    assert "is no PgBouncer" in lacking(stand, cell(Target("pgbouncer")), strange)
    monkeypatch.setattr(pgbouncer, "find", missing)
    assert lacking(stand, cell(Target("pgbouncer")), knobs) == "none on PATH"
    monkeypatch.setattr("pgshoal.bench.targets.balancer.PLACES", "/nowhere")
    assert "install the package haproxy" in lacking(stand, cell(Target("pgshoal", nodes=2)), knobs)
    assert "--pg-host" in lacking(stand, cell(Target("address", address="10.0.0.1:6432")), knobs)
    monkeypatch.setattr(stand, "server_tls", False)
    assert "does not offer TLS" in lacking(stand, cell(Target("pgshoal"), tls="server"), knobs)
    monkeypatch.setattr(stand, "tls_folder", None)
    assert "without TLS" in lacking(stand, cell(Target("pgshoal"), tls="client"), knobs)


def test_a_pooler_of_somebody_else(stand: Stand, knobs: Knobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is spoken to as it is; its processes are known when it runs here. The address may be one of IPv6."""
    with Pooler({"*": f"host={stand.host} port={stand.port}"}, engine="python", userlist={"postgres": ""}) as theirs:
        monkeypatch.setattr(stand, "own", False)
        at = f"{theirs.host}:{theirs.port}"
        with opened(stand, cell(Target("address", address=at)), knobs) as found:
            assert ask(found, WHO)[:2] == ("postgres", stand.port)
            assert (found.roots(), found.console(), found.running) == ({"main": theirs.pid}, None, True)
    somewhere = cell(Target("address", address="[::1]:6432"), tls="client")
    address = module.somebodys(stand, somewhere)
    assert (address.host, address.port, dict(address.environment)["PGSSLMODE"]) == ("::1", 6432, "require")
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        module.somebodys(stand, replace(somewhere, target=Target("address", address="6432")))

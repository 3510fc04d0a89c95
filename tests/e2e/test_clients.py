"""Real client programs see through the pooler what they see directly, on every engine, with and without TLS."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.scenario import SCRIPTS, Target
from tests.support.certs import Authority
from tests.support.pooler import Pooler, database, tls_client_side
from tests.support.postgres import Postgres

JDBC_JAR = Path("/usr/share/java/postgresql.jar")
HERE = Path(__file__).parent


@pytest.fixture(params=["plain", "tls"], scope="module")
def tls(request: pytest.FixtureRequest) -> bool:
    """Whether clients use TLS."""
    return bool(request.param == "tls")


@pytest.fixture(scope="module")
def pooler(pg: Postgres, engine: str, tls: bool, authority: Authority) -> Iterator[Pooler]:
    """A transaction-mode pooler with few servers, SCRAM towards clients, TLS to PostgreSQL 15 when clients use it."""
    settings: dict[str, object] = {
        "engine": engine,
        "pool_mode": "transaction",
        "default_pool_size": 3,
        "ignore_startup_parameters": "extra_float_digits",
        "auth_type": "scram-sha-256",
    }
    if tls:
        settings |= tls_client_side(authority.server)
        settings["server_tls_sslmode"] = "require" if pg.tls else "disable"
    with Pooler({"app": database(pg)}, **settings) as running:
        yield running


@pytest.fixture
def pooled(pooler: Pooler, tls: bool, authority: Authority) -> Target:
    """The way through the pooler."""
    return Target(pooler.host, pooler.port, tls_ca=str(authority.ca_file) if tls else "")


@pytest.fixture
def direct(pg: Postgres) -> Target:
    """The way past it."""
    return Target(pg.host, pg.port)


@pytest.mark.parametrize("script", SCRIPTS)
def test_driver_sees_the_same(script: str, direct: Target, pooled: Target) -> None:
    """A driver's transcript through the pooler equals its transcript on a direct connection."""
    run = SCRIPTS[script]
    assert run(pooled) == run(direct)


PSQL = r"""
\set VERBOSITY verbose
create temp table t as select generate_series(1, 10) as id;
drop table t;
begin; select 1 as one; savepoint s; select 1/0; rollback to s; select 2 as two; commit;
select 1 as a \; select 2 as b;
\copy (select generate_series(1, 2000)) to '/dev/null'
prepare p as select $1::int + 1; deallocate p;
select $1::text as bound \bind 'x' \g
\d pg_class
listen nothing; unlisten nothing;
select length(repeat('x', 3000000));
"""


def test_psql_sees_the_same(direct: Target, pooled: Target, pooler: Pooler) -> None:
    """psql prints the same text for the same script, errors included."""

    def run(target: Target) -> str:
        done = subprocess.run(
            ["psql", "-X", "-a", target.libpq()], input=PSQL, capture_output=True, text=True, check=False, timeout=60
        )
        return re.sub(r"LOCATION:.*", "", done.stdout + done.stderr)

    # Session semantics: one transaction-mode link may not see the temporary table of another.
    script_target = pooled
    assert run(script_target).count("22012") == 1
    assert run(script_target) == run(direct)


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_pgbench(mode: str, pg: Postgres, pooled: Target) -> None:
    """pgbench's TPC-B runs without a failed transaction in each query mode, and the money adds up."""
    direct = replace(pooled, host=pg.host, port=pg.port, tls_ca="")
    # The embedded pgbench has no TLS. One thread a client: preparing blocks a whole thread of pgbench.
    binary = shutil.which("pgbench") or "pgbench"
    subprocess.run([binary, "-q", "-i", "-s", "1", direct.libpq()], check=True, capture_output=True, timeout=60)
    done = subprocess.run(
        [binary, "-n", "-M", mode, "-c", "12", "-j", "12", "-t", "40", pooled.libpq()],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "number of transactions actually processed: 480/480" in done.stdout
    sums = pg.query(
        "select (select sum(abalance) from pgbench_accounts), (select sum(delta) from pgbench_history)", "app"
    )
    assert sums[0][0] == sums[0][1]


def test_jdbc_sees_the_same(tmp_path: Path, direct: Target, pooled: Target) -> None:
    """The JDBC driver (server-side prepares, paging, COPY, cancel by timeout) prints the same."""
    assert JDBC_JAR.exists(), "install libpostgresql-jdbc-java"
    classes = tmp_path / "classes"
    subprocess.run(
        ["javac", "-cp", str(JDBC_JAR), "-d", str(classes), str(HERE / "Jdbc.java")], check=True, timeout=120
    )

    def run(target: Target) -> str:
        host = "localhost" if target.tls_ca else target.host
        url = f"jdbc:postgresql://{host}:{target.port}/{target.dbname}"
        tls = [target.tls_ca] if target.tls_ca else []
        done = subprocess.run(
            ["java", "-cp", f"{classes}:{JDBC_JAR}", "Jdbc", url, target.user, target.password, *tls],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.stdout + done.stderr

    seen = run(pooled)
    assert "cancelled 57014" in seen
    assert seen == run(direct)

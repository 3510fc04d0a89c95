"""The stand: a PostgreSQL of the kit's own that is prepared between runs, or a given one that is left as it was."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgshoal.bench import stand as module
from pgshoal.bench.knobs import resolve
from pgshoal.bench.model import NotHere
from pgshoal.bench.stand import APPLICATION, Stand
from pgshoal.bench.targets.servers import PASSWORD, SCRAM_USER
from pgshoal.demo import programs
from tests.support.postgres import Postgres

READ = "select coalesce(sum(heap_blks_read + idx_blks_read), 0) from pg_statio_user_tables"
WARM = "select count(*) from (select 1 from events where id between 1 and 20000 and event_type <> '') _"


def own(**options: str) -> Stand:
    """A stand of its own, quick."""
    return Stand(resolve(dict(options), {}, quick=True))


def given(server: Postgres, **options: str) -> Stand:
    """A stand on a server that runs already."""
    facts = {"pg_host": server.host, "pg_port": str(server.port), "pg_user": "postgres", "pg_database": "app"}
    return own(**{**facts, **options})


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    """One that the tests of a server of the kit's own share."""
    with own() as made:
        yield made


def test_settings_are_those_of_the_experiment(stand: Stand) -> None:
    """The server is restarted when it runs with others, and only then; the kit's own connection is not the clients'."""
    stand.prepare({"max_connections": "25", "work_mem": "5MB"})
    first = stand.postmaster_pid
    assert stand.sql("show work_mem") == "5MB"
    with stand.connect():  # the meter's
        clients = [psycopg.connect(direct(stand)) for _ in range(25)]
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            psycopg.connect(direct(stand))
        for client in clients:
            client.close()
    stand.prepare({"max_connections": "25", "work_mem": "5MB"})
    assert stand.postmaster_pid == first
    stand.prepare()
    assert stand.postmaster_pid != first
    assert stand.sql("show work_mem") != "5MB"


def direct(stand: Stand, user: str = "", **more: str) -> str:
    """How a client connects to PostgreSQL."""
    address = stand.address(user)
    return make_conninfo(host=address.host, port=address.port, user=address.user, dbname=address.dbname, **more)


def test_a_run_begins_without_backends_of_others(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit's own connections do not matter; one of somebody else is named when it does not go."""
    monkeypatch.setattr(module, "DRAIN_LIMIT_S", 0.2)
    with stand.connect():
        stand.prepare()
        with (
            psycopg.connect(direct(stand, application_name="left over")),
            pytest.raises(RuntimeError, match=r"backends of postgres from 127.0.0.1/32 \(left over, idle"),
        ):
            stand.prepare()
    stand.prepare()


def test_a_server_that_was_killed_is_started_again(stand: Stand) -> None:
    """The next run finds it as it was, tables included."""
    stand.fill("one_row", 1)
    pid = stand.postmaster_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    stand.prepare()
    assert stand.postmaster_pid not in (pid, None)
    assert stand.sql("select word from one_row") == "one"


def test_tables_are_made_once_and_read_into_the_cache(stand: Stand) -> None:
    """Nothing is read from the disk afterwards, not after a restart either; another size makes them anew."""
    stand.fill("events", 20_000)
    file = stand.sql("select relfilenode from pg_class where relname = 'events'")
    stand.prepare({"work_mem": "6MB"})
    before = stand.sql(READ)
    assert stand.sql(WARM) == "20000"
    assert stand.sql(READ) == before
    stand.fill("events", 20_000)
    assert stand.sql("select relfilenode from pg_class where relname = 'events'") == file
    stand.fill("events", 10)
    assert stand.sql("select count(*), min(id), max(id), count(distinct event_type) from events") == "10|1|10|4"


def test_pgbench_s_tables_have_its_scale(stand: Stand) -> None:
    """They are made by pgbench itself."""
    stand.fill("pgbench", 2)
    assert stand.sql("select count(*) from pgbench_accounts") == "200000"
    assert stand.sql("select count(*) from pgbench_branches") == "2"


def test_results_are_unaligned(stand: Stand) -> None:
    """The last rows count; what has none is an empty text."""
    assert stand.sql("select 1; select true, null, 'x' union all select false, 2, 'y'; set work_mem = '4MB'") == (
        "t||x\nf|2|y"
    )
    assert stand.sql("set work_mem = '4MB'") == ""


def test_one_role_logs_in_by_scram(stand: Stand) -> None:
    """Its password is asked for, and its secret is what a user list takes."""
    assert stand.scram_secret.startswith("SCRAM-SHA-256$")
    assert stand.password_of(SCRAM_USER) == PASSWORD
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(direct(stand, SCRAM_USER, password="wrong"))
    psycopg.connect(direct(stand, SCRAM_USER, password=PASSWORD)).close()


def test_tls_is_offered_and_can_be_checked(stand: Stand) -> None:
    """The system's server shows a certificate that the authority in the folder signed."""
    address = stand.address(tls=True)
    environment = dict(address.environment)
    assert environment["PGSSLMODE"] == "verify-ca"
    with psycopg.connect(direct(stand, sslmode="verify-ca", sslrootcert=environment["PGSSLROOTCERT"])) as conn:
        assert conn.pgconn.ssl_in_use


def test_a_stand_leaves_nothing_behind() -> None:
    """Neither processes nor files, also when what was done in it fails."""
    with contextlib.suppress(KeyError), own() as made:
        pid, cluster, certificates = made.postmaster_pid, made.cluster, made.tls_folder
        raise KeyError
    assert cluster is not None
    assert certificates is not None
    assert not Path(f"/proc/{pid}").exists()
    assert not cluster.folder.exists()
    assert not certificates.exists()


def test_without_programs_of_the_system_the_embedded_ones_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no TLS, neither as a server nor as a client."""

    def none(major: int | None = None) -> programs.Programs:
        raise programs.ProgramsMissing("none here")

    monkeypatch.setattr(programs, "system", none)
    with own() as made:
        assert (made.own, made.tls_folder, made.server_tls) == (True, None, False)
        made.fill("one_row", 1)
        assert made.sql("show ssl") == "off"


def test_a_given_server_is_left_as_it_was(pg15: Postgres) -> None:
    """No restart and no settings; its other clients may stay; tables of the kit are gone in the end."""
    with pg15.connect(dbname="app", application_name="somebody"), given(pg15) as made:
        assert (made.own, made.cluster, made.port, made.server_tls) == (False, None, pg15.port, True)
        assert made.postmaster_pid == pg15.pid
        made.prepare({"max_connections": "25"})
        assert made.postmaster_pid == pg15.pid
        made.fill("events", 10)
        assert made.sql("select count(*) from events") == "10"
        with made.connect() as conn:
            assert conn.info.parameter_status("application_name") == APPLICATION
    assert pg15.query("select to_regclass('events')", dbname="app") == [(None,)]


def test_what_a_given_server_gets_beside_its_clients_must_go(pg15: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that came later is waited for, unless it is an idle one of a pooler, or in another database."""
    monkeypatch.setattr(module, "DRAIN_LIMIT_S", 0.2)
    with given(pg15) as made, pg15.connect(dbname="app"), pytest.raises(RuntimeError, match="still has backends"):
        made.prepare()
    with given(pg15, pooler_port="6432") as made, pg15.connect(dbname="app"):
        made.prepare()
    with given(pg15) as made, pg15.connect(dbname="other"):
        made.prepare()


def test_tables_of_others_stay(pg15: Postgres) -> None:
    """A given database with a table of such a name is not touched; another one must be named."""
    pg15.query("create table events (mine text)", dbname="app")
    try:
        with given(pg15) as made, pytest.raises(NotHere, match="has its own events: --pg-database"):
            made.fill("events", 10)
        assert pg15.query("select count(*) from events", dbname="app") == [(0,)]
    finally:
        pg15.query("drop table events", dbname="app")


def test_a_given_server_has_no_standby_of_ours(pg15: Postgres) -> None:
    """Nor a role of ours."""
    with given(pg15, pg_user="scram_user", pg_password="scram-secret") as made:
        assert made.scram_secret == ""
        assert made.superuser == "scram_user"
        assert made.password_of("scram_user") == "scram-secret"
        with pytest.raises(NotHere), made.standby():
            raise AssertionError("it must not open")


def test_a_server_that_does_not_answer_is_said_without_its_password() -> None:
    """The error names the address, never the secret."""
    wanted = own(pg_host="127.0.0.1", direct_port="1", pg_password="s3cret")
    with pytest.raises(psycopg.OperationalError, match="port 1") as error, wanted:
        raise AssertionError("it must not open")
    assert "s3cret" not in str(error.value)

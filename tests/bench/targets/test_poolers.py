"""What poolers of a cell are told, whichever they are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pgshoal.bench.knobs import Knobs, resolve
from pgshoal.bench.model import Cell, Load, NotHere, Target
from pgshoal.bench.stand import Stand
from pgshoal.bench.targets.poolers import bouncer, databases_of, settings

ADDRESS = SimpleNamespace(host="127.0.0.1", port=5999)


def stand(**facts: Any) -> Stand:
    """As much of a stand as is looked at."""
    plain = {"own": True, "password": "", "tls_folder": "/certs", "dbname": "app", "host": "db", "port": 5432}
    return cast(Stand, SimpleNamespace(**{**plain, "deaf": ADDRESS, **facts}))


def cell(**facts: Any) -> Cell:
    """A cell of one pooler."""
    return Cell("test", Target("pgshoal"), cast(Load, None), **facts)


def test_a_cell_says_what_it_wants() -> None:
    """The budget is the pool's size, and the cell's own settings come before all others."""
    assert settings(stand(), cell())["pool_mode"] == "transaction"
    assert settings(stand(), cell(budget=7))["default_pool_size"] == 7
    own = {"default_pool_size": 3, "pool_mode": "session"}
    assert settings(stand(), cell(budget=7, settings=own)).items() >= own.items()


def test_where_postgresql_asks_for_a_password_poolers_do_too() -> None:
    """Else pooled connections would look cheaper than direct ones."""
    assert "auth_type" not in settings(stand(), cell())
    given = stand(own=False, password="secret")
    assert settings(given, cell())["auth_type"] == "scram-sha-256"
    assert settings(given, cell(settings={"auth_type": "trust"}))["auth_type"] == "trust"


def test_a_given_server_s_certificate_cannot_be_checked() -> None:
    """Nobody told us who signed it."""
    ours, theirs = settings(stand(), cell(tls="both")), settings(stand(own=False), cell(tls="both"))
    assert (ours["server_tls_sslmode"], ours["server_tls_ca_file"]) == ("verify-ca", "/certs/ca.crt")
    assert theirs["server_tls_sslmode"] == "require"
    assert "server_tls_ca_file" not in theirs


def program(folder: Path, text: str) -> Knobs:
    """Knobs that name a program of this text."""
    path = folder / "pgbouncer"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return resolve({"pgbouncer": str(path)}, {}, quick=True)


def test_a_pgbouncer_must_be_one_and_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the account of servers, which may not enter every folder of ours."""
    with pytest.raises(NotHere, match="is no PgBouncer"):
        bouncer(program(tmp_path, "echo 1.26"))
    good = program(tmp_path, "echo PgBouncer 1.26.1")
    monkeypatch.setattr("pgshoal.bench.targets.poolers.can_run", lambda path, account: False)
    with pytest.raises(NotHere, match="cannot be run by"):
        bouncer(good)
    monkeypatch.setattr("pgshoal.bench.targets.poolers.can_run", lambda path, account: True)
    assert bouncer(good) == tmp_path / "pgbouncer"


def test_databases() -> None:
    """The stand's, the one that never reads, and others that lead to the stand's on another server."""
    assert databases_of(stand(), {"reader": ("standby", 5433)}) == {
        "app": "host=db port=5432",
        "deaf": "host=127.0.0.1 port=5999",
        "reader": "host=standby port=5433 dbname=app",
    }

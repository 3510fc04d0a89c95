"""Operators at work under load: reloads with other lists each time, two admins at once, logs without a disk."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import psycopg

from tests.e2e.chaos.crowd import Crowd, settled
from tests.e2e.conftest import MakePooler, until
from tests.support.pooler import Pooler, database
from tests.support.postgres import PASSWORDS, Postgres


def other_lists(pooler: Pooler, pg: Postgres, dice: random.Random) -> None:
    """Another configuration that is as good as the last."""
    entries = (database(pg), database(pg, user="alice"), database(pg, pool_size=1), database(pg, pool_mode="session"))
    pooler.databases = {"app": dice.choice(entries)}
    if dice.random() < 0.6:
        pooler.databases["*"] = f"host={pg.host} port={pg.port}"
    pooler.userlist = {user: secret for user, secret in PASSWORDS.items() if dice.random() < 0.8}
    pooler.users = {"bob": dice.choice(("pool_mode=session", "max_user_connections=1", "pool_size=2"))}
    pooler.settings.update(
        default_pool_size=dice.randrange(1, 6),
        max_prepared_statements=dice.choice((0, 10, 200)),
        server_lifetime=dice.choice((0, 1, 3600)),
        server_check_delay=dice.choice((0, 30)),
        server_reset_query_always=dice.choice((0, 1)),
        max_client_conn=dice.choice((4, 100)),
        client_idle_timeout=dice.choice((0, 1)),
    )
    pooler.write_config()


def test_reloads_with_other_lists(make: MakePooler, pg15: Postgres) -> None:
    """Databases, users and limits come and go; the last configuration counts, and nothing is left of the others."""
    last = {"app": database(pg15), "*": f"host={pg15.host} port={pg15.port}"}
    pooler, dice = make(last, server_login_retry=0.5), random.Random(3)
    first = dict(pooler.settings)
    with Crowd(pooler, ["app", "app", "other", "nowhere"]) as crowd:
        for turn in range(40):
            other_lists(pooler, pg15, dice)
            pooler.admin(dice.choice(("RELOAD", "RELOAD", "RECONNECT", "SET default_pool_size=3")))
            if turn % 4 == 0 and pooler.settings["max_client_conn"] == 100 and "alice" in pooler.userlist:
                crowd.more(5)
        pooler.databases, pooler.userlist, pooler.users = last, dict(PASSWORDS), {}
        pooler.settings = first
        pooler.write_config()
        pooler.admin("RELOAD")
        crowd.more(50)
    settled(pooler, pg15)


COMMANDS = (
    "PAUSE", "RESUME", "PAUSE app", "RESUME app", "KILL app", "RECONNECT", "WAIT_CLOSE app", "DISABLE app",
    "ENABLE app", "RELOAD", "SHOW CLIENTS", "SHOW SERVERS", "SHOW SOCKETS", "SHOW POOLS", "SUSPEND", "KILL nowhere",
)  # fmt: skip


def command(pooler: Pooler, text: str) -> None:
    """One command; what waits for longer than a moment is cancelled, what is refused is refused."""
    with psycopg.connect(pooler.dsn("pgbouncer", "admin", connect_timeout=20), autocommit=True) as conn:
        timer = threading.Timer(0.5, conn.cancel)
        timer.start()
        try:
            conn.execute(text.encode())
        except psycopg.Error:
            return
        finally:
            timer.cancel()
            timer.join()


def test_two_admins_at_once(make: MakePooler, pg15: Postgres) -> None:
    """Whatever they order each other about, the pooler can be brought back, and everybody is served."""
    pooler = make({"app": database(pg15), "two": database(pg15, "other", user="alice")}, default_pool_size=3)

    def work(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(60):
            command(pooler, dice.choice(COMMANDS))

    with Crowd(pooler, ["app", "two"]) as crowd:
        admins = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
        for admin in admins:
            admin.start()
        for admin in admins:
            admin.join(60)
            assert not admin.is_alive()
        for text in ("RESUME", "RESUME app", "ENABLE app"):
            command(pooler, text)
        crowd.more(200)
    settled(pooler, pg15)


def test_a_log_on_a_full_disk(make: MakePooler, pg15: Postgres) -> None:
    """Lines are lost, nothing else."""
    pooler = make(logfile="/dev/full")
    with Crowd(pooler, ["app"], size=2) as crowd:
        crowd.more()
    pooler.admin("RELOAD")
    settled(pooler, pg15)


def test_a_log_that_was_taken_away(make: MakePooler) -> None:
    """RELOAD begins a new file; one that cannot be opened changes nothing, and the log says which setting it was."""
    pooler = make()
    path = pooler.folder / "own.log"
    pooler.settings["logfile"] = path
    pooler.write_config()
    pooler.admin("RELOAD")
    until(path.exists, "the new log")
    path.unlink()
    pooler.query("select 1")
    assert not path.exists()
    pooler.admin("RELOAD")
    until(lambda: path.exists() and "pgbouncer" in path.read_text(), "the log again")
    pooler.settings.update(logfile=Path("/no/such/folder/log"), default_pool_size=7)
    pooler.write_config()
    command(pooler, "RELOAD")
    assert "logfile = /no/such/folder/log: cannot open the file: No such file or directory" in path.read_text()
    shown = {row["key"]: row["value"] for row in pooler.admin("SHOW CONFIG")}
    assert (shown["default_pool_size"], shown["logfile"]) == ("20", str(path))

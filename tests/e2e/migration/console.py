"""What operators and their scripts do on the console, and how its tables are written down."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import psycopg

from tests.e2e.migration.site import Site
from tests.e2e.migration.transcript import error_text

#: What varies, and stands for itself when it is zero or nothing.
_KINDS = {"port": "<port>", "local_port": "<port>", "remote_pid": "<pid>", "id": "<id>", "wait_us": "<n>"}
_KINDS |= {"maxwait_us": "<n>"}
#: Whole seconds of a wait, as chance has it.
_SECONDS = ("wait", "maxwait")
#: Columns of SHOW STATS that say how fast this machine is, and how many bytes went by.
_SPEED = ("_time", "_received", "_sent")
#: Tables whose rows need no telling apart by time.
SHOWN = ("VERSION", "STATE", "DATABASES", "POOLS", "USERS", "LISTS", "CLIENTS", "SERVERS", "PEERS", "PEER_POOLS")


def value(site: Site, column: str, found: Any) -> str:
    """One value as it is written down."""
    if found is None:
        return "NULL"
    if found in (site.port, site.facts["PG_PORT"]) and column.endswith("port"):
        return "<pooler>" if found == site.port else "<postgres>"
    if column in _KINDS:
        return _KINDS[column] if found else "0"
    if column in _SECONDS or column.startswith("avg_") or column.endswith(_SPEED):
        return "<n>"
    return str(found)


def row_text(site: Site, names: list[str], row: Sequence[Any]) -> str:
    """One row as it is written down."""
    values = [value(site, name, found) for name, found in zip(names, row, strict=True)]
    if names == ["list", "items"] and values[0].startswith("free_") and values[1] != "0":
        values[1] = "<n>"
    if names[0] == "key" and values[0] == "engine":
        values[1] = "<engine>"
    if values[0] == "pgbouncer" and "total_xact_count" in names:
        # We wait for things by asking the console, so that its commands cannot be counted here.
        logins = row[names.index("total_client_login_count")]
        for name in ("total_xact_count", "total_query_count"):
            at = names.index(name)
            values[at] = "<sessions>" if row[at] == logins else "<commands>"
    return "|".join(values)


def told(site: Site, command: str, session: psycopg.Connection[Any] | None = None) -> None:
    """One command; its notices, tag and rows, or its error."""
    session = session or site.console
    notices: list[str] = []

    def hear(diagnostic: psycopg.errors.Diagnostic) -> None:
        notices.append(f"{diagnostic.severity} {diagnostic.sqlstate} {diagnostic.message_primary}")

    session.add_notice_handler(hear)
    try:
        cursor = session.execute(command.encode())
        lines = [f"tag {cursor.statusmessage}"]
        if cursor.description:
            names = [column.name for column in cursor.description]
            lines.append("columns " + " ".join(f"{c.name}:{c.type_code}" for c in cursor.description))
            lines += sorted(row_text(site, names, row) for row in cursor.fetchall())
    except psycopg.Error as error:
        lines = [error_text(error)]
    finally:
        session.remove_notice_handler(hear)
    site.out.say(f"> {command}")
    for line in (*notices, *lines):
        site.out.say(f"  {line}")


def all_told(site: Site, commands: Iterable[str]) -> None:
    """One after another."""
    for command in commands:
        told(site, command)


def tables(site: Site, names: Iterable[str] = SHOWN) -> None:
    """Tables as they stand."""
    all_told(site, (f"SHOW {name}" for name in names))


def metrics(site: Site, user: str, password: str, but: Collection[str] = ()) -> None:
    """What the Prometheus exporter asks, at every scrape, on a connection of its own."""
    with site.connect("pgbouncer", user, password, application_name="exporter") as session:
        for name in ("LISTS", "STATS", "POOLS", "DATABASES", "VERSION"):
            if name not in but:
                told(site, f"SHOW {name};", session)
        told(site, "SHOW CONFIG;", session)


def fresh(site: Site) -> None:
    """No servers are left from what was before."""
    site.console.execute("PAUSE")
    site.console.execute("RESUME")


def rows(site: Site, command: str) -> list[dict[str, Any]]:
    """A table."""
    cursor = site.console.execute(command.encode())
    names = [each.name for each in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def column(site: Site, command: str, name: str) -> list[Any]:
    """All values of one column."""
    return [row[name] for row in rows(site, command)]

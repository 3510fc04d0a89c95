"""What operators and their scripts do on the console, and how its tables are written down."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg

from tests.e2e.migration.site import Site
from tests.e2e.migration.transcript import error_text

#: What varies, and stands for itself when it is zero or nothing.
_KINDS = {
    "port": "<port>",
    "local_port": "<port>",
    "remote_pid": "<pid>",
    "id": "<id>",
    "wait": "<n>",
    "wait_us": "<n>",
}
_KINDS |= {"maxwait": "<n>", "maxwait_us": "<n>"}
#: What says how fast this machine is.
_SPEED = ("_time", "avg_")
#: Tables whose rows need no telling apart by time.
SHOWN = ("VERSION", "STATE", "DATABASES", "POOLS", "USERS", "LISTS", "CLIENTS", "SERVERS", "PEERS", "PEER_POOLS")


def value(site: Site, column: str, found: Any) -> str:
    """One value as it is written down."""
    if found is None:
        return "NULL"
    if found in (site.port, site.facts.get("PG_PORT")) and column.endswith("port"):
        return "<pooler>" if found == site.port else "<postgres>"
    if column in _KINDS:
        return _KINDS[column] if found else "0"
    if column.startswith("avg_") or column.endswith("_time"):
        return "<n>"
    return str(found)


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
            rows = (zip(names, row, strict=True) for row in cursor.fetchall())
            lines += sorted("|".join(value(site, name, each) for name, each in row) for row in rows)
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


def metrics(site: Site, user: str, password: str) -> None:
    """What the Prometheus exporter asks, at every scrape, on a connection of its own."""
    with site.connect("pgbouncer", user, password, application_name="exporter") as session:
        for name in ("LISTS", "STATS", "POOLS", "DATABASES", "VERSION"):
            told(site, f"SHOW {name};", session)
        cursor = session.execute("SHOW CONFIG;")
        site.out.say(*(column.name for column in cursor.description or ()))
        for row in cursor.fetchall():
            site.out.say(*("NULL" if each is None else each for each in row))

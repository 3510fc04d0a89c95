"""What must hold when everybody has left: money adds up, nothing half-done was done, nothing is left over."""

from __future__ import annotations

import time

import psutil

from tests.soak.world import ACCOUNTS, BALANCE, World

STATES = ("cl_active", "cl_waiting", "sv_active", "sv_login", "sv_tested", "sv_being_canceled")


def judge(world: World) -> None:
    """Adds to `world.wrong`."""
    money(world)
    rows(world)
    deadline = time.monotonic() + world.settle_s
    while (left := remains(world)) and time.monotonic() < deadline:
        time.sleep(0.1)
    world.check(not left, f"left over: {left}")
    log = world.pooler.log_text()
    world.check("Traceback" not in log and "internal error" not in log, "a traceback in the log")
    world.check(world.pooler.running, "the pooler has died")


def money(world: World) -> None:
    """Every confirmed transfer is there, none that was taken back, and balances are what the transfers make of them."""
    moves = world.pg.query("select id, giver, taker, amount from moves", world.dbname)
    there = {row[0] for row in moves}
    world.check(world.committed <= there, f"confirmed, but lost: {sorted(world.committed - there)[:3]}")
    world.check(not world.undone & there, f"taken back, but there: {sorted(world.undone & there)[:3]}")
    expected = dict.fromkeys(range(1, ACCOUNTS + 1), BALANCE)
    for _, giver, taker, amount in moves:
        expected[giver] -= amount
        expected[taker] += amount
    found = dict(world.pg.query("select id, balance from accounts", world.dbname))
    world.check(found == expected, f"accounts are {found}, not {expected}")


def rows(world: World) -> None:
    """No row stands under another's name, none that was sent by halves."""
    strange = world.pg.query("select * from notes where body not like tag || ':%' limit 3", world.dbname)
    world.check(strange == [], f"rows under a wrong name: {strange}")
    never = world.pg.query("select * from notes where body like '%:never' limit 3", world.dbname)
    world.check(never == [], f"rows that were never sent whole: {never}")


def remains(world: World) -> list[str]:
    """Clients, links, servers or sockets that should be gone, or are counted wrong."""
    found = []
    lists = {row["list"]: row["items"] for row in world.pooler.admin("SHOW LISTS")}
    if lists["used_clients"] != 1:
        found.append(f"clients: {lists}")
    pools = [row for row in world.pooler.admin("SHOW POOLS") if row["database"] != "pgbouncer"]
    found += [f"{row}" for row in pools if any(row[key] for key in STATES)]
    servers = len(world.pooler.admin("SHOW SERVERS"))
    pooled = sum(row[key] for row in pools for key in row if key.startswith("sv_"))
    asked = f"select count(*) from pg_stat_activity where usename in ('alice', 'bob') and datname = '{world.dbname}'"
    backends = world.pg.query(asked)[0][0]
    if not servers == pooled == backends:
        found.append(f"{backends} backends, {servers} in SHOW SERVERS, {pooled} in SHOW POOLS")
    workers = map(psutil.Process, world.pooler.worker_pids())
    sockets = [c for worker in workers for c in worker.net_connections() if c.status == "ESTABLISHED"]
    if len(sockets) > servers + 1:
        found.append(f"{len(sockets)} sockets for {servers} servers")
    return found

"""One console for several workers: merged tables, commands that act on all, and workers that come, stop and die."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from pgshoal.config.model import DatabaseConfig
from pgshoal.engine.contract import PoolCounts, PoolStats
from pgshoal.fleet.ledger import Want
from tests.console.desk import IDLE, Desk, ask, busy, rows, tag, words
from tests.console.fleet import End, PlantedError
from tests.support import messages as m
from tests.support.fakeclient import Message
from tests.worker.stub import Talk


@pytest.fixture
def three() -> Iterator[list[Desk]]:
    """Three workers."""
    first = Desk(autodb=DatabaseConfig("*"), stats_period=10)
    desks = [first, first.another(), first.another()]
    yield desks
    for desk in desks:
        desk.close()


def answered(talk: Talk) -> str:
    """The tag or error that came for a command that waited, "" if none has."""
    found = talk.messages()
    return words(found[-2]) if found else ""


def cancel(desk: Desk, talk: Talk) -> None:
    """A cancel request for a console session."""
    desk.accept().packet(m.cancel_request(desk.worker.front.consoles[talk.conn].cancel_key))


def stop(desk: Desk, stopped: bool = True) -> None:
    """SIGSTOP and SIGCONT of a worker's process."""
    link = cast(End, desk.worker.fleet)
    if stopped:
        link.stopped = True
    else:
        link.go_on()


def paused(desks: list[Desk]) -> list[bool]:
    """Where everything is paused."""
    return [desk.worker.pause.everything for desk in desks]


# -- looking


def test_pools_of_one_name_are_one_row(three: list[Desk]) -> None:
    """Counts add up; the wait is that of whoever has waited longest, seconds and microseconds of the same client."""
    for desk, counts in zip(
        three,
        (
            PoolCounts(1, 2, 3, 4, 5, 6, 0, 2_999_999),
            PoolCounts(10, 20, 30, 40, 50, 60, 0, 3_000_001),
            PoolCounts(0, 0, 0, 0, 0, 0, 0, 999_999),
        ),
        strict=True,
    ):
        desk.counts[desk.pool().id] = counts
    for desk in three:
        pool, console = rows(desk.session("stats"), "show pools")
        assert (pool["cl_active"], pool["cl_waiting"], pool["sv_idle"], pool["sv_active"]) == ("33", "33", "44", "55")
        assert (pool["maxwait"], pool["maxwait_us"]) == ("3", "1")
    assert (console["database"], console["cl_active"]) == ("pgbouncer", "3")


def test_a_pool_that_one_worker_has(three: list[Desk]) -> None:
    """It is listed in its place by name, with what its database and user hold everywhere."""
    three[2].welcome("forced", "alice")
    for desk in three[:2]:
        desk.login()
    talk = three[0].session("stats")
    found = [(row["database"], row["user"]) for row in rows(talk, "show pools")]
    assert found == [("app", "alice"), ("forced", "bob"), ("pgbouncer", "pgbouncer")]
    databases = {row["name"]: row["current_client_connections"] for row in rows(talk, "show databases")}
    assert databases == {"app": "2", "forced": "0", "pgbouncer": "1"}
    users = {row["name"]: row["current_client_connections"] for row in rows(talk, "show users")}
    assert (users["alice"], users["stats"]) == ("2", "1")


def test_connections_are_all_listed_once(three: list[Desk]) -> None:
    """Clients of a database together, the console's last; pointers and ids are nobody else's, and links hold."""
    for desk in three:
        client, server = desk.login(), busy(desk)
        desk.facts[client.conn] = replace(IDLE, mode="linked", link=server.conn)
    talks = [desk.session("stats") for desk in three]
    shown = rows(talks[0], "show clients")
    assert [row["database"] for row in shown] == ["app"] * 3 + ["pgbouncer"] * 3
    servers = rows(talks[0], "show servers")
    assert {row["link"] for row in shown if row["link"]} == {row["ptr"] for row in servers}
    assert len({row["ptr"] for row in (*shown, *servers)}) == 9
    sockets = rows(talks[1], "show sockets")
    assert [row["type"] for row in sockets] == ["C"] * 6 + ["S"] * 3
    assert len({row["id"] for row in shown}) == 6


def test_lists_count_names_once_and_connections_everywhere(three: list[Desk]) -> None:
    """Databases, users and pools are the same ones in all workers; what `*` has made and nobody uses is not there."""
    unused, used = (three[1].worker.pools.database(name) for name in ("unused", "used"))
    assert unused is not None
    assert used is not None
    used.client_connections = 1
    for desk in three:
        desk.login()
        busy(desk)
    found = {row["list"]: row["items"] for row in rows(three[0].session("stats"), "show lists")}
    assert (found["databases"], found["users"], found["pools"]) == ("4", "5", "2")
    assert (found["used_clients"], found["used_servers"]) == ("4", "3")


def test_memory_adds_up(three: list[Desk]) -> None:
    """But an item is as large in one worker as in all."""
    shown = {row["name"]: list(row.values()) for row in rows(three[0].session("stats"), "show mem")}
    assert shown["client_cache"] == ["client_cache", "100", "9", "6", "1500"]


def test_averages_of_the_fleet(three: list[Desk]) -> None:
    """Rates add up; a time per transaction is that of all transactions, not a mean of means."""
    for desk, xacts, time_us in zip(three, (10, 90, 0), (10_000, 9_000, 0), strict=True):
        desk.totals[desk.pool().id] = PoolStats(xact_count=xacts, query_count=xacts, xact_time_us=time_us)
        desk.worker.stats.report()
    head = three[0].head
    head.relay.figures.tick(head.clock_s + 10)
    talk = three[2].session("stats")
    app = rows(talk, "show stats")[0]
    assert (app["total_xact_count"], app["avg_xact_count"], app["avg_xact_time"]) == ("100", "10", "190")
    assert "stats: 10 xacts/s, 10 queries/s" in head.log.texts()
    assert any(text.startswith("STATUS=stats: 10 xacts/s") for text in head.told)


def test_totals_outlive_a_worker(three: list[Desk]) -> None:
    """What it had reported before its death stays in the sum, also when the last pool of the database is gone."""
    head = three[0].head
    for desk in three:
        desk.totals[desk.pool().id] = PoolStats(query_count=7)
        desk.worker.stats.report()
    three[1].totals[three[1].pool().id] = PoolStats(query_count=8)
    head.die(three[1].child)
    talk = three[0].session("stats")
    assert rows(talk, "show stats_totals")[0]["query_count"] == "21"
    head.die(three[2].child)
    three[0].worker.pools.drop(three[0].pool())
    assert rows(talk, "show stats_totals")[0]["query_count"] == "14"


def test_a_stopped_worker_does_not_hang_the_console(three: list[Desk]) -> None:
    """Its rows are missing, and a NOTICE says so."""
    stop(three[2])
    for desk in three[:2]:
        desk.login()
    talk = three[0].session("stats")
    assert ask(talk, "show clients") == []
    three[0].head.loop.run(2.0)
    notice, head, *shown, complete, _ = talk.messages()
    assert words(notice) == "no answer from worker 2: its rows are missing"
    assert (head.kind, words(complete)) == ("T", "SHOW")
    assert len(shown) == 3
    assert ask(talk, "show version")[0].kind == "T"


def test_a_worker_that_dies_while_asked(three: list[Desk]) -> None:
    """Nobody waits for it."""
    stop(three[2])
    talk = three[0].session("stats")
    assert ask(talk, "show pools") == []
    three[0].head.die(three[2].child)
    assert words(talk.messages()[-2]) == "SHOW"


def test_workers(three: list[Desk]) -> None:
    """Every process is a row, and so is a number that has none."""
    head = three[0].head
    three[1].child.vitals.update(clients=3, servers=2, cpu_us=1_000_000, loop_lag_us=77, rss_bytes=4096)
    head.relay.figures.tick(100.0)
    three[1].child.vitals["cpu_us"] = 1_250_000
    head.relay.figures.tick(101.0)
    three[0].child.draining = True
    three[1].child.silent_s = 9
    head.posts[1].restarts = 4
    head.die(three[2].child)
    talk = three[0].session("stats")
    assert [list(row.values()) for row in rows(talk, "show workers")] == [
        ["0", "0", "1000", "draining", "stub", "0", "0", "0.0", "0", "5", "0", "0"],
        ["1", "1", "1001", "silent", "stub", "3", "2", "25.0", "77", "5", "4", "4096"],
        ["2", None, None, "down", None, "0", "0", None, None, None, "0", None],
    ]


def test_ledger(three: list[Desk]) -> None:
    """Limits by name, whoever uses them; what is held by whom, and what only waits for the end of backends."""
    for desk in three[:2]:
        row = desk.pool().rows.pool
        assert desk.worker.fleet.ledger.take([Want(row, 20)], 1)
    three[0].head.dying[row] = 1
    three[2].welcome("forced", "alice")
    talk = three[2].session("stats")
    found = {(row["kind"], row["database"], row["user"]): row for row in rows(talk, "show ledger")}
    assert list(found) == [
        ("pool", "app", "alice"),
        ("pool", "forced", "bob"),
        ("database", "app", ""),
        ("database", "forced", ""),
        ("user", "", "alice"),
        ("user", "", "bob"),
        ("clients", "", ""),
    ]
    pool_row = found["pool", "app", "alice"]
    assert [pool_row[name] for name in ("limit", "used", "waiting", "workers", "dying")] == [
        "20", "2", "0", "0:1 1:1", "1",
    ]  # fmt: skip
    assert (found["clients", "", ""]["limit"], found["clients", "", ""]["workers"]) == ("100", "2:1")


# -- commands


def test_pause_everywhere(three: list[Desk]) -> None:
    """It waits for the one worker that has a transaction open; RESUME from another worker ends it."""
    server, talk = busy(three[2]), three[0].session()
    assert ask(talk, "pause") == []
    assert paused(three) == [True] * 3
    assert tag(three[1].session(), "pause") == "already paused"
    three[2].worker.servers.gone(server, "pause mode")
    assert answered(talk) == "PAUSE"
    assert tag(three[1].session(), "resume") == "RESUME"
    assert paused(three) == [False] * 3
    assert tag(talk, "resume") == "pooler is not paused"


def test_a_resume_elsewhere_interrupts(three: list[Desk]) -> None:
    """Two admins at two workers: both are answered."""
    busy(three[2])
    first, second = three[0].session(), three[1].session()
    ask(first, "pause app")
    assert tag(second, "resume app") == "RESUME"
    assert answered(first) == "PAUSE was interrupted"


def test_two_admins_pause_at_once(three: list[Desk]) -> None:
    """One of them is told that it was done already, whichever worker they talk to."""
    busy(three[2])
    first, second = three[0].session(), three[1].session()
    assert ask(first, "pause") == []
    assert [tag(second, text) for text in ("pause", "pause app", "kill")] == ["already paused"] * 3


def test_a_cancel_takes_the_pause_back_everywhere(three: list[Desk]) -> None:
    """And the session is answered; nobody is left waiting in any worker."""
    busy(three[2])
    talk = three[0].session()
    ask(talk, "pause")
    cancel(three[0], talk)
    assert answered(talk) == "PAUSE was interrupted"
    assert paused(three) == [False] * 3
    assert [desk.worker.pause.waiters for desk in three] == [[], [], []]


def test_an_admin_that_vanishes(three: list[Desk]) -> None:
    """The PAUSE stands, in all workers, and nobody waits for it any more."""
    busy(three[2])
    talk = three[0].session()
    ask(talk, "pause")
    talk.gone()
    assert paused(three) == [True] * 3
    assert [desk.worker.pause.waiters for desk in three] == [[], [], []]
    assert tag(three[1].session(), "resume") == "RESUME"


def test_a_worker_that_dies_with_its_admin(three: list[Desk]) -> None:
    """The same: what it had begun stands, and the others do not wait for it."""
    busy(three[2])
    ask(three[0].session(), "pause")
    three[0].head.die(three[0].child)
    assert three[2].worker.pause.waiters == []
    assert paused(three[1:]) == [True, True]


def test_a_worker_that_dies_while_all_wait_for_it(three: list[Desk]) -> None:
    """Counts as done, and its successor comes up paused."""
    busy(three[2])
    talk = three[0].session()
    ask(talk, "pause")
    ask(three[1].session(), "pause app")
    three[0].head.die(three[2].child)
    assert answered(talk) == "PAUSE"
    late = three[0].another()
    assert late.worker.pause.everything
    late.close()


def test_what_was_decided_while_a_worker_came_up(three: list[Desk]) -> None:
    """It is told as soon as it serves."""
    talk = three[0].session()
    tag(talk, "pause")
    tag(talk, "disable forced")
    late = three[0].another(ready=False)
    for text in ("resume", "pause app", "enable forced", "set max_client_conn=77"):
        tag(talk, text)
    pool = {"database": "app", "user": "alice", "parameters": [["a", "b"]]}
    three[0].worker.fleet.send("welcome", pool)
    assert (late.worker.pause.everything, late.worker.pools.databases["forced"].disabled) == (True, True)
    late.head.serve(late.child)
    databases = late.worker.pools.databases
    assert (late.worker.pause.everything, databases["app"].paused, databases["forced"].disabled) == (False, True, False)
    assert late.worker.config.settings.max_client_conn == 77
    heard = cast(End, late.worker.fleet).heard
    assert [message.fields for message in heard if message.verb == "welcome"] == [pool]
    late.close()


def test_wait_close_waits_for_all(three: list[Desk]) -> None:
    """For dirty servers of every worker; a session that gives up leaves nobody waiting."""
    servers = [busy(desk) for desk in three[1:]]
    talk, other = three[0].session(), three[1].session()
    assert tag(talk, "reconnect") == "RECONNECT"
    assert all(server.close_needed for server in servers)
    assert ask(talk, "wait_close app") == []
    assert ask(other, "wait_close") == []
    cancel(three[1], other)
    assert answered(other) == "WAIT_CLOSE was interrupted"
    for desk, server in zip(three[1:], servers, strict=True):
        assert answered(talk) == ""
        desk.worker.servers.gone(server, "close_needed")
    assert answered(talk) == "WAIT_CLOSE"


def test_kill_everywhere(three: list[Desk]) -> None:
    """Clients in all workers go, and databases that one worker alone has registered are paused in the others too."""
    victims = [desk.login() for desk in three]
    three[1].worker.pools.database("auto")
    talk = three[0].session()
    assert tag(talk, "kill") == "KILL"
    assert [victim.refused() for victim in victims] == ["database removed"] * 3
    for desk in three:
        assert {name for name, one in desk.worker.pools.databases.items() if one.paused} == {"app", "forced", "auto"}
    assert [tag(talk, f"resume {name}") for name in ("app", "forced", "auto")] == ["RESUME"] * 3
    assert tag(talk, "resume auto") == "database auto is not paused"


def test_kill_client_wherever_it_is(three: list[Desk]) -> None:
    """A client, or a session of the console, of another worker; who has the id is told, and nobody else."""
    victims, admin = [desk.login() for desk in three], three[1].session()
    talk = three[0].session()
    client = victims[2].client
    assert client is not None
    assert tag(talk, f"kill_client {client.number}") == "KILL_CLIENT"
    assert [victim.open for victim in victims] == [True, True, False]
    assert tag(talk, f"kill_client {client.number}") == "client not found"
    number = three[1].worker.front.consoles[admin.conn].number
    stop(three[2])
    assert tag(talk, f"kill_client {number}") == "KILL_CLIENT"
    assert admin.refused() == "admin forced disconnect"


@pytest.mark.parametrize("verb", ["disable", "pause", "reconnect"])
def test_names_that_only_the_asterisk_knows(three: list[Desk], verb: str) -> None:
    """They become entries in all workers."""
    assert tag(three[0].session(), f"{verb} fresh") == verb.upper()
    assert all("fresh" in desk.worker.pools.databases for desk in three)


def test_enable_in_all(three: list[Desk]) -> None:
    """New logins are refused everywhere, until ENABLE from wherever."""
    assert tag(three[0].session(), "disable app") == "DISABLE"
    assert [desk.login().refused() for desk in three] == ['database "app" is disabled'] * 3
    assert tag(three[2].session(), "enable app") == "ENABLE"
    assert all(desk.login().open for desk in three)


def test_a_bug_in_a_command(three: list[Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    """The one who waits for it is told so at once, and the session goes on."""

    def broken(*_: object) -> None:
        raise PlantedError

    for desk in three:
        monkeypatch.setattr(desk.worker.pause, "pause", broken)
    talk = three[0].session()
    assert tag(talk, "pause") == "internal error, see logs for additional details"
    assert tag(talk, "disable app") == "DISABLE"


def test_set_in_all(three: list[Desk]) -> None:
    """Every worker has the value when the answer comes; what it was is asked of the supervisor alone."""
    talk = three[0].session()
    assert tag(talk, "set default_pool_size=3") == "SET default_pool_size=3"
    assert [desk.worker.config.settings.default_pool_size for desk in three] == [3] * 3
    assert three[0].head.config.settings.default_pool_size == 3


def test_set_waits_for_its_turn(three: list[Desk]) -> None:
    """Two changes at once come one after the other, and neither is lost."""
    stop(three[2])
    first, second = three[0].session(), three[1].session()
    assert ask(first, "set default_pool_size=3") == []
    assert ask(second, "set reserve_pool_size=4") == []
    stop(three[2], False)
    assert (answered(first), answered(second)) == ("SET default_pool_size=3", "SET reserve_pool_size=4")
    for desk in three:
        settings = desk.worker.config.settings
        assert (settings.default_pool_size, settings.reserve_pool_size) == (3, 4)


def test_shutdown_is_the_fleets(three: list[Desk]) -> None:
    """All workers hear of it, and a RESUME is refused from then on."""
    talk = three[0].session()
    assert tag(talk, "shutdown wait_for_clients") == "SHUTDOWN"
    assert [desk.worker.shutdown for desk in three] == ["clients"] * 3
    assert tag(three[1].session(), "resume") == "pooler is shutting down"
    assert ask(talk, "shutdown") == []
    assert three[0].head.ended == ["clients", "now"]


@pytest.mark.parametrize("text", ["show pools", "pause", "reload", "set verbose=1", "restart"])
def test_another_supervisor_takes_over(three: list[Desk], text: str) -> None:
    """It knows nothing of what the one before was asked: the command is interrupted, and the session goes on."""
    link = cast(End, three[0].worker.fleet)
    ours = cast(End, three[0].child.channel)
    ours.stopped = True
    talk = three[0].session()
    assert ask(talk, text) == []
    ours.send("", {"re": link._number, "reached": False, "parts": [], "missing": []})
    assert answered(talk) == f"{text.split()[0].upper()} was interrupted"
    assert tag(talk, "show version") == "SHOW"


def test_the_supervisor_is_stopped(three: list[Desk]) -> None:
    """This worker's rows are shown all the same."""
    calls: list[Any] = []
    three[0].worker.loop.call_later = lambda *args: calls.append(args)  # type: ignore[method-assign,assignment]
    cast(End, three[0].child.channel).stopped = True
    talk = three[0].session("stats")
    assert ask(talk, "show clients") == []
    limit_s, run, *arguments = calls[-1]
    assert limit_s == 3.0
    run(*arguments)
    notice, *_, ready = talk.messages()
    assert words(notice) == "the supervisor does not answer: only this worker's rows are shown"
    assert ready == Message("Z", b"I")

"""Slots come back when the backend is gone, not before: workers that die, clients that leave, hosts that are dead."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pgshoal.config.model import DatabaseConfig, Settings
from tests.fleet.graveyard import PATIENCE_S, Graveyard, Mortal, backend, lives, pid_of
from tests.support import messages as m
from tests.support.fakeclient import FakeClient
from tests.support.postgres import Postgres

SLEEP = "select pg_sleep(600)"
QUICK = Settings(server_connect_timeout=0.2)


async def all_free(yard: Graveyard) -> None:
    """Wait until a dead worker's seat is free."""
    async with asyncio.timeout(PATIENCE_S):
        await yard.ledger.all_free.wait()


@contextmanager
def deaf_listener() -> Iterator[tuple[str, int]]:
    """A host whose kernel takes connections that nobody ever answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as listener:
        yield listener.getsockname()


def anything() -> ssl.SSLContext:
    """A client that trusts everybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_killed_worker_with_a_busy_backend(pg15: Postgres, unix: bool) -> None:
    """The query of a dead worker is cancelled, and its slot comes back only when pg_stat_activity is rid of it."""

    async def scenario() -> None:
        async with Graveyard() as yard:
            worker = Mortal(yard, seat=3)
            client = backend(pg15, SLEEP, unix=unix)
            await worker.lend(17, client, [4, 5, 6], client.key)
            pid = pid_of(client)
            assert lives(pg15, pid)
            await worker.die()
            assert yard.undertaker.dying(3) == 1
            assert yard.ledger.given == {}
            await all_free(yard)
            assert not lives(pg15, pid)
            assert yard.ledger.given == {(3, 4): 1, (3, 5): 1, (3, 6): 1}
            assert yard.ledger.freed == [3]
            assert yard.undertaker.dying(3) == 0
            assert yard.undertaker.idle()

    asyncio.run(scenario())


def test_killed_worker_with_idle_backends(pg15: Postgres) -> None:
    """Idle backends, one of them still without a key, exit at the end of file."""

    async def scenario() -> None:
        async with Graveyard() as yard:
            worker = Mortal(yard)
            pids = []
            for number in range(5):
                client = backend(pg15)
                pids.append(pid_of(client))
                await worker.lend(number, client, [1], client.key)
            bare = FakeClient((pg15.host, pg15.port))
            await worker.lend(9, bare, [1])
            await worker.die()
            await all_free(yard)
            assert yard.ledger.given == {(0, 1): 6}
            assert not any(lives(pg15, pid) for pid in pids)

    asyncio.run(scenario())


def test_client_left_in_the_middle_of_a_query(pg15: Postgres) -> None:
    """`bury` of a busy server cancels its query and answers `gone` when the backend has exited."""

    async def scenario() -> None:
        async with Graveyard() as yard:
            worker = Mortal(yard)
            client = backend(pg15, SLEEP)
            await worker.lend(5, client, [1], client.key)
            client.close()
            worker.channel.send("bury", {"server": 5, "busy": True})
            assert await worker.next_gone() == 5
            assert not lives(pg15, pid_of(client))
            assert yard.ledger.given == {}  # a living worker gives back itself
            worker.close()

    asyncio.run(scenario())


def test_polite_end(pg15: Postgres) -> None:
    """`bury` of an idle server that was told Terminate is answered as soon as its backend exits."""

    async def scenario() -> None:
        async with Graveyard() as yard:
            worker = Mortal(yard)
            client = backend(pg15)
            await worker.lend(5, client, [1], client.key)
            client.send(m.TERMINATE)
            client.close()
            worker.channel.send("bury", {"server": 5, "busy": False})
            assert await worker.next_gone() == 5
            assert not lives(pg15, pid_of(client))
            worker.close()

    asyncio.run(scenario())


def test_nobody_shut_the_socket(pg15: Postgres) -> None:
    """An idle server whose worker forgot to end it gets its end of file from the supervisor."""

    async def scenario() -> None:
        async with Graveyard() as yard:
            worker = Mortal(yard)
            client = backend(pg15)
            await worker.lend(5, client, [1], client.key)
            worker.channel.send("bury", {"server": 5, "busy": False})
            assert await worker.next_gone() == 5
            client.close()
            worker.close()

    asyncio.run(scenario())


def test_large_result_is_thrown_away(pg15: Postgres) -> None:
    """A backend without a cancel key, in the middle of 200 MB that nobody reads, comes to its end all the same."""

    async def scenario() -> None:
        async with Graveyard() as yard:
            worker = Mortal(yard)
            client = backend(pg15, "select repeat('x', 1000000) from generate_series(1, 200)")
            await worker.lend(5, client, [1])
            worker.channel.send("bury", {"server": 5, "busy": True})
            assert await worker.next_gone() == 5
            assert not lives(pg15, pid_of(client))
            client.close()
            worker.close()

    asyncio.run(scenario())


def test_queue_of_queries_is_cancelled_one_by_one(pg15: Postgres) -> None:
    """A client that left two long queries in the pipe costs two cancel requests."""

    async def scenario() -> None:
        async with Graveyard() as yard:
            worker = Mortal(yard)
            client = backend(pg15)
            client.send(m.query(SLEEP), m.query(SLEEP))
            await worker.lend(5, client, [1], client.key)
            worker.channel.send("bury", {"server": 5, "busy": True})
            assert await worker.next_gone() == 5
            assert not lives(pg15, pid_of(client))
            client.close()
            worker.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("mode", ["prefer", "require", "verify-full"])
def test_cancel_over_tls(pg15: Postgres, mode: str) -> None:
    """A busy backend behind TLS is cancelled over TLS, and the end of its socket counts as for any other."""
    settings = Settings(
        server_tls_sslmode=mode,  # type: ignore[arg-type]
        server_tls_ca_file=str(pg15.tls.ca_file) if pg15.tls else "",
    )

    async def scenario() -> None:
        async with Graveyard(settings) as yard:
            worker = Mortal(yard)
            client = backend(pg15, SLEEP, tls=anything())
            await worker.lend(5, client, [1], client.key, tls=True)
            await worker.die()
            await all_free(yard)
            assert not lives(pg15, pid_of(client))
            assert not any("cancel request" in line for line in yard.log.lines)

    asyncio.run(scenario())


def test_key_is_not_sent_in_the_clear(pg18: Postgres) -> None:
    """A server without the TLS we require gets no key: its end is waited for, and the log says why."""

    async def scenario() -> None:
        async with Graveyard(Settings(server_tls_sslmode="require", server_connect_timeout=0.2)) as yard:
            worker = Mortal(yard)
            client = backend(pg18, "select pg_sleep(1.5)")
            await worker.lend(5, client, [1], client.key)
            await worker.die()
            await all_free(yard)
            said = [line for line in yard.log.lines if "cannot send a cancel request" in line]
            assert len(said) == 1
            assert "the server refused SSL" in said[0]
            assert not lives(pg18, pid_of(client))

    asyncio.run(scenario())


def test_server_that_closed_first(pg15: Postgres) -> None:
    """After `lost` the duplicate is dropped without a word, and a worker's death has nothing left to wait for."""

    async def scenario() -> None:
        async with Graveyard() as yard:
            worker = Mortal(yard)
            client = backend(pg15)
            await worker.lend(5, client, [1], client.key)
            assert len(yard.undertaker.export()) == 1
            worker.channel.send("lost", {"server": 5})
            await worker.heard()
            assert yard.undertaker.export() == []
            await worker.die()
            assert yard.ledger.freed == [0]
            assert yard.ledger.given == {}
            assert worker.gone.empty()
            client.close()

    asyncio.run(scenario())


def test_bury_of_an_unknown_server_is_answered() -> None:
    """A worker never waits for a `gone` that cannot come."""

    async def scenario() -> None:
        async with Graveyard() as yard:
            worker = Mortal(yard)
            worker.channel.send("bury", {"server": 99, "busy": True})
            assert await worker.next_gone() == 99
            worker.close()

    asyncio.run(scenario())


def test_worker_died_before_its_connect_was_done() -> None:
    """A socket that never was connected, or still is being connected, holds no slot."""

    async def scenario() -> None:
        async with Graveyard(QUICK) as yard:
            worker = Mortal(yard)
            with deaf_listener() as address:
                for number in range(2):
                    sock = socket.socket()
                    sock.setblocking(False)
                    if number:
                        sock.connect_ex(address)
                    facts = {"server": number, "rows": [1], "host": address[0], "port": address[1], "tls": False}
                    worker.channel.send("escrow", facts, fd=sock.fileno())
                    worker.socks.append(sock)
                await worker.heard()
                await worker.die()
                await all_free(yard)
            assert yard.ledger.left == {}
            assert yard.ledger.given == {(0, 1): 1}  # the other was never counted among what is left

    asyncio.run(scenario())


def test_host_that_never_answers() -> None:
    """After server_connect_timeout without an answer all slots of a silent host come back, with a warning."""

    async def scenario() -> None:
        async with Graveyard(QUICK) as yard:
            worker = Mortal(yard)
            with deaf_listener() as address:
                for number in range(3):
                    await worker.lend(number, FakeClient(address), [1], b"12345678" if number else b"")
                await worker.die()
                await all_free(yard)
            assert yard.ledger.given == {(0, 1): 3}
            found = re.findall(r"does not answer \(server_connect_timeout\): (\d) connection", "".join(yard.log.lines))
            assert sum(map(int, found)) == 3, yard.log.lines

    asyncio.run(scenario())


def test_stopped_postmaster(pg15: Postgres) -> None:
    """With its postmaster stopped, idle backends are seen to exit, and a busy one is given up with a warning."""

    async def scenario() -> None:
        async with Graveyard(QUICK) as yard:
            worker = Mortal(yard)
            idle, busy = backend(pg15), backend(pg15, "select pg_sleep(3)")
            await worker.lend(1, idle, [1], idle.key)
            await worker.lend(2, busy, [2], busy.key)
            os.kill(pg15.pid, signal.SIGSTOP)
            try:
                await worker.die()
                await all_free(yard)
            finally:
                os.kill(pg15.pid, signal.SIGCONT)
            assert yard.ledger.given == {(0, 1): 1, (0, 2): 1}
            where = f"{pg15.host}:{pg15.port}"
            text = f"server {where}: does not answer (server_connect_timeout): 1 connection given up"
            assert [line for line in yard.log.lines if text in line], yard.log.lines

    asyncio.run(scenario())


def test_refused_cancel_waits_for_the_end() -> None:
    """A server that has stopped listening but keeps its session is waited for, far beyond server_connect_timeout."""

    async def scenario() -> None:
        async with Graveyard(Settings(server_connect_timeout=0.05)) as yard:
            worker = Mortal(yard)
            with socket.create_server(("127.0.0.1", 0)) as listener:
                client = FakeClient(listener.getsockname())
                session, _ = listener.accept()
            await worker.lend(1, client, [1], b"12345678")
            await worker.die()
            await asyncio.sleep(0.5)
            assert yard.ledger.freed == []
            assert yard.undertaker.dying(0) == 1
            session.close()
            await all_free(yard)
            assert not any("given up" in line for line in yard.log.lines)

    asyncio.run(scenario())


def test_killed_between_two_numbers() -> None:
    """Whatever a worker had counted or given back when it died, its cells say what it really leaves."""

    async def scenario() -> None:
        async with Graveyard(Settings(server_connect_timeout=0)) as yard:
            worker = Mortal(yard)
            given: dict[int, int] = {}
            yard.ledger.settle = lambda seat, left: given.update(left)  # type: ignore[method-assign]
            with socket.create_server(("127.0.0.1", 0)) as listener:
                sessions = []
                for number in range(3):
                    await worker.lend(number, FakeClient(listener.getsockname()), [1, 2 + number])
                    sessions.append(listener.accept()[0])
                # The worker has seen the end of this one, and its `lost` never comes.
                sessions.pop(1).close()
                assert worker.socks[1].recv(1) == b""
                await worker.die()
                assert given == {1: 2, 2: 1, 4: 1}
                assert yard.ledger.given == {}
                for session in sessions:
                    session.close()
                async with asyncio.timeout(PATIENCE_S):
                    while not yard.undertaker.idle():
                        await asyncio.sleep(0.01)
            assert yard.ledger.given == {(0, 1): 2, (0, 2): 1, (0, 4): 1}

    asyncio.run(scenario())


def test_state_goes_from_one_supervisor_to_the_next(pg15: Postgres) -> None:
    """What is exported in the middle of everything is taken up again: sockets, keys, the dying and the dead."""

    async def scenario() -> None:
        async with Graveyard() as old, Graveyard() as new:
            alive, dead = Mortal(old, seat=1), Mortal(old, seat=2)
            kept, buried, orphan = backend(pg15), backend(pg15, SLEEP), backend(pg15, SLEEP)
            await alive.lend(1, kept, [1], kept.key)
            await alive.lend(2, buried, [2], buried.key)
            await dead.lend(3, orphan, [3], orphan.key)
            await dead.die()
            # As in an exec: the old loop does not run on, and the descriptors stay.
            alive.channel.send("bury", {"server": 2, "busy": False})
            await alive.heard()
            exported = old.undertaker.export()
            for entry in exported:
                if "fd" in entry:
                    entry["fd"] = os.dup(entry["fd"])
            old.undertaker.close()
            new.undertaker.adopt(exported)
            alive.yard = new
            new.undertaker.attach(alive.child)
            assert await alive.next_gone() == 2
            await all_free(new)
            assert new.ledger.given == {(2, 3): 1}
            assert not lives(pg15, pid_of(orphan))
            assert not lives(pg15, pid_of(buried))
            assert lives(pg15, pid_of(kept))
            await alive.die()
            async with asyncio.timeout(PATIENCE_S):
                while len(new.ledger.freed) < 2:
                    await asyncio.sleep(0.01)
            assert new.ledger.given == {(2, 3): 1, (1, 1): 1}
            buried.close()

    asyncio.run(scenario())


def test_cancel_uses_the_tls_of_the_entry(pg15: Postgres, pg18: Postgres) -> None:
    """One entry requires TLS, which its server has not; another has it; the global settings are about neither."""
    assert pg15.tls is not None
    secure = DatabaseConfig("secure", server_tls_sslmode="verify-full", server_tls_ca_file=str(pg15.tls.ca_file))
    strict = DatabaseConfig("strict", server_tls_sslmode="require")

    async def scenario() -> None:
        settings = Settings(server_tls_sslmode="disable", server_connect_timeout=0.2)
        async with Graveyard(settings, secure, strict) as yard:
            worker = Mortal(yard)
            served, refused = backend(pg15, SLEEP, tls=anything()), backend(pg18, "select pg_sleep(1.5)")
            await worker.lend(5, served, [1], served.key, tls=True, database="secure")
            await worker.lend(6, refused, [1], refused.key, database="strict")
            again = yard.undertaker.export()
            assert [state["database"] for state in again] == ["secure", "strict"]
            await worker.die()
            await all_free(yard)
            assert not lives(pg15, pid_of(served))
            (line,) = [line for line in yard.log.lines if "cannot send a cancel request" in line]
            assert "the server refused SSL" in line

    asyncio.run(scenario())

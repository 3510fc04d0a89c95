"""Looking at all servers at start and after a reload: what is warned of, and who is not asked twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pgshoal.config.model import Config, DatabaseConfig, Secret, Settings
from pgshoal.fleet import foresight
from pgshoal.fleet.foresight import SWITCH, Foresight, Memory, look
from tests.fleet.graveyard import PATIENCE_S, Heard
from tests.support import messages as m
from tests.support.fakeserver import FakeServer, ServerSide

SETTINGS = Settings(server_connect_timeout=5)


def entry(port: int, size: int, name: str = "e") -> DatabaseConfig:
    """A pool of one user."""
    return DatabaseConfig(name, hosts=("127.0.0.1",), port=port, user="u", pool_size=size)


def honest(server: ServerSide) -> None:
    """Has ten connections, three of them reserved, and one database."""
    server.log_in()
    server.read()
    server.send(*(row(*values) for values in (("15.2", "10", "3", "", "1"), ("e", "-1"), ("u", "-1", "f"))), m.ready())


def row(*values: str) -> bytes:
    """A DataRow of several columns."""
    cells = b"".join(len(value).to_bytes(4) + value.encode() for value in values)
    return m.message(b"D", len(values).to_bytes(2) + cells)


class Boss:
    """The supervisor, as far as foresight sees it."""

    def __init__(self, config: Config) -> None:
        self.loop = asyncio.get_running_loop()
        self.log = Heard()
        self.config = config


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """All other tests have it off."""
    monkeypatch.delenv(SWITCH, raising=False)


async def settled(boss: Boss, lines: int) -> list[str]:
    """The log once it has that many lines."""
    async with asyncio.timeout(PATIENCE_S):
        while len(boss.log.lines) < lines:
            await asyncio.sleep(0.005)
    return boss.log.lines


def test_start_and_reload() -> None:
    """`look` warns of what does not fit, again after a reload, without asking the same server again."""

    async def scenario() -> None:
        with FakeServer(honest) as server:
            boss = Boss(Config("", SETTINGS, {"e": entry(server.port, 8)}))
            part = Foresight(boss)
            part.look()
            (first,) = await settled(boss, 1)
            assert first.startswith(f"server 127.0.0.1:{server.port}: 8 server connections are possible, 7 fit (max_")
            boss.config = replace(boss.config, databases={"e": entry(server.port, 9)})
            part.look()
            assert "9 server connections are possible, 7 fit" in (await settled(boss, 2))[1]
            assert len(server.connections) == 1

    asyncio.run(scenario())


def test_a_look_that_finds_nothing_new_says_nothing() -> None:
    """What was said at the last look is not said again; what has gone meanwhile is."""

    async def scenario() -> None:
        with FakeServer(honest) as server:
            large, small, dead = entry(server.port, 8), entry(server.port, 7), entry(1, 5, "f")
            boss = Boss(Config("", SETTINGS, {"e": large, "f": dead}))
            part = Foresight(boss)
            counts = []
            for first in (large, large, small, large):
                boss.config = replace(boss.config, databases={"e": first, "f": dead})
                part.look()
                assert part._task is not None
                await part._task
                counts.append(len(boss.log.lines))
            assert counts == [2, 2, 2, 3]
            assert "8 server connections are possible" in boss.log.lines[2]

    asyncio.run(scenario())


def test_who_has_not_answered_is_left_alone_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure stands for the next looks, until its time is over or we come with another login."""

    def refuses(server: ServerSide) -> None:
        server.read_startup()
        server.send(m.error("28000", "not you", "FATAL"))

    async def scenario() -> None:
        with FakeServer(refuses) as server:
            config, memory = Config("", SETTINGS, {"e": entry(server.port, 7)}), Memory()
            for _ in range(2):
                assert len((await look(config, memory)).errors) == 1
                assert len(server.connections) == 1
            other = replace(config, secrets={"u": Secret("plain", "new")})
            await look(other, memory)
            assert len(server.connections) == 2
            monkeypatch.setattr(foresight, "_FAILURE_KEPT_S", 0.0)
            await look(other, memory)
            assert len(server.connections) == 3

    asyncio.run(scenario())


def test_silence_when_all_fits() -> None:
    """Nothing is said when nothing is wrong."""

    async def scenario() -> None:
        with FakeServer(honest) as server:
            outlook = await look(Config("", SETTINGS, {"e": entry(server.port, 7)}), Memory())
            assert list(outlook.warnings()) == []
            assert outlook.exit_code == 0

    asyncio.run(scenario())


def test_servers_that_cannot_be_asked() -> None:
    """Each has its own line every time, and makes the exit code 2 unless something does not fit."""

    async def scenario() -> None:
        with FakeServer(honest) as server:
            good, bad = entry(server.port, 7), entry(1, 5, "f")
            memory = Memory()
            outlook = await look(Config("", SETTINGS, {"e": good, "f": bad}), memory)
            assert list(outlook.warnings()) == [
                "server 127.0.0.1:1: cannot ask for its max_connections: Connection refused"
            ]
            assert outlook.exit_code == 2
            worse = await look(Config("", SETTINGS, {"e": entry(server.port, 70), "f": bad}), memory)
            assert worse.exit_code == 1
            assert len(list(worse.warnings())) == 2

    asyncio.run(scenario())


def wants_a_password(server: ServerSide) -> None:
    """A server that lets nobody in without."""
    server.read_startup()
    server.send(m.auth(3))
    server.hold()


def test_servers_that_let_nobody_in() -> None:
    """With secrets that cannot be used for a login there is nothing to warn of, and still something to know."""

    async def scenario() -> None:
        with FakeServer(wants_a_password) as server:
            outlook = await look(Config("", SETTINGS, {"e": entry(server.port, 7)}), Memory())
            assert list(outlook.warnings()) == []
            (note,) = outlook.notes()
            assert note.endswith("u@e: the server wants a password, and no usable one is configured")
            assert outlook.exit_code == 2

    asyncio.run(scenario())


def test_a_missing_database_is_told() -> None:
    """An entry that leads to no database is a warning, not a misfit."""

    async def scenario() -> None:
        with FakeServer(honest) as server:
            outlook = await look(Config("", SETTINGS, {"x": entry(server.port, 2, "x")}), Memory())
            assert list(outlook.warnings()) == [f'x: server 127.0.0.1:{server.port} has no database "x"']
            assert outlook.exit_code == 0

    asyncio.run(scenario())


def test_a_look_that_fails_is_only_a_line() -> None:
    """A mistake in the look itself is logged and disturbs nobody."""

    async def scenario() -> None:
        boss = Boss(Config("", SETTINGS, {"e": entry(1, 7)}))
        part = Foresight(boss)
        part._memory = None  # type: ignore[assignment]
        part.look()
        assert (await settled(boss, 1))[0].startswith("cannot compare max_connections: AttributeError")

    asyncio.run(scenario())


def test_the_end_of_the_fleet() -> None:
    """A look under way ends with the fleet."""

    async def scenario() -> None:
        with FakeServer(lambda server: server.hold()) as server:
            boss = Boss(Config("", SETTINGS, {"e": entry(server.port, 7)}))
            part = Foresight(boss)
            part.look()
            await asyncio.to_thread(server.wait_for, 1)
            part.close()
            server.connections[0].socket.settimeout(PATIENCE_S)
        assert boss.log.lines == []

    asyncio.run(scenario())


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """With PGSHOAL_FORESIGHT=off nobody is asked."""
    monkeypatch.setenv(SWITCH, "off")

    async def scenario() -> None:
        boss = Boss(Config("", SETTINGS, {"e": entry(1, 7)}))
        Foresight(boss).look()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())

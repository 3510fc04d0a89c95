"""Questions to name servers: what resolver configurations say, answers, failures, limits, and the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pycares
import pytest

from pgshoal.engine.choose import choose
from pgshoal.engine.python import PythonEngine
from pgshoal.engine.selector import EngineLoop, EngineSelector
from pgshoal.worker.dns import BAD_NAME, NO_SERVER, TIMEOUT, Dns, read_resolv_conf
from tests.support.nameserver import NameServer

NOT_FOUND = 4


def test_resolver_configurations_are_read_as_everybody_reads_them() -> None:
    """Servers with and without ports, the last search list, options; all else is passed over."""
    text = """# a comment
nameserver 10.0.0.1
nameserver 10.0.0.2:5353   ; with a port
nameserver fd00::1
nameserver [fd00::2]:5353
nameserver nonsense
nameserver 10.0.0.1:x
domain example.org
search corp.test example.test
sortlist 10.0.0.0/8
options ndots:2 timeout:3 attempts:4 rotate edns0 ndots:x
"""
    assert read_resolv_conf(text) == {
        "servers": ["10.0.0.1", "10.0.0.2:5353", "fd00::1", "[fd00::2]:5353"],
        "domains": ["corp.test", "example.test"],
        "ndots": 2,
        "timeout": 3,
        "tries": 4,
        "rotate": True,
    }


def test_an_empty_configuration_asks_this_machine_and_nothing_of_the_system() -> None:
    """No name server is that of loopback, no search list is none."""
    found = read_resolv_conf("")
    assert found["servers"] == ["127.0.0.1"]
    assert "domains" not in found
    assert found["flags"] == 32  # ARES_FLAG_NOSEARCH


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The worker's kind of loop, on an engine of its own."""
    engine = PythonEngine()
    made = EngineLoop(EngineSelector(engine))
    yield made
    made.close()
    engine.shutdown()


@pytest.fixture
def names() -> Iterator[NameServer]:
    """A name server."""
    with NameServer() as server:
        server.hosts["db.example.test"] = ["10.0.0.1", "10.0.0.2", "fd00::1"]
        server.serials["example.test"] = 4_000_000_000
        yield server


def answer(loop: asyncio.AbstractEventLoop, ask: Callable[[Callable[..., None]], None]) -> Any:
    """Runs the loop until `ask` has its answer."""
    got: list[Any] = []

    def done(*facts: Any) -> None:
        got.append(facts if len(facts) > 1 else facts[0])
        loop.stop()

    ask(done)
    assert got == []  # never at once
    loop.run_forever()
    return got[0]


def test_addresses_of_both_families(loop: asyncio.AbstractEventLoop, names: NameServer) -> None:
    """All of them, and asked for anew each time, whatever their TTL."""
    dns = Dns(loop, names.resolv_conf())
    for _ in range(2):
        found, code = answer(loop, lambda done: dns.addresses("db.example.test", 10, done))
        assert (sorted(found), code) == (["10.0.0.1", "10.0.0.2", "fd00::1"], 0)
    assert names.count("db.example.test") == 2


def test_a_changed_configuration_is_used_by_the_next_question(
    loop: asyncio.AbstractEventLoop, names: NameServer
) -> None:
    """The file is read for each."""
    dns = Dns(loop, names.resolv_conf())
    assert answer(loop, lambda done: dns.addresses("db", 10, done)) == ([], NOT_FOUND)
    names.resolv_conf("search example.test")
    assert len(answer(loop, lambda done: dns.addresses("db", 10, done))[0]) == 3


@pytest.mark.parametrize(
    ("host", "code"), [("nowhere.test", NOT_FOUND), ("a..b", BAD_NAME), ("x" * 300, BAD_NAME), ("no name", BAD_NAME)]
)
def test_names_without_an_address(loop: asyncio.AbstractEventLoop, names: NameServer, host: str, code: int) -> None:
    """Also those that are no names."""
    dns = Dns(loop, names.resolv_conf())
    assert answer(loop, lambda done: dns.addresses(host, 10, done)) == ([], code)


def test_the_hosts_file_is_asked_first(loop: asyncio.AbstractEventLoop, names: NameServer) -> None:
    """Every system's file knows localhost."""
    dns = Dns(loop, names.resolv_conf())
    found, code = answer(loop, lambda done: dns.addresses("localhost", 10, done))
    assert "127.0.0.1" in found
    assert (code, names.asked) == (0, [])


def test_serials(loop: asyncio.AbstractEventLoop, names: NameServer) -> None:
    """Up to 32 bits; a name that is no zone has none."""
    dns = Dns(loop, names.resolv_conf())
    assert answer(loop, lambda done: dns.serial("example.test", 10, done)) == 4_000_000_000
    assert answer(loop, lambda done: dns.serial("db.example.test", 10, done)) is None
    assert answer(loop, lambda done: dns.serial("nowhere.test", 10, done)) is None


@pytest.mark.parametrize("engine_name", ["python", "epoll", "uring"])
def test_without_a_thread_its_sockets_are_on_the_loop(
    engine_name: str, names: NameServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where inotify has run out the engine waits for c-ares, and forgets its sockets afterwards."""
    real = pycares.Channel

    def channel(**options: Any) -> pycares.Channel:
        if "sock_state_cb" not in options:
            raise pycares.AresError(1, "no inotify")
        return real(**options)

    monkeypatch.setattr(pycares, "Channel", channel)
    engine = choose(engine_name, print)
    selector = EngineSelector(engine)
    loop = EngineLoop(selector)
    watched = set(selector.get_map())
    dns = Dns(loop, names.resolv_conf())
    assert len(answer(loop, lambda done: dns.addresses("db.example.test", 10, done))[0]) == 3
    names.silent = True
    assert answer(loop, lambda done: dns.addresses("db.example.test", 0.05, done)) == ([], TIMEOUT)
    assert set(selector.get_map()) == watched
    loop.close()
    engine.shutdown()
    assert "inotify" not in capfd.readouterr().err


def test_a_question_ends_at_its_limit(loop: asyncio.AbstractEventLoop, names: NameServer) -> None:
    """However long the configuration would wait."""
    names.silent = True
    dns = Dns(loop, names.resolv_conf("options timeout:60"))
    assert answer(loop, lambda done: dns.addresses("db.example.test", 0.05, done)) == ([], TIMEOUT)


def test_no_configuration_is_no_answer(loop: asyncio.AbstractEventLoop, names: NameServer) -> None:
    """A file that is gone fails the question and nothing else."""
    dns = Dns(loop, str(names.folder / "gone"))
    assert answer(loop, lambda done: dns.addresses("db.example.test", 10, done)) == ([], NO_SERVER)


def test_nothing_is_said_after_the_end(loop: asyncio.AbstractEventLoop, names: NameServer) -> None:
    """Open questions are cancelled, and whoever asked hears nothing more."""
    names.silent = True
    dns = Dns(loop, names.resolv_conf())
    got: list[object] = []
    dns.addresses("db.example.test", 0.05, lambda found, code: got.append(code))
    dns.close()
    loop.call_later(0.2, loop.stop)
    loop.run_forever()
    assert got == []


def test_the_library_is_loaded_at_need() -> None:
    """A worker whose hosts are all addresses does not carry it."""
    text = (
        "import sys, pgshoal.worker.run; print([name for name in sys.modules if 'cares' in name or 'aiodns' in name])"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

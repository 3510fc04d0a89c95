"""The engine as asyncio's selector: everything asyncio does with descriptors works on every engine."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from selectors import EVENT_READ, EVENT_WRITE

import pytest

from pgshoal.engine.choose import choose
from pgshoal.engine.contract import Engine, Event, SocketOptions
from pgshoal.engine.selector import EngineLoop, EngineSelector

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def running(engine: str) -> Iterator[Engine]:
    """An engine of the kind under test."""
    made = choose(engine, pytest.fail)
    yield made
    made.shutdown()


@pytest.fixture
def selector(running: Engine) -> Iterator[EngineSelector]:
    """A selector over it."""
    made = EngineSelector(running)
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two connected sockets."""
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        yield left, right


Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture
def run(running: Engine) -> Run:
    """Runs a coroutine function on a loop whose selector is the engine."""

    def act(main: Callable[[], Awaitable[None]]) -> None:
        async def whole() -> None:
            await asyncio.wait_for(main(), 20)

        with asyncio.Runner(loop_factory=lambda: EngineLoop(EngineSelector(running))) as runner:
            runner.run(whole())

    return act


def ready(selector: EngineSelector, timeout: float | None = 0) -> list[tuple[int, int]]:
    return [(key.fd, mask) for key, mask in selector.select(timeout)]


def until_ready(selector: EngineSelector) -> list[tuple[int, int]]:
    """What is ready, once anything is; the engine may come back early with nothing."""
    for _ in range(1000):
        if found := ready(selector, 5):
            return found
    pytest.fail("nothing became ready")


def test_readiness_is_level_triggered(selector: EngineSelector, pair: Pair) -> None:
    """A descriptor with unread data is reported at every select until the data is read."""
    left, right = pair
    selector.register(left, EVENT_READ)
    assert ready(selector) == []
    right.send(b"x")
    for _ in range(3):
        assert until_ready(selector) == [(left.fileno(), EVENT_READ)]
    left.recv(1)
    ready(selector)
    assert ready(selector) == []


def test_write_readiness_and_modify(selector: EngineSelector, pair: Pair) -> None:
    """`modify` changes what is reported and keeps the key's new data."""
    left, right = pair
    right.send(b"x")
    selector.register(left, EVENT_WRITE, "first")
    assert until_ready(selector) == [(left.fileno(), EVENT_WRITE)]
    key = selector.modify(left, EVENT_READ, "second")
    assert (key.events, key.data) == (EVENT_READ, "second")
    assert until_ready(selector) == [(left.fileno(), EVENT_READ)]
    selector.modify(left, EVENT_READ | EVENT_WRITE)
    assert until_ready(selector) == [(left.fileno(), EVENT_READ | EVENT_WRITE)]


def test_unregistered_is_not_reported(selector: EngineSelector, pair: Pair) -> None:
    """After `unregister` nothing is reported, although data came before and after."""
    left, right = pair
    right.send(b"x")
    selector.register(left, EVENT_READ)
    until_ready(selector)
    selector.unregister(left)
    right.send(b"y")
    assert ready(selector) == ready(selector) == []
    with pytest.raises(KeyError):
        selector.unregister(left)


def test_reused_number_starts_afresh(selector: EngineSelector) -> None:
    """A descriptor number that is used again is not reported for what happened to its predecessor."""
    first, first_peer = socket.socketpair()
    number = first.fileno()
    selector.register(first, EVENT_READ)
    ready(selector)
    first_peer.send(b"x")
    selector.unregister(first)
    first.close()
    second, second_peer = socket.socketpair()
    with first_peer, second, second_peer:
        assert number in (second.fileno(), second_peer.fileno())
        watched, other = (second, second_peer) if second.fileno() == number else (second_peer, second)
        selector.register(watched, EVENT_READ)
        assert ready(selector) == ready(selector) == []
        other.send(b"y")
        assert until_ready(selector) == [(number, EVENT_READ)]
        selector.unregister(watched)


def test_close_after_unregister_reaches_the_peer(selector: EngineSelector, pair: Pair) -> None:
    """No operation of the engine keeps a file open that its owner has unregistered and closed."""
    left, right = pair
    selector.register(left, EVENT_READ)
    ready(selector)
    selector.unregister(left)
    left.close()
    assert right.recv(1) == b""


def test_bad_registrations_are_refused(selector: EngineSelector, pair: Pair) -> None:
    """No events, a second registration, a closed descriptor: as the standard selectors answer."""
    left, _ = pair
    with pytest.raises(ValueError, match="invalid events"):
        selector.register(left, 0)
    selector.register(left, EVENT_READ)
    with pytest.raises(KeyError):
        selector.register(left.fileno(), EVENT_READ)
    free = os.dup(left.fileno())
    os.close(free)
    with pytest.raises(OSError, match="Bad file descriptor"):
        selector.register(free, EVENT_READ)
    assert free not in selector.get_map()


def test_keys_are_found_by_object_and_number(selector: EngineSelector, pair: Pair) -> None:
    """`get_key` and `get_map` know a socket by itself, by its number, and after it was closed."""
    left, _ = pair
    key = selector.register(left, EVENT_READ, "data")
    number = left.fileno()
    assert selector.get_key(left) == selector.get_key(number) == key
    assert list(selector.get_map()) == [number]
    left.close()
    assert selector.unregister(left) == key
    assert len(selector.get_map()) == 0


def refused_address() -> tuple[str, int]:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        address: tuple[str, int] = sock.getsockname()
    return address


def test_engine_events_call_on_events(running: Engine, run: Run) -> None:
    """`on_events` is called when the engine has events, and not again once they are taken."""
    taken: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        selector = loop._selector  # type: ignore[attr-defined]
        done = asyncio.Event()

        def drain() -> None:
            taken.extend(event[0] for event in running.events())
            done.set()

        selector.on_events = drain
        running.connect(refused_address(), SocketOptions())
        await done.wait()
        for _ in range(5):
            await asyncio.sleep(0)

    run(main)
    assert taken == [Event.CLOSED]


def test_what_on_events_schedules_runs_at_once(running: Engine, run: Run) -> None:
    """A callback, a timer or a task made inside `on_events` ends the wait; events alone do not."""
    ran: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        selector = loop._selector  # type: ignore[attr-defined]
        waits = 0
        real = selector.select

        def select(timeout: float | None = None) -> object:
            nonlocal waits
            waits += 1
            return real(timeout)

        selector.select = select
        third = asyncio.Event()
        left = [20]

        def drain() -> None:
            for event in running.events():
                assert event[0] == Event.CLOSED
                left[0] -= 1
                if left[0]:
                    # One more wake without anything for asyncio to do.
                    running.connect(refused_address(), SocketOptions())
                else:
                    loop.call_soon(ran.append, "soon")
                    loop.call_later(0.001, third.set)

        selector.on_events = drain
        running.connect(refused_address(), SocketOptions())
        waits = 0
        await asyncio.wait_for(third.wait(), 20)
        del selector.select
        assert waits <= 15

    run(main)
    assert ran == ["soon"]


def test_timers_and_threads_wake_the_loop(run: Run) -> None:
    """`call_later` fires while nothing else happens; `call_soon_threadsafe` ends a wait from another thread."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        timer = asyncio.Event()
        loop.call_later(0.01, timer.set)
        await timer.wait()
        poked = asyncio.Event()
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(poked.set,))
        thread.start()
        await poked.wait()
        thread.join()

    run(main)


def test_signals_are_delivered(run: Run) -> None:
    """A signal handler of the loop runs while the engine waits."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        caught = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, caught.set)
        loop.call_later(0.01, os.kill, os.getpid(), signal.SIGUSR1)
        await caught.wait()
        loop.remove_signal_handler(signal.SIGUSR1)

    run(main)


def test_subprocesses_talk_through_pipes(run: Run) -> None:
    """A child gets its input, gives its output and its exit code is seen."""

    async def main() -> None:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "import sys; sys.stdout.write(sys.stdin.read().upper()); sys.exit(7)",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await child.communicate(b"x" * 200_000)
        assert output == b"X" * 200_000
        assert child.returncode == 7

    run(main)


def test_many_streams_at_once(run: Run) -> None:
    """asyncio's own server and clients move megabytes beside each other."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def client(port: int, size: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def fill() -> None:
            for _ in range(size // 10_000):
                writer.write(b"y" * 10_000)
                await writer.drain()
            writer.write_eof()

        filling = asyncio.create_task(fill())
        total = 0
        while data := await reader.read(65536):
            total += len(data)
        await filling
        writer.close()
        await writer.wait_closed()
        return total

    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            totals = await asyncio.gather(*(client(port, 500_000) for _ in range(8)))
        assert totals == [500_000] * 8

    run(main)


def test_close_leaves_the_engine_alive(running: Engine, pair: Pair) -> None:
    """A closed selector has taken its descriptors out of the engine; a second one works on the same engine."""
    left, right = pair
    with ExitStack() as stack:
        first = EngineSelector(running)
        first.register(left, EVENT_READ)
        first.close()
        second = EngineSelector(running)
        stack.callback(second.close)
        right.send(b"x")
        assert ready(second) == []
        second.register(left, EVENT_READ)
        assert until_ready(second) == [(left.fileno(), EVENT_READ)]

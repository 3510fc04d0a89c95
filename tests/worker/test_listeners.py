"""The sockets a worker accepts from: those it was given, those it was lent, and what it does with its copies."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from pgshoal.fleet.channel import Message
from tests.worker.stub import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    """One worker."""
    with Bench() as made:
        yield made
        made.worker.listeners.close()


def hear(bench: Bench, verb: str, listener: int, tcp: bool = True) -> int:
    """The supervisor sends a socket; returns the worker's copy."""
    with socket.socket() as sock:
        fd = os.dup(sock.fileno())
    bench.fleet.handlers[verb](Message(verb, {"listener": listener, "name": "x", "tcp": tcp}, fd=fd))
    return fd


def later(bench: Bench) -> list[Callable[[], object]]:
    """What the worker has put off."""
    found: list[Callable[[], object]] = []
    bench.worker.loop.call_later = lambda delay, call, *args: found.append(partial(call, *args))  # type: ignore[assignment]
    bench.worker.settle = lambda: None  # type: ignore[method-assign]
    return found


def told(bench: Bench, verb: str) -> list[int]:
    """The listeners of which the engine was told so."""
    return [call[2] if verb == "listen" else call[1] for call in bench.engine.calls if call[0] == verb]


def is_open(fd: int) -> bool:
    """Whether the descriptor is in use."""
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_sockets_are_accepted_from_once_the_worker_serves(bench: Bench) -> None:
    """A client that comes before everything is ready waits in the kernel."""
    hear(bench, "listen", 1)
    hear(bench, "listen", 2, tcp=False)
    assert told(bench, "listen") == []
    bench.worker.listeners.serve()
    assert told(bench, "listen") == [1, 2]


def test_a_lent_socket_is_accepted_from_until_it_is_taken_back(bench: Bench) -> None:
    """And the worker's copy of it is closed then."""
    bench.worker.listeners.serve()
    fd = hear(bench, "lend", 7)
    assert told(bench, "listen") == [7]
    due = later(bench)
    bench.fleet.hear("unlend", listener=7)
    bench.fleet.hear("unlend", listener=7)
    assert told(bench, "pause_listener") == [7]
    assert told(bench, "unlisten") == []
    (expire,) = due
    expire()
    assert told(bench, "unlisten") == [7]
    assert not is_open(fd)


def test_what_was_taken_back_and_lent_again_is_kept(bench: Bench) -> None:
    """The end of the first loan does not end the second."""
    due = later(bench)
    bench.worker.listeners.serve()
    hear(bench, "lend", 7)
    bench.fleet.hear("unlend", listener=7)
    hear(bench, "lend", 7)
    due.pop()()
    assert told(bench, "listen") == [7, 7]
    assert told(bench, "unlisten") == [7]


def test_leaving_pauses_all(bench: Bench) -> None:
    """What was accepted at that moment is still served; a failed accept does not begin it anew."""
    due = later(bench)
    hear(bench, "listen", 1)
    hear(bench, "listen", 2, tcp=False)
    bench.worker.listeners.serve()
    bench.worker.listeners.leave()
    bench.worker.listeners.accept_failed(1, "Too many open files")
    for expire in due:
        expire()
    assert told(bench, "pause_listener") == [1, 2]
    assert told(bench, "unlisten") == [1, 2]
    assert told(bench, "resume_listener") == []


def test_a_socket_that_is_sent_twice_replaces_the_first(bench: Bench) -> None:
    """Nothing leaks."""
    bench.worker.listeners.serve()
    first = hear(bench, "lend", 7)
    second = hear(bench, "lend", 7)
    assert told(bench, "listen") == [7, 7]
    assert told(bench, "unlisten") == [7]
    assert first == second or not is_open(first)


def test_a_shutdown_closes_tcp_and_keeps_unix(bench: Bench) -> None:
    """The console stays reachable while clients drain; lent sockets are closed too."""
    hear(bench, "listen", 1)
    hear(bench, "listen", 2, tcp=False)
    bench.worker.listeners.serve()
    hear(bench, "lend", 3)
    bench.worker.listeners.close_tcp()
    assert told(bench, "unlisten") == [1, 3]


def test_tcp_and_unix_are_told_apart(bench: Bench) -> None:
    """A socket that is closed by now counts as TCP: only TCP sockets are closed before the end."""
    hear(bench, "listen", 1)
    hear(bench, "listen", 2, tcp=False)
    assert [bench.worker.listeners.is_tcp(number) for number in (1, 2, 3)] == [True, False, True]


def test_a_failed_accept_is_logged_and_tried_again(bench: Bench) -> None:
    """The listener is resumed after its pause, but not once it is closed."""
    hear(bench, "listen", 4)
    bench.worker.listeners.serve()
    timers: list[tuple[float, object, tuple[object, ...]]] = []
    bench.worker.loop.call_later = lambda delay, call, *args: timers.append((delay, call, args))  # type: ignore[assignment]
    bench.worker.settle = lambda: None  # type: ignore[method-assign]
    bench.worker.listeners.accept_failed(4, "Too many open files")
    assert "accept() failed: Too many open files" in bench.log.texts()
    ((delay, call, args),) = timers
    assert delay == 5.0
    call(*args)  # type: ignore[operator]
    assert told(bench, "resume_listener") == [4]
    bench.worker.listeners.close()
    call(*args)  # type: ignore[operator]
    assert told(bench, "resume_listener") == [4]

"""The threads that ask somebody outside."""

from __future__ import annotations

import threading

from pgshoal.worker.askers import THREADS_MAX, WAITING_MAX, Askers

WAIT_S = 10.0


def test_answers_come_back() -> None:
    """What the question gave is handed over by way of the loop."""
    told = threading.Event()
    found: list[int] = []

    def on_loop(call: object) -> None:
        assert callable(call)
        call()
        told.set()

    askers = Askers(on_loop)
    assert askers.ask(lambda: 42, found.append, lambda: True)
    assert told.wait(WAIT_S)
    assert found == [42]
    askers.close()


def test_those_who_hang_hold_up_only_their_threads() -> None:
    """More questions than threads wait, more than may wait are refused, and what nobody wants is not asked."""
    free, asked = threading.Event(), threading.Semaphore(0)
    told = threading.Semaphore(0)
    questions: list[int] = []
    askers = Askers(lambda call: told.release())

    def hang() -> None:
        asked.release()
        free.wait(WAIT_S)

    def ignore(answer: None) -> None:
        """Never called: our loop only counts."""

    for _ in range(THREADS_MAX):
        assert askers.ask(hang, ignore, lambda: True)
    for _ in range(THREADS_MAX):
        assert asked.acquire(timeout=WAIT_S)
    for number in range(WAITING_MAX):
        assert askers.ask(lambda at=number: questions.append(at), ignore, lambda at=number: at < 3)  # type: ignore[misc]
    assert not askers.ask(hang, ignore, lambda: True)
    free.set()
    for _ in range(THREADS_MAX + 3):
        assert told.acquire(timeout=WAIT_S)
    assert sorted(questions) == [0, 1, 2]
    askers.close()


def test_after_the_end_nothing_is_asked_or_told() -> None:
    """A question under way ends by itself, and its answer goes nowhere."""
    free, begun, ended = threading.Event(), threading.Event(), threading.Event()
    told: list[object] = []
    askers = Askers(told.append)

    def question() -> None:
        begun.set()
        free.wait(WAIT_S)

    assert askers.ask(question, lambda answer: None, lambda: True)
    assert begun.wait(WAIT_S)
    askers.close()
    free.set()
    for thread in threading.enumerate():
        if thread.name == "pgshoal-asker":
            thread.join(WAIT_S)
    ended.set()
    assert told == []
    assert not askers.ask(question, lambda answer: None, lambda: True)

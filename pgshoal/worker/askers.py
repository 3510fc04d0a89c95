"""A few threads that ask directories and PAM; whoever hangs there holds up neither the loop nor other heavy work."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

THREADS_MAX: Final = 8
WAITING_MAX: Final = 256


class Askers:
    """Runs questions in threads that start when needed, and hands the answers back on the loop."""

    def __init__(self, on_loop: Callable[[Callable[[], None]], object]) -> None:
        """`on_loop` is asyncio's call_soon_threadsafe."""
        self._on_loop = on_loop
        self._line: deque[Callable[[], None]] = deque()
        self._change = threading.Condition()
        self._threads = self._free = 0
        self._closed = False

    def ask(self, question: Callable[[], T], done: Callable[[T], None], wanted: Callable[[], bool]) -> bool:
        """False if too many wait already. `question` must not raise; it is dropped if nobody wants it by then."""

        def both() -> None:
            if wanted():
                answer = question()
                self._tell(lambda: done(answer))

        with self._change:
            if self._closed or len(self._line) >= WAITING_MAX:
                return False
            self._line.append(both)
            if self._free >= len(self._line):
                self._change.notify()
            elif self._threads < THREADS_MAX:
                self._threads += 1
                # A daemon: the end of the process must not wait for a directory that does not answer.
                threading.Thread(target=self._work, name="pgshoal-asker", daemon=True).start()
        return True

    def _work(self) -> None:
        while True:
            with self._change:
                self._free += 1
                while not self._line and not self._closed:
                    self._change.wait()
                self._free -= 1
                if self._closed:
                    return
                both = self._line.popleft()
            both()

    def _tell(self, answer: Callable[[], None]) -> None:
        with self._change:
            if not self._closed:
                self._on_loop(answer)

    def close(self) -> None:
        """Drop all questions; those under way end by themselves, and their answers go nowhere."""
        with self._change:
            self._closed = True
            self._line.clear()
            self._change.notify_all()

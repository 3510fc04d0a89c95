"""One thread for heavy work, such as PBKDF2, so that one login does not stall all other clients."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Offload:
    """Runs work in a thread and hands its result back on the loop. The thread starts with the first work."""

    def __init__(self, on_loop: Callable[[Callable[[], None]], object]) -> None:
        """`on_loop` is asyncio's call_soon_threadsafe, or in tests something that calls at once."""
        self._on_loop = on_loop
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="pgshoal-work")

    def run(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """`work` must not raise and must not touch shared state."""

        def both() -> None:
            result = work()
            self._on_loop(lambda: done(result))

        self._threads.submit(both)

    def close(self) -> None:
        """Drop what has not begun; what runs is left to end by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)

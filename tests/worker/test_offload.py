"""Heavy work in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from pgshoal.worker.offload import Offload


def test_work_runs_in_a_thread_and_its_result_comes_back_on_the_loop() -> None:
    """`done` is only handed over, never called by the thread itself."""
    handed: queue.Queue[Callable[[], None]] = queue.Queue()
    offload = Offload(handed.put)
    found: list[tuple[int, int]] = []
    offload.run(threading.get_ident, lambda thread: found.append((thread, threading.get_ident())))
    call = handed.get(timeout=10)
    assert found == []
    call()
    offload.close()
    ((worked, done),) = found
    assert worked != threading.get_ident() == done

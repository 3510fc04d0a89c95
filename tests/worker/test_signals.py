"""A worker leaves signals to its supervisor."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from pgshoal.worker.signals import FOR_THE_SUPERVISOR

CODE = """
import os, signal
from pgshoal.worker import signals
signal.pthread_sigmask(signal.SIG_BLOCK, signals.FOR_THE_SUPERVISOR)
os.kill(os.getpid(), int({number}))
signals.ignore()
os.kill(os.getpid(), int({number}))
print("alive", signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


@pytest.mark.parametrize("number", FOR_THE_SUPERVISOR)
def test_signals_are_ignored(number: signal.Signals) -> None:
    """One that came while they were still blocked, and one that comes later."""
    argv = [sys.executable, "-c", CODE.format(number=int(number))]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("alive set()\n", 0)


def test_those_that_end_a_process_are_not_ignored() -> None:
    """SIGKILL, SIGSEGV and SIGABRT keep their meaning."""
    assert not {signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT} & set(FOR_THE_SUPERVISOR)

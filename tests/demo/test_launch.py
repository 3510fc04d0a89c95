"""The interpreter runs again under another account, though only root can enter its folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgshoal.demo.account import unprivileged

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can step down")

STEP_DOWN = """
import os, sys
import pgshoal.demo.launch as launch
sys.path.insert(0, {closed!r})
inner = "import os, late; print(late.WORD, os.geteuid())"
code = "import os, sys, subprocess, late, ssl; print(late.WORD, os.geteuid(), flush=True); " \\
    "os.posix_spawn(sys.executable, [sys.executable, '-c', " + repr(inner) + "], os.environ); os.wait()"
launch.run_as({account!r}, ["-c", code])
"""


def test_exec_works_behind_closed_doors(tmp_path: Path) -> None:
    """The same program runs as the account, and so does what it starts: both import from a folder they cannot enter."""
    closed = tmp_path / "closed" / "modules"
    closed.mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    (closed / "late.py").write_text("WORD = 'late'\n")
    account = unprivileged()
    assert account is not None
    code = STEP_DOWN.format(closed=str(closed), account=account.name)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["late", str(account.uid)] * 2, done.stderr

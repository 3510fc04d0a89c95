"""A process that has stepped down from root still imports what it needs later."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgshoal.demo.account import unprivileged

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can step down")

STEP_DOWN = """
import sys
sys.path.insert(0, {closed!r})
import early
from pgshoal.demo.account import unprivileged
from pgshoal.demo.launch import keep_reachable
keep_reachable()
unprivileged().become()
try:
    open({closed!r} + "/late.py")
except PermissionError:
    print("closed")
import late, early.inner
print(late.WORD, early.inner.WORD)
"""


@pytest.fixture
def closed() -> Iterator[Path]:
    """A folder of modules behind another folder that only root can enter."""
    outer = Path(tempfile.mkdtemp())
    folder = outer / "modules"
    (folder / "early").mkdir(parents=True)
    (folder / "early" / "__init__.py").write_text("")
    (folder / "early" / "inner.py").write_text("WORD = 'inner'\n")
    (folder / "late.py").write_text("WORD = 'late'\n")
    yield folder
    shutil.rmtree(outer)


def test_late_imports_work_behind_closed_doors(closed: Path) -> None:
    """A module and a submodule first imported after stepping down are found, though their folder cannot be entered."""
    assert unprivileged() is not None
    code = STEP_DOWN.format(closed=str(closed))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.returncode) == (["closed", "late", "inner"], 0), done.stderr

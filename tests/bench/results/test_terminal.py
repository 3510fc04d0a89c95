"""The terminal may be a pipe whose reader goes, and as narrow as it likes."""

from __future__ import annotations

import os
import subprocess
import sys

SPEAKS = """
import sys
from pgshoal.bench.results.terminal import patient
console = patient()
for line in range(9):
    console.print(line)
print("went on", file=sys.stderr)
"""


def test_work_goes_on_when_nobody_reads() -> None:
    """A closed pipe is no error, neither while lines are written nor when Python ends."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", SPEAKS], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "went on\n")

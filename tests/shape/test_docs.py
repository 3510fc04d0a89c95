"""The reference pages say what the tables in the code say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_reference_pages_are_fresh() -> None:
    """docs/reference equals what docs/generate.py writes."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr

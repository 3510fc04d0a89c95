"""`python -m tests.spec` prints the rows without a test.

`--all` names a test for each of the others, `--quick` believes that what is called a test is one.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

from tests.spec.rows import excused, rows
from tests.spec.witnesses import ROOT, witnesses


def collected() -> set[str]:
    """What pytest would run, without parameters."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"the tests cannot be collected:\n{done.stdout[-2000:]}")
    return {line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line}


def main(show_all: bool, quick: bool) -> int:
    """Prints and counts; 1 if a row has no test. `quick` believes that what is called a test is one."""
    tests = tuple(sorted(witnesses(), key=lambda test: not test.place.startswith(("tests/spec/", "tests/e2e/"))))
    if not quick:
        real = collected()
        tests = tuple(test for test in tests if test.place in real)
    reasons, counts, missing = excused(), Counter[str](), 0
    for row in rows():
        shown = [test.place for test in tests if row.shown_by(test)]
        counts[row.kind] += 1
        name = row.name.partition(": ")[0] if row.kind == "refusal" else row.name
        if not shown and name not in reasons:
            missing += 1
            print(f"no test  {row.kind:8} {row.name}")
        elif show_all:
            print(f"{row.kind:8} {row.name}\n         {shown[0] if shown else 'cannot be caused: ' + reasons[name]}")
    total = sum(counts.values())
    kinds = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    print(f"{total} rows ({kinds}); {missing} without a test; {len(reasons)} cannot be caused; {len(tests)} tests read")
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main("--all" in sys.argv[1:], "--quick" in sys.argv[1:]))

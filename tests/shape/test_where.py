"""docs/where.md leads from a behaviour to its file and its test, and every step of the way exists."""

from __future__ import annotations

import re
from pathlib import Path

from tests.shape import source

WHERE = source.ROOT / "docs" / "where.md"
ENTRY = re.compile(r"`([\w./-]+\.(?:py|rs|md|toml)|[\w./-]+/)(?:::(\w+))?`")


def broken(text: str, root: Path) -> list[str]:
    """The entries of a page whose file, or whose test in that file, does not exist."""
    wrong = []
    for path, name in ENTRY.findall(text):
        target = root / path
        if not target.exists() or (name and not re.search(rf"\b(def|fn) {name}\b", target.read_text())):
            wrong.append(f"{path}::{name}" if name else path)
    return wrong


def test_every_entry_exists() -> None:
    """No entry points at a file or a test that is gone."""
    text = WHERE.read_text()
    assert len(ENTRY.findall(text)) > 20
    assert broken(text, source.ROOT) == []


def test_every_row_names_code_and_test() -> None:
    """Each row of the table has a behaviour, a file of the product and a test."""
    rows = [line.strip("| \n").split("|") for line in WHERE.read_text().splitlines() if line.startswith("| ")]
    rows = [row for row in rows if "---" not in row[0] and row[0].strip() != "Behaviour"]
    assert [row for row in rows if len(row) != 3 or "`" not in row[1] or "`tests/" not in row[2]] == []


def test_broken_entries_are_found(tmp_path: Path) -> None:
    """A missing file and a missing test name are both reported."""
    (tmp_path / "a.py").write_text("def test_here() -> None: ...\n")
    text = "`a.py` `a.py::test_here` `a.py::test_gone` `b.py`"
    assert broken(text, tmp_path) == ["a.py::test_gone", "b.py"]

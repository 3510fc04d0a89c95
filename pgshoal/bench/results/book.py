"""The folder of one run: each row as soon as it is made, its latency samples beside it, the facts about the run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pgshoal.bench.model import Row

ROWS, FACTS, LATENCIES = "rows.jsonl", "run.json", "latencies"
FIELDS = frozenset(field.name for field in fields(Row))
NEEDED = frozenset(field.name for field in fields(Row) if field.default is MISSING and field.default_factory is MISSING)
UNSAFE = re.compile(r"[^\w.=-]+")
SECRET = ("password", "secret")


class Book:
    """Writes and reads one folder.

    `run.json` holds what `begin` was given; the report shows these keys first: `started`, `seed`, `quick`, `kit`,
    `experiments`, `machine`, `versions`, `knobs`, `digests`. Values are plain, or mappings of plain values.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Makes the folder and writes run.json without secrets; a resumed run writes it anew."""
        (self.folder / LATENCIES).mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / FACTS, json.dumps(without_secrets(facts), indent=2, ensure_ascii=False) + "\n")

    def facts(self) -> dict[str, Any]:
        """What `begin` wrote; nothing where there is no run.json."""
        path = self.folder / FACTS
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def add(self, row: Row, latencies: NDArray[np.float32] | None = None) -> Row:
        """Appends a row at once, so that an interrupted run keeps what it has; the row with its file of samples."""
        if latencies is not None and len(latencies):
            row = replace(row, latencies=f"{LATENCIES}/{UNSAFE.sub('_', row.key)}-{row.repeat}.npy")
            (self.folder / LATENCIES).mkdir(parents=True, exist_ok=True)
            np.save(self.folder / row.latencies, np.asarray(latencies, dtype=np.float32))
        with (self.folder / ROWS).open("ab+") as out:
            out.write(b"\n" * torn(out) + line(row).encode())
            out.flush()
            os.fsync(out.fileno())
        return row

    def replace(self, rows: Sequence[Row]) -> None:
        """Puts these rows in place of all that stand in the file: for checks that only later rows allow."""
        write_whole(self.folder / ROWS, "".join(map(line, rows)))

    def rows(self) -> list[Row]:
        """The rows in the order they were made; of a run that was made again only the last. ValueError as `read`."""
        path = self.folder / ROWS
        found: dict[tuple[str, int], Row] = {}
        for text in path.read_text().splitlines() if path.exists() else ():
            row = read(text)
            if row is not None:
                found.pop((row.key, row.repeat), None)
                found[row.key, row.repeat] = row
        return list(found.values())

    def done(self) -> set[tuple[str, int]]:
        """The (key, repeat) a resumed run leaves out; runs that failed, or lost their servers, are made again."""
        return {(row.key, row.repeat) for row in self.rows() if not (row.error or row.lost)}

    def samples(self, rows: Iterable[Row]) -> NDArray[np.float32]:
        """All latency samples of these rows in one array, unsorted; rows without a file add none."""
        paths = [self.folder / row.latencies for row in rows if row.latencies]
        found = [np.load(path) for path in paths if path.exists()]
        return np.concatenate(found) if found else np.empty(0, np.float32)


def torn(file: BinaryIO) -> bool:
    """Whether the last line has no end, as its writer was killed."""
    if not file.seek(0, os.SEEK_END):
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"


def line(row: Row) -> str:
    """A row as one line of JSON."""
    return json.dumps(asdict(row), ensure_ascii=False, default=float) + "\n"


def read(text: str) -> Row | None:
    """The row of one line; None where a run was killed while it wrote, fields of later versions are left out.

    ValueError for what is a line of something else.
    """
    try:
        found = json.loads(text)
    except ValueError:
        return None
    known = {name: value for name, value in found.items() if name in FIELDS} if isinstance(found, dict) else {}
    if lacking := NEEDED - known.keys():
        raise ValueError(f"a row without {', '.join(sorted(lacking))}: another version of the kit wrote this folder")
    return Row(**{**known, **{name: tuple(known.get(name, ())) for name in ("clients", "invalid", "unchecked")}})


def write_whole(path: Path, text: str) -> None:
    """Writes a file so that nobody ever sees half of it."""
    part = path.with_suffix(path.suffix + ".part")
    part.write_text(text)
    part.replace(path)


def without_secrets(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts but what is named like a password."""
    return {
        name: without_secrets(value) if isinstance(value, Mapping) else value
        for name, value in facts.items()
        if not any(word in name.lower() for word in SECRET)
    }

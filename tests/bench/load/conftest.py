"""The stand with what the tests of loads need, and scenes on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest

from pgshoal.bench.knobs import Knobs, resolve
from pgshoal.bench.measure.meter import Meter
from pgshoal.bench.model import Cell, Load, NeedsTables, Scene, Target
from pgshoal.bench.stand import Stand
from pgshoal.bench.targets.opened import opened

DIRECT = Target("direct")
Staging = Callable[..., AbstractContextManager[Scene]]


@dataclass
class Watch:
    """A meter that takes notes; what a test wants to happen inside the interval happens at its beginning."""

    act: Callable[[], None] = lambda: None
    intervals: int = 0
    generators: list[int] = field(default_factory=list)

    @contextmanager
    def interval(self) -> Iterator[None]:
        """The load interval."""
        self.intervals += 1
        self.act()
        yield

    def generator(self, *pids: int) -> None:
        """Processes that make load."""
        self.generators += pids


@pytest.fixture(scope="session")
def knobs() -> Knobs:
    """Quicker than quick."""
    sizes = {"seconds": "0.6", "warmup": "0.2", "cooldown": "0.2", "scale": "1", "rows": "1000", "compare_seconds": "1"}
    return resolve({"seed": "7", **sizes}, {}, quick=True)


@pytest.fixture(scope="session")
def stand(stand: Stand) -> Stand:
    """All tests' one, with a role that may have two connections at a time."""
    stand.sql("create role few login connection limit 2 in role pg_read_all_data, pg_write_all_data")
    return stand


@pytest.fixture
def staging(stand: Stand, knobs: Knobs) -> Staging:
    """Opens a target for a load; what is given besides are parts of the cell, `act` happens in the interval."""

    @contextmanager
    def open_for(
        load: Load, target: Target = DIRECT, act: Callable[[], None] = lambda: None, **more: Any
    ) -> Iterator[Scene]:
        cell = Cell("test", target, load, **more)
        if isinstance(load, NeedsTables):
            load.prepare(stand, knobs)
        with opened(stand, cell, knobs) as made, TemporaryDirectory() as folder:
            Path(folder).chmod(0o777)
            yield Scene(stand, made, cell, knobs, cast(Meter, Watch(act)), Path(folder))

    return open_for

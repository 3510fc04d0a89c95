"""Several workers in one process, with one ledger and one clock; their backends end when the test says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgshoal.fleet.ledger import Ledger
from pgshoal.worker.link import Place
from tests.worker.alone import Alone
from tests.worker.bench import Bench, close


class Lingering(Alone):
    """A supervisor whose dead take their time: `bury` is answered by `end`."""

    def __init__(self, place: Place, ledger: Ledger) -> None:
        super().__init__(place, ledger)
        self.buried: list[dict[str, Any]] = []
        self.prompt = True

    def send(self, verb: str, fields: Mapping[str, Any] | None = None, blob: bytes = b"", fd: int = -1) -> None:
        """As `Alone`, but nobody is gone at once unless `prompt`."""
        if verb == "bury" and not self.prompt:
            self.sent.append((verb, dict(fields or {})))
            self.buried.append(dict(fields or {}))
        else:
            super().send(verb, fields, blob, fd)

    def end(self) -> int:
        """All that were buried are gone now; how many."""
        buried, self.buried = self.buried, []
        for each in buried:
            self.hear("gone", server=each["server"])
        return len(buried)


class Neighbours:
    """`Neighbours(2, max_db_connections=4)`; `self[0]` is a bench like any other."""

    def __init__(self, workers: int, static: bool = False, **settings: Any) -> None:
        self.ledger = Ledger.create(workers)
        self.ledger.set_fleet(workers, static)
        self.fleets = [self._fleet(number, workers) for number in range(workers)]
        self.benches = [Bench(fleet=fleet, **settings) for fleet in self.fleets]
        self.pass_time(0.01)

    def _fleet(self, number: int, workers: int) -> Lingering:
        self.ledger.occupy(number, number)
        ledger = Ledger.attach(self.ledger.fd, self.ledger.bells, number)
        return Lingering(Place(number=number, seat=number, workers=workers), ledger)

    def __getitem__(self, number: int) -> Bench:
        return self.benches[number]

    def pass_time(self, seconds: float) -> None:
        """The clock of all moves; each does its maintenance and looks whether others wait."""
        for bench in self.benches:
            bench.engine.set_now(bench.engine.now_us() + round(seconds * 1e6))
            bench.worker.budget.ledger.beat(bench.engine.now_us())
        for bench in self.benches:
            bench.pass_time(0)
        self.look()

    def look(self) -> None:
        """Every bell is heard."""
        for bench in self.benches:
            bench.worker.giving.rung()

    def close(self) -> None:
        """Frees what the tests do not need any more."""
        for bench in self.benches:
            close(bench)
            bench.worker.fleet.ledger.close()
        self.ledger.close()
        self.ledger.close_descriptors()

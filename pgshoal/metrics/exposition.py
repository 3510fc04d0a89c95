"""The page's text, in Prometheus's or OpenMetrics' format, from the rows of console tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from pgshoal import __version__
from pgshoal.console.tables import TABLES
from pgshoal.metrics.families import FAMILIES, LISTS, Family
from pgshoal.worker.welcome import PGBOUNCER_VERSION

if TYPE_CHECKING:
    from prometheus_client import Metric

    from pgshoal.console.sockets import Row

RUNNING: Final = frozenset({"running", "draining"})


class Found:
    """What was gathered: the rows of each table, and how many workers did not answer in time."""

    def __init__(self, rows: Mapping[str, Sequence[Row]], missing: int) -> None:
        self.rows = rows
        self.missing = missing


class _Page(Collector):
    """A collector of one page."""

    def __init__(self, found: Found) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        """All metrics, family by family."""
        found = self._found
        yield InfoMetricFamily("pgbouncer_version", "the version clients see", {"version": PGBOUNCER_VERSION})
        yield InfoMetricFamily("pgshoal", "the version of the program", {"version": __version__})
        yield GaugeMetricFamily("pgbouncer_up", "1: the fleet answers", 1)
        yield GaugeMetricFamily("pgshoal_workers_missing", "workers whose rows this page lacks", found.missing)
        for what, items in found.rows.get(LISTS, ()):
            yield GaugeMetricFamily(f"pgbouncer_{what}", f"{what} of SHOW LISTS", _number(items))
        yield _workers_up(found.rows.get("WORKERS", ()))
        for family in FAMILIES:
            yield _family(family, found.rows.get(family.table, ()))


def _workers_up(rows: Iterable[Row]) -> Metric:
    out = GaugeMetricFamily("pgshoal_worker_up", "1: the worker's number is served", labels=["worker"])
    serving: dict[str, float] = {}
    for number, _, _, state, *_ in rows:
        serving[str(number)] = max(serving.get(str(number), 0.0), float(state in RUNNING))
    for worker, up in serving.items():
        out.add_metric([worker], up)
    return out


def _family(family: Family, rows: Iterable[Row]) -> Metric:
    make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    out = make(family.name, family.doc, labels=list(family.labels))
    at = {column.name: index for index, column in enumerate(TABLES[family.table].columns)}
    values: dict[tuple[str, ...], float] = {}
    for row in rows:
        labels = tuple(_label(row[at[column]]) for column in family.labels.values())
        value = _number(row[at[family.column]]) * family.scale
        if family.tail:
            value += _number(row[at[family.tail]]) * 1e-6
        # A number of the fleet that is being replaced has two processes for a while.
        values[labels] = value if family.kind == "counter" else values.get(labels, 0.0) + value
    for labels, value in values.items():
        out.add_metric(labels, value)
    return out


def _label(value: object) -> str:
    return "" if value is None else str(value)


def _number(value: object) -> float:
    return float(str(value)) if value is not None else 0.0


def render(found: Found, accept: str) -> tuple[bytes, str]:
    """The page and its content type, as the scraper's Accept header asks."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(found))
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type

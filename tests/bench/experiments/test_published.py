"""The published experiments as declarations: short, whole, in the published sizes, and with the published figures."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from string import Formatter

import pytest

from pgshoal.bench import experiments
from pgshoal.bench.knobs import KNOBS, Knobs, resolve
from pgshoal.bench.load.cancels import CancelLoad
from pgshoal.bench.load.exports import MixedLoad
from pgshoal.bench.load.pgbench import PgbenchLoad
from pgshoal.bench.load.sessions import BurstLoad, ConnectLoad, HoldLoad
from pgshoal.bench.measure.validity import CHECKS
from pgshoal.bench.model import Experiment, Load

LINES = 40
NAMES = tuple(name for name in experiments.EXPERIMENTS if name != "compare")
DECLARED = [one for name in NAMES for one in experiments.EXPERIMENTS[name]]
FULL = resolve({}, {}, quick=False)
QUICK = resolve({}, {}, quick=True)


def declaration(name: str) -> int:
    """How many lines a module has beside its docstring and its imports, empty ones left out, for each experiment."""
    path = Path(importlib.import_module(f"{experiments.__name__}.{name}").__file__ or "")
    text = path.read_text()
    leading = (ast.Import, ast.ImportFrom, ast.Expr)
    first = next(node.lineno for node in ast.parse(text).body if not isinstance(node, leading))
    lines = [line for line in text.splitlines()[first - 1 :] if line.strip()]
    return len(lines) // len(experiments.EXPERIMENTS[name])


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_is_a_short_declaration(name: str) -> None:
    """All it needs beside is shared."""
    assert 10 < declaration(name) <= LINES


@pytest.mark.parametrize("one", DECLARED, ids=lambda one: one.name)
def test_a_declaration_names_what_there_is(one: Experiment) -> None:
    """Knobs, checks and settings of PostgreSQL that do not exist would be found out by users."""
    assert set(one.knobs) <= set(KNOBS)
    assert not any(KNOBS[name].common for name in one.knobs)
    assert set(one.checks) <= set(CHECKS)
    assert {field for value in one.server.values() for _, field, _, _ in Formatter().parse(value) if field} <= set(
        KNOBS
    )
    assert one.metrics
    assert one.charts


@pytest.mark.parametrize("knobs", [FULL, QUICK], ids=["full", "quick"])
@pytest.mark.parametrize("one", DECLARED, ids=lambda one: one.name)
def test_its_cells_can_be_told_apart(one: Experiment, knobs: Knobs) -> None:
    """By their keys, which name the experiment; direct ones come before pooled ones, and have no budget."""
    cells = one.cells(knobs)
    assert len({cell.key for cell in cells}) == len(cells) > 1
    assert {cell.experiment for cell in cells} == {one.name}
    for cell in cells:
        assert (cell.target.kind == "direct") == (cell.phase == 0)
        assert cell.budget is None or cell.target.kind != "direct"


@pytest.mark.parametrize("one", DECLARED, ids=lambda one: one.name)
def test_a_published_figure_stands_beside_cells_that_are_measured(one: Experiment) -> None:
    """In the full size each pick chooses some cell, and the 16 processes that a knob may ask for."""
    cells = one.cells(resolve({"processes": "1,2,4,8,16"}, {}, quick=False))
    for published in one.published:
        for pick in filter(None, (published.top, published.bottom)):
            chosen = [
                cell
                for cell in cells
                if pick.kind in ("", cell.target.kind)
                and {"processes": cell.target.processes, **cell.variant}.items() >= dict(pick.where).items()
            ]
            assert chosen, (published.text, pick)


def loads(name: str, knobs: Knobs = FULL) -> set[Load]:
    """The loads of an experiment."""
    return {cell.load for one in experiments.EXPERIMENTS[name] for cell in one.cells(knobs)}


def test_the_full_sizes_are_the_published_ones() -> None:
    """As the publications tell them."""
    assert loads("connect") == {ConnectLoad(5000, 15)}
    assert loads("burst") == {BurstLoad(100, 50)}
    assert loads("backends") == {HoldLoad(20)}
    assert loads("cancel") == {CancelLoad(100)}
    assert loads("churn") == {PgbenchLoad(("-S",), ("select 1;\n",), 20, transactions=100, reconnect=True)}
    assert loads("ceiling") == {PgbenchLoad((), clients=1000, seconds=60)}
    api = PgbenchLoad(("-S",), clients=64, rate=8000)
    assert loads("mixed") == {MixedLoad(api, 4, 150, apart) for apart in (False, True)}
    lookups, selects = (one.cells(FULL) for one in experiments.EXPERIMENTS["scaling"])
    assert {cell.variant["clients"] for cell in lookups} == {256, 1024}
    assert {cell.variant["clients"] for cell in selects} == {8, 64, 256}
    assert {cell.tls for cell in lookups} == {"both"}
    assert {cell.budget for cell in (*lookups, *selects)} == {None, 128}
    assert {cell.target.processes for cell in lookups} == {1, 2, 4, 8}
    assert [cell.tls for cell in experiments.EXPERIMENTS["tls"][0].cells(FULL)][:4] == [
        "none",
        "client",
        "server",
        "both",
    ]


def test_the_laptop_has_the_published_settings() -> None:
    """max_connections 25 on PostgreSQL; ten server connections and a thousand clients on the pooler."""
    for name in ("connect", "burst", "backends"):
        (one,) = experiments.EXPERIMENTS[name]
        assert {key: value.format_map(FULL.values) for key, value in one.server.items()} == {"max_connections": "25"}
        for cell in one.cells(FULL):
            assert cell.settings == {
                "pool_mode": "transaction",
                "default_pool_size": 10,
                "max_client_conn": 1000,
                "server_idle_timeout": 5,
            }
            assert cell.budget in (None, 10)


def test_the_published_ratios_are_there() -> None:
    """Each to two digits, by experiment."""
    found = {
        name: [round(p.value, 2) for one in experiments.EXPERIMENTS[name] for p in one.published] for name in NAMES
    }
    assert found == {
        "connect": [2.07, 0.55],
        "burst": [25, 4.0],
        "backends": [0.5],
        "churn": [2.51, 0.39, 0.39, 0.39, 1.83, 0.65],
        "ceiling": [0.87],
        "scaling": [1.79, 3.4, 4.65, 0.99, 4.04, 0.89, 4.36, 0.72],
        "tls": [0.65, 0.65],
        "mixed": [0.59, 1.0],
        "cancel": [0.23, 1.0, 1.0],
        "nodes": [],
    }

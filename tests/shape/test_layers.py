"""Layers import downwards only, the pure layers stay pure, and no import goes round in a circle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.shape import source

# The longest prefix decides. A module may import its own layer's package and anything of a smaller number.
LAYERS: Mapping[str, int] = {
    "pgshoal.errors": 0,
    "pgshoal.config": 1,
    "pgshoal.wire": 1,
    "pgshoal.policy": 2,
    "pgshoal.engine": 3,
    "pgshoal.auth": 4,
    "pgshoal.fleet.channel": 4,
    "pgshoal.fleet.ledger": 4,
    "pgshoal.worker": 5,
    "pgshoal.fleet": 6,
    "pgshoal.console": 7,
    "pgshoal.metrics": 8,
    "pgshoal.fleet.run": 9,  # puts the supervisor together with the metrics
    "pgshoal.worker.run": 8,  # puts the worker together with the console
    "pgshoal.worker.__main__": 9,
    "pgshoal.demo": 10,
    "pgshoal.bench": 11,
    "pgshoal.bouncer": 12,
    "pgshoal.cli": 12,
    "pgshoal.__main__": 13,
}
PURE = ("pgshoal.wire", "pgshoal.policy")
IMPURE = frozenset(
    {"asyncio", "os", "pathlib", "select", "selectors", "signal", "socket", "ssl", "subprocess", "threading", "time"}
)


def layer_of(name: str) -> tuple[str, int] | None:
    """The layer a full name belongs to; None for the package itself and for strangers."""
    fitting = [prefix for prefix in LAYERS if name == prefix or name.startswith(prefix + ".")]
    if not fitting:
        return None
    longest = max(fitting, key=len)
    return longest, LAYERS[longest]


def upward(name: str, imports: Iterable[str]) -> list[str]:
    """The imports of a module that do not point downwards."""
    mine = layer_of(name)
    wrong = []
    for target in imports:
        theirs = layer_of(target)
        if mine and theirs and theirs[0] != mine[0] and theirs[1] >= mine[1]:
            wrong.append(target)
    return wrong


def graph() -> dict[str, set[str]]:
    """Which module of ours imports which when the program runs."""
    names = {module.name for module in source.python("pgshoal")}
    edges: dict[str, set[str]] = {}
    for module in source.python("pgshoal"):
        targets = set()
        for target in module.imports(at_run_time=True):
            known = target if target in names else target.rpartition(".")[0]
            if known in names and known not in (module.name, "pgshoal"):
                targets.add(known)
        edges[module.name] = targets
    return edges


def test_every_module_belongs_to_a_layer() -> None:
    """A new package must be given its place before it is used."""
    strangers = [m.place for m in source.python("pgshoal") if m.name != "pgshoal" and layer_of(m.name) is None]
    assert strangers == []


def test_imports_point_downwards() -> None:
    """No module imports from a layer at its own height or above."""
    wrong = {m.place: found for m in source.python("pgshoal") if (found := upward(m.name, m.imports()))}
    assert wrong == {}


def test_pure_layers_touch_no_system() -> None:
    """wire/ and policy/ import neither sockets nor clocks nor anything of the operating system."""
    wrong = {
        m.place: found
        for m in source.python("pgshoal")
        if m.name.startswith(PURE) and (found := {t for t in m.imports() if t.split(".")[0] in IMPURE})
    }
    assert wrong == {}


def test_no_import_cycles() -> None:
    """The modules can be put in an order in which each comes after those it imports."""
    assert tuple(TopologicalSorter(graph()).static_order())


def test_the_rules_catch_offenders() -> None:
    """An upward import, a sideways import and a cycle are all noticed."""
    assert upward("pgshoal.wire.frames", ["pgshoal.worker.pool", "pgshoal.errors", "struct"]) == ["pgshoal.worker.pool"]
    assert upward("pgshoal.wire.frames", ["pgshoal.config.ini"]) == ["pgshoal.config.ini"]
    assert upward("pgshoal.worker.pool", ["pgshoal.worker.run"]) == ["pgshoal.worker.run"]
    with pytest.raises(CycleError):
        tuple(TopologicalSorter({"a": {"b"}, "b": {"a"}}).static_order())

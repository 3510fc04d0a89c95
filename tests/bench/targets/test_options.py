"""Options of a target, and how its processes are divided."""

from __future__ import annotations

import pytest

from pgshoal.bench.knobs import resolve
from pgshoal.bench.model import Target
from pgshoal.bench.targets.options import Options, Part, parts, read


def options(target: Target, **knobs: str) -> Options:
    """The target's options beside these knobs."""
    return read(target, resolve(dict(knobs), {}, quick=True))


def test_knobs_fill_in_what_a_target_leaves_open() -> None:
    """The target's own words come first."""
    plain = options(Target("pgshoal"), engine="epoll", pin="on")
    assert (plain.engine, plain.pin, plain.budget, plain.accept, plain.peers) == ("epoll", True, None, None, True)
    own = (("engine", "python"), ("pin", "off"), ("budget", "static"), ("accept", "pack"), ("peers", "off"))
    given = options(Target("pgshoal", options=own), engine="epoll", pin="on")
    assert (given.engine, given.pin, given.budget, given.accept, given.peers) == (
        "python",
        False,
        "static",
        "pack",
        False,
    )


@pytest.mark.parametrize("option", [("speed", "high"), ("engine", "turbo"), ("pin", "yes"), ("accept", "")])
def test_nothing_is_ignored(option: tuple[str, str]) -> None:
    """An option, or a word, that is not known is an error: the label would promise what was not measured."""
    with pytest.raises(ValueError, match=f"{option[0]}={option[1]} is no option"):
        options(Target("pgshoal", options=(option,)))


@pytest.mark.parametrize("target", [Target("pgshoal"), Target("pgshoal", 2, nodes=2)])
def test_one_process_cannot_be_isolated(target: Target) -> None:
    """There must be one for exports and one for the others, on one node."""
    isolated = Target(target.kind, target.processes, (("isolated", "on"),), nodes=target.nodes)
    with pytest.raises(ValueError, match="isolated needs"):
        options(isolated)


def test_parts_of_a_target() -> None:
    """One pooler; all processes but one and that one; or all processes on each node."""

    def of(target: Target) -> list[Part]:
        return parts(target, options(target))

    assert of(Target("pgshoal", 4)) == [Part("main", 4, 0, 4)]
    assert of(Target("pgshoal", 4, (("isolated", "on"),))) == [Part("main", 3, 0, 4), Part("exports", 1, 3, 4)]
    assert of(Target("pgbouncer", 2, nodes=2)) == [Part("node1", 2, 0, 4), Part("node2", 2, 2, 4)]


def test_parts_get_processors_of_their_own() -> None:
    """As long as there are any; then they are gone through again."""
    main, exports = Part("main", 3, 0, 4), Part("exports", 1, 3, 4)
    assert (main.cpus([0, 2, 4, 6]), exports.cpus([0, 2, 4, 6])) == ([0, 2, 4], [6])
    assert (main.cpus([0, 1]), exports.cpus([0, 1])) == ([0, 1, 0], [1])

"""The runner keeps one row a run, whatever happens to the others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pgshoal.bench.knobs import Knobs
from pgshoal.bench.measure.meter import Measured
from pgshoal.bench.model import Cell, ClientOutcome, NotHere, Outcome, Scene, Target
from pgshoal.bench.results.book import Book
from tests.bench.run.scripted import DIRECT, POOLED, Notes, ScriptedLoad, ScriptedMeter, cell, experiment, notes, work

__all__ = ["notes"]
FLEET = Target("pgshoal", 4)


def failing(error: BaseException) -> ScriptedLoad:
    """A load that ends so."""

    def act(scene: Scene) -> Outcome:
        raise error

    return ScriptedLoad(act)


def test_a_run_is_prepared_opened_closed_and_kept(notes: Notes, tmp_path: Path) -> None:
    """Server, target and load in this order; the row has what load and meter saw, and percentiles of all samples."""
    samples = np.array([1, 2, 3, 4], np.float32)
    outcome = Outcome({"tps": 4.0}, 4, samples, [ClientOutcome(0, False, 2.5, "too many")])
    load = ScriptedLoad(lambda scene: outcome)
    one = experiment("one", cell("one", POOLED, load, variant={"clients": 3}), server={"max_connections": "25"})
    (row,) = work(notes, tmp_path, one).rows
    assert notes.seen == [
        "planned 1",
        "prepare max_connections=25",
        "run one pgshoal 0",
        "open pgshoal",
        "close pgshoal",
        "finished one 1",
        "stand closed",
    ]
    assert row.figures["tps"] == row.figures["transactions"] == row.figures["max_ms"] == 4
    assert row.figures["p50_ms"] == 2.5
    assert list(row.clients) == [{"number": 0, "succeeded": False, "milliseconds": 2.5, "error": "too many"}]
    assert Book(tmp_path).samples([row]).tolist() == [1, 2, 3, 4]
    facts = json.loads((tmp_path / "run.json").read_text())
    assert (facts["seed"], facts["experiments"], facts["knobs"]["repeats"]) == (7, ["one"], 1)


def test_a_run_that_fails_is_a_row_and_the_others_are_made(notes: Notes, tmp_path: Path) -> None:
    """The row says why, and what the target's log says; other cells and experiments go on."""
    bad = experiment("bad", cell("bad", POOLED, failing(RuntimeError("it fell over"))), cell("bad", DIRECT))
    ended = work(notes, tmp_path, bad, experiment("good", cell("good", POOLED)))
    errors = {row.key: row.error for row in ended.rows}
    assert errors.pop("bad|pgshoal|") == "it fell over; pgshoal runs, its log: a line of its log"
    assert errors == {"bad|direct|": "", "good|pgshoal|": ""}
    assert not ended.all_well


def test_what_cannot_be_run_here_is_left_out(notes: Notes, tmp_path: Path) -> None:
    """It is said once, also for later repeats, and is no failure."""
    lacking = cell("one", FLEET, failing(NotHere("no HAProxy: install haproxy")))
    ended = work(notes, tmp_path, experiment("one", lacking, cell("one", POOLED)), repeats="2")
    assert [line for line in notes.seen if line.startswith("left")] == [
        "left out pgshoal x4: no HAProxy: install haproxy"
    ]
    assert len(ended.rows) == 2
    assert ended.all_well
    assert json.loads((tmp_path / "run.json").read_text())["left_out"] == ended.left_out != {}


def test_an_engine_that_does_not_run_here_is_left_out(
    notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is known before anything is started."""
    monkeypatch.setattr("pgshoal.bench.run.runner.unusable", lambda engine: "old kernel" if engine == "uring" else "")
    targets = [Target("pgshoal", options=(("engine", name),)) for name in ("uring", "epoll")]
    work(notes, tmp_path, experiment("one", *(cell("one", target) for target in targets)))
    assert notes.seen[:2] == ["left out pgshoal engine=uring: old kernel", "planned 1"]


def test_a_server_that_cannot_be_prepared_ends_its_experiment_only(notes: Notes, tmp_path: Path) -> None:
    """The reason is kept, the next experiment goes on, and the whole is a failure."""
    notes.broken["a=1"] = RuntimeError("clients of somebody else's stay")
    bad = experiment("bad", cell("bad", DIRECT), cell("bad", POOLED, phase=1), server={"a": "1"})
    ended = work(notes, tmp_path, bad, experiment("good", cell("good", POOLED)))
    assert ended.failed == {"bad": "clients of somebody else's stay"}
    assert [row.experiment for row in ended.rows] == ["good"]
    assert notes.seen.count("prepare a=1") == 1
    assert not ended.all_well


def test_an_experiment_that_cannot_be_declared_is_given_up(notes: Notes, tmp_path: Path) -> None:
    """Knobs that contradict each other stop one experiment, not all."""

    def cells(knobs: Knobs) -> list[Cell]:
        raise ValueError("more processes than connections")

    bad = replace(experiment("bad"), cells=cells)
    ended = work(notes, tmp_path, bad, experiment("good", cell("good", POOLED)))
    assert ended.failed == {"bad": "more processes than connections"}
    assert len(ended.rows) == 1


def test_an_interrupt_keeps_what_was_measured(notes: Notes, tmp_path: Path) -> None:
    """Target and stand are closed, rows are in the folder, and a resumed run makes only what is missing."""
    interrupted = [True]

    def act(scene: Scene) -> Outcome:
        if interrupted[0]:
            raise KeyboardInterrupt
        return Outcome({"tps": 1.0}, 300)

    one = experiment("one", cell("one", DIRECT), cell("one", POOLED, ScriptedLoad(act), phase=1))
    with pytest.raises(KeyboardInterrupt):
        work(notes, tmp_path, one)
    assert notes.seen[-2:] == ["finished one 1", "stand closed"]
    assert [row.target for row in Book(tmp_path).rows()] == ["direct"]
    interrupted[0] = False
    notes.seen.clear()
    assert len(work(notes, tmp_path, one, resume=True).rows) == 2
    assert [line for line in notes.seen if line.startswith("run")] == ["run one pgshoal 0"]


def test_a_resumed_run_makes_again_what_failed(notes: Notes, tmp_path: Path) -> None:
    """A row with an error does not count as made, and the new one takes its place."""
    outcomes: list[BaseException | None] = [RuntimeError("once"), None]

    def act(scene: Scene) -> Outcome:
        if error := outcomes.pop(0):
            raise error
        return Outcome({"tps": 1.0}, 300)

    one = experiment("one", cell("one", POOLED, ScriptedLoad(act)))
    assert not work(notes, tmp_path, one).all_well
    again = work(notes, tmp_path, one, resume=True)
    assert again.all_well
    assert len(again.rows) == 1


def test_a_run_that_lost_its_database_is_a_failure_and_made_again(
    notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is kept, the status says so, and a resumed run makes it once more; other invalid runs stay."""
    ends = [1.0, 0.0, 0.0]

    def measured(meter: ScriptedMeter, outcome: Outcome) -> Measured:
        return Measured({"postgres_ended": ends.pop(0), "transactions": 5.0}, {}, {})

    monkeypatch.setattr(ScriptedMeter, "measured", measured)
    one = experiment("one", cell("one", POOLED), cell("one", DIRECT), checks=("alive", "samples"))
    assert not work(notes, tmp_path, one).all_well
    again = work(notes, tmp_path, one, resume=True)
    assert again.all_well
    assert [[reason.partition(":")[0] for reason in row.invalid] for row in again.rows] == [["samples"], ["samples"]]
    assert ends == []


def test_a_check_that_could_not_be_made_stands_in_the_row(notes: Notes, tmp_path: Path) -> None:
    """So that a run which PostgreSQL's count did not confirm is told from one that it did."""
    load = ScriptedLoad(lambda scene: Outcome({"tps": 1.0, "sent_in_all": 5.0}, 300))
    (row,) = work(notes, tmp_path, experiment("one", cell("one", POOLED, load), checks=("counts",))).rows
    assert (row.invalid, row.unchecked) == ((), ("counts: commits could not be had",))
    assert Book(tmp_path).rows() == [row]


def test_targets_are_closed_after_each_run_unless_they_are_kept_up(notes: Notes, tmp_path: Path) -> None:
    """Kept up, each is opened once and the server is prepared before the first; one that failed is opened anew."""
    failures = [RuntimeError("once")]

    def act(scene: Scene) -> Outcome:
        if scene.cell.target == FLEET and failures:
            raise failures.pop()
        return Outcome({"tps": 1.0}, 300)

    cells = [cell("one", target, ScriptedLoad(act)) for target in (POOLED, FLEET)]
    work(notes, tmp_path / "closed", experiment("one", *cells), repeats="3")
    assert notes.seen.count("open pgshoal") == notes.seen.count("close pgshoal") == 3
    assert sum(line.startswith("prepare") for line in notes.seen) == 6
    notes.seen.clear()
    failures.append(RuntimeError("once"))
    work(notes, tmp_path / "kept", experiment("one", *cells, keep_up=True), repeats="3")
    assert notes.seen.count("open pgshoal") == notes.seen.count("close pgshoal") == 1
    assert notes.seen.count("open pgshoal x4") == 2


def test_targets_that_are_kept_up_go_with_their_server(notes: Notes, tmp_path: Path) -> None:
    """A server that was killed is prepared anew before the next run, which gets a target of its own."""
    killed: list[bool] = []

    def act(scene: Scene) -> Outcome:
        if not killed:
            killed.append(True)
            vars(scene.stand)["postmaster_pid"] = None
        return Outcome({"tps": 1.0}, 300)

    work(notes, tmp_path, experiment("one", cell("one", POOLED, ScriptedLoad(act)), keep_up=True), repeats="3")
    steps = [line for line in notes.seen if line.startswith(("prepare", "open", "close"))]
    assert steps == ["prepare", "open pgshoal", "close pgshoal"] * 2


def test_a_slow_run_is_found_when_all_repeats_are_made(notes: Notes, tmp_path: Path) -> None:
    """The check over repeats marks the planted one and leaves the others; other checks are made at once."""
    rates = [100.0, 50.0, 101.0]
    load = ScriptedLoad(lambda scene: Outcome({"tps": rates.pop(0)}, 300))
    few = ScriptedLoad(lambda scene: Outcome({"tps": 1.0}, 5))
    one = experiment("one", cell("one", POOLED, load), checks=("samples", "steady"))
    two = experiment("two", cell("two", POOLED, few), checks=("samples", "steady"))
    rows = work(notes, tmp_path, one, two, repeats="3").rows
    assert [[reason.partition(":")[0] for reason in row.invalid] for row in rows[:3]] == [[], ["steady"], []]
    assert [[reason.partition(":")[0] for reason in row.invalid] for row in rows[3:]] == [["samples"]] * 3
    assert Book(tmp_path).rows() == rows


def test_knobs_that_rule_everything_out_are_a_mistake(notes: Notes, tmp_path: Path) -> None:
    """A misspelt name would otherwise look like a good run."""
    with pytest.raises(ValueError, match="nothing is left to run"):
        work(notes, tmp_path, experiment("one", cell("one", POOLED)), targets="direct")
    assert not (tmp_path / "run.json").exists()

"""A run goes on only as the run it was."""

from __future__ import annotations

import json
from dataclasses import replace

from pgshoal.bench.knobs import KNOBS
from pgshoal.bench.run.resume import differences
from tests.bench.run.scripted import knobs

THEN = knobs(units="50", processes="1,2")
MATTER = [*(name for name, knob in KNOBS.items() if knob.common), "units"]
FACTS = json.loads(json.dumps({"seed": 7, "quick": True, "knobs": THEN.as_dict(), "experiments": ["connect"]}))


def test_the_same_run_can_go_on() -> None:
    """Neither JSON's lists, another place of the results nor a knob of other experiments are a difference."""
    assert (
        differences(FACTS, knobs(units="50", processes="1,2", results="/elsewhere", api_rate="9"), ("connect",), MATTER)
        == []
    )


def test_each_difference_is_named() -> None:
    """Seed, knobs and experiments are said with both values."""
    assert differences(FACTS, knobs(seed="8", units="60", processes="1,2,4"), ("connect", "burst"), MATTER) == [
        "processes was 1,2, is 1,2,4",
        "units was 50, is 60",
        "seed was 7, is 8",
        "experiments were connect, are connect,burst",
    ]


def test_a_folder_without_a_run_is_said_to_be_one() -> None:
    """Nothing is continued by mistake in a folder that holds no run."""
    assert "no run.json" in differences({}, THEN, ("connect",), MATTER)[0]


def test_a_quick_run_is_not_continued_in_full() -> None:
    """The size decides which cases are run, so the knobs that follow from it are not listed."""
    assert differences(FACTS, replace(THEN, quick=False), ("connect",), MATTER) == [
        "it was a quick run, this is a full one"
    ]

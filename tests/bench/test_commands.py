"""The bench's command line is made from its tables, and hands over what was typed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pgshoal.bench import commands
from pgshoal.bench.experiments import EXPERIMENTS
from pgshoal.bench.knobs import KNOBS
from pgshoal.bench.run.session import Request

#: The published experiments, and ours.
NAMES = (
    "connect",
    "burst",
    "backends",
    "churn",
    "ceiling",
    "scaling",
    "tls",
    "mixed",
    "cancel",
    "nodes",
    "compare",
)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """What would have been run; each ends with status 3."""
    seen: list[Request] = []

    def measure(request: Request) -> int:
        seen.append(request)
        return 3

    monkeypatch.setattr(commands, "measure", measure)
    return seen


def helped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """The text of a help page, unfolded."""
    monkeypatch.setenv("COLUMNS", "400")
    assert commands.main([*arguments, "--help"]) == 0
    return capsys.readouterr().out


def test_every_published_experiment_has_its_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group lists them with their questions, and what goes beside them."""
    text = helped(capsys, monkeypatch)
    assert tuple(EXPERIMENTS) == NAMES
    for name in (*NAMES, "all", "report", "plan"):
        assert re.search(rf"\b{name} +\S", text), name


@pytest.mark.parametrize("name", NAMES)
def test_help_shows_the_knobs_that_matter(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An experiment's own ones and the common ones, with values and environment names; no others."""
    text = helped(capsys, monkeypatch, name)
    own = {knob for one in EXPERIMENTS[name] for knob in one.knobs}
    for knob in KNOBS.values():
        wanted = knob.common or knob.name in own
        assert (f"{knob.option} " in text) == wanted, knob.name
        assert not wanted or all(variable in text for variable in knob.variables)


def test_values_of_both_sizes_are_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Full and quick, where they differ."""
    text = helped(capsys, monkeypatch, "connect")
    assert f"({KNOBS['units'].full}, quick {KNOBS['units'].quick})" in text


def test_options_arrive_as_typed(requests: list[Request]) -> None:
    """A knob that is not given is None, so that the environment may speak."""
    status = commands.main(["connect", "--quick", "--units", "50", "--resume", "/some/run"])
    assert status == 3
    (request,) = requests
    assert (request.names, request.quick, request.strict) == (("connect",), True, False)
    assert (request.options["units"], request.options["seconds"], request.resume) == ("50", None, Path("/some/run"))


def test_all_is_every_experiment_with_every_knob(requests: list[Request]) -> None:
    """One run, one folder."""
    assert commands.main(["all", "--strict"]) == 3
    assert requests[0].names == NAMES
    assert requests[0].strict
    assert set(requests[0].options) == set(KNOBS)


@pytest.mark.parametrize("module", [("pgshoal", "bench"), ("pgshoal.bench",)])
def test_mistakes_are_one_line_and_status_two(module: tuple[str, ...]) -> None:
    """A wrong name and a knob of another experiment are told apart from failures."""
    for arguments in (("swim",), ("connect", "--api-rate", "5")):
        done = subprocess.run(
            [sys.executable, "-m", *module, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 2
        assert arguments[-2 if len(arguments) > 1 else -1] in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        (["connect", "--units", "x"], {}, "--units: 'x' is no whole number"),
        (["connect"], {"UNITS": "abc"}, "UNITS: 'abc' is no whole number"),
        (["burst"], {"PG_PORT": "99999"}, "PG_PORT: '99999' is more than 65535"),
        (["burst", "--targets", "nonsense"], {}, "'nonsense' is none of direct, pgshoal, pgbouncer, HOST:PORT"),
        (["mixed", "--targets", "direct"], {}, "--targets direct, while mixed has pgshoal, pgbouncer"),
        (["compare", "--only", "nonsense"], {}, "--only nonsense names no case"),
    ],
)
def test_mistakes_in_values_start_nothing(
    requests: list[Request],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    variables: dict[str, str],
    words: str,
) -> None:
    """An option, a variable, or a target that nothing has: the word is named, and the status is two."""
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert commands.main(arguments) == 2
    assert words in capsys.readouterr().err
    assert requests == []


def test_report_hands_over_its_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """One or several, in the order given; its status is the command's."""
    seen: list[list[Path]] = []

    def draw(folders: list[Path]) -> int:
        seen.append(folders)
        return 1

    monkeypatch.setattr("pgshoal.bench.results.report.main", draw)
    assert commands.main(["report", "/a", "/b"]) == 1
    assert seen == [[Path("/a"), Path("/b")]]


def test_plan_hands_over_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both numbers of processors, and a folder if there is one."""
    seen: list[tuple[int, int, Path | None]] = []

    def project(cores: int, pg_cores: int, folder: Path | None) -> int:
        seen.append((cores, pg_cores, folder))
        return 0

    monkeypatch.setattr("pgshoal.bench.advice.plan.main", project)
    assert commands.main(["plan", "--cores", "8", "--pg-cores", "16"]) == 0
    assert commands.main(["plan", "--cores", "8", "--pg-cores", "16", "/a/run"]) == 0
    assert seen == [(8, 16, None), (8, 16, Path("/a/run"))]

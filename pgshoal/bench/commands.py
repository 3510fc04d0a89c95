"""`pgshoal bench`: a command for each experiment, made from the tables of experiments and knobs."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from pgshoal.bench.experiments import EXPERIMENTS
from pgshoal.bench.knobs import KNOBS, Knob, resolve
from pgshoal.bench.run.matrix import wanted
from pgshoal.bench.run.session import Request, measure

QUICK: Final = "A small size: each experiment takes less than a minute."
STRICT: Final = "A missed target of compare is a failure."
RESUME: Final = "Go on with what this folder holds; same options."
MISTAKE: Final = 2  # the exit status; nothing has been started
OWN, COMMON = "Knobs of this experiment", "Knobs of all experiments"
METAVARS: Final = {"int": "N", "float": "N", "text": "TEXT", "ints": "N,N", "texts": "TEXT,TEXT", "flag": "on|off"}


def application() -> typer.Typer:
    """The whole group."""
    app = typer.Typer(
        name="bench",
        help="Published experiments about poolers, on this machine.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for name, declared in EXPERIMENTS.items():
        own = dict.fromkeys(knob for one in declared for knob in one.knobs)
        app.command(name, help=asked(declared[0].question))(measuring((name,), own))
    every = dict.fromkeys(name for name, knob in KNOBS.items() if not knob.common)
    app.command("all", help="Every experiment, one after the other, and one report.")(
        measuring(tuple(EXPERIMENTS), every)
    )
    app.command()(report)
    app.command()(plan)
    return app


def asked(question: str) -> str:
    """A question as help has it."""
    return f"{question[:1].upper()}{question[1:].removesuffix('?')}?"


def measuring(names: tuple[str, ...], own: Iterable[str]) -> Callable[..., None]:
    """A command that runs experiments; its options are the knobs that matter to them."""

    def act(quick: bool, strict: bool, resume: Path | None, **given: str | None) -> None:
        request = Request(names, given, quick, strict, resume)
        try:
            judge(request)
        except ValueError as error:
            typer.echo(f"pgshoal bench: {error}", err=True)
            raise typer.Exit(MISTAKE) from None
        raise typer.Exit(measure(request))

    common = [name for name, knob in KNOBS.items() if knob.common]
    options = [
        parameter("quick", bool, typer.Option("--quick", help=QUICK)),
        parameter("strict", bool, typer.Option("--strict", help=STRICT)),
        parameter("resume", Path | None, typer.Option("--resume", metavar="DIR", help=RESUME), None),
        *(knob_option(KNOBS[name], OWN) for name in own if name not in common),
        *(knob_option(KNOBS[name], COMMON) for name in common),
    ]
    vars(act)["__signature__"] = inspect.Signature(options)
    return act


def judge(request: Request) -> None:
    """ValueError for a bad value of an option or a variable, and for targets of which no experiment has any."""
    knobs = resolve(request.options, os.environ, request.quick)
    every = [cell for name in request.names for one in EXPERIMENTS[name] for cell in one.cells(knobs)]
    if not every:
        raise ValueError(f"nothing is left to run: --only {knobs.text('only')} names no case of this size")
    if not wanted(every, knobs):
        kinds = ", ".join(dict.fromkeys(cell.target.kind for cell in every))
        asked_for = ",".join(knobs.texts("targets"))
        raise ValueError(f"nothing is left to run: --targets {asked_for}, while {request.names[0]} has {kinds}")


def parameter(name: str, kind: object, option: Any, default: object = False) -> inspect.Parameter:
    """One option of a command, by keyword."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def knob_option(knob: Knob, panel: str) -> inspect.Parameter:
    """A knob as an option; its text goes to the table of knobs as it is, which reads the environment too."""
    option = typer.Option(
        knob.option, help=explained(knob), metavar=METAVARS[knob.kind], rich_help_panel=panel, show_default=False
    )
    return parameter(knob.name, str | None, option, None)


def explained(knob: Knob) -> str:
    """What a knob sets, its values in full and in quick runs, and its names in the environment."""
    values = "" if knob.secret else f" ({knob.full or 'empty'})"
    if not knob.secret and knob.quick != knob.full:
        values = f" ({knob.full}, quick {knob.quick or 'empty'})"
    return f"{knob.text}{values} [{' '.join(knob.variables)}]"


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs; several are compared.")],
) -> None:
    """Draw the report of a folder anew, or compare several."""
    from pgshoal.bench.results.report import main as draw

    raise typer.Exit(draw(folders))


def plan(
    cores: Annotated[int, typer.Option(min=1, help="Processors of the pooler's host.")],
    pg_cores: Annotated[int, typer.Option(min=1, help="Processors of PostgreSQL's host.")],
    folder: Annotated[Path | None, typer.Argument(metavar="DIR", help="A folder with a run of `scaling`.")] = None,
) -> None:
    """Project throughput to a larger machine."""
    from pgshoal.bench.advice.plan import main as project

    raise typer.Exit(project(cores, pg_cores, folder))


def main(arguments: Sequence[str]) -> int:
    """Runs the command line and returns the exit status; mistakes in it are raised as typer does."""
    status: object = application()(args=list(arguments), prog_name="pgshoal bench", standalone_mode=False)
    return status if isinstance(status, int) else 0

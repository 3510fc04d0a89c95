"""The `pgshoal` command: run, check, demo and so on, each of which imports its heavy modules itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from pgshoal import __version__

app = typer.Typer(
    name="pgshoal",
    help="A PostgreSQL connection pooler: PgBouncer's configuration, console and clients.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ConfigFile = Annotated[str, typer.Argument(metavar="FILE", help="a pgbouncer.ini")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pgshoal {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Where the common options live."""


@app.command()
def run(
    file: ConfigFile,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No log on stderr.")] = False,
    user: Annotated[str, typer.Option("--user", "-u", help="Become this account; beats user= in FILE.")] = "",
    verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, help="More to the log; repeatable.")] = 0,
    engine: Annotated[str, typer.Option(help="auto, uring, epoll or python; beats engine= in FILE.")] = "",
) -> None:
    """Serve in the foreground until told to end."""
    from pgshoal.fleet.run import main as serve

    overrides = {"user": user, "engine": engine, "verbose": str(verbose) if verbose else ""}
    raise typer.Exit(serve(file, quiet=quiet, overrides={k: v for k, v in overrides.items() if v}))


@app.command()
def restart(
    file: ConfigFile,
    deadline: Annotated[int, typer.Option(min=0, help="Seconds that clients of the old workers may still take.")] = 30,
) -> None:
    """Replace the workers of the pooler that runs from FILE, one by one; no client is refused."""
    _console(file, f"RESTART {deadline}")


@app.command()
def upgrade(file: ConfigFile) -> None:
    """Let the pooler that runs from FILE become the installed version, supervisor and workers."""
    _console(file, "UPGRADE")


def _console(file: str, text: str) -> None:
    from pgshoal.console.client import ConsoleError, command
    from pgshoal.errors import ConfigError

    try:
        command(file, text, typer.echo)
    except (ConsoleError, ConfigError, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


@app.command()
def check(
    file: ConfigFile,
    every: Annotated[bool, typer.Option("--all", help="Show defaults too.")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Ask the servers for max_connections; 1 if not all fits, 2 if one is silent.")
    ] = False,
) -> None:
    """Validate FILE as a start would, and show what is in effect."""
    from pgshoal.config.check import report_on
    from pgshoal.config.load import load
    from pgshoal.errors import ConfigError
    from pgshoal.fleet.rehearsal import rehearse

    try:
        config = load(file)
    except (ConfigError, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    found = rehearse(config)
    for wrong in found.errors:
        typer.echo(str(wrong), err=True)
    if found.errors:
        raise typer.Exit(1)
    for line in report_on(config, every, found.warnings).lines():
        typer.echo(line)
    if live:
        from pgshoal.fleet.outlook import main as look_ahead

        raise typer.Exit(look_ahead(file))


@app.command()
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave PostgreSQL and the pooler running until ^C.")] = False,
    system_postgres: Annotated[bool, typer.Option("--system-postgres", help="Use the system's PostgreSQL.")] = False,
    results: Annotated[Path, typer.Option(help="Where the charts go.")] = Path("demo-results"),
    engine: Annotated[str, typer.Option(help="auto, uring, epoll or python.")] = "auto",
) -> None:
    """A PostgreSQL, the pooler in front of it, and what pooling buys."""
    from pgshoal.demo import main as demonstrate

    raise typer.Exit(demonstrate(keep=keep, system_postgres=system_postgres, results_dir=results, engine=engine))


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(context: typer.Context) -> None:
    """Published experiments about poolers, on this machine: `pgshoal bench` lists them."""
    try:
        from pgshoal.bench.commands import main as measure
    except ModuleNotFoundError as error:
        _lacks_extra(error)
    raise typer.Exit(measure(context.args))


@app.command()
def advise(
    source: Annotated[Path, typer.Argument(metavar="DIR|FILE", help="A bench folder, or the ini of a running fleet.")],
    seconds: Annotated[float, typer.Option(min=1, help="How long a running fleet is watched.")] = 10,
) -> None:
    """How many workers, where the bottleneck is, and what one more worker would bring."""
    try:
        from pgshoal.bench.advice.advise import main as counsel
    except ModuleNotFoundError as error:
        _lacks_extra(error)
    raise typer.Exit(counsel(source, seconds))


def _lacks_extra(error: ModuleNotFoundError) -> NoReturn:
    """A part of the package that was not installed with it; a module of our own that is missing is another matter."""
    if error.name is None or error.name.partition(".")[0] == "pgshoal":
        raise error
    typer.echo(f"this needs {error.name}: pip install 'pgshoal[bench]'", err=True)
    raise typer.Exit(1)


def main() -> int:
    """The entry point; returns the exit status."""
    try:
        result: object = app(standalone_mode=False)
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        return 130
    except Exception as error:
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # a mistake on the command line
            if text := error.format_message():  # without one, help was shown
                typer.echo(f"pgshoal: {text}", err=True)
            return int(error.exit_code)
        raise
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())

"""The `pgshoal` command: run, check, demo and so on, each of which imports its heavy modules itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

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
    """Validate FILE and show what is in effect."""
    from pgshoal.config.check import check as examine
    from pgshoal.errors import ConfigError

    try:
        report = examine(file, show_all=every)
    except (ConfigError, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    for line in report.lines():
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


@app.command()
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="One short round of the main experiments.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Experiments whose name starts so; repeatable.")] = None,
    engines: Annotated[str, typer.Option(help="Separated by commas.")] = "uring,epoll,python",
    rounds: Annotated[int | None, typer.Option(help="Rounds of each experiment.")] = None,
    seconds: Annotated[int | None, typer.Option(help="Seconds of each run.")] = None,
    results: Annotated[Path, typer.Option(help="Where tables and charts go.")] = Path("bench-results"),
    strict: Annotated[bool, typer.Option("--strict", help="A missed target is a failure.")] = False,
) -> None:
    """Ratios against PgBouncer, measured in one run."""
    from pgshoal.bench.ratios import main as measure

    names = [name.strip() for name in engines.split(",") if name.strip()]
    raise typer.Exit(measure(quick, only or [], names, rounds, seconds, results, strict))


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
            typer.echo(f"pgshoal: {error.format_message()}", err=True)
            return int(error.exit_code)
        raise
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())

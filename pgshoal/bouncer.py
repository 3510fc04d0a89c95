"""The `pgshoal-bouncer` command: PgBouncer's command line, on PgBouncer's files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

PROGRAM: Final = "pgshoal-bouncer"
#: Short and long name, whether a value follows, in the order in which an ambiguous prefix lists them.
OPTIONS: Final = (
    ("q", "quiet", False),
    ("v", "verbose", False),
    ("h", "help", False),
    ("d", "daemon", False),
    ("V", "version", False),
    ("u", "user", True),
)
_LONG: Final = {long: (short, takes_value) for short, long, takes_value in OPTIONS}
_SHORT: Final = {short: takes_value for short, _, takes_value in OPTIONS}

USAGE: Final = """\
{name} pools PostgreSQL connections, in PgBouncer's place and on its files.

Usage:
  {name} [OPTION]... CONFIG_FILE

Options:
  -d, --daemon         serve in the background; the file must set pidfile
  -q, --quiet          no log on stderr
  -u, --user=USERNAME  become this account; beats user= in the file
  -v, --verbose        more in the log; twice for still more
  -V, --version        print versions, then end
  -h, --help           print this, then end

One worker serves unless CONFIG_FILE sets workers.
"""


class BadUsage(Exception):
    """A command line that makes no sense; the text says why."""


@dataclass(slots=True)
class Wish:
    """What a command line asks for."""

    files: list[str] = field(default_factory=list)
    daemon: bool = False
    quiet: bool = False
    verbose: int = 0
    user: str = ""
    #: the letter of the option that prints something and ends, "" if none
    only_print: str = ""

    def overrides(self) -> dict[str, str]:
        """Settings of the command line; those with a `?` give way to the file, as -v does in PgBouncer."""
        found = {"workers?": "1"}
        if self.verbose:
            found["verbose?"] = str(min(self.verbose, 3))
        if self.user:
            found["user"] = self.user
        return found


def split(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs of an option's letter and its value, with "" as the letter of what is none, in the order they stand.

    The rules are getopt_long's: options anywhere, letters together, long names cut short, all else after `--`.
    """
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            yield from (("", each) for each in rest)
        elif argument.startswith("--"):
            yield _long(argument, rest)
        elif argument.startswith("-") and argument != "-":
            yield from _short(argument[1:], rest)
        else:
            yield "", argument


def _long(argument: str, rest: Iterator[str]) -> tuple[str, str]:
    name, equals, value = argument[2:].partition("=")
    matching = [name] if name in _LONG else [long for long in _LONG if long.startswith(name)]
    if not matching:
        raise BadUsage(f"unrecognized option '{argument if equals else '--' + name}'")
    if len(matching) > 1:
        names = " ".join(f"'--{each}'" for each in matching)
        raise BadUsage(f"option '{argument}' is ambiguous; possibilities: {names}")
    long = matching[0]
    letter, takes_value = _LONG[long]
    if equals and not takes_value:
        raise BadUsage(f"option '--{long}' doesn't allow an argument")
    if takes_value and not equals:
        following = next(rest, None)
        if following is None:
            raise BadUsage(f"option '--{long}' requires an argument")
        value = following
    return letter, value


def _short(letters: str, rest: Iterator[str]) -> Iterator[tuple[str, str]]:
    for place, letter in enumerate(letters):
        if letter not in _SHORT:
            raise BadUsage(f"invalid option -- '{letter}'")
        if not _SHORT[letter]:
            yield letter, ""
            continue
        value = letters[place + 1 :] or next(rest, None)
        if value is None:
            raise BadUsage(f"option requires an argument -- '{letter}'")
        yield letter, value
        return


def parse(arguments: Sequence[str]) -> Wish:
    """Read a command line. BadUsage if it is wrong; what stands behind -V or -h is not looked at."""
    wish = Wish()
    for letter, value in split(arguments):
        match letter:
            case "V" | "h":
                wish.only_print = letter
                return wish
            case "d":
                wish.daemon = True
            case "q":
                wish.quiet = True
            case "v":
                wish.verbose += 1
            case "u":
                wish.user = value
            case _:
                wish.files.append(value)
    if len(wish.files) != 1:
        raise BadUsage("no configuration file specified")
    return wish


def versions() -> list[str]:
    """What -V prints: SHOW VERSION's text, then the parts of this program."""
    import ssl
    from importlib import metadata

    from pgshoal import __version__
    from pgshoal.worker.welcome import PGBOUNCER_VERSION

    def version(package: str) -> str:
        try:
            return f"{package} {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            return ""

    return [
        f"PgBouncer {PGBOUNCER_VERSION}",
        f"pgshoal {__version__}",
        f"engine: {version('pgshoal-engine') or 'Python'}",
        f"adns: {version('aiodns') or 'none'}",
        f"tls: {ssl.OPENSSL_VERSION}",
        "systemd: yes",
    ]


def main() -> int:
    """The entry point; returns the exit status."""
    name = sys.argv[0] if os.path.basename(sys.argv[0]) != os.path.basename(__file__) else PROGRAM
    try:
        wish = parse(sys.argv[1:])
    except BadUsage as wrong:
        print(f'{name}: {wrong}\nTry "{name} --help" for more information.', file=sys.stderr)
        return 1
    if wish.only_print:
        print(USAGE.format(name=name).rstrip() if wish.only_print == "h" else "\n".join(versions()))
        return 0
    from pgshoal.fleet.background import Background, fill_standard
    from pgshoal.fleet.run import main as serve

    fill_standard()
    background = Background() if wish.daemon else None
    return serve(
        wish.files[0],
        quiet=wish.quiet,
        overrides=wish.overrides(),
        background=background,
        program="pgshoal.bouncer",
    )


if __name__ == "__main__":
    sys.exit(main())

"""The command line of `pgshoal-bouncer`: what it means, and what it says when it makes no sense."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from pgshoal import bouncer
from pgshoal.bouncer import BadUsage, Wish, parse
from pgshoal.config.load import load
from pgshoal.console.rows import ROWS

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("arguments", "wish"),
    [
        ("x.ini", Wish(["x.ini"])),
        ("-dq x.ini", Wish(["x.ini"], daemon=True, quiet=True)),
        ("x.ini -dv", Wish(["x.ini"], daemon=True, verbose=1)),
        ("-vvv x.ini -v", Wish(["x.ini"], verbose=4)),
        ("-u joe x.ini", Wish(["x.ini"], user="joe")),
        ("-ujoe x.ini", Wish(["x.ini"], user="joe")),
        ("-dujoe x.ini", Wish(["x.ini"], daemon=True, user="joe")),
        ("--user joe x.ini", Wish(["x.ini"], user="joe")),
        ("--user=joe x.ini", Wish(["x.ini"], user="joe")),
        ("--user= x.ini", Wish(["x.ini"])),
        ("--daemon --quiet --verbose x.ini", Wish(["x.ini"], daemon=True, quiet=True, verbose=1)),
        ("--d --q --verb x.ini", Wish(["x.ini"], daemon=True, quiet=True, verbose=1)),
        ("-q -- -d", Wish(["-d"], quiet=True)),
        ("-", Wish(["-"])),
        ("-V", Wish(only_print="V")),
        ("--version", Wish(only_print="V")),
        ("-h", Wish(only_print="h")),
        ("--help", Wish(only_print="h")),
        ("a b -V -x", Wish(["a", "b"], only_print="V")),
    ],
)
def test_what_a_command_line_means(arguments: str, wish: Wish) -> None:
    """Options stand anywhere, alone or together, long names may be cut short, and -V and -h end the reading."""
    assert parse(arguments.split()) == wish


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", "no configuration file specified"),
        ("-q", "no configuration file specified"),
        ("a b", "no configuration file specified"),
        ("-R x.ini", "invalid option -- 'R'"),
        ("-dR x.ini", "invalid option -- 'R'"),
        ("--reboot x.ini", "unrecognized option '--reboot'"),
        ("-x -V", "invalid option -- 'x'"),
        ("-u", "option requires an argument -- 'u'"),
        ("--user", "option '--user' requires an argument"),
        ("--help=1", "option '--help' doesn't allow an argument"),
        ("--ver", "option '--ver' is ambiguous; possibilities: '--verbose' '--version'"),
    ],
)
def test_what_makes_no_sense(arguments: str, text: str) -> None:
    """The text is that of getopt_long, or PgBouncer's."""
    with pytest.raises(BadUsage) as wrong:
        parse(arguments.split())
    assert str(wrong.value) == text


@pytest.mark.parametrize(
    ("arguments", "lines", "workers", "verbose", "user"),
    [
        ("", "", 1, 0, None),
        ("-vv", "", 1, 2, None),
        ("-vvvvv", "", 1, 3, None),
        ("", "workers = 3", 3, 0, None),
        ("", "workers = auto", 0, 0, None),
        ("-v", "verbose = 0", 1, 0, None),
        ("-u joe", "user = jim", 1, 0, "joe"),
        ("", "user = jim", 1, 0, "jim"),
    ],
)
def test_file_and_command_line(
    tmp_path: Path, arguments: str, lines: str, workers: int, verbose: int, user: str | None
) -> None:
    """One worker and -v give way to the file, -u does not."""
    path = tmp_path / "x.ini"
    path.write_text(f"[pgbouncer]\n{lines}\n")
    settings = load(str(path), parse([*arguments.split(), str(path)]).overrides()).settings
    assert (settings.workers, settings.verbose, settings.user) == (workers, verbose, user)


def test_a_worker_count_outlives_a_repeated_section(tmp_path: Path) -> None:
    """A section that starts again forgets `workers`, so it is one again."""
    path = tmp_path / "x.ini"
    path.write_text("[pgbouncer]\nworkers = 3\n[pgbouncer]\n")
    assert load(str(path), Wish().overrides()).settings.workers == 1


def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    monkeypatch.setattr(sys, "argv", list(argv))
    code = bouncer.main()
    return code, *capsys.readouterr()


def test_the_first_line_of_the_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It is what SHOW VERSION shows; the other lines name the parts."""
    code, out, err = said(monkeypatch, capsys, "pgshoal-bouncer", "-V")
    shown = ROWS["VERSION"](None, None)  # type: ignore[arg-type]
    assert (code, err, [(out.splitlines()[0],)]) == (0, "", shown)
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["pgshoal", "engine:", "adns:", "tls:", "systemd:"]


def test_versions_of_parts_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the native engine there is the one in Python."""
    from importlib import metadata

    def missing(package: str) -> str:
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", missing)
    assert bouncer.versions()[2:4] == ["engine: Python", "adns: none"]


def test_help_goes_to_standard_output(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It names every option under the name that the program was called by."""
    code, out, err = said(monkeypatch, capsys, "/opt/bin/pgbouncer", "--help")
    assert (code, err) == (0, "")
    assert "/opt/bin/pgbouncer [OPTION]... CONFIG_FILE" in out
    assert all(f"-{short}, --{long}" in out for short, long, _ in bouncer.OPTIONS)


def test_mistakes_go_to_standard_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With exit status 1, and the way to --help; a module run by name calls itself by the command's name."""
    code, out, err = said(monkeypatch, capsys, bouncer.__file__, "-R", "x.ini")
    name = "pgshoal-bouncer"
    assert (code, out) == (1, "")
    assert err == f"{name}: invalid option -- 'R'\nTry \"{name} --help\" for more information.\n"


def test_the_script_is_installed_under_its_name() -> None:
    """The package's scripts include it."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts[bouncer.PROGRAM] == "pgshoal.bouncer:main"

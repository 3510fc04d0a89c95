"""The command line: what it prints and the exit status of each mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pgshoal import __version__
from pgshoal.cli import main

GOOD = "[databases]\napp = host=127.0.0.1\n[pgbouncer]\nlisten_port = 7000\n"


def pgshoal(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command."""
    return subprocess.run([sys.executable, "-m", "pgshoal", *arguments], capture_output=True, text=True, timeout=60)


def test_version() -> None:
    """--version prints one line."""
    done = pgshoal("--version")
    assert (done.returncode, done.stdout) == (0, f"pgshoal {__version__}\n")


def test_check_a_good_file(tmp_path: Path) -> None:
    """check prints what is in effect and where it was written."""
    path = tmp_path / "good.ini"
    path.write_text(GOOD)
    done = pgshoal("check", str(path))
    assert done.returncode == 0
    assert f"listen_port = 7000  ({path}:4)" in done.stdout
    assert "pool_mode" not in done.stdout
    assert "pool_mode = session  (default)" in pgshoal("check", "--all", str(path)).stdout


def test_check_a_bad_file(tmp_path: Path) -> None:
    """check names file, line, key, value and what is allowed, on stderr."""
    path = tmp_path / "bad.ini"
    path.write_text(GOOD + "pool_mode = swimming\n")
    done = pgshoal("check", str(path))
    assert done.returncode == 1
    assert f"{path}:5: pool_mode = swimming: must be one of session, transaction, statement" in done.stderr


def test_check_a_file_that_would_not_start(tmp_path: Path) -> None:
    """What can be read but not be used is named in the same way, all of it, and nothing else is printed."""
    path = tmp_path / "bad.ini"
    path.write_text(GOOD + "user = no such\nserver_tls_ca_file = /nowhere\n")
    done = pgshoal("check", str(path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        f"{path}:6: server_tls_ca_file = /nowhere: No such file or directory",
        f"{path}:5: user = no such: there is no such account",
    ]


@pytest.mark.parametrize("arguments", [("run",), ("swim",), ("run", "a", "b"), ("check", "x", "--nope")])
def test_mistakes_on_the_command_line(arguments: tuple[str, ...]) -> None:
    """A wrong call is exit status 2 with one readable line, never a traceback."""
    done = pgshoal(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("pgshoal: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["restart", "upgrade"])
def test_nobody_to_speak_to(tmp_path: Path, name: str) -> None:
    """restart and upgrade without a pooler are exit status 1 with one line; so is a broken file."""
    path = tmp_path / "good.ini"
    path.write_text(GOOD + f"unix_socket_dir = {tmp_path}\n")
    done = pgshoal(name, str(path))
    assert (done.returncode, done.stderr) == (
        1, f"no pooler answers at {tmp_path}/.s.PGSQL.7000: No such file or directory\n"
    )  # fmt: skip
    path.write_text(GOOD + "pool_mode = swimming\n")
    done = pgshoal(name, str(path))
    assert done.returncode == 1
    assert "pool_mode = swimming" in done.stderr


def test_bench_lists_its_commands() -> None:
    """bench hands everything behind it on, help included; without anything it says what there is."""
    assert "compare" in pgshoal("bench", "--help").stdout
    assert "--units" in pgshoal("bench", "connect", "--help").stdout
    assert pgshoal("bench").returncode == 2


def test_what_needs_the_bench_extra_says_so() -> None:
    """A pooler installed plainly lacks packages that only measuring needs: one line says how to get them."""
    code = "import sys; sys.modules['numpy'] = None; from pgshoal.cli import main; sys.exit(main())"
    argv = [sys.executable, "-c", code, "bench", "all"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "this needs numpy: pip install 'pgshoal[bench]'\n")


def test_advise_hands_over_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder or a file, and how long to watch; its status is the command's."""
    seen: list[tuple[Path, float]] = []

    def counsel(source: Path, seconds: float) -> int:
        seen.append((source, seconds))
        return 3

    monkeypatch.setattr("pgshoal.bench.advice.advise.main", counsel)
    monkeypatch.setattr(sys, "argv", ["pgshoal", "advise", "/a/run", "--seconds", "5"])
    assert main() == 3
    assert seen == [(Path("/a/run"), 5.0)]

"""`pgshoal-bouncer` beside PgBouncer: the same command lines and files, and what both do with them."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pgshoal.bench.targets import pgbouncer
from tests.e2e.conftest import until
from tests.support.invoking import ROOT, Invocations, Ours, Outcome, Theirs, wait_for_end

NO_PROCESS = "4194305\n"
#: There is always one, and it is none of ours.
A_PROCESS = "1\n"
DIFFERENCES = Path(__file__).parents[2] / "docs" / "differences.md"
as_root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be refused for being root")


@dataclass(frozen=True, slots=True)
class Row:
    """One invocation: arguments, settings beside the usual ones, and what it finds."""

    arguments: str
    settings: dict[str, Any] = field(default_factory=dict)
    #: what the pidfile holds before
    pid: str = ""
    #: somebody listens: on "tcp" or on "unix"
    taken: str = ""
    root: bool = False

    def __str__(self) -> str:
        """For the test's name."""
        extra = [f"{k}={v}" for k, v in self.settings.items()]
        extra += [f"{k}:{v.strip()}" for k, v in (("pid", self.pid), ("taken", self.taken)) if v]
        return " ".join(["root:" if self.root else "", self.arguments or "(nothing)", *extra]).strip()


PID, LOG = {"pidfile": "{folder}/pid"}, {"logfile": "{folder}/log"}
TCP = {"unix_socket_dir": "", "listen_addr": "127.0.0.1"}
NOBODY = {"user": "no-such-account"}

#: What is decided before the ini is read, or because it cannot be: the account does not matter.
COMMAND_LINES = tuple(
    Row(arguments, root=True) for arguments in (
        "", "x.ini x.ini", "-qv x.ini x.ini", "-R x.ini", "-dR x.ini", "-x x.ini", "-x -V", "--nope x.ini",
        "--reboot x.ini", "x.ini --nope", "-u", "--user", "--ver", "--v", "--=x x.ini", "--help=1", "--quiet=1 x.ini",
        "--verb=3 x.ini", "---V", "-- x.ini -q", "none.ini", "-q none.ini", "-d none.ini", "-dq none.ini", "-- -V", "-",
        "--quiet --verbose none.ini", "-vvvvv none.ini", "-u no-such-account none.ini",
    )
)  # fmt: skip
#: The ini is x.ini, of the account that the programs run under.
SAME = (
    # Serving in the foreground.
    *(Row(arguments, LOG) for arguments in ("x.ini", "-q x.ini", "--quiet x.ini", "-v x.ini", "-qv x.ini", "-- x.ini")),
    *(Row(arguments) for arguments in ("x.ini", "-q x.ini", "-v x.ini", "--verbose x.ini", "--user= x.ini")),
    Row("x.ini", {"verbose": 1}),
    Row("x.ini", PID),
    Row("x.ini", PID, pid=NO_PROCESS),
    Row("x.ini", {"pidfile": "pid", "logfile": "log"}),
    # In the background.
    *(Row(arguments, {**PID, **LOG}) for arguments in ("-d x.ini", "-dq x.ini", "-dv x.ini", "--daemon x.ini")),
    Row("-d x.ini", PID),
    Row("-d x.ini", PID, pid=NO_PROCESS),
    Row("-d x.ini", {"pidfile": "pid", "logfile": "log"}),
    Row("-d x.ini"),
    Row("-d x.ini", LOG),
    Row("-dq x.ini"),
    # Not starting.
    *(Row(arguments, PID, pid=A_PROCESS) for arguments in ("x.ini", "-d x.ini", "-q x.ini")),
    *(Row(arguments, {**PID, **LOG}, taken="unix") for arguments in ("x.ini", "-d x.ini", "-dq x.ini")),
    Row("-d x.ini", taken="unix"),
    *(Row(arguments, {**TCP, **PID, **LOG}, taken="tcp") for arguments in ("x.ini", "-q x.ini", "-d x.ini")),
    *(Row(arguments, {"unix_socket_dir": "", **PID, **LOG}) for arguments in ("x.ini", "-d x.ini")),
    *(Row(arguments, {"unix_socket_dir": "/nowhere", **PID, **LOG}) for arguments in ("x.ini", "-d x.ini")),
    *(Row(arguments, {"pidfile": "/nowhere/pid", **LOG}) for arguments in ("x.ini", "-d x.ini")),
    *(Row(arguments, {"logfile": "/nowhere/log", **PID}) for arguments in ("x.ini", "-q x.ini")),
    Row("-d x.ini", {"logfile": "/nowhere/log"}),
    *(Row(arguments, {"nope": 1, **LOG}) for arguments in ("x.ini", "-q x.ini", "-d x.ini")),
    # The account.
    Row("x.ini", {**NOBODY, **LOG}),
    Row("-d x.ini", NOBODY),
    Row("-u no-such-account x.ini"),
    Row("-qu no-such-account x.ini"),
    Row("-u no-such-account x.ini", taken="unix"),
    Row("-u root x.ini"),
    Row("-u {account} x.ini"),
    Row("-u {account} x.ini", NOBODY),
    Row("x.ini", {"user": "{account}"}),
)  # fmt: skip
AS_ROOT = (
    Row("x.ini", root=True),
    Row("-q x.ini", root=True),
    Row("-d x.ini", root=True),
    Row("none.ini", root=True),
    Row("-u root x.ini", root=True),
    Row("x.ini", {"user": "root"}, root=True),
    Row("-u no-such-account x.ini", root=True),
    Row("x.ini", NOBODY, root=True),
    Row("-u {account} x.ini", LOG, root=True),
    Row("-u {account} x.ini", NOBODY, root=True),
    Row("-d -u {account} x.ini", {**PID, **LOG}, root=True),
    Row("x.ini", {"user": "{account}", **LOG}, root=True),
)
NO_LOG = "FATAL Cannot open logfile: '/nowhere/log': No such file or directory"
NO_ROOT = "FATAL PgBouncer should not run as root"
#: Row, our exit status and last line on stderr, and the words that name the difference in the page.
DIFFERENT = (
    (Row("x.ini", PID, pid="garbage\n"), 0, "", "A pidfile that names no process is stale"),
    (Row("x.ini", PID, pid=" \n"), 0, "", "A pidfile that names no process is stale"),
    (Row("-d x.ini", {"logfile": "/nowhere/log", **PID}), 1, NO_LOG, "A log file that cannot be opened"),
    pytest.param(Row("x.ini", LOG, root=True), 1, NO_ROOT, "No log file is made as root", marks=as_root_only),
    (Row("-V"), 0, "", "`pgshoal-bouncer -V`"),
    (Row("-h"), 0, "", "`pgshoal-bouncer -h`"),
)


def require_pgbouncer() -> None:
    """Without one there is nothing to compare with."""
    try:
        pgbouncer.find()
    except pgbouncer.NoPgBouncer as missing:
        pytest.skip(str(missing))


@contextmanager
def taken(what: str, place: Invocations) -> Iterator[None]:
    """Somebody listens."""
    path = f"{place.folder}/.s.PGSQL.{place.port}"
    if not what:
        yield
        return
    with socket.socket(socket.AF_UNIX if what == "unix" else socket.AF_INET) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(path if what == "unix" else ("127.0.0.1", place.port))
        if what == "unix":
            os.chmod(path, 0o777)
        sock.listen()
        yield
    if what == "unix":
        os.unlink(path)


def run(program: type[Invocations], row: Row, place: Invocations) -> Outcome:
    """One row with one program, in a folder that both use."""
    one = program(place.folder, place.port)
    words = {"folder": str(place.folder), "account": one.account.name if one.account else os.environ.get("USER", "")}
    one.write_config(**{k: v.format(**words) if isinstance(v, str) else v for k, v in row.settings.items()})
    one.pidfile.unlink(missing_ok=True)
    if row.pid:
        one.pidfile.write_text(row.pid)
        if one.account is not None:
            one.account.own(one.pidfile)
    with taken(row.taken, place):
        return one.run([each.format(**words) for each in row.arguments.split()], row.root)


@pytest.fixture
def place() -> Iterator[Invocations]:
    """A folder for both programs."""
    made = Invocations.in_a_folder()
    yield made
    made.remove()


@pytest.mark.parametrize(
    "row", [*COMMAND_LINES, *SAME, *(pytest.param(row, marks=as_root_only) for row in AS_ROOT)], ids=str
)
def test_both_do_the_same(row: Row, place: Invocations) -> None:
    """Exit status, both streams, the log, who serves and how, and what the end leaves behind."""
    require_pgbouncer()
    theirs = run(Theirs, row, place)
    assert run(Ours, row, place) == theirs


@pytest.mark.parametrize(("row", "code", "last", "where"), DIFFERENT, ids=str)
def test_what_differs_is_written_down(row: Row, code: int, last: str, where: str, place: Invocations) -> None:
    """Where we do otherwise, the page of differences says so."""
    require_pgbouncer()
    theirs, ours = run(Theirs, row, place), run(Ours, row, place)
    assert ours != theirs
    assert (ours.code, ours.err[-1] if last else "") == (code, last)
    assert where in DIFFERENCES.read_text()


def test_version_and_help_have_pgbouncers_shape(place: Invocations) -> None:
    """The first line of -V is PgBouncer's, and -h offers the same options."""
    require_pgbouncer()
    theirs, ours = run(Theirs, Row("-V"), place), run(Ours, Row("-V"), place)
    assert ours.out.splitlines()[0] == theirs.out.splitlines()[0]
    assert (ours.code, ours.err) == (theirs.code, theirs.err)
    theirs, ours = run(Theirs, Row("-h"), place), run(Ours, Row("-h"), place)
    options = re.compile(r"^  (-.*?)  ", re.MULTILINE)
    assert options.findall(ours.out) == options.findall(theirs.out) != []
    assert (ours.code, ours.err) == (theirs.code, theirs.err)


# -- what is ours alone: `tests/e2e/fleet` has the stories of a fleet, these are about how it was started


class Served(Ours):
    """Ours with its console at hand, over the Unix socket, as the account itself."""

    def console(self, command: str, user: str = "pgbouncer") -> list[str]:
        """One command by psql, without a password; its rows, or what is wrong."""
        argv = ["psql", "-X", "-w", "-A", "-t", "-h", str(self.folder), "-p", str(self.port), "-U", user, "pgbouncer"]
        who: dict[str, Any] = {}
        if self.account is not None:
            who = {"user": self.account.uid, "group": self.account.gid, "extra_groups": []}
        done = subprocess.run([*argv, "-c", command], capture_output=True, text=True, check=False, cwd="/", **who)
        said: str = done.stdout if done.returncode == 0 else done.stderr
        return said.splitlines()

    def workers(self) -> list[str]:
        """The process ids of those that serve."""
        return [row.split("|")[1] for row in self.console("SHOW WORKERS")]

    def log_text(self) -> str:
        """So far."""
        return self.log.read_text() if self.log.exists() else ""

    def start_daemon(self, *arguments: str, **settings: object) -> int:
        """Returns its process id."""
        given = {"pidfile": self.pidfile, "logfile": self.log, "auth_type": "scram-sha-256", **settings}
        self.write_config(**given)
        process = self.start([*arguments, "-d", "x.ini"])
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (0, "", "")
        return int(self.pidfile.read_text())


@pytest.fixture
def served() -> Iterator[Served]:
    """A folder for one pooler."""
    made = Served.in_a_folder()
    yield made
    made.remove()


def test_the_accounts_own_console_needs_no_password(served: Served) -> None:
    """Over the Unix socket, as user pgbouncer and as an admin; SHOW VERSION is the first line of -V."""
    served.start_daemon()
    (version,) = served.console("SHOW VERSION")
    assert any("password" in line for line in served.console("SHOW VERSION", user="joe"))
    assert served.log_text().count("pgbouncer access from unix socket") == 1
    assert served.console("SHUTDOWN") != []
    until(lambda: not served.pidfile.exists(), "the end")
    assert served.run(["-V"]).out.splitlines()[0] == version


@pytest.mark.parametrize(("settings", "count"), [({}, 1), ({"workers": 2}, 2)])
def test_how_many_workers_serve(served: Served, settings: dict[str, object], count: int) -> None:
    """One, as PgBouncer is one process, unless the file says more; a reload does not change that."""
    pid = served.start_daemon(**settings)
    until(lambda: len(served.workers()) == count, "all workers")
    assert next(row for row in served.console("SHOW CONFIG") if row.startswith("workers|")).split("|")[1] == str(count)
    os.kill(pid, signal.SIGHUP)
    until(lambda: "config file loaded by all workers" in served.log_text(), "the reload")
    assert len(served.workers()) == count


def test_a_daemon_can_be_used_when_its_parent_returns(served: Served) -> None:
    """It takes connections, no signal ends it by surprise, and its lines have its own process id."""
    pid = served.start_daemon()
    os.kill(pid, signal.SIGHUP)
    assert served.console("SHOW VERSION") != []
    until(lambda: "config file loaded by all workers" in served.log_text(), "the reload")
    assert f"[{pid}] LOG listening on" in served.log_text()
    assert f"[{pid}] LOG got SIGHUP, re-reading config" in served.log_text()


def test_closed_streams_are_not_mistaken_for_files(served: Served) -> None:
    """Started with standard input and output closed, what it opens stays away from their numbers."""
    served.write_config(logfile=served.log)
    who = ["-u", served.account.name] if served.account else []
    line = " ".join(map(shlex.quote, served.command([*who, "x.ini"], True)))
    argv = ["sh", "-c", f"exec {line} <&- >&- 2>&-"]
    with subprocess.Popen(argv, cwd=served.folder, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        until(served.accepts, "a worker")
        streams = [os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in (0, 1, 2)]
        process.send_signal(signal.SIGINT)
    assert streams == [os.devnull] * 3
    assert process.returncode == 0
    assert "process up" in served.log_text()


def upgrade(served: Served) -> None:
    """Returns when the new program's worker serves, alone."""
    before = served.workers()
    assert served.console("UPGRADE") == ["UPGRADE"]
    until(lambda: len(now := served.workers()) == 1 and now != before, "a new worker")


@pytest.mark.parametrize("arguments", [(), ("-v",)])
def test_a_daemon_becomes_the_new_program(served: Served, arguments: tuple[str, ...]) -> None:
    """An upgrade stays in the background: same process, same pidfile, new worker, and the end tidies up."""
    pid = served.start_daemon(*arguments)
    until(lambda: len(served.workers()) == 1, "a worker")
    for times in (1, 2):
        upgrade(served)
        assert served.log_text().count("has taken over from") == times
        assert served.pidfile.read_text() == f"{pid}\n"
    assert os.readlink(f"/proc/{pid}/fd/2") == os.devnull
    os.kill(pid, signal.SIGTERM)
    wait_for_end(pid)
    assert sorted(path.name for path in served.folder.iterdir()) == ["log", "x.ini"]


SCRIPT = """#!/usr/bin/env python3
import sys
from pgshoal.bouncer import main
sys.exit(main())
"""


@pytest.mark.parametrize("by_script", [False, True])
def test_in_the_foreground_it_becomes_the_new_program_too(served: Served, by_script: bool) -> None:
    """The log on stderr goes on, however it was started: as a module, or by a script as pip installs it."""
    if by_script:
        script = served.folder / "pgshoal-bouncer"
        script.write_text(SCRIPT)
        served.program = (str(script),)
        assert served.run(["-R"]).err[0] == f"{script}: invalid option -- 'R'".replace("pgshoal-bouncer", "NAME")
    served.write_config()
    with served.start(["x.ini"]) as process:
        until(served.accepts, "a worker")
        upgrade(served)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "has taken over from" in err
    assert "server connections dropped, exiting" in err.splitlines()[-1]


def test_an_upgrade_that_cannot_be_is_refused(served: Served) -> None:
    """The daemon goes on, and the console says why."""
    pid = served.start_daemon()
    until(lambda: len(served.workers()) == 1, "a worker")
    served.write_config(nope=1)
    assert "nope: unknown parameter" in " ".join(served.console("UPGRADE"))
    assert served.console("SHOW VERSION") != []
    assert served.daemon_pid() == pid


def test_systemd_hears_from_it(served: Served) -> None:
    """READY=1 when it serves, STOPPING=1 at the end, as a unit of Type=notify waits for."""
    path = served.folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        path.chmod(0o777)
        listener.settimeout(20)
        served.write_config()
        with served.start(["-q", "x.ini"], env={"NOTIFY_SOCKET": str(path)}) as process:
            assert listener.recv(1000) == b"READY=1"
            process.send_signal(signal.SIGTERM)
            while (heard := listener.recv(1000)).startswith(b"STATUS"):
                pass
            assert heard == b"STOPPING=1"
            assert (process.wait(20), process.communicate()) == (0, ("", ""))


@as_root_only
def test_the_files_belong_to_the_account(served: Served) -> None:
    """Started as root with -u: pidfile, log and socket are the account's, and so is the process."""
    assert served.account is not None
    served.write_config(pidfile=served.pidfile, logfile=served.log)
    process = served.start(["-d", "-u", served.account.name, "x.ini"], as_root=True)
    assert (*process.communicate(timeout=20), process.returncode) == ("", "", 0)
    pid = served.daemon_pid()
    for path in (served.pidfile, served.log, served.folder / f".s.PGSQL.{served.port}", Path(f"/proc/{pid}")):
        assert path.stat().st_uid == served.account.uid
    assert Path(f"/proc/{pid}/status").read_text().count(f"\nGid:\t{served.account.gid}\t") == 1

"""A site: the files of an operator in a folder, the program that serves from them, and everyone who talks to it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any

import psycopg

from tests.e2e.conftest import until
from tests.e2e.migration.transcript import Transcript
from tests.support.invoking import LIMIT_S, Invocations, Ours, Theirs, catches_signals, wait_for_end

SITES = Path(__file__).parent / "sites"
HOST = "127.0.0.1"


class Fleet(Ours):
    """`pgshoal run`, which takes the file alone."""

    program = ("-m", "pgshoal", "run")


PROGRAMS: Mapping[str, type[Invocations]] = {"PgBouncer": Theirs, "pgshoal-bouncer": Ours, "pgshoal run": Fleet}


class Site:
    """One program on a site's files; whoever wants to write down what is heard has `out`."""

    def __init__(self, name: str, place: Invocations, program: str, engine: str, facts: Mapping[str, object]) -> None:
        """`place`: the folder and the port, which all programs have in turn."""
        self.name, self.program = name, program
        self.run = PROGRAMS[program](place.folder, place.port)
        self.folder, self.port = place.folder, place.port
        self.facts = {"FOLDER": self.folder, "PORT": self.port, **facts}
        self.out = Transcript(str(self.folder))
        self.engine = engine
        self.log = self.folder / "pgbouncer.log"
        self.pidfile = self.run.pidfile = self.folder / "pgbouncer.pid"
        self.process: subprocess.Popen[str] | None = None
        self._console: psycopg.Connection[Any] | None = None
        self.log_seen = 0

    # -- the files

    def install(self) -> None:
        """Put the operator's files in place, as they were when the site was set up."""
        for path in sorted((SITES / self.name).iterdir()):
            if path.suffix != ".differences":
                self.write(path.name, Template(path.read_text()).safe_substitute(self.facts))

    def write(self, file_name: str, text: str) -> None:
        """One file, for the account's eyes only; the one line that is not PgBouncer's says which engine to test."""
        if file_name == "pgbouncer.ini" and self.run.ours:
            workers = "workers = 2\n" if isinstance(self.run, Fleet) else ""
            text += f"engine = {self.engine}\n{workers}"
        path = self.folder / file_name
        path.write_text(text)
        path.chmod(0o600)
        if self.run.account is not None:
            self.run.account.own(path)

    def edit(self, file_name: str, old: str, new: str) -> None:
        """What an operator does with an editor."""
        path = self.folder / file_name
        text = path.read_text()
        assert old in text, f"{file_name} has no {old}"
        path.write_text(text.replace(old, new))

    # -- the process

    def start(self, *, daemon: bool = False) -> None:
        """Start it as a script would, or as a supervisor of services does; returns when it serves."""
        options = ["-d" if daemon else "-q"] if self.has_options else []
        # Without -q the log goes there, too, and nobody reads a pipe while the site is open.
        stderr = subprocess.PIPE if self.has_options else subprocess.DEVNULL
        self.process = self.run.start([*options, "pgbouncer.ini"], stderr=stderr)
        if daemon:
            out, err = self.process.communicate(timeout=LIMIT_S)
            self.out.say("the command ended with", self.process.returncode, out, err)
        until(lambda: self.pid != 0 and catches_signals(self.pid) and self.run.accepts(), "somebody who serves")
        until(lambda: "process up" in self.log.read_text()[self.log_seen :], "all of it")

    @property
    def has_options(self) -> bool:
        """Whether it has PgBouncer's command line."""
        return not isinstance(self.run, Fleet)

    @property
    def pid(self) -> int:
        """From the pidfile, as operators' scripts have it."""
        with contextlib.suppress(OSError, ValueError):
            return int(self.pidfile.read_text())
        return 0

    def signal(self, number: signal.Signals) -> None:
        """By the pidfile."""
        os.kill(self.run.daemon_pid(), number)

    def accepts_tcp(self) -> bool:
        """Whether a new connection is taken."""
        with socket.socket() as probe:
            probe.settimeout(2)
            try:
                probe.connect((HOST, self.port))
            except OSError:
                return False
        return True

    def ended(self, pid: int) -> None:
        """Write down how it went and what is left."""
        if self.process is not None and self.process.returncode is None:
            self.process.communicate(timeout=LIMIT_S)
        wait_for_end(pid)
        if self._console is not None:
            self._console.close()
            self._console = None
        code = "" if self.process is None else self.process.returncode
        sockets = [path.name for path in self.folder.iterdir() if path.name.startswith(".s.PGSQL")]
        self.out.say("ended with", code, "pidfile:", self.pidfile.exists(), "sockets:", sockets)
        self.close_chapter()

    def remove(self) -> None:
        """Nothing of ours may stay."""
        if self._console is not None:
            self._console.close()
        if pid := self.run.daemon_pid():
            os.kill(pid, signal.SIGQUIT)
            if self.process is None or self.process.returncode is not None:
                wait_for_end(pid)
        if self.process is not None and self.process.returncode is None:
            self.process.communicate(timeout=LIMIT_S)
        self.log.unlink(missing_ok=True)

    # -- who talks to it

    def dsn(self, dbname: str, user: str, password: str = "", **more: Any) -> str:
        """By TCP unless `host` says otherwise."""
        facts: dict[str, Any] = {
            "host": HOST,
            "port": self.port,
            "dbname": dbname,
            "user": user,
            "connect_timeout": 20,
            **more,
        }
        if password:
            facts["password"] = password
        facts.setdefault("sslmode", "disable")
        return psycopg.conninfo.make_conninfo("", **facts)

    def connect(self, dbname: str, user: str, password: str = "", **more: Any) -> psycopg.Connection[Any]:
        """An autocommit connection."""
        # The console takes no prepared statements, which psycopg would begin with when something is repeated.
        threshold = None if dbname == "pgbouncer" else 5
        return psycopg.connect(self.dsn(dbname, user, password, **more), autocommit=True, prepare_threshold=threshold)

    def once(self, text: str, dbname: str, user: str, password: str = "", **more: Any) -> Any:
        """One statement on a connection of its own; its rows."""
        with self.connect(dbname, user, password, **more) as conn:
            cursor = conn.execute(text.encode())
            return cursor.fetchall() if cursor.description else cursor.statusmessage

    def psql(self, target: str, script: str, *options: str, as_account: bool = False) -> None:
        """A script of psql, as cron runs it; its two streams and its status are written down."""
        who: dict[str, Any] = {}
        if as_account and self.run.account is not None:
            account = self.run.account
            who = {"user": account.uid, "group": account.gid, "extra_groups": list(account.groups)}
        argv = ["psql", "-X", "-w", *options, target]
        done = subprocess.run(
            argv, input=script, capture_output=True, text=True, timeout=60, check=False, cwd="/", **who
        )
        self.out.say("psql", *options, "->", done.returncode)
        self.out.say(done.stdout)
        self.out.say(done.stderr)

    # -- chapters

    def watch(self, user: str, password: str) -> psycopg.Connection[Any]:
        """The console session that an operator has open all the time."""
        self._console = self.connect("pgbouncer", user, password)
        return self._console

    @property
    def console(self) -> psycopg.Connection[Any]:
        """That session."""
        assert self._console is not None
        return self._console

    def calm(self) -> bool:
        """Whether nobody is there but that session."""
        return len(self.console.execute("show clients").fetchall()) == 1

    def close_chapter(self) -> None:
        """When all clients are gone, what the log says is written down."""
        if self._console is not None:
            until(self.calm, "the end of all clients")
        text = self.log.read_text()
        self.out.log(text[self.log_seen :])
        self.log_seen = len(text)


@contextlib.contextmanager
def chapter(site: Site, title: str) -> Iterator[Transcript]:
    """What is heard from here on, with the log's lines at the end."""
    site.out.chapter(title)
    yield site.out
    site.close_chapter()

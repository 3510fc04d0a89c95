"""Runs a pooler as an operator would, from its command line, and tells what it did: for two programs side by side."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pgshoal.bench.targets import pgbouncer
from pgshoal.demo.account import Account, unprivileged
from pgshoal.demo.cluster import free_port

LIMIT_S = 20.0
ROOT = Path(__file__).resolve().parents[2]
_LINE = re.compile(r"\d{4}-\d\d-\d\d [\d:.]+ \S+ \[?(\d+)\]? (\w+) (.*)")
#: The LOG lines that both programs must write.
_COMMON = ("listening on", "process up: PgBouncer 1.26.1", "stale pidfile", "got SIG", "server connections dropped")
_SSL_REQUEST = bytes.fromhex("0000000804d2162f")
_ANSWER_LIMIT_S = 1.0
_TERM_CAUGHT = 1 << (signal.SIGTERM - 1)
#: Steps down as `pgshoal.demo.launch` does, but stays in the folder.
STEP_DOWN = """
import sys
from pgshoal.demo.account import die_with_parent, named
from pgshoal.worker.account import Way
way = Way()
named(sys.argv[1]).become()
die_with_parent()
way.execute(sys.argv[2:])
"""


def heard(text: str, name: str) -> list[str]:
    """What a log or an error stream says, sorted, without what may differ: times, chatter, the texts of ERRORs."""
    found: list[str] = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            found.append(line.replace(name, "NAME"))
        elif match[2] == "LOG":
            found += [f"LOG {match[3]}" for begin in _COMMON if match[3].startswith(begin)]
        elif match[2] == "ERROR":
            found.append("ERROR")
        elif match[2] in ("FATAL", "WARNING"):
            found.append(f"{match[2]} {match[3]}")
    found = [re.sub(r"(process up: PgBouncer [\d.]+),.*", r"\1", line) for line in found]
    return sorted(line for line in found if line != "ERROR") + ["ERROR"] * ("ERROR" in found)


@dataclass(slots=True)
class Outcome:
    """What one run came to, free of times and process ids."""

    code: int = -1
    out: str = ""
    err: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    debug: bool = False
    served: bool = False
    #: what a daemon has on standard input and output, where it stands, whether it leads its session
    daemon: tuple[object, ...] = ()
    #: what the end left behind, beside the configuration and the log
    left: tuple[str, ...] = ()


class Invocations:
    """A folder with an ini, in which a program is started again and again."""

    ours = False
    #: how long a daemon may take until its pidfile is there, when its parent is gone
    daemon_limit_s = 1.0

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.account: Account | None = unprivileged()
        self.config = folder / "x.ini"
        self.pidfile = folder / "pid"
        self.log = folder / "log"

    @classmethod
    def in_a_folder(cls) -> Self:
        """A new folder that the account owns."""
        folder = Path(tempfile.mkdtemp(prefix="pgshoal-invoke-"))
        folder.chmod(0o755)
        made = cls(folder, free_port())
        if made.account is not None:
            made.account.own(folder)
        return made

    def write_config(self, **settings: object) -> None:
        """The ini; None leaves a setting out."""
        known = {"listen_addr": "", "listen_port": self.port, "unix_socket_dir": self.folder, "auth_type": "any"}
        lines = [f"{k} = {v}" for k, v in {**known, **settings}.items() if v is not None]
        self.config.write_text("[databases]\nx = host=127.0.0.1 port=1\n[pgbouncer]\n" + "\n".join(lines) + "\n")
        self.config.chmod(0o644)

    def command(self, arguments: Sequence[str], as_root: bool) -> list[str]:
        """How the program is started."""
        raise NotImplementedError

    def start(self, arguments: Sequence[str], as_root: bool = False, **more: Any) -> subprocess.Popen[str]:
        """Start it in the folder, under the account unless told otherwise."""
        return subprocess.Popen(
            self.command(arguments, as_root),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=more.pop("stderr", subprocess.PIPE),
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **more.pop("env", {})},
            start_new_session=True,
            **more,
        )

    def run(self, arguments: Sequence[str], as_root: bool = False) -> Outcome:
        """Start it; what serves is told to end by SIGINT."""
        self.log.unlink(missing_ok=True)
        process = self.start(arguments, as_root)
        outcome = Outcome()
        deadline = time.monotonic() + LIMIT_S
        while process.poll() is None and not outcome.served and time.monotonic() < deadline:
            outcome.served = self.accepts() and catches_signals(process.pid)
            time.sleep(0.02)
        if outcome.served:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
        name = self.command([], as_root)[0] if not self.ours else "pgshoal-bouncer"
        outcome.code, outcome.out = process.returncode, out
        if outcome.code == 0 and any(each.startswith(("-d", "--d")) for each in arguments):
            outcome.daemon = self._end_daemon()
            outcome.served = outcome.daemon != ()
        log = self.log.read_text() if self.log.exists() else ""
        outcome.err, outcome.log = heard(err, self.shown_name(name)), heard(log, name)
        outcome.debug = " DEBUG " in err + log
        outcome.left = tuple(sorted(p.name for p in self.folder.iterdir() if p not in (self.config, self.log)))
        return outcome

    def shown_name(self, name: str) -> str:
        """What the program calls itself."""
        return name

    def accepts(self) -> bool:
        """Whether somebody behind the Unix socket answers whether there is TLS."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_ANSWER_LIMIT_S)
            try:
                probe.connect(f"{self.folder}/.s.PGSQL.{self.port}")
                probe.sendall(_SSL_REQUEST)
                return probe.recv(1) != b""
            except OSError:
                return False

    def daemon_pid(self) -> int:
        """From the pidfile, 0 if it never names a process that was started in this folder."""
        deadline = time.monotonic() + self.daemon_limit_s
        while time.monotonic() < deadline:
            text = self.pidfile.read_text() if self.pidfile.exists() else ""
            if text.endswith("\n") and self._is_started_here(text.strip()):
                return int(text)
            time.sleep(0.02)
        return 0

    def _is_started_here(self, pid: str) -> bool:
        """Nobody else may ever be sent a signal."""
        try:
            return pid.isdigit() and os.readlink(f"/proc/{pid}/cwd") == str(self.folder)
        except OSError:
            return False

    def _end_daemon(self) -> tuple[object, ...]:
        pid = self.daemon_pid()
        if pid == 0:
            return ()
        deadline = time.monotonic() + LIMIT_S
        while not (self.accepts() and catches_signals(pid)) and time.monotonic() < deadline:
            time.sleep(0.02)
        targets = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (0, 1, 2)]
        facts = (targets, os.readlink(f"/proc/{pid}/cwd"), os.getsid(pid) == pid, os.getsid(pid) == os.getpgid(pid))
        os.kill(pid, signal.SIGINT)
        wait_for_end(pid)
        return facts

    def remove(self) -> None:
        """The folder goes; a daemon that is still there first."""
        if self.pidfile.exists() and (pid := self.daemon_pid()):
            os.kill(pid, signal.SIGQUIT)
            wait_for_end(pid)
        shutil.rmtree(self.folder, ignore_errors=True)


class Ours(Invocations):
    """`python -m pgshoal.bouncer`, which is what the script `pgshoal-bouncer` runs."""

    ours = True
    #: what the interpreter is told to run
    program: tuple[str, ...] = ("-m", "pgshoal.bouncer")
    # The parent has waited.
    daemon_limit_s = 0.1

    def command(self, arguments: Sequence[str], as_root: bool) -> list[str]:
        """Through a step down, if the account cannot enter the interpreter's folder."""
        module = [*self.program, *arguments]
        if as_root or self.account is None:
            return [sys.executable, *module]
        return [sys.executable, "-c", STEP_DOWN, self.account.name, *module]


class Theirs(Invocations):
    """PgBouncer."""

    def command(self, arguments: Sequence[str], as_root: bool) -> list[str]:
        """As it is."""
        return [str(pgbouncer.find()), *arguments]

    def start(self, arguments: Sequence[str], as_root: bool = False, **more: Any) -> subprocess.Popen[str]:
        """Under the account."""
        if not as_root and self.account is not None:
            groups = list(self.account.groups)
            more = {"user": self.account.uid, "group": self.account.gid, "extra_groups": groups, **more}
        return super().start(arguments, as_root, **more)

    def shown_name(self, name: str) -> str:
        """A wrapper script may run the program under another path."""
        match = re.search(r'"([^"]*bin/pgbouncer)" "\$@"', Path(name).read_text(errors="replace"))
        return match[1] if match else name


def catches_signals(pid: int) -> bool:
    """Whether a process has a handler for SIGTERM, and does not hold signals back."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    masks = dict(re.findall(r"Sig(\w+):\s+([0-9a-f]+)", text))
    return bool(int(masks["Cgt"], 16) & ~int(masks["Blk"], 16) & _TERM_CAUGHT)


def wait_for_end(pid: int) -> None:
    """A process that is not our child."""
    deadline = time.monotonic() + LIMIT_S
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > deadline:
            raise AssertionError(f"process {pid} does not end")
        time.sleep(0.02)

"""A pooler run as a child process from a configuration written on the spot: pgshoal, or PgBouncer for comparison."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pgshoal.demo.account import Account, spawn, unprivileged
from pgshoal.demo.cluster import free_port
from pgshoal.demo.lifetime import Lifetime

START_LIMIT_S = 20.0
STOP_LIMIT_S = 10.0


def quoted(text: str) -> str:
    """A userlist field."""
    return '"' + text.replace('"', '""') + '"'


def _connects(family: socket.AddressFamily, address: tuple[str, int] | str) -> bool:
    with socket.socket(family) as probe:
        try:
            probe.connect(address)
        except OSError:
            return False
    return True


class Pooler(Lifetime):
    """One pgshoal fleet, of one worker unless told otherwise; keyword settings become [pgbouncer] lines, the mappings
    become sections.
    """

    host = "127.0.0.1"
    name = "pgshoal"

    def __init__(
        self,
        databases: Mapping[str, str],
        *,
        users: Mapping[str, str] | None = None,
        userlist: Mapping[str, str] | None = None,
        peers: Mapping[int, str] | None = None,
        **settings: object,
    ) -> None:
        self.account: Account | None = unprivileged()
        self.folder = Path(tempfile.mkdtemp(prefix="pgshoal-run-"))
        self.folder.chmod(0o755)
        if self.account is not None:
            self.account.own(self.folder)
        self.config = self.folder / "pgbouncer.ini"
        self.log = self.folder / "log"
        self.databases, self.users = dict(databases), dict(users or {})
        self.userlist, self.peers = dict(userlist or {}), dict(peers or {})
        self.port = free_port()
        self.settings: dict[str, object] = {
            "listen_addr": self.host,
            "listen_port": self.port,
            "unix_socket_dir": self.folder,
            "auth_type": "trust",
            "auth_file": self.folder / "userlist.txt",
            "admin_users": "admin",
            "stats_users": "stats",
            "workers": 1,
            **settings,
        }
        self.port = int(str(self.settings["listen_port"]))
        self._process: subprocess.Popen[bytes] | None = None

    def write_config(self) -> None:
        """Writes the ini and the user list as the attributes stand now; call it again before a reload."""
        names = {
            *self.userlist,
            *str(self.settings["admin_users"]).split(","),
            *str(self.settings["stats_users"]).split(","),
        }
        lines = [
            f"{quoted(user)} {quoted(self.userlist.get(user, ''))}\n"
            for user in sorted(n.strip() for n in names if n.strip())
        ]
        self.write("userlist.txt", "".join(lines))
        sections = [
            ("databases", {k if k == "*" else f"'{k}'": v for k, v in self.databases.items()}),
            ("users", {f"'{k}'": v for k, v in self.users.items()}),
            ("peers", {str(k): v for k, v in self.peers.items()}),
            ("pgbouncer", {k: "" if v is None else str(v) for k, v in self.settings.items()}),
        ]
        text = "\n".join(f"[{title}]\n" + "".join(f"{k} = {v}\n" for k, v in rows.items()) for title, rows in sections)
        self.write(self.config.name, text)

    def write(self, file_name: str, text: str) -> Path:
        """Puts a file beside the configuration, readable for the pooler's account."""
        path = self.folder / file_name
        path.write_text(text)
        path.chmod(0o600)
        if self.account is not None:
            self.account.own(path)
        return path

    def command(self) -> Sequence[str | Path]:
        """The command line that runs the pooler in the foreground."""
        return [sys.executable, "-m", "pgshoal", "run", self.config]

    def _spawn(self) -> subprocess.Popen[bytes]:
        env = {"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "PYTHONUNBUFFERED": "1"}
        argv = self.command()
        if self.account is not None:
            argv = [sys.executable, "-m", "pgshoal.demo.launch", self.account.name, self.config]
        with self.log.open("ab") as log:
            return spawn(argv, None, stdout=log, env=env)

    def launch(self) -> None:
        """Writes the configuration and starts the process, without waiting for it."""
        self.write_config()
        self._process = self._spawn()

    def start(self) -> None:
        """Starts the pooler and waits until all it was told to listen on accepts."""
        self.launch()
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline and self.running:
            if self._is_up() and self.accepts():  # probes that nobody accepts yet would fill the backlog
                return
            time.sleep(0.02)
        text = self.log_text()[-3000:]
        self.stop()
        raise RuntimeError(f"{self.name} does not accept connections; its log ends:\n{text}")

    def accepts(self) -> bool:
        """Whether connections to the pooler succeed at this moment: by TCP and by its Unix socket, if it has them."""
        folder = str(self.settings["unix_socket_dir"] or "")
        path = f"{folder}/.s.PGSQL.{self.port}"
        tcp = str(self.settings["listen_addr"] or "") != ""
        unix = folder != "" and _connects(socket.AF_UNIX, "\0" + path[1:] if path.startswith("@") else path)
        return (not tcp or _connects(socket.AF_INET, (self.host, self.port))) and (unix or not folder)

    def _is_up(self) -> bool:
        """Whether all workers serve, as far as the log tells; the sockets accept before."""
        text = self.log_text()
        return "listening on" not in text or "process up" in text

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the supervisor, also after its end."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process.pid

    def worker_pids(self) -> list[int]:
        """The process ids of the workers, in the order of their start."""
        try:
            text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        except FileNotFoundError:
            return []
        return [int(pid) for pid in text.split()]

    @property
    def socket_dir(self) -> str:
        """The folder of the pooler's Unix socket, as libpq's host= takes it."""
        return str(self.settings["unix_socket_dir"])

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process."""
        if self._process is not None:
            self._process.send_signal(number)

    def wait(self, limit_s: float = STOP_LIMIT_S) -> int:
        """Waits for the process to end and returns its exit status."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process.wait(limit_s)

    def stop(self) -> None:
        """Ends the process at once: SIGQUIT means stop now to both poolers; the kernel's way follows if that fails."""
        if self._process is None or self._process.poll() is not None:
            return
        self.signal(signal.SIGQUIT)
        try:
            self.wait()
        except subprocess.TimeoutExpired:
            self._process.kill()
            self.wait()

    def log_text(self) -> str:
        """What the pooler has logged so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def dsn(self, dbname: str, user: str, **more: Any) -> str:
        """A connection string through the pooler; values are quoted as libpq wants."""
        facts = {"host": self.host, "port": self.port, "dbname": dbname, "user": user, **more}
        return " ".join(
            f"{k}='{str(v).replace(chr(92), chr(92) * 2).replace(chr(39), chr(92) + chr(39))}'"
            for k, v in facts.items()
        )

    def remove(self) -> None:
        """Stops the pooler and removes its files."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class PgBouncer(Pooler):
    """The same face on a PgBouncer binary; settings that only pgshoal knows are left out."""

    name = "pgbouncer"
    ours = frozenset({"engine", "workers", "worker_cpu_affinity", "budget", "accept_balance", "http_listen"})

    def __init__(self, program: Path, databases: Mapping[str, str], **more: Any) -> None:
        super().__init__(databases, **more)
        self.settings = {k: v for k, v in self.settings.items() if k not in self.ours}
        self.program = program

    def command(self) -> Sequence[str | Path]:
        """PgBouncer stays in the foreground unless told otherwise and logs to stderr."""
        return [self.program, self.config]

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return spawn(self.command(), self.account, stdout=log)

"""A throw-away PostgreSQL cluster in a temporary folder: made, started, stopped and removed by us."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pgshoal.demo.account import Account, run, spawn, unprivileged
from pgshoal.demo.lifetime import Lifetime
from pgshoal.demo.programs import Programs

SETTINGS: Mapping[str, str] = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "log_min_messages": "warning",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
TRUST = ("local all all trust", "host all all all trust")
START_LIMIT_S = 60.0
STOP_LIMIT_S = 20.0


def free_port() -> int:
    """A loopback port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Cluster(Lifetime):
    """One PostgreSQL on a free loopback port and on a Unix socket, owned by an unprivileged account."""

    host = "127.0.0.1"
    superuser = "postgres"

    def __init__(
        self, programs: Programs, settings: Mapping[str, str] | None = None, hba: Sequence[str] = TRUST
    ) -> None:
        self.programs = programs
        self.settings = {**SETTINGS, **(settings or {})}
        self.hba = tuple(hba)
        self.account: Account | None = unprivileged()
        self.folder = Path(tempfile.mkdtemp(prefix="pgshoal-pg-"))
        self.folder.chmod(0o755)
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket_dir(self) -> str:
        """The folder of the Unix socket, as libpq's host= takes it."""
        return str(self.folder)

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        if self._process is None:
            raise RuntimeError("this PostgreSQL is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the postmaster is alive."""
        return self._process is not None and self._process.poll() is None

    def create(self) -> None:
        """Runs initdb and writes the configuration."""
        if self.account is not None:
            self.account.own(self.folder)
        argv: list[str | Path] = [self.programs["initdb"], "-D", self.data, "-U", self.superuser, "-A", "trust"]
        run([*argv, "-E", "UTF8", "--no-locale", "--no-sync"], self.account)
        self.write_hba(self.hba)

    def write_hba(self, lines: Sequence[str]) -> None:
        """Replaces pg_hba.conf; a running server takes it up at its next reload."""
        self.hba = tuple(lines)
        self.write_owned(self.data / "pg_hba.conf", "".join(f"{line}\n" for line in lines))

    def write_owned(self, path: Path, text: str, mode: int = 0o600) -> None:
        """Writes a file that belongs to the server's account."""
        path.write_text(text)
        path.chmod(mode)
        if self.account is not None:
            self.account.own(path)

    def start(self) -> None:
        """Starts the server (creating the cluster first) and waits until it accepts connections."""
        if not self.data.exists():
            self.create()
        for attempt in range(3):  # another process may take the free port before the server binds it
            self.port = self.port if self.port and attempt == 0 else free_port()
            self._launch()
            if self._wait_ready():
                return
            self._reap()
        raise RuntimeError(f"PostgreSQL {self.programs.major} does not start:\n{self.log_text()[-2000:]}")

    def _launch(self) -> None:
        settings = {
            **self.settings,
            "port": str(self.port),
            "listen_addresses": self.host,
            "unix_socket_directories": self.socket_dir,
        }
        lines = [f"{key} = '{value.replace(chr(39), chr(39) * 2)}'\n" for key, value in settings.items()]
        self.write_owned(self.data / "postgresql.auto.conf", "".join(lines))
        with self.log.open("ab") as log:
            self._process = spawn([self.programs["postgres"], "-D", self.data], self.account, stdout=log)

    def _wait_ready(self) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                status = (self.data / "postmaster.pid").read_text().splitlines()
            except FileNotFoundError:
                status = []
            if len(status) >= 8 and status[7].strip() == "ready" and status[0].strip() == str(self._process.pid):
                return True
            time.sleep(0.02)
        return False

    def _reap(self) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # fast shutdown: sessions are ended, files are closed properly
            try:
                self._process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGQUIT)
                self._process.wait(STOP_LIMIT_S)
        self._process = None

    def stop(self) -> None:
        """Stops the server; the cluster stays and can be started again on the same port."""
        self._reap()

    def remove(self) -> None:
        """Stops the server and removes every file of it."""
        self._reap()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_text(self) -> str:
        """What the server has logged so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

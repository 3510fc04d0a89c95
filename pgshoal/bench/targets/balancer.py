"""HAProxy as the one address before several nodes; it does not look into connections (layer 4)."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pgshoal.bench.model import NotHere
from pgshoal.demo.account import spawn, unprivileged
from pgshoal.demo.cluster import free_port
from pgshoal.demo.lifetime import Lifetime

PLACES: Final = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
START_LIMIT_S: Final = 10.0
CONFIG: Final = """
defaults
    mode tcp
    option redispatch 1
    default-server check inter 500ms fall 1 rise 1
    timeout connect 5s
    timeout client 1h
    timeout server 1h
listen nodes
    bind {host}:{port}
    balance roundrobin
"""


def program() -> str:
    """Where HAProxy is; NotHere when it is not installed."""
    found = shutil.which("haproxy", path=PLACES)
    if found is None:
        raise NotHere("two nodes need a balancer: install the package haproxy")
    return found


class Balancer(Lifetime):
    """New connections go to each node in turn, but not to one that does not accept any.

    `with Balancer([("127.0.0.1", 6432), …]) as balancer:`.
    """

    host = "127.0.0.1"

    def __init__(self, nodes: Sequence[tuple[str, int]], options: str = "") -> None:
        """`options` of each node, such as send-proxy-v2."""
        self.program = program()
        self.nodes = tuple(nodes)
        self.options = options
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="pgshoal-haproxy-"))
        self.log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id, also after its end."""
        if self._process is None:
            raise RuntimeError("this balancer was not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it is alive."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts it and waits until it accepts; RuntimeError with its log when it does not."""
        account = unprivileged()
        lines = [f"    server node{at} {host}:{port} {self.options}\n" for at, (host, port) in enumerate(self.nodes, 1)]
        path = self.folder / "haproxy.cfg"
        path.write_text(CONFIG.format(host=self.host, port=self.port) + "".join(lines))
        self.folder.chmod(0o755)
        if account is not None:
            account.own(self.folder)
        with self.log.open("wb") as log:
            argv: list[str | Path] = [self.program, "-db", "-f", path]
            self._process = spawn(argv, account, stdout=log, end_by=signal.SIGKILL)  # SIGQUIT does not end HAProxy
        deadline = time.monotonic() + START_LIMIT_S
        while self.running and time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex((self.host, self.port)) == 0:
                    return
            time.sleep(0.02)
        raise RuntimeError(f"HAProxy does not start:\n{self.log.read_text(errors='replace')}")

    def remove(self) -> None:
        """Stops it and removes its files."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

"""HAProxy as the one address before several nodes."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pgshoal.demo.cluster import free_port

START_LIMIT_S = 10.0
CONFIG = """
global
    stats socket {folder}/stats
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
listen nodes
    bind {host}:{port}
    balance roundrobin
"""


class HAProxy:
    """Connections go to each target in turn: `with HAProxy([("127.0.0.2", 6432), …]) as balancer:`."""

    host = "127.0.0.1"

    def __init__(self, targets: Sequence[tuple[str, int]], options: str = "") -> None:
        """`options` of each server, such as send-proxy-v2."""
        program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
        if program is None:
            raise RuntimeError("haproxy is missing: it is a Debian package of the same name")
        self.program = program
        self.targets = targets
        self.options = options
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="pgshoal-haproxy-"))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        text = CONFIG.format(folder=self.folder, host=self.host, port=self.port)
        text += "".join(
            f"    server node{at} {host}:{port} {self.options}\n" for at, (host, port) in enumerate(self.targets)
        )
        path = self.folder / "haproxy.cfg"
        path.write_text(text)
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen([self.program, "-db", "-f", str(path)], stdout=log, stderr=log)
        deadline = time.monotonic() + START_LIMIT_S
        while self._process.poll() is None and time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex((self.host, self.port)) == 0:
                    return self
            time.sleep(0.02)
        text = (self.folder / "log").read_text()
        self.remove()
        raise RuntimeError(f"HAProxy does not start:\n{text}")

    def remove(self) -> None:
        """Stops it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

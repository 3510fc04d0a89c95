"""The processes of a running fleet as an operator sees them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest

from pgshoal.demo.account import spawn
from tests.e2e.conftest import MakePooler, until
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True


def test_workers_are_bound_to_cpus(make: MakePooler) -> None:
    """worker_cpu_affinity = auto gives each worker one CPU, a list those of the list; the supervisor stays free."""
    usable = sorted(os.sched_getaffinity(0))
    for setting, expected in (("auto", [usable[0], usable[1 % len(usable)]]), (str(usable[-1]), [usable[-1]] * 2)):
        pooler = make(workers=2, worker_cpu_affinity=setting)
        assert [psutil.Process(pid).cpu_affinity() for pid in pooler.worker_pids()] == [[cpu] for cpu in expected]
        assert os.sched_getaffinity(pooler.pid) == set(usable)
        pooler.stop()


def test_a_cpu_that_does_not_exist_stops_the_start(make: MakePooler) -> None:
    """The log names the setting."""
    with pytest.raises(RuntimeError, match="worker_cpu_affinity = 4000"):
        make(workers=2, worker_cpu_affinity="4000")


def test_a_signal_to_every_process_is_heard_once(make: MakePooler) -> None:
    """A Ctrl-C, or a service manager, reaches the workers too: they leave it to the supervisor."""
    pooler = make(workers=3)
    with pooler.connect() as client:
        client.execute("select 1")
        for pid in (*pooler.worker_pids(), pooler.pid):
            os.kill(pid, signal.SIGTERM)
        until(lambda: "got SIGTERM, shutting down, waiting for all clients disconnect" in pooler.log_text(), "heard")
        assert client.execute("select 2").fetchone() == (2,)
        with pytest.raises(psycopg.OperationalError):
            pooler.query("select 1")
    assert pooler.wait() == 0
    assert pooler.log_text().count("got SIGTERM") == 1
    assert "client connections dropped, exiting" in pooler.log_text()


def test_every_worker_is_waited_for(make: MakePooler) -> None:
    """SIGINT waits for the servers of all workers; the console stays reachable by the Unix socket meanwhile."""
    pooler = make(workers=2)
    clients = [pooler.connect() for _ in range(4)]
    for client in clients:
        client.execute("begin")
    pooler.signal(signal.SIGINT)
    until(lambda: "got SIGINT, shutting down" in pooler.log_text(), "heard")
    assert pooler.admin("SHOW VERSION", host=pooler.socket_dir) != []
    for client in clients:
        assert pooler.running
        client.execute("commit")
        client.close()
    assert pooler.wait() == 0
    assert "server connections dropped, exiting" in pooler.log_text()


def test_a_second_pooler_on_the_same_port_is_refused(make: MakePooler) -> None:
    """Though the workers of one share the port."""
    pooler = make(workers=2)
    second = Pooler({"app": "host=127.0.0.1"}, workers=2, listen_port=pooler.port, unix_socket_dir="")
    try:
        second.launch()
        assert second.wait() == 1
        assert "bind(): Address already in use" in second.log_text()
    finally:
        second.remove()
    assert pooler.query("select 1") == [(1,)]


def test_systemd_hears_of_the_fleet(make: MakePooler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """READY when all workers serve, from the process that systemd knows; STOPPING at the end."""
    path = Path("/tmp") / f"pgshoal-notify-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        path.chmod(0o777)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        listener.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        pooler = make(workers=2)
        assert said(listener) == (b"READY=1", pooler.pid)
        pooler.signal(signal.SIGTERM)
        while (heard := said(listener))[0].startswith(b"STATUS"):
            pass
        assert heard == (b"STOPPING=1", pooler.pid)
        pooler.wait()
    path.unlink()


ACTIVATE = """
import os, socket, sys
from pgshoal.demo.launch import run_as
listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
os.dup2(listening.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
command = ["-m", "pgshoal", "run", sys.argv[2]]
run_as(sys.argv[3], command) if sys.argv[3] else os.execv(sys.executable, [sys.executable, *command])
"""


class Activated(Pooler):
    """A pooler that gets its socket from its parent, as from a systemd socket unit."""

    def _spawn(self) -> subprocess.Popen[bytes]:
        account = "" if self.account is None else self.account.name
        argv = [sys.executable, "-c", ACTIVATE, str(self.port), str(self.config), account]
        with self.log.open("ab") as log:
            return spawn(argv, None, stdout=log, env={"PYTHONPATH": str(Path(__file__).parents[3])})


def test_socket_activation(pg15: Postgres, engine: str) -> None:
    """The socket that systemd gives is shared by all workers, outlives an upgrade, and the file's are not opened."""
    settings = {"workers": 2, "listen_addr": "127.0.0.2", "unix_socket_dir": ""}
    with Activated({"app": database(pg15)}, engine=engine, **settings) as pooler:
        assert pooler.query("select 1") == [(1,)]
        until(lambda: "process up" in pooler.log_text(), "all workers")
        before = pooler.worker_pids()
        pooler.admin("UPGRADE")
        until(lambda: len(set(pooler.worker_pids()) - set(before)) == 2, "new workers")
        assert pooler.query("select 1") == [(1,)]
        assert pooler.log_text().count("listening on") == 1
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", pooler.port))


def said(listener: socket.socket) -> tuple[bytes, int]:
    """One datagram, and the process it is from."""
    data, parts, _, _ = listener.recvmsg(1000, 100)
    return data, int.from_bytes(parts[0][2][:4], "little")


def test_the_pidfile_is_the_supervisors(make: MakePooler) -> None:
    """It outlives an upgrade, and is gone at the end."""
    pooler: Pooler = make(workers=2, pidfile=f"/tmp/pgshoal-pid-{os.getpid()}")
    path = Path(str(pooler.settings["pidfile"]))
    assert path.read_text() == f"{pooler.pid}\n"
    pooler.admin("UPGRADE")
    until(lambda: "has taken over" in pooler.log_text(), "the new program")
    assert path.read_text() == f"{pooler.pid}\n"
    pooler.signal(signal.SIGQUIT)
    assert pooler.wait() == 0
    assert not path.exists()

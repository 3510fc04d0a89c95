"""What a start would refuse, found without starting."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgshoal.config.load import load
from pgshoal.fleet.rehearsal import Rehearsal, rehearse


def rehearsed(folder: Path, *lines: str) -> Rehearsal:
    """The rehearsal of a file with these lines from the second one on."""
    file = folder / "p.ini"
    file.write_text("\n".join(["[pgbouncer]", *lines]))
    return rehearse(load(str(file)))


REFUSED = [
    ("server_tls_ciphers = FOO", "server_tls_ciphers = FOO: "),
    ("server_tls_cert_file = /nowhere", "server_tls_cert_file = /nowhere: No such file"),
    ("user = no such", "user = no such: there is no such account"),
    ("unix_socket_group = no such", "unix_socket_group = no such: there is no such group"),
    ("unix_socket_dir = /nowhere", "unix_socket_dir = /nowhere: there is no such folder"),
    ("logfile = /nowhere/log", "logfile = /nowhere/log: its folder does not exist"),
    ("pidfile = /tmp", "pidfile = /tmp: this is a folder"),
    ("listen_addr = 127.0.0.1, 1.2.3.4.5", "listen_addr = 127.0.0.1, 1.2.3.4.5: getaddrinfo('1.2.3.4.5', '6432')"),
    ("listen_addr = 192.0.2.1", "listen_addr = 192.0.2.1: no address can be listened on: 192.0.2.1: Cannot assign"),
    ("worker_cpu_affinity = 8190", "worker_cpu_affinity = 8190: this process may not use CPU 8190"),
]


@pytest.mark.parametrize(("line", "said"), REFUSED)
def test_what_a_start_refuses(tmp_path: Path, line: str, said: str) -> None:
    """One error, with file and line, setting and value, and why."""
    (error,) = rehearsed(tmp_path, line).errors
    assert str(error).startswith(f"{tmp_path}/p.ini:2: {said}")


def test_all_that_is_wrong_is_named(tmp_path: Path) -> None:
    """Not only the first of it."""
    lines = [line for line, _ in REFUSED if not line.startswith(("server_tls_cert", "listen_addr = 127"))]
    assert sorted(error.line for error in rehearsed(tmp_path, *lines).errors) == list(range(2, len(lines) + 2))


@pytest.mark.parametrize(
    "line", ["listen_addr = 127.0.0.1", "unix_socket_dir = @abstract", "unix_socket_group = 0", "listen_port = 1"]
)
def test_what_a_start_takes(tmp_path: Path, line: str) -> None:
    """No error; nothing is bound to the port, which another pooler may still have."""
    assert rehearsed(tmp_path, line).errors == ()


def test_warnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One address of several that this machine lacks, workers beyond its CPUs, and files that root alone has seen."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("pgshoal.fleet.cpus.usable_cpus", lambda: 2)
    found = rehearsed(tmp_path, "listen_addr = 127.0.0.1, 192.0.2.1", "user = daemon", "workers = 62")
    assert found.errors == ()
    account, crowd, address = found.warnings
    assert account == "checked as root: whether daemon may read the files is not known"
    assert crowd.startswith("workers = 62 are more than 4 for each usable CPU")
    assert address.startswith("listen_addr: cannot listen on 192.0.2.1: ")

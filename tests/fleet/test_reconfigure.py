"""RELOAD and SET in two steps, against workers that refuse, stop and die."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from pgshoal.config.load import load
from pgshoal.fleet.channel import Message
from tests.console.fleet import Head, Link
from tests.worker.stub import Lines

INI = "[databases]\napp = host=/tmp\n[pgbouncer]\nauth_type = trust\nserver_tls_sslmode = disable\n"


class Clerk:
    """A worker that takes every configuration, until it is told to refuse."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.heard: list[str] = []
        self.refuses = ""
        self.sizes: list[int] = []
        #: who has a secret in the configuration it has heard last
        self.users: list[str] = []
        self._prepared: list[int] = []
        for verb, run in (("prepare", self._prepare), ("commit", self._commit), ("discard", self._discard)):
            link.on(verb, self._hears(verb, run))

    def _hears(self, verb: str, run: Callable[[Message], None]) -> Callable[[Message], None]:
        def hear(message: Message) -> None:
            self.heard.append(verb)
            run(message)

        return hear

    def _prepare(self, message: Message) -> None:
        refused = self.refuses and message["tls"]
        if not refused:
            config = pickle.loads(message.blob)
            self.users = list(config.secrets)
            self._prepared.append(config.settings.default_pool_size)
        self.link.reply(message, {"error": self.refuses} if refused else {})

    def _commit(self, message: Message) -> None:
        self.sizes += self._prepared
        self._prepared.clear()
        self.link.reply(message)

    def _discard(self, message: Message) -> None:
        self._prepared.clear()
        self.link.reply(message)


class Office:
    """A supervisor with its file, and some workers."""

    def __init__(self, folder: Path, count: int = 2) -> None:
        self.file = folder / "p.ini"
        self.write()
        self.head = Head(load(str(self.file)), Lines())
        self.clerks = [Clerk(self.head.start()) for _ in range(count)]
        self.ends: list[str] = []

    def write(self, more: str = "") -> None:
        """The file, with some lines more."""
        self.file.write_text(INI + more)

    def reload(self) -> None:
        """RELOAD."""
        self.head.relay.reconfigure.reload(self.ends.append)

    def set(self, key: str, value: str) -> None:
        """SET; a TLS set-up that stays as it is leaves "TLS" before the end."""
        self.head.relay.reconfigure.set(key, value, self.ends.append, lambda: self.ends.append("TLS"))

    @property
    def size(self) -> int:
        """What is in effect."""
        return self.head.config.settings.default_pool_size


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """Two workers."""
    return Office(tmp_path)


def test_all_prepare_before_one_commits(office: Office) -> None:
    """A reload reaches all workers; systemd is told of its beginning and its end."""
    office.write("default_pool_size = 7\n")
    office.reload()
    assert office.ends == [""]
    assert [clerk.heard for clerk in office.clerks] == [["prepare", "commit"]] * 2
    assert [clerk.sizes for clerk in office.clerks] == [[7], [7]]
    assert office.size == 7
    assert [text.partition("=")[0] for text in office.head.told] == ["RELOADING", "READY"]


def test_one_refuses(office: Office) -> None:
    """Nothing changes anywhere, and its reason is the error."""
    office.write("default_pool_size = 7\n")
    office.clerks[1].refuses = "client_tls_cert_file: /x: Permission denied"
    office.reload()
    assert office.ends == ["client_tls_cert_file: /x: Permission denied"]
    assert [clerk.heard for clerk in office.clerks] == [["prepare", "discard"]] * 2
    assert office.size == 20
    kept = "TLS configuration could not be reloaded, keeping old configuration"
    said = f"client_tls_cert_file: /x: Permission denied\n{kept}\nconfig file loading failed"
    assert said in office.head.log.texts()


def test_a_wrong_file(office: Office) -> None:
    """No worker hears of it; the error names file, line, key, value and what is allowed."""
    office.write("default_pool_size = many\n")
    office.reload()
    assert office.ends[0].startswith(f"{office.file}:6: default_pool_size = many: must be ")
    assert [clerk.heard for clerk in office.clerks] == [[], []]


@pytest.mark.parametrize("broken", ['"carol" "new"\nbroken', None])
def test_an_auth_file_that_cannot_be_read_whole(office: Office, tmp_path: Path, broken: str | None) -> None:
    """All secrets stay, in workers to come too; the rest is taken, the log names the place, and the reload succeeds."""
    users = tmp_path / "users.txt"
    users.write_text('"alice" "a"\n"bob" "b"')
    office.write(f"auth_file = {users}\n")
    office.reload()
    users.unlink()
    if broken is not None:
        users.write_text(broken)
    office.write(f"auth_file = {users}\ndefault_pool_size = 7\n")
    office.reload()
    reason = "could not open auth_file" if broken is None else "broken auth file"
    place = f"{users}: {reason}" if broken is None else f"{users}:2: {reason}"
    assert office.ends == ["", ""]
    assert [clerk.sizes[-1] for clerk in office.clerks] == [7, 7]
    assert [clerk.users for clerk in office.clerks] == [["alice", "bob"]] * 2
    assert list(office.head.relay.reconfigure.bootable().secrets) == ["alice", "bob"]
    assert f"\n{place}" in office.head.log.texts()
    assert (
        f"{office.file}:6: auth_file = {users}: the secrets that were in effect before stay" in office.head.log.texts()
    )
    users.write_text('"bob" "c"')
    office.reload()
    assert [clerk.users for clerk in office.clerks] == [["bob"]] * 2


def test_a_log_file_nobody_can_open(office: Office, tmp_path: Path) -> None:
    """The supervisor itself must be able to write it."""
    office.write(f"logfile = {tmp_path}/nowhere/log\n")
    office.reload()
    assert office.ends == [
        f"{office.file}:6: logfile = {tmp_path}/nowhere/log: cannot open the file: No such file or directory"
    ]
    assert [clerk.heard for clerk in office.clerks] == [[], []]


def test_a_worker_dies_between_the_steps(office: Office) -> None:
    """The others go on; its successor is booted with what is in effect, or told what it missed."""
    office.clerks[1].link.stopped = True
    office.write("default_pool_size = 7\n")
    office.reload()
    assert office.ends == []
    late = Clerk(office.head.start(ready=False))
    office.head.die(office.head.children[1])
    assert office.ends == [""]
    assert office.clerks[0].sizes == [7]
    assert late.heard == []
    office.head.serve(office.head.children[-1])
    assert late.sizes == [7]
    later = Clerk(office.head.start())
    assert later.heard == []


def test_a_worker_that_serves_between_the_steps(office: Office) -> None:
    """It was booted with the old configuration and gets both steps at once."""
    office.clerks[1].link.stopped = True
    office.write("default_pool_size = 7\n")
    office.reload()
    late = Clerk(office.head.start())
    assert late.heard == []
    office.clerks[1].link.go_on()
    assert office.ends == [""]
    assert [clerk.sizes for clerk in (*office.clerks, late)] == [[7], [7], [7]]


def test_changes_wait_for_each_other(office: Office) -> None:
    """Each starts from what the one before has left."""
    office.clerks[1].link.stopped = True
    office.set("default_pool_size", "5")
    office.set("reserve_pool_size", "6")
    office.reload()
    assert office.ends == []
    office.clerks[1].link.go_on()
    assert office.ends == ["", "", ""]
    assert [clerk.sizes for clerk in office.clerks] == [[5, 5, 20]] * 2
    assert office.head.config.settings.reserve_pool_size == 0


def test_a_bug_holds_nothing_up(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked is answered, and the next change goes on."""

    def broken(path: str, overrides: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("pgshoal.config.load.load", broken)
    office.reload()
    monkeypatch.undo()
    office.set("default_pool_size", "5")
    assert office.ends == ["internal error: RuntimeError('a bug')", ""]
    assert office.size == 5


def test_set(office: Office) -> None:
    """A wrong key or value has no effect; what needs a restart is checked and left as it is."""
    office.set("default_pool_size", "9")
    office.set("default_pool_size", "many")
    office.set("nonsense", "1")
    office.set("listen_port", "1")
    assert [bool(end) for end in office.ends] == [False, True, True, False]
    assert [clerk.sizes for clerk in office.clerks] == [[9], [9]]
    assert (office.size, office.head.config.settings.listen_port) == (9, 6432)


def test_set_of_tls_that_is_not_complete(office: Office) -> None:
    """The value is kept, and TLS stays as it is until a later SET makes it whole."""
    office.set("client_tls_sslmode", "require")
    assert office.ends == ["TLS", ""]
    assert office.head.config.settings.client_tls_sslmode == "require"
    office.set("client_tls_key_file", "/k")
    office.clerks[0].refuses = "client_tls_cert_file: /c: No such file or directory"
    office.set("client_tls_cert_file", "/c")
    assert office.ends == ["TLS", "", "TLS", "", "TLS", ""]
    assert office.head.config.settings.client_tls_cert_file == "/c"
    assert office.clerks[0].heard[-4:] == ["prepare", "discard", "prepare", "commit"]


def test_a_worker_that_comes_while_tls_is_not_complete(office: Office) -> None:
    """It boots with TLS as it was before, and learns of the settings without setting TLS up."""
    office.set("client_tls_sslmode", "require")
    reconfigure = office.head.relay.reconfigure
    assert office.head.config.settings.client_tls_sslmode == "require"
    assert reconfigure.bootable().settings.client_tls_sslmode == "disable"
    late = Clerk(office.head.start(ready=False))
    late.refuses = "client_tls_cert_file must be set"
    office.head.serve(office.head.children[-1])
    assert late.heard == ["prepare", "commit"]
    assert late.sizes == [20]
    late.refuses = ""
    office.reload()
    assert reconfigure.bootable() is office.head.config


def test_a_late_worker_that_refuses(office: Office) -> None:
    """Nobody waits for it, so the log must say it."""
    late = Clerk(office.head.start(ready=False))
    late.refuses = "no such file"
    office.set("default_pool_size", "9")
    office.set("client_tls_ca_file", "/x")
    late.heard.clear()
    office.head.serve(office.head.children[-1])
    assert (late.heard, late.sizes) == (["prepare", "commit"], [])
    assert "worker 2 (pid 1002): no such file" in office.head.log.texts()


def test_what_a_reload_says(office: Office) -> None:
    """Once for the fleet: what waits for a restart, and what is not built."""
    office.write("listen_port = 7777\npkt_buf = 8192\n")
    office.reload()
    assert "listen_port changes only at a restart" in office.head.log.texts()
    assert office.head.config.settings.listen_port == 6432
    assert "config file loaded by all workers" in office.head.log.texts()

"""Every command: who may use it, in which order it is judged, what it does and what it answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pgshoal.config import load
from pgshoal.config.model import DatabaseConfig
from pgshoal.console.commands import COMMANDS, Rule
from pgshoal.console.tables import HELP
from pgshoal.errors import ConfigError
from tests.console.desk import Desk, ask, busy, columns, rows, tag, values, words
from tests.support import messages as m

ADMIN_ONLY = {
    "RELOAD": "reload",
    "PAUSE": "pause",
    "RESUME": "resume app",
    "KILL": "kill app",
    "KILL_CLIENT": "kill_client 1",
    "DISABLE": "disable app",
    "ENABLE": "enable app",
    "RECONNECT": "reconnect",
    "WAIT_CLOSE": "wait_close",
    "SHUTDOWN": "shutdown",
    "RESTART": "restart",
    "UPGRADE": "upgrade",
}


# -- rights


def test_every_command_is_for_admins_or_meant_for_all() -> None:
    """Only SHOW and SET are open to stats users; a new command must be put on one of the two lists."""
    assert {verb for verb, rule in COMMANDS.items() if not rule.stats} == ADMIN_ONLY.keys()
    assert not Rule(lambda request: b"").stats


@pytest.mark.parametrize("text", [*ADMIN_ONLY.values(), "set verbose=1", "set nonsense=1", "kill_client", "enable"])
def test_stats_users_may_not_command(text: str) -> None:
    """Nothing happens, whatever the argument (CVE-2026-6667 was a KILL_CLIENT by a stats user)."""
    with Desk() as desk:
        victim = desk.login()
        talk = desk.session("stats")
        assert victim.client is not None
        assert tag(talk, text.replace(" 1", f" {victim.client.number}")) == "admin access needed"
        assert victim.open
        assert not desk.worker.pause.everything
        assert desk.worker.exit_code is None


@pytest.mark.parametrize("text", ["reload x", "shutdown soon", "show nothing", "show version x", "set a", "suspend"])
def test_what_is_no_command_is_said_before_rights(text: str) -> None:
    """A wrong argument of RELOAD and SHUTDOWN, an unknown item, SUSPEND: the same answer for all."""
    with Desk() as desk:
        for user in ("stats", "admin"):
            assert tag(desk.session(user), text) == f"invalid command '{text}', use SHOW HELP;"


@pytest.mark.parametrize("text", ["begin", "", "select 1", "show fds", "show search_path", "show", "pause 'app'"])
def test_unknown_commands_are_repeated(text: str) -> None:
    """The answer repeats what was sent."""
    with Desk() as desk:
        assert tag(desk.session(), text) == f"invalid command '{text}', use SHOW HELP;"


def test_bytes_that_are_no_text_are_repeated_as_they_came() -> None:
    """A query that is not UTF-8 is answered with the same bytes."""
    with Desk() as desk:
        talk = desk.session()
        talk.message(m.message(b"Q", b"caf\xe9 {db}\0"))
        assert b"invalid command 'caf\xe9 {db}', use SHOW HELP;" in talk.messages()[0].payload


def test_too_long_words() -> None:
    """A word that does not fit is told apart from a wrong one."""
    with Desk() as desk:
        assert tag(desk.session(), "show " + "x" * 80) == "bad arguments"


# -- SHOW


def test_help_is_a_notice() -> None:
    """SHOW HELP has no rows; the lines stand in the notice's detail."""
    with Desk() as desk:
        notice, complete, _ = ask(desk.session("stats"), "show help")
        fields = m.error_fields(notice.payload)
        assert (notice.kind, fields["S"], fields["C"], fields["M"]) == ("N", "NOTICE", "00000", "Console usage")
        assert fields["D"] == "".join(f"\n\t{line}" for line in HELP)
        assert words(complete) == "SHOW"


def test_help_names_every_command() -> None:
    """Help and table of commands do not drift apart."""
    assert {line.split()[0] for line in HELP} == COMMANDS.keys()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("client_encoding", "UTF-8"),
        ("Default_Transaction_Isolation", "read committed"),
        ("standard_conforming_strings", "on"),
        ("datestyle", "ISO"),
        ("TimeZone", "GMT"),
    ],
)
def test_variables_that_drivers_ask_for(name: str, value: str) -> None:
    """They are answered as PostgreSQL would, in one text column of that name."""
    with Desk() as desk:
        head, row, complete, _ = ask(desk.session("stats"), f"show {name}")
        assert columns(head) == [(name.lower(), 25)]
        assert values(row) == [value]
        assert words(complete) == "SHOW"


# -- SET


@pytest.mark.parametrize("text", ["set extra_float_digits = 3", "set TimeZone to 'UTC'", "set client_encoding='UTF8'"])
def test_variables_that_drivers_set(text: str) -> None:
    """Anybody may set them, and nothing comes of it but a notice."""
    with Desk() as desk:
        notice, complete, _ = ask(desk.session("stats"), text)
        assert (words(notice), words(complete)) == ("SET ignored", "SET")


def test_set_takes_effect_at_once() -> None:
    """The tag repeats key and value; the worker and SHOW CONFIG have the new value."""
    with Desk() as desk:
        talk = desk.session()
        assert tag(talk, "set max_client_conn TO '200'") == "SET max_client_conn=200"
        assert desk.worker.config.settings.max_client_conn == 200
        assert {row["key"]: row["value"] for row in rows(talk, "show config")}["max_client_conn"] == "200"


def test_set_of_a_pool_setting_reaches_the_engine() -> None:
    """The pools that exist get their new mode."""
    with Desk() as desk:
        tag(desk.session(), "set pool_mode = transaction")
        specs = [call[2] for call in desk.engine.calls if call[0] == "set_pool" and call[1] == desk.pool().id]
        assert specs[-1].mode.name == "TRANSACTION"


@pytest.mark.parametrize("text", ["set foo=1", "set pool_mode='bad'", "set Verbose=0", "set listen_port='x'"])
def test_set_fails_without_effect(text: str) -> None:
    """Unknown keys and bad values are refused; the log says why."""
    with Desk() as desk:
        before = desk.worker.config
        assert tag(desk.session(), text) == "SET failed"
        assert desk.worker.config is before
        assert any(key in desk.log.texts() for key in ("unknown parameter", "must be"))


def test_set_of_what_needs_a_restart_is_accepted_and_ignored() -> None:
    """As in PgBouncer."""
    with Desk() as desk:
        assert tag(desk.session(), "set listen_port=1") == "SET listen_port=1"
        assert desk.worker.config.settings.listen_port == 6432


def test_set_of_tls_that_cannot_be_used() -> None:
    """A notice says that the old set-up stays; the value is kept for the SET that completes it."""
    with Desk() as desk:
        notice, complete, _ = ask(desk.session(), "set client_tls_sslmode=require")
        assert words(notice) == "TLS settings could not be applied, still using old configuration"
        assert words(complete) == "SET client_tls_sslmode=require"
        assert desk.worker.config.settings.client_tls_sslmode == "require"
        assert desk.worker.tls.client is None
        assert "client_tls_key_file and client_tls_cert_file must be set" in desk.log.texts()


def test_set_of_tls_step_by_step(tmp_path: Path) -> None:
    """TLS comes into use with the SET that makes it whole, and other settings can be changed between."""
    file = tmp_path / "pem"
    file.write_text("x")
    with Desk() as desk:
        talk = desk.session()
        tag(talk, "set client_tls_sslmode=require")
        tag(talk, f"set client_tls_key_file='{file}'")
        assert tag(talk, "set max_client_conn=200") == "SET max_client_conn=200"
        assert desk.worker.config.settings.max_client_conn == 200
        assert [a.kind for a in ask(talk, f"set client_tls_cert_file='{file}'")] == ["C", "Z"]
        assert desk.worker.tls.client is not None


def test_set_that_contradicts_tls() -> None:
    """Certificates as proof need a TLS mode that asks for them."""
    with Desk() as desk:
        assert tag(desk.session(), "set auth_type=cert") == "SET failed"
        assert desk.worker.config.settings.auth_type == "trust"


# -- RELOAD


def test_reload_answers_when_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """RELOAD is synchronous; its failure has an SQLSTATE of its own."""
    with Desk() as desk:
        talk = desk.session()
        monkeypatch.setattr(load, "load", lambda path, overrides: desk.config)
        assert tag(talk, "reload") == "RELOAD"

        def broken(path: str, overrides: Any) -> None:
            raise ConfigError("a.ini", 3, "pool_mode", "x", "must be something else")

        monkeypatch.setattr(load, "load", broken)
        fields = m.error_fields(ask(talk, "reload")[0].payload)
        assert (fields["C"], fields["M"]) == ("F0000", "RELOAD failed, see logs for additional details")
        assert "a.ini:3: pool_mode = x: must be something else" in desk.log.texts()


# -- databases


@pytest.mark.parametrize("verb", ["pause", "kill", "reconnect", "wait_close", "disable", "enable", "resume"])
def test_unknown_databases(verb: str) -> None:
    """They are named in the refusal."""
    with Desk() as desk:
        assert tag(desk.session(), f'{verb} "no db"') == "no such database: no db"


@pytest.mark.parametrize(
    ("verb", "text"),
    [
        ("pause", "cannot pause admin db: pgbouncer"),
        ("kill", "cannot kill admin db: pgbouncer"),
        ("reconnect", "cannot reconnect admin db: pgbouncer"),
        ("wait_close", "cannot wait in admin db: pgbouncer"),
        ("disable", "cannot disable admin db: pgbouncer"),
        ("enable", "cannot enable admin db: pgbouncer"),
        ("resume", "database pgbouncer is not paused"),
    ],
)
def test_the_console_is_no_database(verb: str, text: str) -> None:
    """Commands leave it alone."""
    with Desk() as desk:
        assert tag(desk.session(), f"{verb} pgbouncer") == text


@pytest.mark.parametrize(
    ("verb", "registers"),
    [
        ("pause", True),
        ("kill", True),
        ("reconnect", True),
        ("wait_close", True),
        ("disable", True),
        ("enable", False),
        ("resume", False),
    ],
)
def test_names_that_only_the_asterisk_knows(verb: str, registers: bool) -> None:
    """They become entries, except by commands that undo something."""
    with Desk(autodb=DatabaseConfig("*")) as desk:
        answer = tag(desk.session(), f"{verb} fresh")
        assert answer == (verb.upper() if registers else "no such database: fresh")
        assert ("fresh" in desk.worker.pools.databases) == registers


def test_disable_and_enable() -> None:
    """DISABLE refuses new logins and leaves those who are in; ENABLE ends that; both need a name."""
    with Desk() as desk:
        talk, client = desk.session(), desk.login()
        assert tag(talk, "disable app") == "DISABLE"
        assert desk.login().refused() == 'database "app" is disabled'
        assert client.open
        assert tag(talk, "enable app") == "ENABLE"
        assert desk.login().open
        assert [tag(talk, verb) for verb in ("disable", "enable")] == ["a database is required"] * 2


def test_kill_drops_clients_and_servers_and_leaves_the_database_paused() -> None:
    """Until RESUME of that database; others are not touched."""
    with Desk() as desk:
        client, server, talk = desk.login(), busy(desk), desk.session()
        other = desk.server(desk.welcome("forced", "alice"))
        assert tag(talk, "kill app") == "KILL"
        assert client.refused() == "database removed"
        assert server.conn in desk.engine.closed
        assert other.conn not in desk.engine.closed
        assert [row["paused"] for row in rows(talk, "show databases")] == ["1", "0", "0"]
        assert tag(talk, "resume app") == "RESUME"


def test_reconnect_marks_servers() -> None:
    """A busy server is closed when it is free; WAIT_CLOSE waits for that."""
    with Desk() as desk:
        server, talk = busy(desk), desk.session()
        assert tag(talk, "reconnect app") == "RECONNECT"
        assert server.close_needed
        assert ask(talk, "wait_close app") == []
        desk.worker.servers.gone(server, "close_needed")
        assert words(talk.messages()[0]) == "WAIT_CLOSE"


# -- clients and the process


def test_kill_client_by_id() -> None:
    """The id is that of SHOW CLIENTS; the client is told."""
    with Desk() as desk:
        victim, talk = desk.login(), desk.session()
        number = next(row["id"] for row in rows(talk, "show clients") if row["database"] == "app")
        assert tag(talk, f"kill_client {number}") == "KILL_CLIENT"
        assert victim.refused() == "admin forced disconnect"
        assert tag(talk, f"kill_client {number}") == "client not found"


def test_kill_client_finds_console_sessions_and_cancel_requests() -> None:
    """Everything SHOW CLIENTS lists can be disconnected; logins cannot."""
    with Desk() as desk:
        talk, other, login = desk.session(), desk.session("stats"), desk.accept()
        client = desk.login()
        record = client.client
        assert record is not None
        desk.engine.links[client.conn] = busy(desk).conn
        asking = desk.accept()
        asking.packet(m.cancel_request(record.cancel_key))
        found = {row["ptr"]: row["id"] for row in rows(talk, "show clients")}
        for victim in (other, asking):
            assert tag(talk, f"kill_client {found[hex(victim.conn)]}") == "KILL_CLIENT"
            assert not victim.open
        number = desk.worker.front.logins[login.conn].number
        assert tag(talk, f"kill_client {number}") == "client not found"


def test_kill_client_of_oneself() -> None:
    """The session is told why and gets no second answer."""
    with Desk() as desk:
        talk = desk.session()
        assert ask(talk, f"kill_client {desk.worker.front.consoles[talk.conn].number}") == []
        assert talk.refused() == "admin forced disconnect"


@pytest.mark.parametrize("argument", ["", " x", " 0x7f", ' "-1"', ' "٣"', ' "1 "'])
def test_kill_client_wants_a_number(argument: str) -> None:
    """Digits only."""
    with Desk() as desk:
        assert tag(desk.session(), f"kill_client{argument}") == "invalid client pointer supplied"


def test_kill_client_of_an_enormous_number() -> None:
    """It is a number that nobody has."""
    with Desk() as desk:
        assert tag(desk.session(), "kill_client " + "9" * 63) == "client not found"


def test_shutdown_now_is_not_answered() -> None:
    """The worker ends; the connection just closes with it."""
    with Desk() as desk:
        assert ask(desk.session(), "shutdown") == []
        assert desk.worker.exit_code == 0


@pytest.mark.parametrize(("word", "mode"), [("wait_for_clients", "clients"), ("WAIT_FOR_SERVERS", "servers")])
def test_shutdown_that_waits(word: str, mode: str) -> None:
    """It is answered; RESUME is refused from then on, and repeating it does not make it faster."""
    with Desk() as desk:
        talk = desk.session()
        assert tag(talk, f"shutdown {word}") == "SHUTDOWN"
        assert desk.worker.shutdown == mode
        assert tag(talk, "resume") == "pooler is shutting down"
        assert tag(talk, f"shutdown {word}") == "SHUTDOWN"
        assert desk.worker.exit_code is None


def test_shutdown_may_change_its_mind() -> None:
    """Who waits for clients may then wait for servers."""
    with Desk() as desk:
        talk = desk.session()
        tag(talk, "shutdown wait_for_clients")
        assert tag(talk, "shutdown wait_for_servers") == "SHUTDOWN"
        assert (desk.worker.shutdown, desk.worker.pause.everything) == ("servers", True)


# -- restart and upgrade


@pytest.mark.parametrize(
    ("text", "deadline_s", "tag_text"),
    [("restart", None, "RESTART"), ("restart 7", 7, "RESTART"), ("upgrade", None, "UPGRADE")],
)
def test_restart_and_upgrade_are_answered_when_done(text: str, deadline_s: int | None, tag_text: str) -> None:
    """By the supervisor, who says what is wrong."""
    with Desk() as desk:
        talk = desk.session()
        for wrong in ("", "a restart is under way"):
            assert ask(talk, text) == []
            asked_s, done = desk.head.rolling.pop()
            assert asked_s == deadline_s
            done(wrong)
            said = words(talk.messages()[0])
            assert said == (f"{tag_text} failed: {wrong}" if wrong else tag_text)


@pytest.mark.parametrize("argument", ["soon", '"-1"', '"1.5"', "9999999", '"٣"'])
def test_restart_wants_seconds(argument: str) -> None:
    """Whole ones."""
    with Desk() as desk:
        assert tag(desk.session(), f"restart {argument}") == "invalid number of seconds"
        assert desk.head.rolling == []


# -- names


def test_names_that_are_not_utf8_are_escaped() -> None:
    """Clients were told UTF8: a row with other bytes in it would break them."""
    with Desk(databases={"app": DatabaseConfig("app"), "caf\udce9 é": DatabaseConfig("caf\udce9 é")}) as desk:
        found = [row["name"] for row in rows(desk.session(), "show databases")]
        assert found == ["app", "caf\\xe9 é", "pgbouncer"]


# -- the log


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("pause", "PAUSE command issued"),
        ("pause app", "PAUSE 'app' command issued"),
        ("reload x", ""),
        ("reconnect", "RECONNECT command issued"),
        ("wait_close app", "WAIT_CLOSE 'app' command issued"),
        ("shutdown WAIT_FOR_CLIENTS", "SHUTDOWN WAIT_FOR_CLIENTS command issued"),
        ("show version", ""),
        ("kill nix", "KILL 'nix' command issued"),
        ("resume", "RESUME command issued"),
        ("disable", ""),
    ],
)
def test_commands_are_logged(text: str, line: str) -> None:
    """What would change something leaves a line, in PgBouncer's words, whether it fits or not."""
    with Desk() as desk:
        ask(desk.session(), text)
        assert [found for _, found in desk.log.lines if found.endswith("issued")] == ([line] if line else [])

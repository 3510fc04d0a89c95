"""A client from accept to the end of its login."""

from __future__ import annotations

import os
from socket import gethostname
from typing import Any

import pytest

from pgshoal.config.model import DatabaseConfig, UserConfig
from pgshoal.worker import clients
from pgshoal.worker.handler import ConsoleLogin, Handler
from pgshoal.worker.log import WARNING
from tests.support import messages as m
from tests.worker.stub import Bench

SSL = b"\0\0\0\x08\x04\xd2\x16\x2f"
GSS = b"\0\0\0\x08\x04\xd2\x16\x30"


class FakeConsole:
    """A console that only notes who came."""

    def __init__(self) -> None:
        self.logins: list[ConsoleLogin] = []

    def open(self, login: ConsoleLogin) -> Handler:
        """Note the session."""
        self.logins.append(login)
        return Handler()

    def cancel(self, login: ConsoleLogin) -> None:
        """Not asked here."""


def tls(bench: Bench, required: bool = False) -> None:
    """Offer TLS to clients."""
    bench.worker.tls.client = "context"
    bench.worker.tls.client_required = required


def test_the_welcome_is_complete_and_in_pgbouncers_order() -> None:
    """AuthenticationOk, version, untracked parameters, our own, tracked ones with the client's values, key, ready."""
    with Bench() as bench:
        talk = bench.login(TIMEZONE="CET")
        got = talk.messages()
        assert [message.kind for message in got] == list("R" + "S" * (len(got) - 3) + "KZ")
        pairs = [tuple(message.payload.decode().split("\0")[:2]) for message in got if message.kind == "S"]
        assert pairs == [
            ("pgbouncer.version", "1.26.1"),
            ("in_hot_standby", "off"),
            ("server_version", "15.1"),
            ("pgbouncer.max_prepared_statements", "200"),
            ("pgbouncer.pool_mode", "session"),
            ("DateStyle", "ISO, MDY"),
            ("client_encoding", "UTF8"),
            ("TimeZone", "CET"),
            ("application_name", ""),
            ("session_authorization", "alice"),
        ]


def test_the_engine_gets_the_full_set_of_tracked_values() -> None:
    """Admission carries the pool's values with the client's own in their place, and nothing that may not be set."""
    with Bench() as bench:
        talk = bench.login(application_name="me", search_path="a")
        assert bench.engine.admitted[talk.conn][1] == {
            "DateStyle": "ISO, MDY",
            "client_encoding": "UTF8",
            "TimeZone": "UTC",
            "application_name": "me",
            "search_path": "a",
        }


def test_the_same_packet_twice_is_the_same_login() -> None:
    """A remembered startup packet gives the same welcome, and each client a key of its own."""
    with Bench() as bench:
        first, second = bench.login(application_name="x"), bench.login(application_name="x")
        one, two = first.messages(), second.messages()
        assert one[:-2] == two[:-2]
        assert one[-2].kind == two[-2].kind == "K"
        assert one[-2] != two[-2]


def test_lines_of_a_login() -> None:
    """The attempt and the end, with database, user and place."""
    with Bench() as bench:
        talk = bench.login()
        talk.gone()
        who = f"C-0x{talk.conn:x}: app/alice@127.0.0.1:{40000 + talk.conn} "
        assert bench.log.texts().splitlines() == [
            who + "login attempt: db=app user=alice tls=no replication=no",
            who + "closing because: client unexpected eof (age=0s)",
        ]


def test_a_refusal_is_logged_twice_and_sent_once() -> None:
    """A line says why the connection ends, a warning what the client was told."""
    with Bench() as bench:
        talk = bench.login(database="nodb")
        assert talk.refused() == "no such database: nodb"
        who = f"C-0x{talk.conn:x}: (nodb)/alice@127.0.0.1:{40000 + talk.conn} "
        assert bench.log.lines[1:] == [
            (3, who + "login failed: db=nodb user=alice"),
            (3, who + "closing because: no such database: nodb (age=0s)"),
            (WARNING, who + "pooler error: no such database: nodb"),
        ]


def test_logs_can_be_switched_off() -> None:
    """log_connections, log_disconnections and log_pooler_errors each silence their lines."""
    with Bench(log_connections=False, log_disconnections=False, log_pooler_errors=False) as bench:
        bench.login().gone()
        bench.login("ghost")
        assert [text.partition(" no such user")[1] for _, text in bench.log.lines] == [" no such user"]


def test_a_client_that_never_spoke_leaves_no_line() -> None:
    """Port probes do not fill the log, nor does one that only asks for TLS."""
    with Bench() as bench:
        bench.accept().gone()
        asked = bench.accept()
        asked.packet(SSL)
        asked.gone()
        assert bench.log.lines == []


def test_a_client_that_leaves_during_the_exchange_is_named() -> None:
    """Its last line carries database and user like the ones before."""
    with Bench(auth_type="plain") as bench:
        talk = bench.login()
        talk.gone()
        assert f"C-0x{talk.conn:x}: app/alice@" in bench.log.lines[-1][1]
        assert bench.worker.pools.users["alice"].client_connections == 0


@pytest.mark.parametrize(
    ("packet", "text"),
    [
        (m.startup({"user": "a"}, 0x20000), "old V2 protocol not supported"),
        (m.startup({"user": "alice"}, 0x40000), "bad packet header: '"),
        (b"\0\0\0\x08abcd", "bad packet header: '0000000861626364'"),
        (m.startup({"database": "app"}), "no username supplied"),
        (m.startup({"user": "u" * 128}), "username too long"),
        (
            m.startup({"user": "alice"})[:-1] + b"x",
            "invalid startup packet layout: expected terminator as last byte",
        ),
        (m.startup({"user": "alice", "geqo": "x"}), "unsupported startup parameter: geqo"),
    ],
)
def test_bad_startup_packets(packet: bytes, text: str) -> None:
    """Each is refused with PgBouncer's text, and nothing is left behind."""
    with Bench() as bench:
        talk = bench.accept()
        talk.packet(packet)
        assert talk.refused().startswith(text)
        assert bench.worker.front.connections() == 0
        assert talk.conn not in bench.worker.handlers


def test_oversize_headers_before_login() -> None:
    """A length that is not allowed is shown in hex; a password message there has its own text."""
    with Bench() as bench:
        talk = bench.accept()
        talk.oversize(b"\x7f\xff\xff\xff")
        assert talk.refused() == "bad packet header: '7fffffff'"
        talk = bench.accept()
        talk.oversize(b"p\0\0\0\x08")
        assert talk.refused() == "client password pkt before startup packet"


def test_versions_and_options_are_negotiated_once_before_authentication() -> None:
    """3.2 and unknown protocol options get one NegotiateProtocolVersion, then the login goes on."""
    with Bench() as bench:
        for _ in range(2):  # the second time from memory
            talk = bench.accept()
            talk.startup(protocol=0x30002, **{"_pq_.x": "1"})
            got = talk.messages()
            assert [message.kind for message in got[:2]] == ["v", "R"]
            assert sum(message.kind == "v" for message in got) == 1
            assert got[0].payload == b"\0\3\0\2\0\0\0\1_pq_.x\0"


def test_without_tls_both_requests_for_encryption_get_n() -> None:
    """N, and the startup packet may follow."""
    with Bench() as bench:
        talk = bench.accept()
        talk.packet(GSS)
        assert talk.got == b"N"
        talk.packet(SSL)
        assert talk.got == b"N"
        talk.startup()
        assert talk.client is not None


@pytest.mark.parametrize(("request_packet", "name"), [(SSL, "SSL request"), (GSS, "GSSAPI encryption request")])
@pytest.mark.parametrize("offered", [True, False])
def test_bytes_behind_an_encryption_request_are_refused(request_packet: bytes, name: str, offered: bool) -> None:
    """What was sent before the answer is never read as if it came later."""
    with Bench() as bench:
        if offered:
            tls(bench)
        talk = bench.accept()
        bench.engine.unread[talk.conn] = 4
        talk.packet(request_packet)
        assert talk.refused() == f"received unencrypted data after {name}"
        assert talk.got == b""


def test_tls_is_offered_on_tcp_only() -> None:
    """S on TCP and the handshake begins; N on the Unix socket."""
    with Bench() as bench:
        tls(bench)
        talk = bench.accept()
        talk.packet(SSL)
        assert talk.got == b"S"
        assert ("start_tls", talk.conn, "context", "") in bench.engine.calls
        local = bench.accept(unix=(7, 1000, 1000))
        local.packet(SSL)
        assert local.got == b"N"


def test_a_login_inside_tls_says_so_in_the_log() -> None:
    """Version and cipher stand in the attempt's line and in the client's record."""
    with Bench() as bench:
        tls(bench, required=True)
        talk = bench.accept()
        talk.packet(SSL)
        talk.secured()
        talk.startup()
        assert talk.client is not None
        assert talk.client.tls == "TLSv1.3/TLS_AES_256_GCM_SHA384"
        assert " tls=TLSv1.3/TLS_AES_256_GCM_SHA384 " in bench.log.texts()


def test_ssl_inside_ssl_ends_silently() -> None:
    """A second SSLRequest closes without an error packet."""
    with Bench() as bench:
        tls(bench)
        talk = bench.accept()
        talk.packet(SSL)
        talk.secured()
        talk.packet(SSL)
        assert talk.refused() == ""
        assert "closing because: SSL req inside SSL" in bench.log.texts()


def test_require_refuses_plain_tcp_but_not_unix() -> None:
    """sslmode require and above hold for TCP only, also for a remembered packet."""
    with Bench() as bench:
        tls(bench, required=True)
        assert bench.login().refused() == "SSL required"
        assert bench.login().refused() == "SSL required"
        local = bench.accept(unix=(7, 1000, 1000))
        local.startup()
        assert local.client is not None


def test_direct_tls() -> None:
    """A handshake without request is taken on TCP when TLS is on, else refused."""
    with Bench() as bench:
        talk = bench.accept()
        bench.event(4, talk.conn)
        assert talk.refused() == "bad packet header: '16'"
        tls(bench)
        talk = bench.accept()
        bench.event(4, talk.conn)
        talk.secured()
        talk.startup()
        assert talk.client is not None


def test_a_failed_handshake_is_a_warning() -> None:
    """The reason of the TLS layer is logged."""
    with Bench() as bench:
        tls(bench)
        talk = bench.accept()
        talk.packet(SSL)
        talk.gone("tls: no shared cipher")
        assert any(
            "TLS handshake error: no shared cipher" in text for level, text in bench.log.lines if level == WARNING
        )


def test_limits_refuse_before_authentication_and_count_back() -> None:
    """max_db_client_connections and max_user_client_connections hold exactly, and a leaving client frees its place."""
    for setting in ("max_db_client_connections", "max_user_client_connections"):
        limit: dict[str, Any] = {setting: 1}
        with Bench(**limit) as bench:
            first = bench.login()
            assert bench.login().refused() == f"client connections exceeded ({setting})"
            first.gone()
            assert bench.login().open


def test_a_users_own_limit_comes_first() -> None:
    """[users] overrides the global value."""
    with Bench(
        max_user_client_connections=5, users={"alice": UserConfig("alice", max_user_client_connections=1)}
    ) as bench:
        bench.login()
        assert not bench.login().open


def test_max_client_conn_spares_the_console() -> None:
    """Who is one too many at its startup packet is refused, unless it asks for the console."""
    with Bench(max_client_conn=2, admin_users=("admin",)) as bench:
        bench.worker.console = FakeConsole()
        bench.login()
        silent = bench.accept()
        bench.login()
        assert bench.login().refused() == "no more connections allowed (max_client_conn)"
        assert bench.login("admin", "pgbouncer").open
        assert silent.open


def test_console_sessions_count_for_others() -> None:
    """An operator is never refused, and takes a place all the same until the session ends."""
    with Bench(max_client_conn=1, admin_users=("admin",)) as bench:
        bench.worker.console = FakeConsole()
        operator = bench.login("admin", "pgbouncer")
        assert bench.login().refused() == "no more connections allowed (max_client_conn)"
        clients.console_gone(bench.worker, operator.conn)
        assert bench.login().open


def test_max_client_conn_zero_lets_nobody_in() -> None:
    """As PgBouncer takes it: 0 is none, not unlimited."""
    with Bench(max_client_conn=0) as bench:
        assert bench.login().refused() == "no more connections allowed (max_client_conn)"


def test_a_failed_login_gives_its_places_back() -> None:
    """Counters of database and user stand at zero after a refusal."""
    with Bench(auth_type="plain") as bench:
        talk = bench.login()
        talk.password(b"wrong\0")
        assert talk.refused() == "password authentication failed"
        assert bench.worker.pools.databases["app"].client_connections == 0
        assert bench.worker.pools.users["alice"].client_connections == 0


def test_a_star_database_is_registered_only_after_the_proof() -> None:
    """Guesses at a login do not fill the table of databases."""
    with Bench(autodb=DatabaseConfig("*"), auth_type="plain") as bench:
        talk = bench.login(database="made_up")
        talk.password(b"wrong\0")
        assert "made_up" not in bench.worker.pools.databases
        talk = bench.login(database="real")
        talk.password(b"alice-secret\0")
        assert bench.worker.pools.databases["real"].client_connections == 1
        assert talk.open


def test_disabled_databases_and_shutdown_refuse_after_authentication() -> None:
    """Only who has proved itself learns about the state of a database."""
    with Bench(auth_type="plain") as bench:
        bench.worker.pools.databases["app"].disabled = True
        talk = bench.login()
        talk.password(b"alice-secret\0")
        assert talk.refused() == 'database "app" is disabled'
        bench.worker.pools.databases["app"].disabled = False
        bench.worker.shutdown = "clients"
        talk = bench.login()
        talk.password(b"alice-secret\0")
        assert talk.refused() == "pooler is shutting down"


def test_any_needs_a_forced_user() -> None:
    """With auth_type any the name does not matter and the entry's user is taken."""
    with Bench(auth_type="any") as bench:
        assert bench.login().refused() == "bouncer config error"
        assert "auth_type=any requires forced user" in bench.log.texts()
        bench.welcome("forced", "bob")
        talk = bench.login("whoever", "forced")
        assert talk.client is not None
        assert talk.client.user.name == "bob"


def test_application_name_add_host() -> None:
    """The client's address is part of the name it is given."""
    with Bench(application_name_add_host=True) as bench:
        talk = bench.login()
        name = bench.engine.admitted[talk.conn][1]["application_name"]
        assert name == f"app - 127.0.0.1:{40000 + talk.conn}"


def test_application_name_add_host_on_a_unix_socket() -> None:
    """There it is the client's process and this machine, for the console too."""
    with Bench(application_name_add_host=True) as bench:
        console = FakeConsole()
        bench.worker.console = console
        talk = bench.accept(unix=(7, os.geteuid(), 0))
        talk.startup("pgbouncer", "pgbouncer", application_name="psql")
        shown = f"unix(7@{gethostname()}):{bench.worker.config.settings.listen_port}"
        assert console.logins[0].parameters == [("application_name", f"psql - {shown}")]
        client = bench.accept(unix=(7, 1000, 1000))
        client.startup("alice", "app")
        assert bench.engine.admitted[client.conn][1]["application_name"] == f"app - {shown}"


def test_console_rights_are_checked_before_the_password() -> None:
    """A known user in neither list is turned away at once, an unknown one by the exchange, a listed one goes on."""
    with Bench(auth_type="plain", admin_users=("admin",), stats_users=("bob",)) as bench:
        console = FakeConsole()
        bench.worker.console = console
        assert bench.login("alice", "pgbouncer").refused() == "not allowed"
        ghost = bench.login("ghost", "pgbouncer")
        ghost.password(b"x\0")
        assert ghost.refused() == "password authentication failed"
        for name in ("admin", "bob"):
            bench.login(name, "pgbouncer", application_name="psql").password(f"{name}-secret\0".encode())
        assert [(login.user.name, login.is_admin) for login in console.logins] == [("admin", True), ("bob", False)]
        assert console.logins[0].parameters == [("application_name", "psql")]


def test_the_owner_of_the_process_enters_the_console_without_a_password() -> None:
    """On the Unix socket, as user pgbouncer, with the process's own account; another account must log in."""
    with Bench(auth_type="plain") as bench:
        console = FakeConsole()
        bench.worker.console = console
        talk = bench.accept(unix=(7, os.geteuid(), 0))
        talk.startup("pgbouncer", "pgbouncer")
        assert [(login.is_admin, login.unix_owner) for login in console.logins] == [(True, True)]
        assert "pgbouncer access from unix socket" in bench.log.texts()
        other = bench.accept(unix=(7, os.geteuid() + 1, 0))
        other.startup("pgbouncer", "pgbouncer")
        other.password(b"x\0")
        assert other.refused() == "password authentication failed"


def test_client_login_timeout() -> None:
    """A client that is still logging in after the limit is refused; a younger one is not."""
    with Bench(client_login_timeout=60.0) as bench:
        old = bench.accept()
        bench.engine.clock_us += 50_000_000
        young = bench.accept()
        bench.engine.clock_us += 11_000_000
        clients.expire(bench.worker, bench.engine.clock_us)
        assert old.refused() == "client_login_timeout"
        assert young.open

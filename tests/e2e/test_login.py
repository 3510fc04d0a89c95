"""Logging in through the pooler: methods, limits, startup parameters, and clients that do not play by the rules."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import psycopg
import pytest

from pgshoal.auth.md5 import md5_secret
from pgshoal.auth.secret import derive_verifier
from tests.support import messages as m
from tests.support.fakeclient import FakeClient, LoginRefused
from tests.support.pooler import Pooler, database
from tests.support.postgres import PASSWORDS, Postgres


def client(pooler: Pooler) -> FakeClient:
    """A connection over TCP that speaks bytes."""
    return FakeClient((pooler.host, pooler.port))


def refusal(pooler: Pooler, user: str, dbname: str, password: str = "", **parameters: str) -> str:
    """The text a login is refused with; "" if it is not."""
    with client(pooler) as c:
        try:
            c.login(user, dbname, password, **parameters)
        except LoginRefused as refused:
            return refused.fields["M"]
    return ""


@pytest.fixture(scope="module")
def scram(pg15: Postgres, engine: str) -> Iterator[Pooler]:
    """A transaction-mode pooler that asks for SCRAM."""
    with Pooler({"app": database(pg15)}, engine=engine, auth_type="scram-sha-256", pool_mode="transaction") as pooler:
        yield pooler


@pytest.mark.parametrize("auth_type", ["plain", "md5", "scram-sha-256"])
def test_every_method_with_every_secret_it_allows(pg15: Postgres, engine: str, auth_type: str) -> None:
    """Right passwords run a query as the right user, wrong ones and unknown users fail alike."""
    secret = PASSWORDS["alice"]
    stored = {"plain": secret, "scram": derive_verifier(secret, 4096).text(), "md5": md5_secret(secret, "alice")}
    if auth_type == "scram-sha-256":
        del stored["md5"]
    for kind, text in stored.items():
        with Pooler({"app": database(pg15)}, userlist={"alice": text}, engine=engine, auth_type=auth_type) as pooler:
            assert pooler.query("select current_user::text", password=secret) == [("alice",)], kind
            with pytest.raises(psycopg.OperationalError, match="authentication failed"):
                pooler.query("select 1", password="wrong")
            wrong = refusal(pooler, "alice", "app", "wrong")
            if auth_type == "md5" and kind == "scram":
                continue  # such a user is asked by SASL, others by md5
            assert refusal(pooler, "ghost", "app", "wrong") == wrong


@pytest.mark.parametrize("user", ["plain_user", "md5_user", "scram_user"])
def test_servers_that_ask_for_passwords(pg15: Postgres, engine: str, user: str) -> None:
    """The pooler answers the server's own request with the user's secret."""
    with Pooler({"app": database(pg15)}, engine=engine, auth_type="scram-sha-256") as pooler:
        assert pooler.query("select current_user::text", user=user, password=PASSWORDS[user]) == [(user,)]


def test_scram_keys_of_the_client_log_in_to_the_server(pg15: Postgres, engine: str) -> None:
    """With the server's own verifier in the user list no password is needed, also after the server has gone."""
    ((verifier,),) = pg15.query("select rolpassword from pg_authid where rolname = 'scram_user'")
    secret = PASSWORDS["scram_user"]
    users = {"scram_user": verifier}
    with Pooler({"app": database(pg15)}, userlist=users, engine=engine, auth_type="scram-sha-256") as pooler:
        for _ in range(2):
            assert pooler.query("select current_user::text", user="scram_user", password=secret) == [("scram_user",)]
            pg15.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'scram_user'")


def test_a_forced_user_logs_in_as_itself(pg15: Postgres, engine: str) -> None:
    """Whoever comes in by SCRAM, the server sees the entry's user with the entry's password."""
    entry = database(pg15, user="scram_user", password=PASSWORDS["scram_user"])
    with Pooler({"app": entry}, engine=engine, auth_type="scram-sha-256") as pooler:
        assert pooler.query("select current_user::text", password=PASSWORDS["alice"]) == [("scram_user",)]


def test_a_login_in_single_bytes_is_a_login(scram: Pooler) -> None:
    """Every packet of the exchange may come in pieces of one byte."""
    with client(scram) as c:
        c.login("alice", "app", PASSWORDS["alice"], cut=1)
        assert c.query("select 1")[-1].kind == "Z"


def test_startup_packets_up_to_10000_bytes(scram: Pooler) -> None:
    """9900 bytes are a login; past PostgreSQL's limit the client is refused."""
    with client(scram) as c:
        c.login("alice", "app", PASSWORDS["alice"], application_name="n" * 9800)
    with client(scram) as c:
        c.send(m.startup({"user": "alice", "application_name": "n" * 10_000}))
        assert m.error_fields(c.read().payload)["M"].startswith("bad packet header")


def test_long_passwords(pg15: Postgres, engine: str) -> None:
    """60 KB of password are compared like any other."""
    long = "x" * 60_000
    with Pooler({"app": database(pg15)}, userlist={"alice": long}, engine=engine, auth_type="plain") as pooler:
        with client(pooler) as c:
            c.login("alice", "app", long, cut=1000)
        assert refusal(pooler, "alice", "app", long + "x") == "password authentication failed"


@pytest.mark.parametrize("protocol", [0x30001, 0x30002, 0x3270F])
def test_newer_protocols_are_negotiated_once(scram: Pooler, protocol: int) -> None:
    """One NegotiateProtocolVersion names a version and the options we do not know, then the login goes on."""
    with client(scram) as c:
        names = {"_pq_.test_protocol_negotiation": "", "_pq_.x": "1"}
        seen = c.login("alice", "app", PASSWORDS["alice"], protocol=protocol, **names)
        answers = [message for message in seen if message.kind == "v"]
        assert len(answers) == 1
        assert seen[0] == answers[0]
        spoken = min(protocol, 0x30002).to_bytes(4)
        assert answers[0].payload == spoken + b"\0\0\0\2_pq_.test_protocol_negotiation\0_pq_.x\0"


@pytest.mark.parametrize("protocol", [0x20000, 0x40000])
def test_other_protocols_are_refused(scram: Pooler, protocol: int) -> None:
    """2.0 and 4.0 end with a FATAL."""
    with client(scram) as c:
        c.send(m.startup({"user": "alice"}, protocol))
        assert m.error_fields(c.read().payload)["S"] == "FATAL"


@pytest.mark.parametrize("step", [0, 1])
def test_a_second_startup_packet_is_refused(scram: Pooler, step: int) -> None:
    """Before and within the SCRAM exchange, and nobody becomes another user."""
    with client(scram) as c:
        c.send(m.startup({"user": "ghost", "database": "nodb"}))
        c.read()
        if step:
            c.send(m.message(b"p", m.text("SCRAM-SHA-256") + b"\0\0\0\x18n,,n=,r=abcdefghijklmnop"))
            c.read()
        c.send(m.startup({"user": "alice", "database": "app"}))
        ends = c.read_to_end()
        assert [message.kind for message in ends] == ["E"]
        assert m.error_fields(ends[0].payload)["M"] == "client re-sent startup pkt"


def test_an_empty_option_name_is_refused(scram: Pooler) -> None:
    """The pooler goes on serving others."""
    assert refusal(scram, "alice", "app", PASSWORDS["alice"], options="-c=").startswith("unsupported options")
    assert scram.query("select 1", password=PASSWORDS["alice"]) == [(1,)]


def test_parameters_are_replayed_and_do_not_leak(scram: Pooler) -> None:
    """What a client asks for at its startup holds for it on any server, and not for the next client."""
    secret = PASSWORDS["alice"]
    options = "-c search_path=pg_temp -c DateStyle=German"
    shown = "select current_setting('search_path'), current_setting('DateStyle'), current_setting('application_name')"
    assert scram.query(shown, password=secret, options=options, application_name="one") == [
        ("pg_temp", "German, DMY", "one")
    ]
    assert scram.query(shown, password=secret)[0][:2] == ('"$user", public', "ISO, MDY")


def test_the_server_down_is_told_after_the_proof_only(engine: str) -> None:
    """A client that has proved itself hears of the dead server after client_login_timeout, a guess does not wait."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        entry = f"host=127.0.0.1 port={nobody.getsockname()[1]} dbname=app"
        settings = {"auth_type": "plain", "client_login_timeout": 1, "server_login_retry": 1}
        with Pooler({"app": entry}, engine=engine, **settings) as pooler:
            assert refusal(pooler, "alice", "app", "wrong") == "password authentication failed"
            begun = time.monotonic()
            assert refusal(pooler, "alice", "app", PASSWORDS["alice"]) == "client_login_timeout (server down)"
            assert time.monotonic() - begun >= 0.9


def test_a_client_that_says_nothing_is_timed_out(pg15: Postgres, engine: str) -> None:
    """client_login_timeout counts from the connect."""
    settings = {"client_login_timeout": 1, "tcp_defer_accept": 0}
    with Pooler({"app": database(pg15)}, engine=engine, **settings) as pooler, client(pooler) as c:
        assert m.error_fields(c.read().payload)["M"] == "client_login_timeout"


def test_limits_say_which_setting_it_was(pg15: Postgres, engine: str) -> None:
    """One client too many of a user is refused, and gets in when another has left."""
    settings = {"auth_type": "trust", "max_user_client_connections": 1}
    with Pooler({"app": database(pg15)}, engine=engine, **settings) as pooler:
        with client(pooler) as first:
            first.login("alice", "app")
            text = "client connections exceeded (max_user_client_connections)"
            assert refusal(pooler, "alice", "app") == text
            assert refusal(pooler, "bob", "app") == ""
        # The pooler reads of the first client's end in its own time.
        deadline = time.monotonic() + 10
        while (last := refusal(pooler, "alice", "app")) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert last == ""


def test_the_unix_socket(pg15: Postgres, engine: str) -> None:
    """A login there, and its place in the log."""
    with Pooler({"app": database(pg15)}, engine=engine, auth_type="trust") as pooler:
        with FakeClient(f"{pooler.socket_dir}/.s.PGSQL.{pooler.port}") as c:
            c.login("alice", "app")
        assert f":{pooler.port} login attempt: db=app user=alice tls=no replication=no" in pooler.log_text()
        assert "app/alice@unix(" in pooler.log_text()


def test_login_notify_message(pg15: Postgres, engine: str) -> None:
    """Every client hears it once, before its first ready."""
    settings = {"auth_type": "trust", "login_notify_message": "be quick"}
    with Pooler({"app": database(pg15)}, engine=engine, **settings) as pooler, client(pooler) as c:
        seen = c.login("alice", "app")
        assert [message.kind for message in seen[-3:]] == ["K", "N", "Z"]
        assert m.error_fields(seen[-2].payload)["M"] == "be quick"

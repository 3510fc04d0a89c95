"""One test for each published attack on a pooler: what was done there, done here, on each engine."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from tests.e2e.conftest import MakePooler, until
from tests.e2e.hostile.conftest import rss_kb
from tests.e2e.hostile.test_servers import error_without_anything, error_without_sqlstate, long_nonce, sasl_start
from tests.support import messages as m
from tests.support.certs import Authority
from tests.support.fakeclient import Closed, FakeClient, LoginRefused, Message
from tests.support.fakeserver import FakeServer, ServerSide
from tests.support.pooler import Pooler, database, tls_client_side
from tests.support.postgres import PASSWORDS, Postgres

SCRAM_CHOSEN = m.text("SCRAM-SHA-256")
FIRST = b"n,,n=,r=abcdefghijklmnop"
ALICE = {"user": "alice", "database": "app"}
NOBODY = "nobody_here"


def connect(pooler: Pooler) -> FakeClient:
    """A connection that has sent nothing."""
    return FakeClient((pooler.host, pooler.port))


def text_of(got: Message) -> str:
    """What an ErrorResponse says."""
    assert got.kind == "E"
    return m.error_fields(got.payload)["M"]


def refusal(pooler: Pooler, user: str, password: str, dbname: str = "app", **parameters: str) -> str:
    """The text a login is refused with; "" if it is not."""
    with connect(pooler) as client:
        try:
            client.login(user, dbname, password, **parameters)
        except LoginRefused as refused:
            return refused.fields["M"]
    return ""


def begin_scram(client: FakeClient, user: str, dbname: str = "app") -> str:
    """The exchange up to the server's first message; gives the whole nonce."""
    client.send(m.startup({"user": user, "database": dbname}))
    assert client.read().kind == "R"
    client.send(m.message(b"p", SCRAM_CHOSEN + struct.pack("!i", len(FIRST)) + FIRST))
    got = client.read()
    assert got.kind == "R"
    return got.payload[4:].split(b",")[0][2:].decode()


def unharmed(pooler: Pooler, **more: str) -> None:
    """The process lives, has met no error of its own, and serves."""
    assert pooler.running
    assert pooler.query("select session_user::text", **more) == [("alice",)]
    assert "internal error" not in pooler.log_text()
    assert "panicked" not in pooler.log_text()
    assert " died: " not in pooler.log_text()


@pytest.fixture
def scram(make: MakePooler) -> Pooler:
    """A pooler that asks for SCRAM."""
    return make(auth_type="scram-sha-256")


SECRET = {"password": PASSWORDS["alice"]}


# -- CVE-2026-107350: a second StartupMessage during the exchange made the client another user


def test_cve_2026_107350_second_startup_during_scram(scram: Pooler) -> None:
    """It is refused at once, before and within SCRAM, also for a database that does not exist."""
    for step, dbname in itertools.product(("before", "within"), ("app", "no_such_database")):
        with connect(scram) as client:
            if step == "within":
                begin_scram(client, NOBODY, dbname)
            else:
                client.send(m.startup({"user": NOBODY, "database": dbname}))
                client.read()
            client.send(m.startup(ALICE))
            assert [text_of(got) for got in client.read_to_end()] == ["client re-sent startup pkt"]
    unharmed(scram, **SECRET)


@pytest.mark.parametrize("auth_type", ["plain", "md5"])
def test_cve_2026_107350_second_startup_during_other_methods(make: MakePooler, auth_type: str) -> None:
    """So it is while a password is awaited, whatever its length."""
    pooler = make(auth_type=auth_type)
    for size in (0, 3000, 9000):
        with connect(pooler) as client:
            client.send(m.startup({"user": NOBODY, "database": "app"}))
            client.read()
            client.send(m.startup({**ALICE, "application_name": "x" * size}))
            assert [text_of(got) for got in client.read_to_end()] == ["client re-sent startup pkt"]
    unharmed(pooler, **SECRET)


def test_cve_2026_107350_second_startup_in_one_write(scram: Pooler) -> None:
    """Two startup packets at once give one exchange, for the first, and its end."""
    with connect(scram) as client:
        client.send(m.startup({"user": NOBODY, "database": "app"}), m.startup(ALICE))
        first, *rest = client.read_to_end()
        assert first.kind == "R"
        assert [text_of(got) for got in rest] == ["client re-sent startup pkt"]


def test_cve_2026_107350_second_startup_during_a_lookup(pg15: Postgres, make: MakePooler) -> None:
    """While auth_query runs nothing more is read; then the first name counts."""
    ((superuser,),) = pg15.query("select current_user::text")
    slow = "select $1::text, pg_sleep(0.3)::text || 'pw'"
    pooler = make(auth_type="plain", auth_user=superuser, userlist={superuser: ""}, auth_query=slow)
    with connect(pooler) as client:
        client.send(m.startup({"user": NOBODY, "database": "app"}))
        client.send(m.startup(ALICE))
        first, *rest = client.read_to_end()
        assert first.kind == "R"
        assert [text_of(got) for got in rest] == ["client re-sent startup pkt"]
    assert "user=alice" not in pooler.log_text()


# -- CVE-2026-107349: an empty option name made the process spin


def test_cve_2026_107349_empty_option_name(make: MakePooler) -> None:
    """It is refused, and the process has time for others."""
    pooler = make()
    for options in ("-c=", "-c =", "--=", "-c=x", "-c a=1 -c=", "  -c=", "-c\\=", "--", "-"):
        assert refusal(pooler, "alice", "", options=options).startswith("unsupported ")
    unharmed(pooler)


# -- CVE-2026-107348, CVE-2026-6668: an announced length made a buffer grow for ever


def swallowed(client: FakeClient, packet: bytes, megabytes: int) -> None:
    """Sends a head and then as much as is taken."""
    with suppress(OSError):
        client.send(packet)
        for _ in range(megabytes):
            client.send(b"\0" * 2**20)


def test_cve_2026_107348_huge_packet_before_login(scram: Pooler) -> None:
    """Before login a length beyond what a login needs is refused when it is seen, and nothing is kept for it."""
    before = rss_kb(scram)
    for length in (2**31 - 1, 2**31 - 5, 2**30, -1, -(2**31), 0, 3):
        for head in (struct.pack("!ii", length, m.PROTOCOL_3_0), b"p" + struct.pack("!i", length)):
            with connect(scram) as client:
                swallowed(client, head, 4)
                with suppress(Closed):
                    assert text_of(client.read())
            with connect(scram) as client:
                client.send(m.startup(ALICE))
                assert client.read().kind == "R"
                swallowed(client, b"p" + struct.pack("!i", length), 4)
                with suppress(Closed):
                    assert text_of(client.read())
    assert rss_kb(scram) - before < 15_000
    unharmed(scram, **SECRET)


def test_cve_2026_6668_packet_beyond_max_packet_size(make: MakePooler) -> None:
    """After login max_packet_size bounds every message, and no buffer is made by what is only announced."""
    pooler = make(max_packet_size=2**20)
    for kind, length in itertools.product(b"PBDCQd", (2**20 + 1, 2**31 - 1, -1, -(2**31), 3)):
        with connect(pooler) as client:
            client.login("alice", "app")
            client.send(bytes([kind]) + struct.pack("!i", length) + b"s\0")
            assert text_of(client.read()).startswith("bad packet header")
    unharmed(pooler)
    pooler = make(default_pool_size=2)
    before = rss_kb(pooler)
    for kind in b"PBDCQd":
        with connect(pooler) as client:
            client.login("alice", "app")
            swallowed(client, bytes([kind]) + struct.pack("!i", 2**31 - 1), 8)
            unharmed(pooler)
    assert rss_kb(pooler) - before < 25_000


# -- CVE-2026-19888: a final SCRAM message without a nonce crashed the process


def test_cve_2026_19888_scram_final_without_nonce(scram: Pooler) -> None:
    """It is a failed authentication, for users who exist and for those who do not."""
    finals = (b"c=biws", b"c=biws,p=" + b"A" * 43 + b"=", b"", b"p=", b"r", b",,,", b"c=biws,r=")
    for user, final in itertools.product(("alice", NOBODY), finals):
        with connect(scram) as client:
            begin_scram(client, user)
            client.send(m.message(b"p", final))
            assert [text_of(got) for got in client.read_to_end()] == ["SASL authentication failed"]
    unharmed(scram, **SECRET)


# -- CVE-2026-6664: a malformed SCRAM packet overflowed an integer


def test_cve_2026_6664_malformed_scram_packet(scram: Pooler) -> None:
    """A wrong length inside the first SCRAM message is a failed authentication."""
    sizes = (-2, -(2**31), 2**31 - 1, 2**31 - 9, len(FIRST) + 1, len(FIRST) - 1, 0)
    for user, size in itertools.product(("alice", NOBODY), sizes):
        with connect(scram) as client:
            client.send(m.startup({"user": user, "database": "app"}))
            client.read()
            client.send(m.message(b"p", SCRAM_CHOSEN + struct.pack("!i", size) + FIRST))
            assert [text_of(got) for got in client.read_to_end()] == ["SASL authentication failed"]
        with connect(scram) as client:
            client.send(m.startup({"user": user, "database": "app"}))
            client.read()
            client.send(m.message(b"p", SCRAM_CHOSEN[:-1]))
            assert [got.kind for got in client.read_to_end()] == ["E"]
    unharmed(scram, **SECRET)


# -- CVE-2026-6669: a server announced a huge SCRAM iteration count


def counting(count: int, seen: list[bytes]) -> FakeServer:
    """A server that asks for so many rounds; what the pooler answers is kept."""

    def script(server: ServerSide) -> None:
        sasl_start(server)
        nonce = server.received[-1].payload.split(b"r=")[1]
        server.send(m.auth(11, b"r=" + nonce + b"x,s=c2FsdA==,i=%d" % count))
        seen.append(server.read().payload)

    return FakeServer(script)


@pytest.mark.parametrize("count", [1_000_001, 10**20])
def test_cve_2026_6669_iteration_count_over_the_limit(engine: str, count: int) -> None:
    """More than a million rounds end that server's login, without one round of work."""
    answers: list[bytes] = []
    with counting(count, answers) as server:
        settings = {"engine": engine, "auth_type": "trust", "client_login_timeout": 2}
        with Pooler({"app": server.database()}, **settings) as pooler:
            assert refusal(pooler, "alice", "") != ""
            until(lambda: "login failed" in pooler.log_text(), "the end of the server's login")
            assert answers == []
            assert "Traceback" not in pooler.log_text()


def test_cve_2026_6669_allowed_iterations_do_not_stall(pg15: Postgres, engine: str) -> None:
    """A million rounds are worked off beside the traffic of others: a query never waits for them."""
    answers: list[bytes] = []
    with counting(1_000_000, answers) as server:
        entries = {"app": database(pg15), "slow": server.database()}
        pooler = Pooler(entries, engine=engine, auth_type="trust", client_login_timeout=30)
        with pooler, connect(pooler) as witness, connect(pooler) as client:
            witness.login("bob", "app")
            client.send(m.startup({"user": "alice", "database": "slow"}))
            server.wait_for(1)
            rounds = 0
            while not answers:
                assert witness.query("select 1")[-1].kind == "Z"
                rounds += 1
            # The derivation takes some hundred milliseconds, a query through the pooler about one.
            assert rounds > 5


# -- CVE-2026-6665: a server's SCRAM message with a very long nonce overflowed the stack


def test_cve_2026_6665_long_server_nonce(engine: str) -> None:
    """That server's login fails; the next one works."""

    def script(server: ServerSide) -> None:
        if server.number == 0:
            long_nonce(server)
        else:
            server.log_in()
            server.hold()

    with FakeServer(script) as server:
        settings = {"engine": engine, "auth_type": "trust", "server_login_retry": 0, "server_connect_timeout": 5}
        with Pooler({"app": server.database()}, **settings) as pooler:
            with suppress(LoginRefused), connect(pooler) as client:
                client.login("alice", "app")
            assert refusal(pooler, "alice", "") == ""
            assert pooler.running
            assert "Traceback" not in pooler.log_text()


# -- CVE-2026-6666: a server's error without SQLSTATE was a null dereference


@pytest.mark.parametrize("script", [error_without_sqlstate, error_without_anything], ids=lambda s: s.__name__)
def test_cve_2026_6666_error_without_sqlstate_at_login(engine: str, script: object) -> None:
    """The client is told something with an SQLSTATE, and the process lives."""
    assert callable(script)
    with FakeServer(script) as server:
        settings = {"engine": engine, "auth_type": "trust", "client_login_timeout": 2}
        with Pooler({"app": server.database()}, **settings) as pooler, connect(pooler) as client:
            client.send(m.startup(ALICE))
            last = client.read_to_end()[-1]
            assert len(m.error_fields(last.payload)["C"]) == 5
            assert pooler.running
            assert "Traceback" not in pooler.log_text()


@pytest.mark.parametrize("where", ["query", "prepared", "reset", "lookup"])
def test_cve_2026_6666_error_without_sqlstate_later(engine: str, where: str) -> None:
    """So in a query of a client, in one of the pooler's own, and in a lookup."""
    bodies = itertools.cycle((b"SERROR\0Mno code\0\0", b"\0", b"C\0\0"))

    def script(server: ServerSide) -> None:
        server.log_in()
        while True:
            got = server.read()
            hit = {"query": b"hostile" in got.payload, "reset": b"DISCARD" in got.payload}.get(where, got.kind == "S")
            if got.kind in "QS" and hit:
                server.send(m.message(b"E", next(bodies)), m.ready())
            elif got.kind == "Q":
                server.answer_rows("fine")
            elif got.kind == "X":
                return

    with FakeServer(script) as server:
        settings = {"engine": engine, "auth_type": "trust", "pool_mode": "session", "server_login_retry": 0}
        if where == "lookup":
            settings.update(auth_user="alice", userlist={"alice": ""})
        with Pooler({"app": server.database()}, **settings) as pooler:
            if where == "lookup":
                assert [refusal(pooler, "bob", "") for _ in range(3)] == ["bouncer config error"] * 3
            for _ in range(4):
                with connect(pooler) as client:
                    client.login("alice", "app")
                    ask = m.parse("s", "hostile") + m.SYNC if where == "prepared" else m.query("hostile")
                    assert client.ask(ask)[-1].payload == b"I"
            assert pooler.running
            assert "Traceback" not in pooler.log_text()
            assert "panicked" not in pooler.log_text()
    assert " died: " not in pooler.log_text()


# -- CVE-2026-6667: a stats user could run KILL_CLIENT

COMMANDS = (
    "KILL_CLIENT {id}", "KILL app", "KILL", "PAUSE", "PAUSE app", "RESUME", "DISABLE app", "ENABLE app", "RELOAD",
    "RECONNECT", "SHUTDOWN", "SHUTDOWN WAIT_FOR_CLIENTS", "SET verbose = 1", "WAIT_CLOSE",
)  # fmt: skip


def test_cve_2026_6667_stats_users_only_look(make: MakePooler) -> None:
    """Every command that changes something is refused to a stats user, and changes nothing."""
    pooler = make()
    with pooler.connect() as conn:
        conn.execute("select 1")
        (row,) = [row for row in pooler.admin("SHOW CLIENTS", "stats") if row["user"] == "alice"]
        for command in COMMANDS:
            with pytest.raises(psycopg.Error, match="admin access needed"):
                pooler.admin(command.format(id=row["id"]), "stats")
        assert conn.execute("select 1").fetchone() == (1,)
    assert pooler.admin("SHOW CONFIG", "stats")
    unharmed(pooler)


# -- CVE-2025-12819: the client's search_path reached the session of auth_query


@pytest.fixture
def trapped(pg15: Postgres) -> Iterator[Postgres]:
    """A server with a login for lookups, and a schema whose operators note who runs them."""
    traps = (
        "create role watcher superuser login",
        "create role expired login password 'expired-secret' valid until '2001-01-01'",
        "create table noted(who text)",
        "create schema trap",
        "grant all on schema trap to public",
        "create function trap.spring(timestamptz, timestamptz) returns bool language plpgsql as"
        " $$ begin insert into public.noted values (session_user); return false; end $$",
        "create operator trap.< (leftarg = timestamptz, rightarg = timestamptz, function = trap.spring)",
        "create function trap.now() returns timestamptz language plpgsql as"
        " $$ begin insert into public.noted values (session_user); return '-infinity'; end $$",
    )
    for trap in traps:
        pg15.query(trap, "app")
    yield pg15
    pg15.query("drop schema trap cascade", "app")
    pg15.query("drop table noted", "app")
    until(lambda: not pg15.query("select 1 from pg_stat_activity where usename = 'watcher'"), "the end of watcher")
    pg15.query("drop role watcher")
    pg15.query("drop role expired")


LOOKUP = {"auth_type": "plain", "auth_user": "watcher", "userlist": {"watcher": ""}}


@pytest.mark.parametrize("tracked", ["", "search_path"])
def test_cve_2025_12819_search_path_and_auth_query(trapped: Postgres, make: MakePooler, tracked: str) -> None:
    """A lookup finds neither functions nor operators of a schema the client names."""
    pooler = make(**LOOKUP, track_extra_parameters=tracked, default_pool_size=1)
    for path in ("trap", "trap, pg_catalog"):
        assert refusal(pooler, "expired", "expired-secret", search_path=path) == "password authentication failed"
        assert refusal(pooler, "alice", PASSWORDS["alice"], search_path=path) == ""
    assert trapped.query("select who from noted", "app") == []
    pooler.stop()


# -- CVE-2025-2291: passwords past VALID UNTIL were accepted through auth_query


@pytest.mark.parametrize("auth_type", ["plain", "md5", "scram-sha-256"])
def test_cve_2025_2291_valid_until(trapped: Postgres, make: MakePooler, auth_type: str) -> None:
    """The default query knows them as unusable; the same password before its time is good."""
    pooler = make(**{**LOOKUP, "auth_type": auth_type})
    assert refusal(pooler, "expired", "expired-secret").endswith("authentication failed")
    trapped.query("alter role expired valid until '2999-01-01'")
    assert refusal(pooler, "expired", "expired-secret") == ""
    pooler.stop()


# -- CVE-2021-3935: bytes sent before TLS were taken as if they had come inside


def test_cve_2021_3935_bytes_before_tls(make: MakePooler, authority: Authority) -> None:
    """Whatever stands behind an SSLRequest before its answer ends the connection, with TLS and without."""
    requests = {m.SSL_REQUEST: "SSL request", m.GSSENC_REQUEST: "GSSAPI encryption request"}
    for settings in (tls_client_side(authority.server, "allow"), {}):
        pooler = make(**settings)
        for request, behind in itertools.product(requests, (m.startup(ALICE), b"\x16\x03\x01", b"\0", m.query("x"))):
            with connect(pooler) as client:
                client.send(request, behind)
                told = [text_of(got) for got in client.read_to_end()]
                assert told == [f"received unencrypted data after {requests[request]}"]
        unharmed(pooler)


def test_cve_2021_3935_bytes_before_tls_of_a_server(engine: str) -> None:
    """Bytes behind a server's answer to our SSLRequest end its login, and are never taken as its words."""

    def script(server: ServerSide) -> None:
        server.read_startup(tls_answer=b"S" + m.auth(0) + m.message(b"K", b"\0" * 8) + m.ready())

    with FakeServer(script) as server:
        settings = {"engine": engine, "auth_type": "trust", "client_login_timeout": 1, "server_tls_sslmode": "prefer"}
        with Pooler({"app": server.database()}, **settings) as pooler:
            assert refusal(pooler, "alice", "") != ""
            log = pooler.log_text()
            assert "received unencrypted data after SSL response" in log or "bad sslreq answer" in log

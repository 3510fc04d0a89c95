"""Our secrets and exchanges against a real PostgreSQL server."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from psycopg import sql

from pgshoal.auth.channel_binding import tls_server_end_point
from pgshoal.auth.keys import KeyCache
from pgshoal.auth.md5 import md5_answer
from pgshoal.auth.scram import SCRAM, SCRAM_PLUS, ScramClient
from pgshoal.auth.secret import Keys, SecretKind, derive_verifier, secret_kind
from pgshoal.auth.verify import check_password
from pgshoal.wire import build, read
from pgshoal.wire.catalogue import BACKEND_BY_CODE
from pgshoal.wire.framing import Framer, Message
from tests.support.postgres import PASSWORDS, Postgres

# Plain, folded by NFKC, mapped to nothing, forbidden by RFC 4013, both directions, wide spaces, astral.
ODD_PASSWORDS = [
    "pencil",
    "\u2168 \u00aa",
    "a\u00adb",
    "\ue000x",
    "\u0627x\u0628",
    "a\u3000b\u00a0c",
    "p\u00e4ss\U0001f600",
    "a b'\\",
]


def stored_secret(server: Postgres, password: str, encryption: str) -> str:
    """What the server stores for a role `odd` with this password."""
    with server.connect() as conn:
        conn.execute(sql.SQL("set password_encryption = {}").format(encryption))
        conn.execute("drop role if exists odd")
        conn.execute(sql.SQL("create role odd login password {}").format(password))
        row = conn.execute("select rolpassword from pg_authid where rolname = 'odd'").fetchone()
        conn.execute("drop role odd")
    assert row is not None
    secret: str = row[0]
    return secret


@pytest.mark.parametrize("password", ODD_PASSWORDS)
@pytest.mark.parametrize(("encryption", "kind"), [("md5", SecretKind.MD5), ("scram-sha-256", SecretKind.SCRAM)])
def test_secrets_stored_by_postgresql_fit_their_passwords(
    pg15: Postgres, password: str, encryption: str, kind: SecretKind
) -> None:
    """PostgreSQL prepares and stores odd passwords in a form that our check accepts, and only for that password."""
    secret = stored_secret(pg15, password, encryption)
    assert secret_kind(secret) is kind
    assert check_password(password.encode(), secret, "odd", KeyCache())
    assert not check_password(password.encode() + b"x", secret, "odd", KeyCache())


class Login:
    """A blocking login to a real server, made of nothing but the wire and auth layers."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.framer = Framer("message", specs=BACKEND_BY_CODE)
        self.frames: list[Message] = []

    def message(self) -> Message:
        """The next message from the server."""
        while not self.frames:
            received = self.connection.recv(4096)
            assert received, "the server closed the connection"
            for frame in self.framer.feed(received):
                assert isinstance(frame, Message), frame
                self.frames.append(frame)
        return self.frames.pop(0)

    def auth(self) -> read.AuthRequest:
        """The next message, which must be an Authentication request."""
        message = self.message()
        assert message.type == ord("R"), message
        return read.auth_request(message.payload)

    def start(self, user: str) -> read.AuthRequest:
        """Sends the startup packet; returns what the server asks for."""
        self.connection.sendall(build.startup_message([("user", user), ("database", "app")]))
        return self.auth()

    def scram(self, client: ScramClient) -> None:
        """Plays a SCRAM exchange up to AuthenticationOk."""
        self.connection.sendall(build.sasl_initial(client.mechanism, client.start()))
        request = self.auth()
        assert request.code == read.AUTH_SASL_CONTINUE
        answer = client.feed(request.content)
        if answer is None:
            work = client.needs_work()
            assert work is not None
            answer = client.resume(work())
        self.connection.sendall(build.sasl_response(answer))
        request = self.auth()
        assert request.code == read.AUTH_SASL_FINAL
        client.feed(request.content)
        assert client.done
        assert self.auth().code == read.AUTH_OK


@contextmanager
def login(server: Postgres) -> Iterator[Login]:
    """A plain connection."""
    with socket.create_connection((server.host, server.port), timeout=10) as connection:
        yield Login(connection)


def test_scram_login_by_password_and_then_by_keys(pg15: Postgres) -> None:
    """A password logs in; the keys kept from that login do so again without any derivation."""
    password, cache = PASSWORDS["scram_user"], KeyCache()
    with login(pg15) as session:
        request = session.start("scram_user")
        assert request.mechanisms == (SCRAM,)
        session.scram(ScramClient(password, request.mechanisms, cache=cache))
    with login(pg15) as session:
        request = session.start("scram_user")
        client = ScramClient(password, request.mechanisms, cache=cache)
        session.scram(client)
        assert client.needs_work() is None


def test_pass_through_keys_log_in(pg15: Postgres) -> None:
    """Client and server key alone, without the password, satisfy PostgreSQL."""
    secret = pg15.query("select rolpassword from pg_authid where rolname = 'scram_user'")[0][0]
    verifier = KeyCache().stored(secret)
    assert verifier is not None
    keys = KeyCache().derive_salted(PASSWORDS["scram_user"], verifier.salt, verifier.iterations)
    with login(pg15) as session:
        request = session.start("scram_user")
        session.scram(ScramClient(Keys(keys.client_key, verifier.server_key), request.mechanisms))


@contextmanager
def tls_login(server: Postgres) -> Iterator[tuple[Login, bytes]]:
    """A connection over TLS, and what it binds to."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((server.host, server.port), timeout=10) as plain:
        plain.sendall(build.SSL_REQUEST)
        assert plain.recv(1) == b"S"
        with context.wrap_socket(plain) as connection:
            certificate = connection.getpeercert(binary_form=True)
            assert certificate is not None
            binding = tls_server_end_point(certificate)
            assert binding is not None
            yield Login(connection), binding


def test_channel_binding_is_accepted_over_tls(pg15: Postgres) -> None:
    """Over TLS the server offers PLUS, and accepts our hash of its certificate."""
    with tls_login(pg15) as (session, binding):
        request = session.start("tls_user")
        assert request.mechanisms == (SCRAM_PLUS, SCRAM)
        session.scram(ScramClient(PASSWORDS["tls_user"], request.mechanisms, binding))


def test_binding_to_another_certificate_is_refused_by_the_server(pg15: Postgres) -> None:
    """The hash takes part in the proof: with another one the login fails."""
    with tls_login(pg15) as (session, _):
        request = session.start("tls_user")
        with pytest.raises(AssertionError, match="channel binding check failed"):
            session.scram(ScramClient(PASSWORDS["tls_user"], request.mechanisms, bytes(32)))


def test_secret_we_derive_is_accepted_by_postgresql(pg15: Postgres) -> None:
    """PostgreSQL takes our SCRAM secret as a stored password, and the password then logs in."""
    secret = derive_verifier("p\u00e4ss", 4096).text()
    with pg15.connect() as conn:
        conn.execute(sql.SQL("alter role scram_user password {}").format(secret))
    try:
        with login(pg15) as session:
            session.scram(ScramClient("p\u00e4ss", session.start("scram_user").mechanisms))
    finally:
        with pg15.connect() as conn:
            conn.execute(sql.SQL("alter role scram_user password {}").format(PASSWORDS["scram_user"]))


def test_md5_login(pg15: Postgres) -> None:
    """The md5 answer to PostgreSQL's salt is accepted."""
    with login(pg15) as session:
        request = session.start("md5_user")
        assert request.code == read.AUTH_MD5
        answer = md5_answer(PASSWORDS["md5_user"], "md5_user", request.content)
        assert answer is not None
        session.connection.sendall(build.password_message(answer))
        assert session.auth().code == read.AUTH_OK

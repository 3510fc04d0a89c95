"""A client from accept to the end of its login: TLS, startup packet, limits, authentication, admission."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from socket import gethostname
from typing import TYPE_CHECKING

from pgshoal.auth.scram import ScramServer
from pgshoal.auth.secret import Verifier
from pgshoal.config import effective
from pgshoal.engine.contract import ConnId
from pgshoal.errors import Refused, refuse
from pgshoal.fleet.ledger import Kind
from pgshoal.policy.access import CONSOLE_DATABASE, ConsoleRight, console_right, is_owner
from pgshoal.policy.cancel import LONG_SINCE_MINOR
from pgshoal.policy.startup import LoginWish, Unwelcome, read_wish, with_host
from pgshoal.wire.startup import BadStartup, CancelRequest, GSSENCRequest, SSLRequest, Startup, negotiate, parse_startup
from pgshoal.worker import cancel, client_access, client_auth, clients
from pgshoal.worker.auth_lookup import entry_for
from pgshoal.worker.client_auth import Stage
from pgshoal.worker.handler import ConsoleLogin, Handler
from pgshoal.worker.log import LOG, place, socket_prefix
from pgshoal.worker.records import Client, Database, Found, User
from pgshoal.worker.replication import WORDS

if TYPE_CHECKING:
    from pgshoal.config.hba import HbaRule
    from pgshoal.config.model import DatabaseConfig, Secret
    from pgshoal.policy.lookup import Row
    from pgshoal.worker.auth_lookup import Lookup
    from pgshoal.worker.handler import WorkerFace

_SSL_REQUEST = b"\x04\xd2\x16\x2f"


class ClientLogin(Handler):
    """One client that has not proved itself yet. What it says of itself is fixed by its one startup packet."""

    # Few logins need all of these, so what is usual costs nothing: it stands in the class.
    peer_pid = 0
    stage = Stage.STARTUP
    talked = counted = placed = False
    #: rows of the fleet's ledger it counts in, and of these the user's
    admitted: tuple[int, ...] = ()
    user_row: int | None = None
    tls = ""
    #: what the client has shown; verified by the engine
    certificate: bytes | None = None
    #: what SCRAM can be bound to: our certificate, as it was at the handshake
    binding: bytes | None = None
    #: the line of the hba file that decides
    rule: HbaRule | None = None
    wish: LoginWish | None = None
    user: User | None = None
    database: Database | None = None
    #: under way, and what it gave
    lookup: Lookup | None = None
    found: Found | None = None
    right = ConsoleRight.NONE
    salt = b""
    verifier: Verifier | None = None
    scram: ScramServer | None = None

    def __init__(self, worker: WorkerFace, conn: ConnId) -> None:
        self.worker = worker
        self.conn = conn
        engine = worker.engine
        self.number = worker.next_number()
        self.connect_us = engine.now_us()
        self.connect_time = time.time()
        self.peer_host, self.peer_port, self.local_host, self.local_port = engine.addresses(conn)
        if self.peer_host == "unix":
            self.peer_port = self.local_port = worker.config.settings.listen_port
            self.peer_pid = engine.credentials(conn)[0]

    # -- events

    def packet(self, payload: bytes) -> None:
        """A startup-framed packet."""
        known = self.worker.front.wishes.get(payload)
        if known is not None:
            self.talked = True
            self._begin(*known)
            return
        if payload == _SSL_REQUEST:
            self._ssl_request()
            return
        fact = parse_startup(payload)
        self.talked = not isinstance(fact, SSLRequest | GSSENCRequest)
        if isinstance(fact, Startup):
            self._startup(payload, fact)
        elif isinstance(fact, CancelRequest):
            self._leave()
            cancel.begin(self.worker, self, fact.key)
        elif isinstance(fact, BadStartup):
            text = fact.reason
            self.refuse(refuse("server_reason", reason=text) if not fact.silent else _silent(text))
        elif isinstance(fact, SSLRequest):
            self._ssl_request()
        else:
            self._gss_request()

    def direct_tls(self) -> None:
        """The first byte of a TLS handshake, without SSLRequest."""
        context = self.worker.tls.client
        if context is None or self.tls or self.peer_host == "unix":
            self.refuse(refuse("bad_packet_header", hex="16"))
            return
        self.stage, self.binding = Stage.HANDSHAKE, self.worker.tls.binding
        self.worker.engine.start_tls(self.conn, context)

    def secured(self, version: str, cipher: str, alpn: str, sni: str, certificate: bytes | None) -> None:
        """The handshake is done; whatever came before it counts for nothing."""
        self.tls = f"{version}/{cipher}"
        if certificate is not None:
            self.certificate = certificate
        self.stage = Stage.STARTUP
        self.worker.engine.proceed_startup(self.conn)

    def message(self, kind: int, payload: bytes) -> None:
        """An authentication message."""
        client_auth.message(self, kind, payload)

    def oversize(self, header: bytes) -> None:
        """A length that is not allowed here. A second startup packet looks like that too."""
        if self.stage is Stage.STARTUP:
            if header[:1] == b"p":
                self.refuse(refuse("password_before_startup"))
                return
        elif header[:1] == b"\0":
            self.refuse(refuse("resent_startup"))
            return
        elif client_auth.is_long_sasl(self.stage, header):
            self.refuse(refuse("sasl_failed"))
            return
        self.refuse(refuse("bad_packet_header", hex=header.hex()))

    def closed(self, reason: str) -> None:
        """The client has gone, or its handshake failed. One that never said who it is is not worth a line."""
        lead = self.lead()
        self._leave()
        if reason.startswith("tls: "):
            self.worker.log.warning(f"{lead}TLS handshake error: {reason[5:]}")
        elif not self.talked:
            return
        clients.log_closing(self.worker, lead, reason, self.connect_time, told=False)

    # -- encryption requests

    def _ssl_request(self) -> None:
        engine, context = self.worker.engine, self.worker.tls.client
        if self.tls:
            self.refuse(refuse("second_ssl"))
            return
        # Bytes sent before the answer could pass for bytes sent inside TLS.
        if engine.facts(self.conn).recv_pending > 0:
            self.refuse(refuse("data_after_ssl_request"))
            return
        if context is None or self.peer_host == "unix":
            engine.send(self.conn, b"N")
            engine.proceed_startup(self.conn)
            return
        engine.send(self.conn, b"S")
        self.stage, self.binding = Stage.HANDSHAKE, self.worker.tls.binding
        if not engine.start_tls(self.conn, context):
            self.refuse(refuse("data_after_ssl_request"))

    def _gss_request(self) -> None:
        engine = self.worker.engine
        if engine.facts(self.conn).recv_pending > 0:
            self.refuse(refuse("data_after_gss_request"))
            return
        engine.send(self.conn, b"N")
        engine.proceed_startup(self.conn)

    # -- who and where

    def _startup(self, packet: bytes, startup: Startup) -> None:
        front = self.worker.front
        wish = read_wish(startup, front.rules)
        if isinstance(wish, Unwelcome):
            if wish.warning:
                self.worker.log.warning(self.lead() + wish.warning)
            self.refuse(refuse(wish.key, name=wish.name))
            return
        negotiation = negotiate(startup)
        front.remember_wish(packet, wish, negotiation)
        self._begin(wish, negotiation)

    def _begin(self, wish: LoginWish, negotiation: bytes | None) -> None:
        worker = self.worker
        self.wish = wish
        if worker.tls.client_required and not self.tls and self.peer_host != "unix":
            self.refuse(refuse("ssl_required"))
            return
        settings = worker.config.settings
        console = wish.database == CONSOLE_DATABASE
        pools = worker.pools
        admitted = worker.admissions.enter(settings.max_client_conn, exempt=console)
        worker.balance.entered()
        if admitted is None:
            self.refuse(refuse("max_client_conn"))
            return
        self.admitted = admitted
        if negotiation is not None:
            worker.engine.send(self.conn, negotiation)
        user = self.user = pools.users.get(wish.user)
        if console:
            self._begin_console(wish)
        elif settings.auth_type == "any":
            if not self._begin_any(wish):
                return
        elif user is not None:
            # A name that only `*` knows is registered after the proof, not before.
            self.database = pools.databases.get(wish.database)
        if not self._find_user(wish):
            return
        if self._count():
            self._place(wish)

    def _find_user(self, wish: LoginWish) -> bool:
        """What to do about a user whose secret no file names; False if the login goes on by itself, or not at all."""
        worker, user = self.worker, self.user
        if user is not None and user.secret is not None:
            return True
        entry = entry_for(worker, self)
        if entry is None and not client_access.is_known(self):
            worker.log.log(f"{self.lead()}no such user: {wish.user}")
        if not client_access.by_secret(self):
            # Somebody outside decides, or nobody.
            if entry is not None and worker.config.settings.auth_type == "pam":
                self.refuse(refuse("bouncer_config_error"))
                return False
            self.database = worker.pools.databases.get(wish.database)
            return True
        if entry is not None:
            self._look_up(entry, wish)
            return False
        return True

    def _look_up(self, entry: DatabaseConfig, wish: LoginWish) -> None:
        """auth_query decides who this is; the database's limit counts before, so that nobody can flood it."""
        self.database = self.worker.pools.databases.get(wish.database)
        if self._count():
            self.stage = Stage.WORK
            lookup = self.worker.lookups.begin(self, entry)
            if self.stage is Stage.WORK:
                self.lookup = lookup

    def looked_up(self, row: Row | None) -> None:
        """What auth_query has found."""
        worker, wish = self.worker, self.wish
        self.lookup = None
        assert wish is not None
        if row is None:
            worker.log.log(f"{self.lead()}login failed: db={wish.database} user={wish.user}")
            self.refuse(refuse("no_such_user"))
            return
        if wish.database == CONSOLE_DATABASE:
            settings = worker.config.settings
            self.right = console_right(row.user, settings.admin_users, settings.stats_users, settings.auth_type)
        if self.admit_as(*worker.lookups.user(row, wish.database)):
            self._place(wish)

    def admit_as(self, user: User, found: Found) -> bool:
        """Only now is it known whose client this is, and what it knows; False if that user has too many clients."""
        before, self.user, self.found = self.user, user, found
        if user is not before:
            user.client_connections += 1
            if before is not None:
                before.client_connections -= 1
            self._leave_user()
        return self._user_fits(user)

    def secret(self) -> Secret | None:
        """What the client must know: its entry in auth_file, or what was looked up."""
        holder = self.found or self.user
        return None if holder is None else holder.secret

    def _place(self, wish: LoginWish) -> None:
        """User and database are known and counted: console rights, then the proof."""
        worker = self.worker
        settings = worker.config.settings
        console = wish.database == CONSOLE_DATABASE
        self.placed = True
        if settings.log_connections:
            name = wish.user if self.user is None else self.user.name
            said = f"tls={self.tls or 'no'} replication={WORDS[wish.replication]}"
            worker.log.write(LOG, f"{self.lead()}login attempt: db={wish.database} user={name} {said}")
        if console and self.right is ConsoleRight.NONE and client_access.is_known(self):
            self.refuse(refuse("not_allowed"))
        elif console and (self.user is worker.front.console_user):
            self.authenticated()
        else:
            client_auth.begin(self)

    def _begin_console(self, wish: LoginWish) -> None:
        """The rights on the console; the owner of the process needs no password on the Unix socket."""
        worker = self.worker
        settings = worker.config.settings
        if self._is_owner(wish):
            worker.log.log(f"{self._lead(user=wish.user)}pgbouncer access from unix socket")
            self.right = ConsoleRight.ADMIN
            self.user = worker.front.console_user
        else:
            self.right = console_right(wish.user, settings.admin_users, settings.stats_users, settings.auth_type)
            if settings.auth_type == "any":
                self.user = worker.front.console_user

    def _is_owner(self, wish: LoginWish) -> bool:
        uid = self.worker.engine.credentials(self.conn)[1] if self.peer_host == "unix" else None
        return is_owner(wish.user, uid, os.geteuid())

    def _begin_any(self, wish: LoginWish) -> bool:
        """auth_type any: the name does not matter, so the entry must say who logs in to the server."""
        worker = self.worker
        entry = worker.config.database(wish.database)
        database = worker.pools.database(wish.database) if entry is not None and entry.user is not None else None
        if database is None:
            worker.log.error(f"{self.lead()}auth_type=any requires forced user")
            self.refuse(refuse("bouncer_config_error"))
            return False
        self.database = database
        self.user = worker.pools.pool(database, worker.front.console_user).user
        return True

    def _count(self) -> bool:
        """Count the client with its database and user; False if that was one too many."""
        worker, database, user = self.worker, self.database, self.user
        self.counted = True
        if user is not None:
            user.client_connections += 1
        if database is not None:
            database.client_connections += 1
            limit = worker.front.database_limits.get(database.name)
            if limit is None:
                limit = worker.front.database_limit(worker.config, database)
        else:
            limit = self._limit_of_unknown()
        if limit and self.wish is not None:
            row = worker.admissions.join(Kind.DATABASE_CLIENTS, self.wish.database, limit)
            if row is None:
                self.refuse(refuse("max_db_client_connections"))
                return False
            self.admitted += (row,)
        return user is None or self._user_fits(user)

    def _limit_of_unknown(self) -> int:
        """Of a name that only `*` knows, and that other workers may have clients of."""
        config = self.worker.config
        if config.autodb is None or self.wish is None or self.wish.database == CONSOLE_DATABASE:
            return 0
        entry = config.database(self.wish.database)
        return 0 if entry is None else effective.max_db_client_connections(config, entry)

    def _user_fits(self, user: User) -> bool:
        front = self.worker.front
        limit = front.user_limits.get(user.name)
        if limit is None:
            limit = front.user_limit(self.worker.config, user.name)
        if limit and self.user_row is None:
            # A console admin counts, and is never held.
            held = 0 if self.right is ConsoleRight.ADMIN else limit
            row = self.user_row = self.worker.admissions.join(Kind.USER_CLIENTS, user.name, held)
            if row is None:
                self.refuse(refuse("max_user_client_connections"))
                return False
            self.admitted += (row,)
        return True

    def _leave_user(self) -> None:
        row, self.user_row = self.user_row, None
        if row is not None:
            self.worker.admissions.leave((row,))
            self.admitted = tuple(each for each in self.admitted if each != row)

    # -- the end

    def authenticated(self) -> None:
        """The client has proved who it is."""
        worker, wish, user = self.worker, self.wish, self.user
        assert wish is not None
        assert user is not None
        self.stage = Stage.DONE
        if user.found and self.found is None:
            user.forget_typed(wish.database)
        if wish.database == CONSOLE_DATABASE:
            self._open_console(wish, user)
            return
        if worker.shutdown:
            self.refuse(refuse("pooler_shutting_down"))
            return
        # A reload may have come between; then the record of the same name is another one.
        database = worker.pools.databases.get(wish.database) or worker.pools.database(wish.database, self._lead())
        if database is not self.database:
            self._recount(database)
        if database is None:
            worker.log.log(f"{self.lead()}login failed: db={wish.database} user={user.name}")
            self.refuse(refuse("no_such_database", db=wish.database))
            return
        if database.disabled:
            self.refuse(refuse("database_disabled", db=database.name))
            return
        wished = wish.parameters
        settings = worker.config.settings
        if settings.application_name_add_host:
            wished = with_host(wished, self.peer_host, self.peer_port, self.peer_pid, gethostname())
        conn, front = self.conn, worker.front
        if wish.replication == "none":
            pool = worker.pools.pool(database, user)
        else:
            pool = worker.replication.pool(database, user, wish, wished)
        client = Client(
            conn, self.number, pool, user, database,
            front.new_key(conn, wish.minor >= LONG_SINCE_MINOR), self.connect_time,
            self.peer_host, self.peer_port, self.local_host, self.local_port, self.peer_pid, self.tls,
            wish.replication, self.admitted,
        )  # fmt: skip
        del front.logins[conn]
        worker.handlers.pop(conn, None)
        clients.enter(worker, client, wished, self.connect_us)

    def _open_console(self, wish: LoginWish, user: User) -> None:
        worker, front, conn = self.worker, self.worker.front, self.conn
        if worker.console is None:
            self.refuse(refuse("no_such_database", db=wish.database))
            return
        if self.right is ConsoleRight.NONE:
            self.refuse(refuse("not_allowed"))
            return
        own = wish.parameters
        if worker.config.settings.application_name_add_host:
            own = with_host(own, self.peer_host, self.peer_port, self.peer_pid, gethostname())
        login = ConsoleLogin(
            conn, self.number, user, self.right is ConsoleRight.ADMIN,
            front.new_key(conn, wish.minor >= LONG_SINCE_MINOR), self.connect_time, self.connect_us,
            self.peer_host, self.peer_port, self.local_host, self.local_port, self.peer_pid, self.tls,
            list(own), self._is_owner(wish), self.admitted,
        )  # fmt: skip
        del front.logins[conn]
        front.consoles[conn] = login
        worker.handlers[conn] = worker.console.open(login)

    def lead(self) -> str:
        """How log lines begin that speak of this client."""
        user = database = ""
        if self.counted and self.wish is not None:
            user = self.wish.user if self.user is None else self.user.name
            if self.placed and self.user is not None:
                console = self.wish.database == CONSOLE_DATABASE
                # A name that only `*` knows is not registered yet.
                known = console or self.database is not None or self.worker.config.database(self.wish.database)
                database = self.wish.database if known else ""
        return self._lead(database, user)

    def _lead(self, database: str = "", user: str = "") -> str:
        return socket_prefix("C", self.conn, database, user, place(self.peer_host, self.peer_port, self.peer_pid))

    def refuse(self, refused: Refused) -> None:
        """Tell the client, unless the refusal is a silent one, and close."""
        lead = self.lead()
        if self.found is not None and self.wish is not None:
            # The password may be a new one, and what we remember an old one.
            self.worker.lookups.cache.forget(self.wish.user)
        self._leave()
        packet = clients.error_packet(refused)
        clients.log_closing(self.worker, lead, refused.text, self.connect_time, bool(packet))
        with suppress(KeyError):  # it died in this same wake
            self.worker.engine.close(self.conn, packet, refused.text)

    def _leave(self) -> None:
        self.stage = Stage.DONE
        self.worker.front.logins.pop(self.conn, None)
        self.worker.handlers.pop(self.conn, None)
        if self.lookup is not None:
            self.worker.lookups.abandon(self.lookup)
            self.lookup = None
        rows, self.admitted = self.admitted, ()
        self.worker.admissions.leave(rows)
        if self.counted:
            self.counted = False
            if self.database is not None:
                self.database.client_connections -= 1
            if self.user is not None:
                self.user.client_connections -= 1

    def _recount(self, database: Database | None) -> None:
        if self.database is not None:
            self.database.client_connections -= 1
        if database is not None:
            database.client_connections += 1
        self.database = database


def _silent(text: str) -> Refused:
    return Refused("bad_packet", text, "08P01", "FATAL", "", True)

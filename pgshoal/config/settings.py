"""SETTINGS: one row per setting of every section; the parser, SHOW CONFIG, SET, reload and check all read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pgshoal.config import kinds
from pgshoal.config.kinds import (
    CPU_LIST,
    DATABASE_NAME,
    FLAG,
    HTTP_LISTEN,
    NAMES,
    NETWORKS,
    PATH,
    SECONDS,
    SQL,
    TEXT,
    TLS_PROTOCOLS,
    WORKERS,
    Kind,
    choice,
    integer,
)
from pgshoal.config.model import DEFAULT_AUTH_QUERY

Section = Literal["pgbouncer", "databases", "users", "peers"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: what may be written, and what it means."""

    section: Section
    name: str
    kind: Kind
    default: str | None
    """The default as text; None means unset (SHOW CONFIG prints NULL)."""
    doc: str
    reloadable: bool = True
    aliases: tuple[str, ...] = ()
    secret: bool = False
    """The value must not be shown."""
    field: str = ""
    """The attribute in the model, where it is not `name`."""

    @property
    def attribute(self) -> str:
        """The attribute of Settings, DatabaseConfig, UserConfig or PeerConfig that holds the value."""
        return self.field or self.name


_COUNT = integer()
_BYTES = integer(unit="bytes")
_WHOLE_SECONDS = integer(unit="seconds")
_POOL_MODE = choice("session", "transaction", "statement")
_TLS_MODE = choice("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_AUTH_TYPE = choice("any", "trust", "plain", "md5", "cert", "hba", "scram-sha-256", "ldap", "pam")
_FACILITY = choice("auth", "authpriv", "daemon", "user", *(f"local{number}" for number in range(8)))
_ATTRIBUTES = choice("any", "read-write", "read-only", "primary", "standby", "prefer-standby")
_DHE = choice("none", "auto", "legacy")
_INHERIT_COUNT = kinds.inheriting_integer()
_INHERIT_SECONDS = kinds.INHERITING_SECONDS
_PORT = kinds.port()


def _main(
    name: str,
    kind: Kind,
    default: str | None,
    doc: str,
    *,
    boot: bool = False,
    secret: bool = False,
) -> Setting:
    return Setting("pgbouncer", name, kind, default, doc, not boot, secret=secret)


def _database(name: str, kind: Kind, doc: str, default: str | None = None, **more: bool | str) -> Setting:
    aliases = (str(more["alias"]),) if "alias" in more else ()
    return Setting(
        "databases",
        name,
        kind,
        default,
        doc,
        aliases=aliases,
        secret=bool(more.get("secret")),
        field=str(more.get("field", "")),
    )


def _user(name: str, kind: Kind, doc: str) -> Setting:
    return Setting("users", name, kind, None, doc)


def _peer(name: str, kind: Kind, default: str | None, doc: str) -> Setting:
    return Setting("peers", name, kind, default, doc)


_LISTEN = (
    _main("listen_addr", NAMES, "", "TCP addresses or names to listen on; * is all, empty is none", boot=True),
    _main("listen_port", integer(0, 65535), "6432", "TCP port, also the suffix of the Unix socket", boot=True),
    _main("listen_backlog", _COUNT, "128", "length of the kernel's queue of new connections", boot=True),
    _main("unix_socket_dir", PATH, "/tmp", "directory of the Unix socket; empty is none, @name abstract", boot=True),
    _main("unix_socket_group", TEXT, "", "group of the Unix socket file, a name or a number", boot=True),
    _main("unix_socket_mode", integer(0, 0o7777), "0777", "mode of the Unix socket file (octal with a 0)", boot=True),
    _main("so_reuseport", FLAG, "0", "let several poolers share the TCP port", boot=True),
    _main("tcp_defer_accept", FLAG, "1", "wake only when a new client has sent something"),
    _main("tcp_keepalive", FLAG, "1", "TCP keepalive"),
    _main("tcp_keepcnt", _COUNT, "0", "keepalive probes before a connection is dead; 0 is the system's"),
    _main("tcp_keepidle", _WHOLE_SECONDS, "0", "quiet seconds before the first keepalive probe; 0 is the system's"),
    _main("tcp_keepintvl", _WHOLE_SECONDS, "0", "seconds between keepalive probes; 0 is the system's"),
    _main("tcp_socket_buffer", _BYTES, "0", "kernel buffer of each socket and direction; 0 is the system's"),
    _main("tcp_user_timeout", integer(unit="milliseconds"), "0", "how long sent data may stay unacknowledged"),
)

_PROCESS = (
    _main("conffile", PATH, None, "the configuration file the next RELOAD reads"),
    _main("user", TEXT, None, "account to switch to when started as root", boot=True),
    _main("pidfile", PATH, "", "file that holds the process number", boot=True),
    _main("job_name", TEXT, "pgbouncer", "name of a Windows service; no effect here", boot=True),
    _main("peer_id", integer(0, 65535), "0", "own number among peers; 0 is off"),
    _main("pkt_buf", integer(64, unit="bytes"), "4096", "longest console command; buffers grow by need", boot=True),
    _main("sbuf_loopcnt", _COUNT, "5", "no effect: no connection keeps the others waiting"),
    _main("max_packet_size", integer(16, 2**32 - 1, "bytes"), "2147483647", "largest protocol message accepted"),
    _main("stats_period", integer(1, unit="seconds"), "60", "seconds between averages, and between statistics lines"),
)

_LOG = (
    _main("logfile", PATH, "", "log file; empty is standard error only"),
    _main("log_connections", FLAG, "1", "log logins"),
    _main("log_disconnections", FLAG, "1", "log closed connections with their reason"),
    _main("log_pooler_errors", FLAG, "1", "log errors sent to clients"),
    _main("log_stats", FLAG, "1", "log a statistics line every stats_period"),
    _main("verbose", integer(0, 9), None, "log more: 1 debug, 2 noise"),
    _main("syslog", FLAG, "0", "log to syslog too"),
    _main("syslog_facility", _FACILITY, "daemon", "syslog facility"),
    _main("syslog_ident", TEXT, "pgbouncer", "program name in syslog"),
)

_AUTH = (
    _main("admin_users", NAMES, "", "users who may run every console command"),
    _main("stats_users", NAMES, "", "users who may look at the console"),
    _main("auth_type", _AUTH_TYPE, "md5", "how clients prove who they are"),
    _main("auth_file", PATH, None, "file of user names and secrets"),
    _main("auth_hba_file", PATH, "", "host-based access rules, for auth_type=hba"),
    _main("auth_ident_file", PATH, None, "maps of system users to database users, for auth_type=hba"),
    _main("auth_ldap_options", TEXT, None, "LDAP parameters, for auth_type=ldap", secret=True),
    _main("auth_query", SQL, DEFAULT_AUTH_QUERY, "finds name and secret of a user not in auth_file"),
    _main("auth_query_cache_ttl", SECONDS, "0", "how long an answer of auth_query is used again; 0 is never"),
    _main("auth_user", TEXT, None, "login that runs auth_query; turns lookups on"),
    _main("auth_dbname", DATABASE_NAME, None, "database entry where auth_query runs"),
    _main("scram_iterations", integer(1, 1_000_000), "4096", "iterations of SCRAM secrets made from plain text"),
    _main("ignore_startup_parameters", NAMES, "", "startup parameters accepted and dropped; options too"),
    _main("track_extra_parameters", NAMES, "", "more parameters kept per client across servers", boot=True),
    _main("application_name_add_host", FLAG, "0", "add the client's address to application_name at login"),
    _main("login_notify_message", TEXT, "", "notice sent to each client at login; empty is none"),
    _main("disable_pqexec", FLAG, "0", "refuse simple queries", boot=True),
)

_POOL = (
    _main("pool_mode", _POOL_MODE, "session", "when a server returns to its pool"),
    _main("default_pool_size", _COUNT, "20", "server connections per database and user; 0 is no limit"),
    _main("min_pool_size", _COUNT, "0", "server connections kept open per pool"),
    _main("reserve_pool_size", _COUNT, "0", "more server connections when clients wait long; 0 is none"),
    _main("reserve_pool_timeout", SECONDS, "5", "wait after which the reserve is used; 0 never"),
    _main("max_client_conn", _COUNT, "100", "client connections in all"),
    _main("max_db_connections", _COUNT, "0", "server connections per database; 0 is no limit"),
    _main("max_db_client_connections", _COUNT, "0", "client connections per database; 0 is no limit"),
    _main("max_user_connections", _COUNT, "0", "server connections per user; 0 is no limit"),
    _main("max_user_client_connections", _COUNT, "0", "client connections per user; 0 is no limit"),
    _main("max_prepared_statements", _COUNT, "200", "prepared statements kept per server; 0 is no tracking"),
    _main("server_round_robin", FLAG, "0", "reuse the server that rested longest, not the latest"),
    _main("server_reset_query", SQL, "DISCARD ALL", "cleans a server when a session client leaves; empty is none"),
    _main("server_reset_query_always", FLAG, "0", "run server_reset_query in all pool modes"),
    _main("server_check_query", SQL, "<empty>", "liveness query; <empty> is an empty query, empty is no check"),
    _main("server_check_delay", SECONDS, "30", "rest after which a server is checked; 0 is before every reuse"),
    _main("server_fast_close", FLAG, "0", "close outdated session servers at the next transaction end"),
    _main("server_connect_parallel", integer(1, 1000), "4", "connection attempts under way at once per pool"),
)

_TIME = (
    _main("server_lifetime", SECONDS, "3600", "age after which a free server is closed; 0 is after one use"),
    _main("server_idle_timeout", SECONDS, "600", "rest after which a server is closed; 0 is never"),
    _main("server_connect_timeout", SECONDS, "15", "limit to connect and log in to a server"),
    _main("server_login_retry", SECONDS, "15", "pause after a failed connection or login to a server"),
    _main("client_login_timeout", SECONDS, "60", "limit for a client's login; 0 is none"),
    _main("client_idle_timeout", SECONDS, "0", "close clients idle for so long; 0 is never"),
    _main("query_timeout", SECONDS, "0", "limit for a running or queued query; 0 is none"),
    _main("query_wait_timeout", SECONDS, "120", "limit for waiting for a server; 0 is none"),
    _main("query_wait_notify", _WHOLE_SECONDS, "5", "seconds of waiting after which a client is told; 0 is never"),
    _main("cancel_wait_timeout", SECONDS, "10", "limit for a cancel request that waits; 0 is none"),
    _main("idle_transaction_timeout", SECONDS, "0", "limit for an idle transaction; 0 is none"),
    _main("transaction_timeout", SECONDS, "0", "limit for a transaction; 0 is none"),
    _main("autodb_idle_timeout", SECONDS, "3600", "rest after which a database made by * is dropped; 0 is never"),
    _main("pool_idle_timeout", SECONDS, "0", "rest after which an empty pool is dropped; 0 is never"),
    _main("dns_max_ttl", SECONDS, "15", "how long a found address is kept"),
    _main("dns_nxdomain_ttl", SECONDS, "15", "how long a failed lookup is kept"),
    _main("dns_zone_check_period", SECONDS, "0", "how often zone serials are compared; 0 is never"),
    _main("resolv_conf", PATH, "", "resolver configuration file; empty is the system's", boot=True),
)


def _tls(side: str, default_mode: str, peer: str) -> tuple[Setting, ...]:
    return (
        _main(f"{side}_tls_sslmode", _TLS_MODE, default_mode, f"whether TLS is used with {peer}"),
        _main(f"{side}_tls_ca_file", PATH, "", f"certificates that vouch for {peer}"),
        _main(f"{side}_tls_cert_file", PATH, "", f"certificate shown to {peer}"),
        _main(f"{side}_tls_key_file", PATH, "", f"private key of the certificate shown to {peer}"),
        _main(f"{side}_tls_protocols", TLS_PROTOCOLS, "secure", f"TLS versions used with {peer}"),
        _main(f"{side}_tls_ciphers", TEXT, "default", f"ciphers up to TLS 1.2 with {peer}"),
        _main(f"{side}_tls13_ciphers", TEXT, None, f"TLS 1.3 suites with {peer}"),
    )


_TLS = (
    *_tls("client", "disable", "clients"),
    *_tls("server", "prefer", "servers"),
    _main("client_tls_dheparams", _DHE, "auto", "no effect: key exchange with clients is by curves only"),
    _main("client_tls_ecdhcurve", TEXT, "auto", "curve with clients: auto (none is the same) or a name"),
)

_OURS = (
    _main("workers", WORKERS, "auto", "worker processes; auto is one per usable CPU", boot=True),
    _main("worker_cpu_affinity", CPU_LIST, "none", "processors workers are bound to", boot=True),
    _main("budget", choice("elastic", "static"), "elastic", "how workers share the limits on servers"),
    _main("accept_balance", choice("least", "kernel", "pack"), "least", "which worker gets a new client"),
    _main("engine", choice("auto", "uring", "epoll", "python"), "auto", "what relays the traffic", boot=True),
    _main("proxy_protocol", choice("off", "on"), "off", "take clients' addresses from PROXY headers (v2)", boot=True),
    _main("proxy_protocol_networks", NETWORKS, "", "where the balancers are that send PROXY headers"),
    _main("http_listen", HTTP_LISTEN, "off", "address of the HTTP page with /metrics and /health", boot=True),
)

_DATABASES = (
    _database("dbname", TEXT, "database name on the server; unset is the entry's own"),
    _database("host", NAMES, "server addresses or Unix socket directory; unset is unix_socket_dir", field="hosts"),
    _database("port", _PORT, "server port", "5432"),
    _database("user", TEXT, "login used for every client of this entry"),
    _database("password", TEXT, "password of that login; unset is the one in auth_file", secret=True),
    _database("auth_user", TEXT, "overrides auth_user"),
    _database("auth_query", SQL, "overrides auth_query"),
    _database("auth_dbname", TEXT, "overrides auth_dbname"),
    _database("client_encoding", TEXT, "client_encoding asked of the server at login"),
    _database("datestyle", TEXT, "DateStyle asked of the server at login"),
    _database("timezone", TEXT, "TimeZone asked of the server at login"),
    _database("application_name", TEXT, "application_name given to the server at login"),
    _database("pool_size", _INHERIT_COUNT, "overrides default_pool_size; 0 is no limit"),
    _database("min_pool_size", _INHERIT_COUNT, "overrides min_pool_size"),
    _database("reserve_pool_size", _INHERIT_COUNT, "overrides reserve_pool_size", alias="reserve_pool"),
    _database("query_wait_timeout", _INHERIT_SECONDS, "overrides query_wait_timeout; 0 is none"),
    _database("max_db_connections", _INHERIT_COUNT, "overrides max_db_connections if above 0"),
    _database("max_db_client_connections", _INHERIT_COUNT, "overrides max_db_client_connections if above 0"),
    _database("server_lifetime", _INHERIT_SECONDS, "overrides server_lifetime if above 0"),
    _database("load_balance_hosts", choice("round-robin", "disable"), "order of a host list", "round-robin"),
    _database("target_session_attrs", _ATTRIBUTES, "which servers of a host list are used (pgshoal's own)", "any"),
    _database("pool_mode", _POOL_MODE, "overrides pool_mode"),
    _database("connect_query", SQL, "run once on each new server connection"),
    _database("server_tls_sslmode", _TLS_MODE, "overrides server_tls_sslmode (pgshoal's own, as those below)"),
    _database("server_tls_ca_file", PATH, "overrides server_tls_ca_file"),
    _database("server_tls_cert_file", PATH, "overrides server_tls_cert_file"),
    _database("server_tls_key_file", PATH, "overrides server_tls_key_file"),
    _database("server_tls_protocols", TLS_PROTOCOLS, "overrides server_tls_protocols"),
    _database("server_tls_ciphers", TEXT, "overrides server_tls_ciphers"),
    _database("server_tls13_ciphers", TEXT, "overrides server_tls13_ciphers"),
)

_USERS = (
    _user("pool_mode", _POOL_MODE, "overrides the database's pool_mode"),
    _user("pool_size", _INHERIT_COUNT, "overrides the database's pool_size"),
    _user("reserve_pool_size", _INHERIT_COUNT, "overrides the database's reserve_pool_size"),
    _user("max_user_connections", _INHERIT_COUNT, "overrides max_user_connections if above 0"),
    _user("max_user_client_connections", _INHERIT_COUNT, "overrides max_user_client_connections if above 0"),
    _user("query_timeout", _INHERIT_SECONDS, "overrides query_timeout if above 0"),
    _user("query_wait_timeout", _INHERIT_SECONDS, "overrides query_wait_timeout; 0 is none"),
    _user("idle_transaction_timeout", _INHERIT_SECONDS, "overrides idle_transaction_timeout if above 0"),
    _user("transaction_timeout", _INHERIT_SECONDS, "overrides transaction_timeout if above 0"),
    _user("client_idle_timeout", _INHERIT_SECONDS, "overrides client_idle_timeout if above 0"),
)

_PEERS = (
    _peer("host", TEXT, None, "address or Unix socket directory of the peer; must be given"),
    _peer("port", _PORT, "6432", "port of the peer"),
    _peer("pool_size", _INHERIT_COUNT, None, "cancel requests forwarded at once; unset is default_pool_size"),
)

SETTINGS: tuple[Setting, ...] = (
    *_LISTEN,
    *_PROCESS,
    *_LOG,
    *_AUTH,
    *_POOL,
    *_TIME,
    *_TLS,
    *_OURS,
    *_DATABASES,
    *_USERS,
    *_PEERS,
)


def _index(section: Section) -> Mapping[str, Setting]:
    rows = [row for row in SETTINGS if row.section == section]
    return {name: row for row in rows for name in (row.name, *row.aliases)}


BY_NAME: Mapping[Section, Mapping[str, Setting]] = {
    "pgbouncer": _index("pgbouncer"),
    "databases": _index("databases"),
    "users": _index("users"),
    "peers": _index("peers"),
}
"""section -> name or alias -> row."""

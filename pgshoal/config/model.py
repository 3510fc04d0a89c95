"""The parsed configuration as immutable records: what the rest of the pooler reads, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network
from typing import Literal

from pgshoal.config.hba import HbaRule
from pgshoal.config.ident import Maps
from pgshoal.config.ldap import LdapOptions
from pgshoal.errors import ConfigError

PoolMode = Literal["session", "transaction", "statement"]
AuthType = Literal["any", "trust", "plain", "md5", "cert", "hba", "scram-sha-256", "ldap", "pam"]
TlsMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]
LoadBalance = Literal["round-robin", "disable"]
SessionAttributes = Literal["any", "read-write", "read-only", "primary", "standby", "prefer-standby"]
"""As libpq's: what a session must be like. prefer-standby takes any server if there is no standby."""
SecretKind = Literal["plain", "md5", "scram", "empty"]

DATABASE_NAME_BYTES_MAX = 63
DEFAULT_AUTH_QUERY = (
    "SELECT rolname, CASE WHEN rolvaliduntil < now() THEN NULL ELSE rolpassword END "
    "FROM pg_authid WHERE rolname=$1 AND rolcanlogin"
)


@dataclass(frozen=True, slots=True)
class Secret:
    """A stored password or verifier; its text never shows in a repr."""

    kind: SecretKind
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written; `text` is the value as written, hidden because it may hold a password."""

    file: str
    line: int
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """The [pgbouncer] section. Times are seconds; None means unset; the defaults are those of SETTINGS."""

    admin_users: tuple[str, ...] = ()
    application_name_add_host: bool = False
    auth_dbname: str | None = None
    auth_file: str | None = None
    auth_hba_file: str = ""
    auth_ident_file: str | None = None
    auth_ldap_options: str | None = field(default=None, repr=False)
    auth_query: str = DEFAULT_AUTH_QUERY
    auth_type: AuthType = "md5"
    auth_user: str | None = None
    autodb_idle_timeout: float = 3600.0
    cancel_wait_timeout: float = 10.0
    client_idle_timeout: float = 0.0
    client_login_timeout: float = 60.0
    client_tls13_ciphers: str | None = None
    client_tls_ca_file: str = ""
    client_tls_cert_file: str = ""
    client_tls_ciphers: str = "default"
    client_tls_dheparams: str = "auto"
    client_tls_ecdhcurve: str = "auto"
    client_tls_key_file: str = ""
    client_tls_protocols: tuple[str, ...] = ("tlsv1.2", "tlsv1.3")
    client_tls_sslmode: TlsMode = "disable"
    conffile: str | None = None
    default_pool_size: int = 20
    disable_pqexec: bool = False
    dns_max_ttl: float = 15.0
    dns_nxdomain_ttl: float = 15.0
    dns_zone_check_period: float = 0.0
    idle_transaction_timeout: float = 0.0
    ignore_startup_parameters: tuple[str, ...] = ()
    job_name: str = "pgbouncer"
    listen_addr: tuple[str, ...] = ()
    listen_backlog: int = 128
    listen_port: int = 6432
    log_connections: bool = True
    log_disconnections: bool = True
    log_pooler_errors: bool = True
    log_stats: bool = True
    logfile: str = ""
    login_notify_message: str = ""
    max_client_conn: int = 100
    max_db_client_connections: int = 0
    max_db_connections: int = 0
    max_packet_size: int = 2147483647
    max_prepared_statements: int = 200
    max_user_client_connections: int = 0
    max_user_connections: int = 0
    min_pool_size: int = 0
    peer_id: int = 0
    pidfile: str = ""
    pkt_buf: int = 4096
    pool_idle_timeout: float = 0.0
    pool_mode: PoolMode = "session"
    query_timeout: float = 0.0
    query_wait_notify: int = 5
    query_wait_timeout: float = 120.0
    reserve_pool_size: int = 0
    reserve_pool_timeout: float = 5.0
    resolv_conf: str = ""
    sbuf_loopcnt: int = 5
    scram_iterations: int = 4096
    server_check_delay: float = 30.0
    server_check_query: str = "<empty>"
    server_connect_timeout: float = 15.0
    server_fast_close: bool = False
    server_idle_timeout: float = 600.0
    server_lifetime: float = 3600.0
    server_login_retry: float = 15.0
    server_reset_query: str = "DISCARD ALL"
    server_reset_query_always: bool = False
    server_round_robin: bool = False
    server_tls13_ciphers: str | None = None
    server_tls_ca_file: str = ""
    server_tls_cert_file: str = ""
    server_tls_ciphers: str = "default"
    server_tls_key_file: str = ""
    server_tls_protocols: tuple[str, ...] = ("tlsv1.2", "tlsv1.3")
    server_tls_sslmode: TlsMode = "prefer"
    so_reuseport: bool = False
    stats_period: int = 60
    stats_users: tuple[str, ...] = ()
    syslog: bool = False
    syslog_facility: str = "daemon"
    syslog_ident: str = "pgbouncer"
    tcp_defer_accept: bool = True
    tcp_keepalive: bool = True
    tcp_keepcnt: int = 0
    tcp_keepidle: int = 0
    tcp_keepintvl: int = 0
    tcp_socket_buffer: int = 0
    tcp_user_timeout: int = 0
    track_extra_parameters: tuple[str, ...] = ()
    transaction_timeout: float = 0.0
    unix_socket_dir: str = "/tmp"
    unix_socket_group: str = ""
    unix_socket_mode: int = 0o777
    user: str | None = None
    verbose: int = 0
    # Ours. workers: 0 means auto, one per core.
    auth_query_cache_ttl: float = 0.0
    accept_balance: Literal["least", "kernel", "pack"] = "least"
    budget: Literal["elastic", "static"] = "elastic"
    engine: Literal["auto", "uring", "epoll", "python"] = "auto"
    http_listen: str = "off"
    proxy_protocol: Literal["off", "on"] = "off"
    proxy_protocol_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    server_connect_parallel: int = 4
    worker_cpu_affinity: str = "none"
    workers: int = 0


@dataclass(frozen=True, slots=True)
class DatabaseConfig:
    """One [databases] entry; None means unset, so that a wider scope decides (see effective.py)."""

    name: str
    dbname: str | None = None
    hosts: tuple[str, ...] = ()
    port: int = 5432
    user: str | None = None
    password: Secret | None = None
    auth_user: str | None = None
    auth_query: str | None = None
    auth_dbname: str | None = None
    client_encoding: str | None = None
    datestyle: str | None = None
    timezone: str | None = None
    application_name: str | None = None
    pool_size: int | None = None
    min_pool_size: int | None = None
    reserve_pool_size: int | None = None
    query_wait_timeout: float | None = None
    max_db_connections: int | None = None
    max_db_client_connections: int | None = None
    server_lifetime: float | None = None
    load_balance_hosts: LoadBalance = "round-robin"
    target_session_attrs: SessionAttributes = "any"
    pool_mode: PoolMode | None = None
    connect_query: str | None = None
    server_tls_sslmode: TlsMode | None = None
    server_tls_ca_file: str | None = None
    server_tls_cert_file: str | None = None
    server_tls_key_file: str | None = None
    server_tls_protocols: tuple[str, ...] | None = None
    server_tls_ciphers: str | None = None
    server_tls13_ciphers: str | None = None
    auto: bool = False
    """Made from the `*` template for a name the file does not list."""

    @property
    def server_dbname(self) -> str:
        """The database name sent to the server: dbname=, or the entry's own name."""
        return self.name if self.dbname is None else self.dbname

    def for_name(self, name: str) -> DatabaseConfig:
        """The entry this `*` template makes for the database `name`."""
        return replace(self, name=name, auto=True)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """What of the settings says how we speak TLS to a server; an entry may have its own."""

    server_tls_sslmode: TlsMode
    server_tls_ca_file: str
    server_tls_cert_file: str
    server_tls_key_file: str
    server_tls_protocols: tuple[str, ...]
    server_tls_ciphers: str
    server_tls13_ciphers: str | None


@dataclass(frozen=True, slots=True)
class UserConfig:
    """One [users] entry; None means unset."""

    name: str
    pool_mode: PoolMode | None = None
    pool_size: int | None = None
    reserve_pool_size: int | None = None
    max_user_connections: int | None = None
    max_user_client_connections: int | None = None
    query_timeout: float | None = None
    query_wait_timeout: float | None = None
    idle_transaction_timeout: float | None = None
    transaction_timeout: float | None = None
    client_idle_timeout: float | None = None


@dataclass(frozen=True, slots=True)
class PeerConfig:
    """One [peers] entry; pool_size None means default_pool_size."""

    peer_id: int
    host: str
    port: int = 6432
    pool_size: int | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """One whole configuration. The mappings are plain dicts so that a Config can be pickled: never change them."""

    path: str
    settings: Settings = Settings()
    databases: Mapping[str, DatabaseConfig] = field(default_factory=dict)
    autodb: DatabaseConfig | None = None
    users: Mapping[str, UserConfig] = field(default_factory=dict)
    peers: Mapping[int, PeerConfig] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    auth_file_broken: bool = False
    """It could not be read whole: see `keep_secrets`."""
    hba: tuple[HbaRule, ...] = ()
    """The rules of auth_hba_file, with auth_type=hba."""
    ident: Maps = field(default_factory=dict)
    """The maps of auth_ident_file, with auth_type=hba."""
    ldap: LdapOptions | None = field(default=None, repr=False)
    """What auth_ldap_options says, with auth_type=ldap."""
    origins: Mapping[tuple[str, str], Origin] = field(default_factory=dict)
    """(section, key or entry name) -> where it was written; absent means the default."""
    warnings: tuple[ConfigError, ...] = ()
    """What does not stop the pooler but must be logged: a broken auth_file, lines of other files passed over."""

    def entries(self) -> tuple[DatabaseConfig, ...]:
        """All of [databases], the `*` template included."""
        return (*self.databases.values(), *(() if self.autodb is None else (self.autodb,)))

    def database(self, name: str) -> DatabaseConfig | None:
        """The entry for a client-visible name, from the list or the `*` template; None when there is none."""
        entry = self.databases.get(name)
        if entry is None and self.autodb is not None and _bytes(name) <= DATABASE_NAME_BYTES_MAX:
            return self.autodb.for_name(name)
        return entry


def _bytes(name: str) -> int:
    return len(name.encode(errors="surrogateescape"))

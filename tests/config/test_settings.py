"""Tests of the SETTINGS table: it is complete, and each row reads its default and refuses rubbish."""

from __future__ import annotations

import dataclasses

import pytest

from pgshoal.config.load import set_value
from pgshoal.config.model import Config, DatabaseConfig, PeerConfig, Settings, UserConfig
from pgshoal.config.settings import BY_NAME, SETTINGS, Setting
from pgshoal.errors import ConfigError

QUERY = (
    "SELECT rolname, CASE WHEN rolvaliduntil < now() THEN NULL ELSE rolpassword END"
    " FROM pg_authid WHERE rolname=$1 AND rolcanlogin"
)
# name=default; no "=" means unset. The facts of PgBouncer 1.26.1 as its console prints them.
PGBOUNCER = """
admin_users= application_name_add_host=0 auth_dbname auth_file auth_hba_file= auth_ident_file auth_ldap_options
auth_type=md5 auth_user autodb_idle_timeout=3600 cancel_wait_timeout=10 client_idle_timeout=0 client_login_timeout=60
client_tls13_ciphers client_tls_ca_file= client_tls_cert_file= client_tls_ciphers=default client_tls_dheparams=auto
client_tls_ecdhcurve=auto client_tls_key_file= client_tls_protocols=secure client_tls_sslmode=disable conffile
default_pool_size=20 disable_pqexec=0 dns_max_ttl=15 dns_nxdomain_ttl=15 dns_zone_check_period=0
idle_transaction_timeout=0 ignore_startup_parameters= job_name=pgbouncer listen_addr= listen_backlog=128
listen_port=6432 log_connections=1 log_disconnections=1 log_pooler_errors=1 log_stats=1 logfile= login_notify_message=
max_client_conn=100 max_db_client_connections=0 max_db_connections=0 max_packet_size=2147483647
max_prepared_statements=200 max_user_client_connections=0 max_user_connections=0 min_pool_size=0 peer_id=0 pidfile=
pkt_buf=4096 pool_idle_timeout=0 pool_mode=session query_timeout=0 query_wait_notify=5 query_wait_timeout=120
reserve_pool_size=0 reserve_pool_timeout=5 resolv_conf= sbuf_loopcnt=5 scram_iterations=4096 server_check_delay=30
server_check_query=<empty> server_connect_timeout=15 server_fast_close=0 server_idle_timeout=600 server_lifetime=3600
server_login_retry=15 server_reset_query_always=0 server_round_robin=0
server_tls13_ciphers server_tls_ca_file= server_tls_cert_file= server_tls_ciphers=default server_tls_key_file=
server_tls_protocols=secure server_tls_sslmode=prefer so_reuseport=0 stats_period=60 stats_users= syslog=0
syslog_facility=daemon syslog_ident=pgbouncer tcp_defer_accept=1 tcp_keepalive=1 tcp_keepcnt=0 tcp_keepidle=0
tcp_keepintvl=0 tcp_socket_buffer=0 tcp_user_timeout=0 track_extra_parameters= transaction_timeout=0
unix_socket_dir=/tmp unix_socket_group= unix_socket_mode=0777 user verbose
"""
OURS = {
    "workers": "auto",
    "worker_cpu_affinity": "none",
    "budget": "elastic",
    "accept_balance": "least",
    "engine": "auto",
    "http_listen": "off",
    "proxy_protocol": "off",
    "proxy_protocol_networks": "",
    "server_connect_parallel": "4",
    "auth_query_cache_ttl": "0",
}
BOOT_ONLY = """
disable_pqexec job_name listen_addr listen_backlog listen_port pidfile pkt_buf resolv_conf so_reuseport
track_extra_parameters unix_socket_dir unix_socket_group unix_socket_mode user
workers worker_cpu_affinity engine http_listen proxy_protocol
"""
SCOPED = {
    "databases": "dbname host port user password auth_user auth_query auth_dbname client_encoding datestyle timezone"
    " application_name pool_size min_pool_size reserve_pool_size reserve_pool query_wait_timeout max_db_connections"
    " max_db_client_connections server_lifetime load_balance_hosts pool_mode connect_query",
    "users": "pool_mode pool_size reserve_pool_size max_user_connections max_user_client_connections query_timeout"
    " query_wait_timeout idle_transaction_timeout transaction_timeout client_idle_timeout",
    "peers": "host port pool_size",
}
OUR_SCOPED = {
    "databases": {"target_session_attrs", *(name for name in BY_NAME["pgbouncer"] if name.startswith("server_tls"))}
}
RUBBISH = {
    "integer": ("many", "", "1.5", "7x", "99999999999", "-1", "1 2"),
    "port": ("0", "65536", "x", "", "0x10"),
    "seconds": ("many", "", "1s", "inf", "nan", "1,5", "1e99"),
    "flag": ("yes", "on", "true", "", "2", "-1"),
    "choice": ("", "nonsense", " md5"),
    "TLS versions": ("legacy", "tlsv1.4", "tlsv1.2,", "!all"),
    "workers": ("0", "-1", "many", ""),
    "CPU list": ("a", "1-", "", "1,,2"),
    "address": ("8080", ":8080", "host:", "host:0", "host:65536", ""),
    "networks": ("localhost", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/8 ::/0/0", "1.2.3"),
    "database name": ("pgbouncer",),
}
ANYTHING_GOES = {"text", "SQL", "path", "list"}
REFUSED = [(row, text) for row in SETTINGS for text in RUBBISH.get(row.kind.name, ())]


def expected_defaults() -> dict[str, str | None]:
    """The list above as a mapping."""
    facts: dict[str, str | None] = {"auth_query": QUERY, **OURS}
    for word in PGBOUNCER.split():
        name, equals, value = word.partition("=")
        facts[name] = value if equals else None
    return facts | {"server_reset_query": "DISCARD ALL"}


def test_pgbouncer_settings_and_defaults() -> None:
    """The [pgbouncer] rows are exactly PgBouncer 1.26.1's plus ours, with the same defaults."""
    assert {name: row.default for name, row in BY_NAME["pgbouncer"].items()} == expected_defaults()


@pytest.mark.parametrize("section", sorted(SCOPED))
def test_scoped_settings(section: str) -> None:
    """The keys of [databases], [users] and [peers] are exactly PgBouncer's, aliases included, plus ours."""
    assert set(BY_NAME[section]) == set(SCOPED[section].split()) | OUR_SCOPED.get(section, set())  # type: ignore[index]


def test_reloadable_settings() -> None:
    """The settings that need a restart are exactly those PgBouncer calls not changeable, plus four of ours."""
    assert {name for name, row in BY_NAME["pgbouncer"].items() if not row.reloadable} == set(BOOT_ONLY.split())


def test_removed_settings_are_unknown() -> None:
    """What 1.26 removed, and what only Windows has, is an unknown parameter."""
    assert not {"suspend_timeout", "service_name"} & set(BY_NAME["pgbouncer"])


def test_settings_record_mirrors_the_table() -> None:
    """Settings has exactly one attribute per row, with the row's default."""
    blank = Settings()
    assert {field.name for field in dataclasses.fields(Settings)} == set(BY_NAME["pgbouncer"])
    for row in BY_NAME["pgbouncer"].values():
        unset = 0 if row.name == "verbose" else None
        assert getattr(blank, row.attribute) == (unset if row.default is None else row.kind.parse(row.default)), (
            row.name
        )


@pytest.mark.parametrize(
    ("section", "record"), [("databases", DatabaseConfig), ("users", UserConfig), ("peers", PeerConfig)]
)
def test_scoped_records_mirror_the_table(section: str, record: type) -> None:
    """Each row of a scoped section has an attribute, and each attribute a row."""
    attributes = {field.name for field in dataclasses.fields(record)} - {"name", "peer_id", "auto"}
    assert attributes == {row.attribute for row in SETTINGS if row.section == section}


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: f"{row.section}-{row.name}")
def test_default_reads_and_shows(row: Setting) -> None:
    """A row's default is a value of its kind, and what is shown for it reads back as the same value."""
    if row.default is not None:
        value = row.kind.parse(row.default)
        assert row.kind.parse(row.kind.show(value)) == value


def test_rubbish_covers_every_kind() -> None:
    """Each row either has values it must refuse, or is of a kind that takes any text."""
    assert {row.kind.name for row in SETTINGS} == set(RUBBISH) | ANYTHING_GOES


@pytest.mark.parametrize(("row", "text"), REFUSED, ids=lambda part: getattr(part, "name", repr(part)))
def test_rubbish_is_refused(row: Setting, text: str) -> None:
    """A row refuses what is outside its kind; only scoped numbers may be negative, which means unset."""
    if row.section != "pgbouncer" and text == "-1" and row.kind.name == "integer":
        assert row.kind.parse(text) is None
        return
    with pytest.raises(ValueError, match="not allowed"):
        row.kind.parse(text)


@pytest.mark.parametrize(
    ("row", "text"),
    [case for case in REFUSED if case[0].section == "pgbouncer"],
    ids=lambda part: getattr(part, "name", repr(part)),
)
def test_message_says_what_is_allowed(row: Setting, text: str) -> None:
    """The error for a bad value names the key, the value and what is allowed."""
    with pytest.raises(ConfigError) as caught:
        set_value(Config("p.ini"), row.name, text)
    assert str(caught.value) == f"console: {row.name} = {text}: must be {row.kind.allowed}"


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: f"{row.section}-{row.name}")
def test_every_row_is_documented(row: Setting) -> None:
    """Each row explains itself in a short line of its own."""
    assert 5 <= len(row.doc) <= 100
    assert not row.doc.endswith(".")

"""Tests of loading: a whole file becomes one Config, or one error that names its place."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pgshoal.config.load import load, require_consistent, set_value
from pgshoal.config.model import Config, DatabaseConfig, PeerConfig, Secret, UserConfig
from pgshoal.errors import ConfigError
from tests.config.conftest import Load, Write

MAIN = "[pgbouncer]\n"
VERIFIER = "md5" + "0a" * 16


def test_an_empty_main_section_is_enough(load_text: Load) -> None:
    """A file with only the main header has every default."""
    config = load_text(MAIN)
    assert config == Config("p.ini", config.settings)
    assert (config.settings.default_pool_size, config.settings.conffile) == (20, "p.ini")


def test_values_of_every_kind(load_text: Load) -> None:
    """Values arrive typed, with the place where they were written."""
    config = load_text(
        MAIN
        + "default_pool_size = 0x10\nunix_socket_mode = 0700\npool_mode = Transaction\nserver_lifetime = 1.5\n"
        + "log_stats = 0\nadmin_users = a, b\nserver_check_query =\nauth_user = joe\nworkers = AUTO\n"
    )
    settings = config.settings
    assert (settings.default_pool_size, settings.unix_socket_mode, settings.pool_mode) == (16, 0o700, "transaction")
    assert (settings.server_lifetime, settings.log_stats, settings.admin_users) == (1.5, False, ("a", "b"))
    assert (settings.server_check_query, settings.auth_user, settings.workers) == ("", "joe", 0)
    origin = config.origins["pgbouncer", "pool_mode"]
    assert (origin.file, origin.line, origin.text) == ("p.ini", 4, "Transaction")


def test_database_entries(load_text: Load) -> None:
    """A connection string becomes a typed entry; what is not written is None."""
    config = load_text(
        "[databases]\napp = host=h1,h2 port=6000 dbname=x user=u password='p w' pool_size=3 reserve_pool=2"
        " query_wait_timeout=1.5 pool_mode=STATEMENT connect_query='select ''x''' load_balance_hosts=disable\n"
        "'odd name' =\n" + MAIN
    )
    assert config.databases["app"] == DatabaseConfig(
        "app",
        dbname="x",
        hosts=("h1", "h2"),
        port=6000,
        user="u",
        password=Secret("plain", "p w"),
        pool_size=3,
        reserve_pool_size=2,
        query_wait_timeout=1.5,
        pool_mode="statement",
        connect_query="select 'x'",
        load_balance_hosts="disable",
    )
    assert config.databases["odd name"] == DatabaseConfig("odd name")
    assert config.databases["odd name"].server_dbname == "odd name"


def test_passwords_of_entries_are_classified(load_text: Load) -> None:
    """A password= may be a verifier, as in an auth_file."""
    config = load_text(f"[databases]\na = password={VERIFIER}\n{MAIN}")
    assert config.databases["a"].password == Secret("md5", VERIFIER)


def test_minus_one_inherits(load_text: Load) -> None:
    """Negative sizes and times in an entry mean unset; 0 does not."""
    config = load_text(
        f"[databases]\na = pool_size=-1 query_wait_timeout=-1 min_pool_size=0\n{MAIN}[users]\nu = pool_size=-3\n"
    )
    entry = config.databases["a"]
    assert (entry.pool_size, entry.query_wait_timeout, entry.min_pool_size) == (None, None, 0)
    assert config.users["u"] == UserConfig("u")


def test_star_is_the_template_for_unknown_names(load_text: Load) -> None:
    """The * entry is no database itself, and makes entries for names the file does not list."""
    config = load_text(f"[databases]\na = port=1\n* = host=h port=2\n{MAIN}")
    assert set(config.databases) == {"a"}
    assert config.database("a") == DatabaseConfig("a", port=1)
    assert config.database("new") == DatabaseConfig("new", hosts=("h",), port=2, auto=True)
    assert config.database("d" * 64) is None
    assert load_text(f"[databases]\na = port=1\n{MAIN}").database("new") is None


def test_an_entry_written_twice_is_not_merged(load_text: Load) -> None:
    """The later line of an entry stands alone."""
    config = load_text(f"[databases]\na = port=1 pool_size=3\na = dbname=z\n{MAIN}")
    assert config.databases["a"] == DatabaseConfig("a", dbname="z")


def test_users_and_peers(load_text: Load) -> None:
    """[users] and [peers] have entries of their own kinds."""
    config = load_text(
        MAIN + "[users]\n'b c' = pool_mode=session query_timeout=0.5\n[peers]\n1 = host=/tmp\n02 = host=h port=5\n"
    )
    assert config.users == {"b c": UserConfig("b c", pool_mode="session", query_timeout=0.5)}
    assert config.peers == {1: PeerConfig(1, "/tmp"), 2: PeerConfig(2, "h", 5)}


def test_repeated_header_resets_set_defaults(load_text: Load) -> None:
    """A second [pgbouncer] header resets the keys before it, except those whose default is unset."""
    config = load_text(MAIN + "min_pool_size = 7\nauth_user = joe\nverbose = 2\n[users]\n" + MAIN + "listen_port = 5\n")
    settings = config.settings
    assert (settings.min_pool_size, settings.auth_user, settings.verbose, settings.listen_port) == (0, "joe", 2, 5)
    assert ("pgbouncer", "min_pool_size") not in config.origins


def test_the_last_value_of_a_key_wins(load_text: Load) -> None:
    """A key written twice has its later value."""
    assert load_text(MAIN + "min_pool_size = 1\nmin_pool_size = 2").settings.min_pool_size == 2


def test_included_values_know_their_file(load_text: Load, write: Write) -> None:
    """A value from an include names that file."""
    write("\nmin_pool_size = 3\n", "inc.ini")
    config = load_text(MAIN + "%include inc.ini\n")
    assert config.settings.min_pool_size == 3
    origin = config.origins["pgbouncer", "min_pool_size"]
    assert (origin.file, origin.line) == ("inc.ini", 2)


def test_overrides_beat_the_file(load_text: Load) -> None:
    """Values of the command line win over the file and name their source."""
    config = load_text(MAIN + "user = filed\n", user="flagged", listen_port="0x10")
    assert (config.settings.user, config.settings.listen_port) == ("flagged", 16)
    assert config.origins["pgbouncer", "user"].file == "command line"
    with pytest.raises(ConfigError, match="command line: listen_port = x: must be a whole number from 0 to 65535"):
        load_text(MAIN, listen_port="x")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (MAIN + "foo = 1", "p.ini:2: foo: unknown parameter"),
        (
            MAIN + "default_pool_sise = 1",
            "p.ini:2: default_pool_sise: unknown parameter; did you mean default_pool_size?",
        ),
        (MAIN + "Pool_Mode = session", "p.ini:2: Pool_Mode: unknown parameter; did you mean pool_mode?"),
        (MAIN + "suspend_timeout = 1", "p.ini:2: suspend_timeout: unknown parameter"),
        (MAIN + "service_name = x", "p.ini:2: service_name: unknown parameter"),
        (MAIN + "log_stats = yes", "p.ini:2: log_stats = yes: must be 0 or 1"),
        (
            MAIN + "pool_mode = 'session'",
            "p.ini:2: pool_mode = 'session': must be one of session, transaction, statement",
        ),
        (MAIN + "auth_dbname = pgbouncer", "p.ini:2: auth_dbname = pgbouncer: must be the name of a database entry"),
        ("[foo]", "p.ini:1: [foo]: sections are [pgbouncer], [databases], [users] and [peers]"),
        ("[ pgbouncer ]", "p.ini:1: [ pgbouncer ]: sections are"),
        ("a = 1\n" + MAIN, "p.ini:1: a: a value before the first section"),
        ("[databases]\n", "p.ini: [pgbouncer]: this section must exist"),
        ("", "p.ini: [pgbouncer]: this section must exist"),
        ("[databases]\npgbouncer = port=1", 'p.ini:2: pgbouncer: database name "pgbouncer" is reserved'),
        (f"[databases]\n{'d' * 64} =", "p.ini:2: " + "d" * 64 + ": a database name may have 63 bytes"),
        (f"[databases]\na = user={'u' * 128}", "p.ini:2: a: user: a user name may have 127 bytes"),
        ("[databases]\na = hosts=x", "p.ini:2: a: hosts: unknown parameter; did you mean host?"),
        ("[databases]\na = host='x", "p.ini:2: a: syntax error in connection string: the value of host needs a"),
        ("[databases]\na = port=0", "p.ini:2: a: port = 0: must be a port number from 1 to 65535"),
        ("[databases]\na = pool_size=many", "p.ini:2: a: pool_size = many: must be a decimal whole number"),
        ("[databases]\na = pool_mode=x", "p.ini:2: a: pool_mode = x: must be one of session, transaction, statement"),
        ("[users]\nu = foo=1", "p.ini:2: u: foo: unknown parameter"),
        (f"[users]\n{'u' * 128} =", "p.ini:2: " + "u" * 128 + ": a user name may have 127 bytes"),
        ("[peers]\n0 = host=a", "p.ini:2: 0: a peer is named by a number from 1 to 65535"),
        ("[peers]\nx = host=a", "p.ini:2: x: a peer is named by a number from 1 to 65535"),
        ("[peers]\n1 = port=3", "p.ini:2: 1: host was not provided for peer 1"),
    ],
)
def test_errors_name_place_key_and_value(load_text: Load, text: str, error: str) -> None:
    """Each fault is one line with file, line, key, value and what is allowed."""
    with pytest.raises(ConfigError) as caught:
        load_text(text)
    assert str(caught.value).startswith(error)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "client_tls_sslmode = require\n",
            "p.ini:2: client_tls_sslmode = require: To allow TLS connections from clients, client_tls_key_file and"
            " client_tls_cert_file must be set.",
        ),
        (
            "client_tls_key_file = k\nclient_tls_cert_file = c\nclient_tls_sslmode = verify-full\n",
            "p.ini:4: client_tls_sslmode = verify-full: client_tls_sslmode requires client_tls_ca_file",
        ),
        (
            "auth_type = cert\n",
            "p.ini:2: auth_type = cert: auth_type=cert requires client_tls_sslmode=SSLMODE_VERIFY_FULL",
        ),
        (
            "proxy_protocol = on\n",
            "p.ini:2: proxy_protocol = on: proxy_protocol = on requires proxy_protocol_networks",
        ),
    ],
)
def test_settings_that_need_each_other(load_text: Load, text: str, error: str) -> None:
    """Settings that make no sense without others are refused with PgBouncer's words."""
    with pytest.raises(ConfigError) as caught:
        load_text(MAIN + text)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    "text",
    [
        "[databases]\na = password='geheim",
        "[databases]\na = passwort=geheim",
        "[databases]\na = password=geheim port=0",
        "[databases]\na = password=geheim =",
        "[databases]\npgbouncer = password=geheim",
        "[peers]\n1 = password=geheim",
    ],
)
def test_errors_show_no_password(load_text: Load, text: str) -> None:
    """Whatever is wrong with an entry, its password is not in the error."""
    with pytest.raises(ConfigError) as caught:
        load_text(text)
    assert "geheim" not in str(caught.value)


def test_reprs_show_no_secret(load_text: Load, write: Write) -> None:
    """A Config can be logged: neither passwords nor LDAP options nor auth_file secrets show."""
    write('"a" "geheim"', "u.txt")
    config = load_text(
        "[databases]\na = password=geheim\n" + MAIN + "auth_file = u.txt\nauth_ldap_options = ldapbindpasswd=geheim\n"
    )
    assert config.secrets["a"].text == "geheim"
    assert "geheim" not in repr(config)


def test_auth_file(load_text: Load, write: Write) -> None:
    """Secrets come from auth_file; a broken line is a warning and keeps those before it."""
    write('"a" "b"\nbroken\n', "u.txt")
    config = load_text(MAIN + "auth_file = u.txt\n")
    assert config.secrets == {"a": Secret("plain", "b")}
    assert [str(warning) for warning in config.warnings] == [
        'u.txt:2: broken auth file: expected "user" "secret", or ; before a comment'
    ]


def test_missing_auth_file_is_a_warning(load_text: Load) -> None:
    """The pooler starts without its auth_file and says so."""
    config = load_text(MAIN + "auth_file = nope.txt\n")
    assert config.secrets == {}
    assert [warning.file for warning in config.warnings] == ["nope.txt"]


@pytest.mark.parametrize("auth_type", ["any", "pam"])
def test_auth_file_is_not_read_where_it_does_not_count(load_text: Load, write: Write, auth_type: str) -> None:
    """With any and pam the file is left alone, broken or not."""
    write("broken", "u.txt")
    config = load_text(MAIN + f"auth_file = u.txt\nauth_type = {auth_type}\n")
    assert (config.secrets, config.warnings) == ({}, ())


def test_a_config_can_be_sent_to_another_process(load_text: Load) -> None:
    """A Config survives pickling unchanged."""
    config = load_text(
        f"[databases]\na = password=x\n* = port=3\n{MAIN}[users]\nu = pool_size=1\n[peers]\n1 = host=h\n"
    )
    assert pickle.loads(pickle.dumps(config)) == config


def test_set_changes_one_value(load_text: Load) -> None:
    """SET gives a new configuration and leaves the old one as it was."""
    old = load_text(MAIN)
    new = set_value(old, "default_pool_size", "0x5")
    assert (old.settings.default_pool_size, new.settings.default_pool_size) == (20, 5)
    assert new.origins["pgbouncer", "default_pool_size"].file == "console"


def test_set_of_a_boot_setting_is_checked_and_ignored(load_text: Load) -> None:
    """A setting that needs a restart keeps its value, but rubbish is still refused."""
    config = load_text(MAIN)
    assert set_value(config, "listen_port", "1234") is config
    with pytest.raises(ConfigError, match="console: listen_port = x: must be"):
        set_value(config, "listen_port", "x")


def test_set_of_an_unknown_key(load_text: Load) -> None:
    """SET of a key that does not exist is a ConfigError."""
    with pytest.raises(ConfigError, match="console: nosuch: unknown parameter"):
        set_value(load_text(MAIN), "nosuch", "1")


def test_set_auth_file_reads_it(load_text: Load, write: Write) -> None:
    """SET auth_file brings the secrets of the new file."""
    write('"a" "b"', "u.txt")
    assert set_value(load_text(MAIN), "auth_file", "u.txt").secrets == {"a": Secret("plain", "b")}


@pytest.mark.parametrize("content", [None, '"new" "x"\nbroken\n'])
def test_a_broken_auth_file_changes_no_secret(load_text: Load, write: Write, content: str | None) -> None:
    """In a running process those in effect stay, none is taken from the file, and two warnings say where and what."""
    write('"a" "b"', "u.txt")
    before = load_text(MAIN + "auth_file = u.txt\n")
    if content is not None:
        write(content, "v.txt")
    after = set_value(before, "auth_file", "v.txt")
    assert after.secrets == before.secrets
    assert [warning.file for warning in after.warnings] == ["v.txt", "console"]
    assert str(after.warnings[1]) == "console: auth_file = v.txt: the secrets that were in effect before stay"


def test_set_leaves_consistency_to_the_caller(load_text: Load) -> None:
    """TLS settings may be set one after the other; they are judged together when asked."""
    config = set_value(load_text(MAIN), "client_tls_sslmode", "require")
    with pytest.raises(ConfigError, match="client_tls_key_file"):
        require_consistent(config)
    for key in ("client_tls_key_file", "client_tls_cert_file"):
        config = set_value(config, key, "x")
    require_consistent(config)


def test_a_failed_load_returns_nothing(write: Write) -> None:
    """The first fault ends the load, whatever was right before it."""
    path = write(MAIN + "min_pool_size = 3\n[databases]\na = port=1\nb = port=x\n")
    with pytest.raises(ConfigError, match=r"p\.ini:5: b: port = x"):
        load(str(path))


def test_hba_and_ident_files(load_text: Load, write: Write) -> None:
    """They are read for auth_type=hba only; lines that are passed over are warnings."""
    write("hostssl all all all cert map=m\nhost all all all cert map=n\n", "hba.conf")
    write("m a b\nn a\n", "ident.conf")
    lines = "auth_hba_file = hba.conf\nauth_ident_file = ident.conf\n"
    config = load_text(MAIN + "auth_type = hba\n" + lines)
    assert [(rule.kind, rule.map) for rule in config.hba] == [("hostssl", "m")]
    assert [*config.ident] == ["m"]
    assert [(warning.file, warning.line) for warning in config.warnings] == [("ident.conf", 2), ("hba.conf", 2)]
    other = load_text(MAIN + "auth_type = md5\n" + lines)
    assert (other.hba, other.ident, other.warnings) == ((), {}, ())


def test_a_rejecting_line_that_cannot_be_read(load_text: Load, write: Write) -> None:
    """The whole configuration is refused, at the line."""
    write("host all all samenet reject\n", "hba.conf")
    with pytest.raises(ConfigError, match=r"hba\.conf:1: address = samenet"):
        load_text(MAIN + "auth_type = hba\nauth_hba_file = hba.conf\n")


def test_ldap_options(load_text: Load) -> None:
    """They are checked with auth_type=ldap, and an error shows no value."""
    assert load_text(MAIN + "auth_ldap_options = ldapport=x\n").ldap is None
    found = load_text(MAIN + 'auth_type = ldap\nauth_ldap_options = ldapprefix="uid=" ldapsuffix=", dc=x"\n').ldap
    assert found is not None
    assert (found.prefix, found.suffix) == ("uid=", ", dc=x")
    with pytest.raises(ConfigError) as caught:
        load_text(MAIN + "auth_type = ldap\nauth_ldap_options = ldapbindpasswd=geheim\n")
    assert str(caught.value).startswith("p.ini:")
    assert "auth_ldap_options: ldap options: one of ldapbasedn" in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_set_reads_the_files_of_access(load_text: Load, write: Write) -> None:
    """SET auth_type and SET auth_hba_file take effect at once."""
    write("local all all trust\n", "hba.conf")
    config = load_text(MAIN + "auth_hba_file = hba.conf\n")
    config = set_value(config, "auth_type", "hba")
    assert [rule.method for rule in config.hba] == ["trust"]
    assert set_value(config, "auth_hba_file", "").hba == ()


@pytest.mark.parametrize("lines", ["auth_type = ldap\n", "auth_type = hba\nauth_hba_file = hba.conf\n"])
def test_ldap_without_its_library(load_text: Load, write: Write, monkeypatch: pytest.MonkeyPatch, lines: str) -> None:
    """Whoever asks for it is told at start what is missing."""
    write("host all all all ldap ldapprefix=x\n", "hba.conf")
    lines += "auth_ldap_options = ldapprefix=x\n"
    assert load_text(MAIN + lines).warnings == ()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (warning,) = load_text(MAIN + lines).warnings
    assert "pip install 'pgshoal[ldap]'" in str(warning)
    assert load_text(MAIN + "auth_type = md5\n").warnings == ()


def test_an_override_may_give_way_to_the_file(tmp_path: Path) -> None:
    """One whose name ends with a question mark holds only where the file says nothing."""
    path = tmp_path / "x.ini"
    path.write_text("[pgbouncer]\npool_mode = session\n")
    settings = load(str(path), {"pool_mode?": "transaction", "max_client_conn?": "7"}).settings
    assert (settings.pool_mode, settings.max_client_conn) == ("session", 7)

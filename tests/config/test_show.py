"""Tests of settings as text: the rows of SHOW CONFIG."""

from __future__ import annotations

import pytest

from pgshoal.config.load import set_value
from pgshoal.config.settings import BY_NAME
from pgshoal.config.show import ShownSetting, shown_settings
from tests.config.conftest import Load


def shown(load_text: Load, text: str) -> dict[str, ShownSetting]:
    """The shown settings of a main section by name."""
    return {row.name: row for row in shown_settings(load_text("[pgbouncer]\n" + text))}


def test_all_settings_in_order(load_text: Load) -> None:
    """Every [pgbouncer] setting is shown once, in alphabetical order."""
    rows = shown(load_text, "")
    assert list(rows) == sorted(BY_NAME["pgbouncer"])


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("unix_socket_mode = 0777", "511"),
        ("default_pool_size = 0x10", "16"),
        ("query_timeout = 1.50", "1.5"),
        ("server_idle_timeout = 100000000", "1e+08"),
        ("auth_type = MD5", "md5"),
        ("admin_users = a,  b", "a,  b"),
        ("server_tls_protocols = tlsv1.2:tlsv1.3", "tlsv1.2:tlsv1.3"),
        ("log_stats = 0", "0"),
        ("verbose = 2", "2"),
        ("workers = AUTO", "auto"),
        ("auth_ldap_options = ldapbindpasswd=geheim", "<hidden>"),
    ],
)
def test_values(load_text: Load, line: str, value: str) -> None:
    """Numbers are shown in plain form, lists as written, and secrets not at all."""
    row = shown(load_text, line)[line.split()[0]]
    assert row.value == value
    assert row.source == "p.ini:2"
    assert not row.is_default


def test_defaults(load_text: Load) -> None:
    """Unset values and unset defaults are NULL; a default has no source."""
    rows = shown(load_text, "")
    assert rows["auth_user"] == ShownSetting("auth_user", None, None, True, "")
    assert rows["verbose"] == ShownSetting("verbose", "0", None, True, "")
    assert rows["unix_socket_mode"] == ShownSetting("unix_socket_mode", "511", "0777", False, "")
    assert rows["conffile"] == ShownSetting("conffile", "p.ini", None, True, "")
    assert rows["client_tls_protocols"].value == "secure"
    assert rows["log_connections"].is_default


def test_values_set_on_the_console(load_text: Load) -> None:
    """A value from SET names the console as its source."""
    config = set_value(load_text("[pgbouncer]\n"), "stats_users", "x,y")
    [row] = [row for row in shown_settings(config) if row.name == "stats_users"]
    assert (row.value, row.source) == ("x,y", "console")

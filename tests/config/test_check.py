"""Tests of the check report: what is in effect, and from where."""

from __future__ import annotations

import pytest

from pgshoal.config.check import CheckReport, check
from pgshoal.config.settings import SETTINGS
from pgshoal.errors import ConfigError
from tests.config.conftest import Write


def report(write: Write, text: str, show_all: bool = False) -> CheckReport:
    """The report on a file given as text."""
    return check(str(write(text)), show_all)


def test_a_plain_file(write: Write) -> None:
    """The report lists what was written, with value and place, and the entries."""
    found = report(
        write,
        "[databases]\napp = host=h password=geheim pool_size=3 connect_query='select 1'\n* = port=1\n"
        "[pgbouncer]\nauth_type = trust\npool_mode = transaction\n[users]\nu = pool_size=-1\n",
    )
    assert str(found).splitlines() == [
        "p.ini: valid",
        "",
        "[pgbouncer]",
        "auth_type = trust  (p.ini:5)",
        "pool_mode = transaction  (p.ini:6)",
        "",
        "[databases]",
        "app = host=h password=<hidden> pool_size=3 connect_query='select 1'  (p.ini:2)",
        "* = port=1  (p.ini:3)",
        "",
        "[users]",
        "u =   (p.ini:8)",
        "",
        "secrets read from auth_file: 0",
    ]


def test_show_all_lists_defaults(write: Write) -> None:
    """With show_all every setting is listed, once."""
    found = report(write, "[pgbouncer]\nsyslog = 1\n", show_all=True)
    assert "listen_port = 6432  (default)" in str(found).splitlines()
    assert "auth_user = NULL  (default)" in str(found).splitlines()
    names = [shown.name for shown in found.settings]
    assert sorted(names) == sorted({row.name for row in SETTINGS if row.section == "pgbouncer"})


def test_warnings_and_secrets(write: Write) -> None:
    """What was wrong with the auth_file is a warning, and secrets are counted, never shown."""
    write('"a" "geheim"\n"b" "geheim"\nbroken', "u.txt")
    text = str(report(write, "[pgbouncer]\nauth_file = u.txt\n"))
    assert "warning: u.txt:3: broken auth file" in text
    assert "secrets read from auth_file: 2" in text
    assert "geheim" not in text


def test_rules_and_bad_lines(write: Write) -> None:
    """The rules of the hba file are counted, and lines that are passed over are told."""
    write("local all all peer\nhost all all samenet md5\n", "hba.conf")
    text = str(report(write, "[pgbouncer]\nauth_type = hba\nauth_hba_file = hba.conf\n"))
    assert "rules read from auth_hba_file: 1" in text.splitlines()
    assert "warning: hba.conf:2: address = samenet: could not parse hba config line 2: " in text
    assert "Not built" not in text


def test_an_invalid_file_is_an_error(write: Write) -> None:
    """A file that cannot be used gives no report."""
    with pytest.raises(ConfigError, match=r"p\.ini:2: log_stats = yes: must be 0 or 1"):
        report(write, "[pgbouncer]\nlog_stats = yes\n")


def test_the_report_can_be_printed(write: Write) -> None:
    """Bytes that are not UTF-8 and control characters in values are escaped."""
    path = write(b"[pgbouncer]\nlogin_notify_message = \xff\x1b[2J\n")
    assert "\\xff\\x1b[2J" in str(check(str(path)))

"""Tests of the check report: what is in effect, from where, and what is not built yet."""

from __future__ import annotations

import pytest

from pgshoal.config.check import CheckReport, check
from pgshoal.config.settings import SETTINGS
from pgshoal.errors import ConfigError
from tests.config.conftest import Write


def report(write: Write, text: str, show_all: bool = False) -> CheckReport:
    """The report on a file given as text."""
    return check(str(write(text)), show_all)


def unbuilt(found: CheckReport) -> list[tuple[str, str, str | None, str]]:
    """The unbuilt settings of a report without their explanation."""
    return [(item.section, item.name, item.value, item.source) for item in found.unbuilt]


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


def test_show_all_lists_defaults_and_everything_unbuilt(write: Write) -> None:
    """With show_all every setting and every unbuilt setting is listed once."""
    found = report(write, "[pgbouncer]\nsyslog = 1\n", show_all=True)
    assert "listen_port = 6432  (default)" in str(found).splitlines()
    assert "auth_user = NULL  (default)" in str(found).splitlines()
    names = [(item.section, item.name) for item in found.unbuilt]
    assert len(names) == len(set(names))
    assert set(names) == {(row.section, row.name) for row in SETTINGS if not row.built or row.except_values}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("http_listen = localhost:80", "localhost:80"),
    ],
)
def test_used_but_not_built(write: Write, line: str, value: str) -> None:
    """A setting without behaviour is named when the file asks for something else than the default."""
    found = report(write, f"[pgbouncer]\n{line}\n")
    assert unbuilt(found) == [("pgbouncer", line.split()[0], value, "p.ini:2")]
    assert "Not built yet, so without effect:" in str(found)
    assert "geheim" not in str(found)


@pytest.mark.parametrize(
    "line", ["auth_type = md5", "workers = 2", "budget = ELASTIC", "syslog = 0", "min_pool_size = 3"]
)
def test_built_or_default_is_not_reported(write: Write, line: str) -> None:
    """A setting that works, or is written with its default, is not reported."""
    assert unbuilt(report(write, f"[pgbouncer]\n{line}\n")) == []


def test_unbuilt_in_entries(write: Write) -> None:
    """Nothing in an entry is without effect."""
    found = report(
        write,
        "[databases]\na = host=h1,h2\nb = host=h auth_user=x\nc = load_balance_hosts=round-robin\n"
        "[pgbouncer]\n[peers]\n1 = host=/tmp\n",
    )
    assert unbuilt(found) == []


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
    assert "\\udcff\\x1b[2J" in str(check(str(path)))

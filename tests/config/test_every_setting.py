"""Tests of files in which every setting of every section is written, with a value that is not its default."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from pgshoal.cli import app
from pgshoal.config.check import check
from pgshoal.config.settings import SETTINGS, Section, Setting
from pgshoal.config.show import HIDDEN
from pgshoal.fleet.rehearsal import Rehearsal
from tests.config.conftest import Write

#: One value for each kind; choices take each of their words in turn.
BY_KIND = {
    "integer": "17", "seconds": "7.5", "port": "6544", "workers": "3", "CPU list": "0, 2-5", "list": "first, second",
    "address": "127.0.0.1:9127", "networks": "10.0.0.0/8, 192.0.2.7", "TLS versions": "tlsv1.3", "text": "it's else",
    "SQL": "select 'x', $1", "path": "some/file", "database name": "lookups",
}  # fmt: skip
BY_NAME = {
    "verbose": "2", "pkt_buf": "0x2000", "unix_socket_mode": "0700", "auth_file": "users.txt",
    "auth_hba_file": "hba.conf", "auth_ident_file": "ident.conf",
    "auth_ldap_options": "ldapserver=ldap.test ldapprefix=uid",
}  # fmt: skip
FILES = {"users.txt": '"alice" "s"\n', "hba.conf": "local all all peer map=m\n", "ident.conf": "m root alice\n"}
HEADS: dict[Section, str] = {"databases": "app = ", "users": "alice = ", "peers": "7 = "}
#: cert is in the one file where client_tls_sslmode has its last word, which it needs.
AUTH_TYPES = "any", "trust", "plain", "md5", "hba", "cert", "scram-sha-256", "ldap", "pam"
#: As many files as the longest list of words has words.
TURNS = range(12)


def words(row: Setting) -> list[str]:
    """All that may be written for a choice."""
    return row.kind.allowed.removeprefix("one of ").split(", ")


def value(row: Setting, turn: int) -> str:
    """What is written for a row in one of the files."""
    if row.name == "auth_type":
        return AUTH_TYPES[turn % len(AUTH_TYPES)]
    if row.kind.name == "choice":
        return words(row)[turn % len(words(row))]
    if row.kind.name == "flag":
        return "0" if row.default == "1" else "1"
    return BY_NAME.get(row.name, BY_KIND[row.kind.name])


def text(turn: int) -> str:
    """One whole file."""
    lines = ["[pgbouncer]", *(f"{row.name} = {value(row, turn)}" for row in SETTINGS if row.section == "pgbouncer")]
    for section, head in HEADS.items():
        pairs = ((row.name, value(row, turn).replace("'", "''")) for row in SETTINGS if row.section == section)
        lines += [f"[{section}]", head + " ".join(f"{name}='{shown}'" for name, shown in pairs)]
    return "\n".join(lines) + "\n"


def shown(row: Setting, turn: int) -> str:
    """What the report must say."""
    written = value(row, turn)
    as_written = row.section == "pgbouncer" and row.kind.name in ("list", "TLS versions")
    return HIDDEN if row.secret else written if as_written else row.kind.show(row.kind.parse(written))


def test_each_row_has_a_value_of_its_own() -> None:
    """In some file, and, but for choices, in all of them, a row has another value than by default."""
    for row in SETTINGS:
        parsed = [row.kind.parse(value(row, turn)) for turn in TURNS]
        differ = [found != (None if row.default is None else row.kind.parse(row.default)) for found in parsed]
        assert any(differ) if row.kind.name == "choice" else all(differ), row.name
        if row.kind.name == "choice":
            assert set(parsed) == set(words(row)), row.name


@pytest.mark.parametrize("turn", TURNS)
def test_nothing_to_complain_about(write: Write, monkeypatch: pytest.MonkeyPatch, turn: int) -> None:
    """`pgshoal check` takes a file with everything in it, warns of nothing, and shows each value as it was meant."""
    for name, content in FILES.items():
        write(content, name)
    path = str(write(text(turn)))
    report = check(path)
    assert report.warnings == ()
    assert {found.name: found.value for found in report.settings if found.source} == {
        row.name: shown(row, turn) for row in SETTINGS if row.section == "pgbouncer"
    }
    assert [entry.section for entry in report.entries] == list(HEADS)
    for entry in report.entries:
        # What is as by default counts as not written; only choices ever are.
        rows = [row for row in SETTINGS if row.section == entry.section and shown(row, turn) != row.default]
        assert dict(entry.values) == {row.name: shown(row, turn) for row in rows}
    # The accounts, folders and certificates that it names are nowhere.
    monkeypatch.setattr("pgshoal.fleet.rehearsal.rehearse", lambda config: Rehearsal((), ()))
    done = CliRunner().invoke(app, ["check", path])
    assert (done.exit_code, done.stdout) == (0, f"{report}\n")

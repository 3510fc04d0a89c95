"""Tests of ldap.conf."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgshoal.auth.ldapconf import LdapConf, read_ldapconf


def test_the_file(tmp_path: Path) -> None:
    """Names in any case, blanks or tabs, comments; the first file that exists counts."""
    (tmp_path / "a").write_text("# TLS_CACERT x\nURI ldap://h\ntls_cacert\t /etc/ca.pem\nTLS_CACERTDIR   /etc/ca\n")
    (tmp_path / "b").write_text("TLS_CACERT /other\n")
    files = [str(tmp_path / name) for name in ("none", "a", "b")]
    assert read_ldapconf(files, {}) == LdapConf("/etc/ca.pem", "/etc/ca", True)
    assert read_ldapconf(files, {"LDAPCONF": str(tmp_path / "b")}) == LdapConf("/other")
    assert read_ldapconf([], {}) == LdapConf()


@pytest.mark.parametrize(
    ("word", "verify"),
    [("never", False), ("ALLOW", False), ("try", False), ("demand", True), ("hard", True), ("", True)],
)
def test_the_check_of_certificates(tmp_path: Path, word: str, verify: bool) -> None:
    """Only these words switch it off, in the file and in the environment."""
    (tmp_path / "a").write_text(f"TLS_REQCERT {word}\n")
    assert read_ldapconf([str(tmp_path / "a")], {}).verify is verify
    assert read_ldapconf([], {"LDAPTLS_REQCERT": word}).verify is verify


def test_the_environment_wins(tmp_path: Path) -> None:
    """Each variable beats its line."""
    (tmp_path / "a").write_text("TLS_CACERT /file\nTLS_REQCERT never\n")
    found = read_ldapconf([str(tmp_path / "a")], {"LDAPTLS_CACERT": "/env", "LDAPTLS_REQCERT": "demand"})
    assert found == LdapConf("/env")

"""Tests of the hba file's reader: fields, lists, addresses, options, and lines that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.config.hba import HbaFile, HbaRule, Names, Network, parse_hba, read_hba
from pgshoal.errors import ConfigError

ALL = Names(keywords=frozenset({"all"}))


def only(line: str, *maps: str) -> HbaRule:
    """The rule of one good line."""
    found = parse_hba(line, "hba.conf", maps)
    assert found.warnings == ()
    (rule,) = found.rules
    return rule


def wrong(line: str, *maps: str) -> ConfigError:
    """The warning of one bad line, which gives no rule."""
    found = parse_hba(line, "hba.conf", maps)
    assert found.rules == ()
    (warning,) = found.warnings
    return warning


def test_a_whole_file() -> None:
    """Rules come in order with their lines; comments and empty lines count as lines and give nothing."""
    text = "# who\n\nlocal all all peer\n  host app alice 10.0.0.0/8 md5 # inside\nhostssl all all all cert\n"
    found = parse_hba(text, "hba.conf")
    assert found == HbaFile(
        (
            HbaRule(3, "local", ALL, ALL, None, "peer"),
            HbaRule(
                4,
                "host",
                Names(frozenset({"app"})),
                Names(frozenset({"alice"})),
                Network(4, 10 << 24, 0xFF000000),
                "md5",
            ),
            HbaRule(5, "hostssl", ALL, ALL, None, "cert"),
        )
    )


@pytest.mark.parametrize("kind", ["host", "hostssl", "hostnossl"])
@pytest.mark.parametrize(
    "method", ["trust", "reject", "md5", "password", "peer", "cert", "scram-sha-256", "ldap ldapprefix=x"]
)
def test_kinds_and_methods(kind: str, method: str) -> None:
    """Each kind of line goes with each method."""
    rule = only(f"{kind} all all all {method}")
    assert (rule.kind, rule.method) == (kind, method.split()[0])


@pytest.mark.parametrize(
    ("field", "names", "keywords"),
    [
        ("all", "", "all"),
        ("sameuser,replication", "", "sameuser replication"),
        ('"all","sameuser"', "all sameuser", ""),
        ("a, b,all", "a b", "all"),
        ('"+a","/b","@c"', "+a /b @c", ""),
        ("ALL", "ALL", ""),
    ],
)
def test_lists(field: str, names: str, keywords: str) -> None:
    """Databases and users are lists of names and keywords, and quotes make a name of anything."""
    expected = Names(frozenset(names.split()), frozenset(keywords.split()))
    assert only(f"host {field} x all trust").databases == expected
    assert only(f"host x {field} all trust").users == expected


def test_files_of_names(tmp_path: Path) -> None:
    """@file stands for its words, separated by blanks, commas or lines, and may name further files."""
    (tmp_path / "more").write_text('carl\n"dora e"\n')
    (tmp_path / "names").write_text(f"alice, bob # us\n@{tmp_path}/more all\n")
    rule = only(f"host all @{tmp_path}/names all trust")
    assert rule.users == Names(frozenset({"alice", "bob", "carl", "dora e"}), frozenset({"all"}))


def test_relative_files_of_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path means the working directory; if it has no such file, the folder of the hba file."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "names").write_text("bob")
    path = tmp_path / "etc" / "hba.conf"
    path.write_text("local all @names trust")
    monkeypatch.chdir(tmp_path)
    assert read_hba(str(path), ()).rules[0].users.names == {"bob"}
    (tmp_path / "names").write_text("alice")
    assert read_hba(str(path), ()).rules[0].users.names == {"alice"}


def test_a_file_that_names_itself(tmp_path: Path) -> None:
    """It is an error and does not go on for ever."""
    (tmp_path / "names").write_text(f"@{tmp_path}/names")
    assert "files may name each other 10 deep" in str(wrong(f"local all @{tmp_path}/names trust"))


@pytest.mark.parametrize(
    ("field", "network"),
    [
        ("all", None),
        ("0.0.0.0/0", Network(4, 0, 0)),
        ("10.1.2.3/32", Network(4, 0x0A010203, 0xFFFFFFFF)),
        ("10.1.0.0 255.255.0.0", Network(4, 0x0A010000, 0xFFFF0000)),
        ("10.1.0.0 255.255.0.255", Network(4, 0x0A010000, 0xFFFF00FF)),
        ("::/0", Network(6, 0, 0)),
        ("::1/128", Network(6, 1, (1 << 128) - 1)),
        ("fe80:: ffc0::", Network(6, 0xFE80 << 112, 0xFFC0 << 112)),
    ],
)
def test_addresses(field: str, network: Network | None) -> None:
    """A network is written with bits or with a mask, in both versions of IP."""
    assert only(f"host all all {field} trust").network == network


@pytest.mark.parametrize("option", ["map=m", 'map="m"', "map=m # why", "map=m#why"])
def test_maps(option: str) -> None:
    """A map is kept by name."""
    assert only(f"hostssl all all all cert {option}", "m").map == "m"


def test_ldap_options_are_the_rest_of_the_line() -> None:
    """Their password is in no repr."""
    rule = only('host all all all ldap ldapbasedn="dc=x, dc=y" ldapserver=h ldapbindpasswd=geheim # why')
    assert rule.ldap is not None
    assert (rule.ldap.servers, rule.ldap.basedn, rule.ldap.bindpasswd) == (("h",), "dc=x, dc=y", "geheim")
    assert "geheim" not in repr(rule)


def test_bad_ldap_options_keep_the_rule_and_let_nobody_in() -> None:
    """The line still decides, so that nobody falls through to a later one; its values are not told."""
    found = parse_hba("host all all all ldap ldapbindpassword=geheim\n", "hba.conf")
    assert [(rule.method, rule.ldap) for rule in found.rules] == [("ldap", None)]
    (warning,) = found.warnings
    assert str(warning).startswith("hba.conf:1: ldapbindpassword: invalid LDAP option; allowed are ldapserver, ")
    assert str(warning).endswith("this line lets nobody in")
    assert "geheim" not in str(warning)


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("hostgssenc all all all trust", "type = hostgssenc"),
        ("hostnogssenc all all all trust", "type = hostnogssenc"),
        ("HOST all all all trust", "type = HOST"),
        ("include other.conf", "type = include"),
        ("host", "database"),
        ("host samerole all all trust", "database = samerole"),
        ("host samegroup all all trust", "database = samegroup"),
        ("host /x all all trust", "database = /x"),
        ("host all", "user"),
        ("host all +admins all trust", "user = +admins"),
        ("host all @/nowhere/names all trust", "user = @/nowhere/names"),
        ("host all all", "address"),
        ("host all all localhost trust", "address = localhost"),
        ("host all all .example.com trust", "address = .example.com"),
        ("host all all samehost trust", "address = samehost"),
        ("host all all samenet trust", "address = samenet"),
        ("host all all 10.0.0.0/33 trust", "address = 10.0.0.0/33"),
        ("host all all 10.0.0.0/-1 trust", "address = 10.0.0.0/-1"),
        ("host all all 10.0.0.1/8 trust", "address = 10.0.0.1/8"),
        ("host all all 10.0.0.1 255.0.0.0 trust", "address = 10.0.0.1"),
        ("host all all 10.0.0.0 trust", "mask = trust"),
        ("host all all 10.0.0.0 ffff:: trust", "mask = ffff::"),
        ("host all all 10.0.0.0,11.0.0.0 trust", "address"),
        ("host all all all", "method"),
        ("local all all 10.0.0.0/8 trust", "method = 10.0.0.0/8"),
        ("local all all TRUST", "method = TRUST"),
        ("local all all any", "method = any"),
        ("local all all pam", "method = pam"),
        ("local all all plain", "method = plain"),
        ("local all all ident", "method = ident"),
        ("local all all gss", "method = gss"),
        ("local all all md5 clientcert=verify-full", "options"),
        ("local all all trust extra", "options"),
        ("local all all peer map=m map=m", "options"),
        ("local all all peer map=other", "map = other"),
        ('local all "all trust', "quotes"),
        ("local all a,, trust", "list"),
    ],
)
def test_bad_lines_are_passed_over(line: str, field: str) -> None:
    """The warning names file, line, field and what is allowed, in PgBouncer's words; the lines around it stand."""
    found = parse_hba(f"local a all trust\n{line}\nlocal b all trust\n", "hba.conf", ("m",))
    assert [rule.line for rule in found.rules] == [1, 3]
    (warning,) = found.warnings
    text, _, allowed = str(warning).partition(": could not parse hba config line 2: ")
    assert text == f"hba.conf:2: {field}"
    assert allowed


@pytest.mark.parametrize(
    "line", ["host all all samenet reject", "hostnogssenc all all all reject", "local all all reject x"]
)
def test_a_bad_line_that_rejects_is_an_error(line: str) -> None:
    """Passing it over would let in whom it keeps out."""
    with pytest.raises(ConfigError, match=r"hba\.conf:2: .*could not parse hba config line 2"):
        parse_hba(f"local all all trust\n{line}\n", "hba.conf")


def test_a_file_that_cannot_be_read_has_no_rules(tmp_path: Path) -> None:
    """Then nobody can log in, and the log says why."""
    for path, why in (
        (str(tmp_path / "none"), "No such file or directory"),
        ("a\0b", "a path cannot hold a zero byte"),
    ):
        found = read_hba(path, ())
        assert found.rules == ()
        assert f"could not open hba config file {path}: {why}".replace("\0", "\\x00") in str(found.warnings[0])


WORDS = st.sampled_from(
    ["host", "local", "hostssl", "all", "alice", '"a b"', ",", "10.0.0.0/8", "::/0", "255.0.0.0", "md5", "trust",
     "cert", "ldap", "reject", "map=m", "ldapprefix=x", "#", '"', "@", "@/x", "/9",
     "sameuser", "\t", "\0", "\u0661.1.1.1"]
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(WORDS).map(" ".join), st.lists(WORDS, max_size=7).map(" ".join)))
def test_any_line_is_a_rule_or_a_reason(text: str) -> None:
    """Each line gives one rule at most, or one warning at most unless the rule stays; nothing else comes out."""
    try:
        found = parse_hba(text, "hba.conf", ("m",))
    except ConfigError as error:
        # Only a line that rejects somebody may stop the whole file.
        written = text.split("\n")
        assert "reject" in written[error.line - 1]  # noqa: PT017
        return
    lines = [rule.line for rule in found.rules]
    assert lines == sorted(set(lines))
    told = [warning.line for warning in found.warnings]
    assert told == sorted(set(told))
    assert all(rule.method == "ldap" for rule in found.rules if rule.line in told)

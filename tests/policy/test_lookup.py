"""What auth_query sends, and what a server's answers mean."""

from __future__ import annotations

import pytest

from pgshoal.config.model import DEFAULT_AUTH_QUERY
from pgshoal.policy.lookup import CATALOG_PATH, OWN_QUERY_PATH, UNEXPECTED, Answer, Broken, Row, request
from tests.support import messages as m

ACK = m.message(b"1") + m.message(b"2")
PATH_ROW = ACK + m.data_row("pg_catalog") + m.command_complete("SELECT 1") + ACK
HEAD = PATH_ROW + m.row_description("rolname", "rolpassword")
END = m.command_complete("SELECT 1") + m.ready()


def answer(data: bytes) -> object:
    """What the whole answer means; nothing may follow a meaning but the end."""
    reader = Answer()
    while data:
        size = 1 + int.from_bytes(data[1:5])
        found = reader.feed(data[0], data[5:size])
        data = data[size:]
        if found is not None:
            return found
    return None


def test_one_batch_with_its_own_search_path() -> None:
    """The path is set first, for this transaction only, and the default query gets the stricter one."""
    for own, path in ((False, CATALOG_PATH), (True, OWN_QUERY_PATH)):
        sent = request("select $1", "jo", own)
        assert sent.count(m.SYNC) == 1
        assert sent.endswith(m.SYNC)
        assert sent.index(path.encode()) < sent.index(b"select $1\0") < sent.index(b"\0\0\0\2jo")
        assert b"set_config('search_path', $1, true)" in sent
    assert "public" not in CATALOG_PATH
    assert DEFAULT_AUTH_QUERY.startswith("SELECT rolname")


def test_the_row_of_the_search_path_is_not_the_answer() -> None:
    """Only rows behind the description count."""
    assert answer(HEAD + m.data_row("alice", "secret") + END) == Row("alice", "secret")
    assert answer(HEAD + END) == "nobody"


def test_last_row_null_secret_and_null_name() -> None:
    """The last row wins; no secret is an empty one; a row without a name is no row."""
    rows = m.data_row("alice", "first") + m.data_row("alice", "last")
    assert answer(HEAD + rows + END) == Row("alice", "last")
    assert answer(HEAD + rows + m.data_row(None, "x") + END) == Row("alice", "last")
    assert answer(HEAD + m.data_row(None, "x") + END) == "nobody"
    assert answer(HEAD + m.data_row("alice", None) + END) == Row("alice", "")


@pytest.mark.parametrize("count", [0, 1, 3])
def test_two_columns_and_no_other_number(count: int) -> None:
    """Anything else is broken as soon as it is described."""
    described = m.row_description(*("abc"[:count])) if count else m.message(b"n")
    assert answer(PATH_ROW + described) == Broken(f"expected 2 columns from auth_query, not {count}")


def test_errors() -> None:
    """A server's error breaks the lookup; a name it cannot read belongs to nobody; fields may be missing."""
    assert answer(PATH_ROW + m.error("42P01", "no table")) == Broken(
        "error response from auth_query", "ERROR: no table"
    )
    assert answer(PATH_ROW + m.error("22021", "invalid byte sequence") + m.ready()) == "nobody"
    assert isinstance(answer(PATH_ROW + m.message(b"E", b"\0")), Broken)


@pytest.mark.parametrize(
    "hostile",
    [
        m.ready(),
        HEAD + m.ready("T"),
        m.message(b"G", b"\0\0\0"),
        HEAD + m.message(b"D", b"\0\2\xff\xff"),
        HEAD + m.message(b"D", b"\0\1\0\0\0\1x"),
        m.message(b"E", b"S"),
        m.message(b"T", b"\0\2"),
    ],
)
def test_nonsense(hostile: bytes) -> None:
    """Messages that cannot come here, and broken ones, break the lookup and raise nothing."""
    found = answer(hostile)
    assert isinstance(found, Broken)
    assert found.reason == UNEXPECTED or found.reason.startswith("broken ")


def test_messages_that_may_come_at_any_time() -> None:
    """Notices, notifications and parameters are passed over."""
    between = m.message(b"N", b"\0") + m.parameter_status("a", "b") + m.message(b"A", b"\0\0\0\1c\0\0")
    assert answer(between + HEAD + between + m.data_row("a", "s") + between + END) == Row("a", "s")

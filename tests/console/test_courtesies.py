"""What is known of the statements that drivers send unasked."""

from __future__ import annotations

import pytest

from pgshoal.console.courtesies import courtesies, courtesy
from pgshoal.wire import build


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("DISCARD ALL", "DISCARD ALL"),
        (" discard \n all ; ", "DISCARD ALL"),
        ("RESET ALL", "RESET"),
        ("CLOSE ALL", "CLOSE CURSOR ALL"),
        ("UNLISTEN *", "UNLISTEN"),
        ("DEALLOCATE ALL", "DEALLOCATE ALL"),
        ("deallocate prepare x", "DEALLOCATE"),
    ],
)
def test_tags_are_those_of_postgresql(text: str, tag: str) -> None:
    """In any case and spacing, with or without a semicolon."""
    found = courtesy(text)
    assert found is not None
    assert found.reply == build.command_complete(tag)


@pytest.mark.parametrize(
    "text", ["begin", "commit", "select 1", "reset timezone", "show pools", "discard", "set search_path = x", "pause"]
)
def test_everything_else_is_not_for_here(text: str) -> None:
    """The console's own grammar judges it."""
    assert courtesy(text) is None
    assert courtesies(f"reset all; {text}") is None


def test_names_of_statements() -> None:
    """Read as SQL: in lower case unless they are quoted."""
    given = ("deallocate ABC", 'deallocate "A""b"', "deallocate all", 'deallocate "all"')
    found = [courtesy(text) for text in given]
    assert [(one.forgets, one.forgets_all) for one in found if one] == [
        ("abc", False),
        ('A"b', False),
        ("", True),
        ("all", False),
    ]


def test_the_application_may_name_itself() -> None:
    """With a value of the console's grammar only."""
    for text in ("set application_name = 'x'", "SET Application_Name TO x;"):
        found = courtesy(text)
        assert found is not None
        assert found.reply.startswith(build.notice("SET ignored"))
    assert courtesy("set application_name = x y") is None


def test_several_statements_are_one_answer_each() -> None:
    """Empty ones among them say nothing; nothing else is one empty answer."""
    texts = ("reset all;;close all;", "reset all", " ; ", "-- ping")
    assert [len(found or ()) for found in map(courtesies, texts)] == [2, 1, 1, 1]

"""Every file, and every test, says in one sentence what it is for."""

from __future__ import annotations

import ast
import re

from tests.shape import source

MODULES = (*source.python("pgshoal"), *source.python("tests"))
ANOTHER_SENTENCE = re.compile(r"[.!?]\s+[A-Z]")


def complaint(docstring: str | None) -> str:
    """What is wrong with a docstring as an opening sentence; empty when nothing is."""
    if not docstring:
        return "no docstring"
    opening = " ".join(docstring.strip().split("\n\n")[0].split())
    if not opening.endswith((".", "!", "?")):
        return "its opening is no full sentence"
    return "its opening has more than one sentence" if ANOTHER_SENTENCE.search(opening) else ""


def test_every_python_file_opens_with_a_sentence() -> None:
    """The first paragraph of each file's docstring is exactly one sentence."""
    assert {m.place: said for m in MODULES if m.text.strip() and (said := complaint(ast.get_docstring(m.tree)))} == {}


def test_every_rust_file_opens_with_a_sentence() -> None:
    """Each Rust file starts with a `//!` line."""
    assert [str(p.relative_to(source.ROOT)) for p in source.rust() if not p.read_text().startswith("//! ")] == []


def test_every_test_states_the_behaviour() -> None:
    """Each test function has a docstring."""
    silent = [
        f"{module.place}:{function.lineno} {function.name}"
        for module in source.python("tests")
        if module.path.name.startswith("test_")
        for function in module.functions()
        if function.name.startswith("test_") and not ast.get_docstring(function)
    ]
    assert silent == []


def test_complaints_are_made() -> None:
    """A missing, an unfinished and a talkative opening are all told apart from a good one."""
    assert complaint(None) == "no docstring"
    assert complaint("half a thought") == "its opening is no full sentence"
    assert complaint("One. Two.") == "its opening has more than one sentence"
    assert complaint("Reads version 1.26 files, e.g. those of a user.\n\nMore. And more.") == ""

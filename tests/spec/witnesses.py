"""Reads the tests: the words each of them uses, with those of the helpers of its module."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Who speaks of rows without showing what they do: tables read again, this list itself, style.
_TABLES_ONLY = ("tests/shape/", "tests/support/", "tests/spec/test_rows.py", "tests/test_errors.py")
#: Where a name in a call belongs to one entry, not to the whole pooler.
_SCOPES = {
    "database": "databases",
    "DatabaseConfig": "databases",
    "databases": "databases",
    "UserConfig": "users",
    "users": "users",
    "PeerConfig": "peers",
    "peers": "peers",
}
_ENTRY = re.compile(r"\b([a-z0-9_]+)\s*=")
_HEADER = re.compile(r"\[(pgbouncer|databases|users|peers)\]")


@dataclass(slots=True)
class Words:
    """What stands in a piece of code: texts, names looked at, and settings given, as (section, name)."""

    texts: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    given: set[tuple[str, str]] = field(default_factory=set)

    def add(self, other: Words) -> None:
        """Takes over another piece's words."""
        self.texts |= other.texts
        self.names |= other.names
        self.given |= other.given


@dataclass(frozen=True, slots=True)
class Witness:
    """One test and its words."""

    place: str
    words: Words

    @property
    def whole(self) -> str:
        """All its texts, one a line."""
        return "\n".join(sorted(self.words.texts))


class _Reader(ast.NodeVisitor):
    def __init__(self) -> None:
        self.words = Words()
        self.scope = "pgbouncer"

    def _text(self, text: str) -> None:
        self.words.texts.add(text)
        if "\\" in text:  # a pattern, perhaps
            self.words.texts.add(text.replace("\\", ""))
        section = self.scope
        for line in text.split("\n"):
            header = _HEADER.match(line.strip())
            section = header[1] if header else section
            own = line.partition(" = ")[2] if section in ("users", "peers", "databases") and " = " in line else line
            self.words.given |= {(section, name) for name in _ENTRY.findall(own)}
            if "host=" in own and "port=" in own:
                self.words.given |= {("databases", name) for name in _ENTRY.findall(own)}

    def visit_Constant(self, node: ast.Constant) -> None:
        """A text, or bytes that are one."""
        if isinstance(node.value, str):
            self._text(node.value)
        elif isinstance(node.value, bytes):
            self._text(node.value.decode("latin-1"))

    def visit_Assign(self, node: ast.Assign) -> None:
        """A variable may be named as the section whose entries it holds."""
        name = node.targets[0].id if isinstance(node.targets[0], ast.Name) else ""
        outer, self.scope = self.scope, _SCOPES.get(name, self.scope)
        self.generic_visit(node)
        self.scope = outer

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """An f-string: what stands in it for good, joined by a mark."""
        self._text("".join(str(p.value) if isinstance(p, ast.Constant) else "\0" for p in node.values))
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part)

    def visit_Name(self, node: ast.Name) -> None:
        """A name that may be a helper's."""
        self.words.names.add(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        """A fixture, perhaps one of this module."""
        self.words.names.add(node.arg)

    def visit_Call(self, node: ast.Call) -> None:
        """Keywords are settings of whatever is called."""
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        outer, self.scope = self.scope, _SCOPES.get(called, self.scope)
        self.visit(node.func)
        for value in node.args:
            self.visit(value)
        for keyword in node.keywords:
            if keyword.arg is not None:
                self.words.given.add((self.scope, keyword.arg))
            inner, self.scope = self.scope, _SCOPES.get(keyword.arg or "", self.scope)
            self.visit(keyword.value)
            self.scope = inner
        self.scope = outer

    def visit_Dict(self, node: ast.Dict) -> None:
        """Keys may be settings too."""
        for key in node.keys:
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                self.words.given.add((self.scope, key.value))
        self.generic_visit(node)


def _read(node: ast.AST) -> Words:
    reader = _Reader()
    body = getattr(node, "body", None)
    docstring = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(node)
    if docstring and isinstance(body, list):
        for part in (*body[1:], *getattr(node, "decorator_list", []), *filter(None, [getattr(node, "args", None)])):
            reader.visit(part)
    else:
        reader.visit(node)
    return reader.words


def _defined(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target.id if isinstance(target, ast.Name) else ""


def _with_helpers(words: Words, helpers: dict[str, Words]) -> Words:
    out, open_names, seen = Words(), [words], set[str]()
    while open_names:
        piece = open_names.pop()
        out.add(piece)
        for name in piece.names & helpers.keys() - seen:
            seen.add(name)
            open_names.append(helpers[name])
    return out


def _tests(place: str, body: list[ast.stmt], above: dict[str, Words]) -> Iterator[Witness]:
    pieces = {name: _read(node) for node in body if (name := _defined(node))}
    helpers = above | {name: words for name, words in pieces.items() if not name.lower().startswith("test")}
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _tests(f"{place}::{node.name}", node.body, helpers)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield Witness(f"{place}::{node.name}", _with_helpers(pieces[node.name], helpers))


def witnesses(root: Path = ROOT) -> tuple[Witness, ...]:
    """Every test that shows behaviour."""
    found: list[Witness] = []
    for path in sorted(root.glob("tests/**/test_*.py")):
        place = str(path.relative_to(root))
        if not place.startswith(_TABLES_ONLY):
            found += _tests(place, ast.parse(path.read_text(encoding="utf-8")).body, {})
    return tuple(found)

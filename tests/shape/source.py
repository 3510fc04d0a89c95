"""The project's own source as facts: modules, their imports, functions and sizes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Module:
    """One Python file, parsed."""

    path: Path
    name: str
    text: str
    tree: ast.Module

    @property
    def place(self) -> str:
        """The path as a reader types it."""
        return str(self.path.relative_to(ROOT))

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every function and method of the file, nested ones included."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    def imports(self, at_run_time: bool = False) -> Iterator[str]:
        """The full names of everything imported, at any depth; at_run_time leaves out what only type checkers see."""
        package = self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]
        unseen = set(typing_only(self.tree)) if at_run_time else set()
        for node in ast.walk(self.tree):
            if node in unseen:
                continue
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                origin = ".".join([*base, *([node.module] if node.module else [])])
                yield from (f"{origin}.{alias.name}" for alias in node.names)


def typing_only(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes in the body of an `if TYPE_CHECKING`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for statement in node.body:
                yield from ast.walk(statement)


@cache
def python(folder: str) -> tuple[Module, ...]:
    """All Python files below a folder of the project."""
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text()
        found.append(Module(path, name, text, ast.parse(text, str(path))))
    return tuple(found)


def rust() -> list[Path]:
    """All Rust files of the project that people write."""
    folders = (ROOT / "native", ROOT / "fuzz")
    return sorted(p for f in folders for p in f.rglob("*.rs") if "target" not in p.relative_to(ROOT).parts)


NOT_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\(?:x..|u\{[^}]*\}|.)|[^'\\])'""", re.DOTALL
)


def blank(match: re.Match[str]) -> str:
    """As many line ends as the match held, and nothing else."""
    return "\n" * match[0].count("\n")


def rust_functions(text: str) -> Iterator[tuple[str, int]]:
    """The name and the number of lines of every Rust function that has a body."""
    code = NOT_CODE.sub(blank, text)
    for found in re.finditer(r"\bfn\s+(\w+)", code):
        start = re.compile(r"[{;]").search(code, found.end())
        if start is None or start[0] == ";":
            continue
        depth, end = 0, start.start()
        for brace in re.compile(r"[{}]").finditer(code, start.start()):
            depth += 1 if brace[0] == "{" else -1
            end = brace.end()
            if depth == 0:
                break
        yield found[1], code.count("\n", found.start(), end) + 1

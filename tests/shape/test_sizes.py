"""Files and functions stay small enough to be read in one sitting."""

from __future__ import annotations

from tests.shape import source

PYTHON_LINES, PYTHON_FUNCTION_LINES = 500, 60
RUST_LINES, RUST_FUNCTION_LINES = 700, 80
MODULES = (*source.python("pgshoal"), *source.python("tests"))


def test_python_modules_are_small() -> None:
    """No Python file is longer than the limit."""
    assert {m.place: n for m in MODULES if (n := len(m.text.splitlines())) > PYTHON_LINES} == {}


def test_python_functions_are_small() -> None:
    """No Python function is longer than the limit, its docstring included."""
    long = {}
    for module in MODULES:
        for function in module.functions():
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            if lines > PYTHON_FUNCTION_LINES:
                long[f"{module.place}:{function.lineno} {function.name}"] = lines
    assert long == {}


def test_rust_files_and_functions_are_small() -> None:
    """No Rust file and no Rust function is longer than its limit."""
    long = {}
    for path in source.rust():
        text, place = path.read_text(), str(path.relative_to(source.ROOT))
        if (lines := len(text.splitlines())) > RUST_LINES:
            long[place] = lines
        for name, count in source.rust_functions(text):
            if count > RUST_FUNCTION_LINES:
                long[f"{place} {name}"] = count
    assert long == {}


def test_rust_functions_are_measured_past_strings_and_comments() -> None:
    """Braces inside strings, characters and comments do not count, nor do functions without a body."""
    text = "trait T { fn none(&self); }\nfn a() {\n  let x = \"{\"; // {\n  let y = '{';\n}\nfn b<'a>(s: &'a str) { }\n"
    assert list(source.rust_functions(text)) == [("a", 4), ("b", 1)]

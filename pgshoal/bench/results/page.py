"""The pieces of report.html: one file without scripts, for light and dark screens, phones and paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from pgshoal.bench.results.paint import INKS
from pgshoal.bench.results.tables import Table


def page(title: str, body: Iterable[str]) -> str:
    """The whole file."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style()}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def style() -> str:
    """The style sheet with all inks, those for dark paper where it is asked for and not printed on."""
    light = " ".join(f"--{name}: {paper};" for name, (paper, _) in INKS.items())
    dark = " ".join(f"--{name}: {paper};" for name, (_, paper) in INKS.items())
    css = resources.files(__package__).joinpath("report.css").read_text()
    return f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{css}"


def facts(found: Mapping[str, Any]) -> str:
    """Boxes of facts: one for the plain ones, one for each mapping of them; long lists of knobs are folded."""
    sizes = {name: value for name, value in found.get("knobs", {}).items() if name in SIZES}
    plain = {name: value for name, value in found.items() if not isinstance(value, Mapping)} | sizes
    boxes = [box("run", plain)] if plain else []
    boxes += [
        box(name, value) for name, value in found.items() if isinstance(value, Mapping) and value and name not in FOLDED
    ]
    folded = [
        f"<details><summary>{escape(name.replace('_', ' '))}</summary>{terms(found[name])}</details>"
        for name in FOLDED
        if found.get(name)
    ]
    return f'<div class="facts">{"".join(boxes)}</div>' + "".join(folded)


SIZES = ("seconds", "warmup", "repeats", "targets", "processes", "budget")
FOLDED = ("knobs", "digests")
FEW = 6


def box(heading: str, values: Mapping[str, Any]) -> str:
    """One box."""
    return f"<section><h3>{escape(heading.replace('_', ' '))}</h3>{terms(values)}</section>"


def terms(values: Mapping[str, Any]) -> str:
    """Names and values; what is empty is left out."""
    shown = ((name, worded(value)) for name, value in values.items())
    return (
        "<dl>"
        + "".join(f"<dt>{escape(name.replace('_', ' '))}</dt><dd>{escape(text)}</dd>" for name, text in shown if text)
        + "</dl>"
    )


def worded(value: Any) -> str:
    """A value of run.json as people read it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {worded(part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(worded, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:,g}" if isinstance(value, float) else str(value)


def table(content: Table, colours: Mapping[str, str] | None = None, classes: Mapping[int, str] | None = None) -> str:
    """A table that scrolls sideways where it is wider than the screen; targets have a dot of their colour."""

    def cell(tag: str, at: int, text: str, mark: str = "") -> str:
        kind = f' class="{"text name" if mark else "text"}"' if at < content.texts else ""
        return f"<{tag}{kind}>{mark}{escape(text)}</{tag}>"

    head = "".join(cell("th", at, heading) for at, heading in enumerate(content.headings))
    rows = []
    for number, line in enumerate(content.lines):
        dots = [
            dot(colours[text]) if colours and text in colours and at < content.texts else ""
            for at, text in enumerate(line)
        ]
        cells = "".join(cell("td", at, text, dots[at]) for at, text in enumerate(line))
        marks = {"doubtful": content.doubtful, "notable": content.notable}
        name = (classes or {}).get(number) or next((mark for mark, some in marks.items() if number in some), "")
        rows.append(f'<tr class="{name}">{cells}</tr>' if name else f"<tr>{cells}</tr>")
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def dot(colour: str) -> str:
    """A dot in the colour that a target has in the charts; by the ink's name, so that it suits the paper."""
    name = next(name for name, (paper, _) in INKS.items() if paper == colour)
    return f'<span class="dot" style="background:var(--{name})"></span>'


def warning(heading: str, lines: Sequence[str]) -> str:
    """A marked box with a list, folded when it is long; nothing when there is nothing to say."""
    if not lines:
        return ""
    items = "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"
    if len(lines) > FEW:
        items = f"<details><summary>{len(lines)} lines</summary>{items}</details>"
    return f'<div class="invalid"><strong>{escape(heading)}</strong>{items}</div>'


def charts(svgs: Sequence[str]) -> str:
    """Charts beside each other where there is room."""
    return f'<div class="charts">{"".join(f"<figure>{svg}</figure>" for svg in svgs)}</div>' if svgs else ""


def beside(table: str, svgs: Sequence[str]) -> str:
    """A small table with its charts beside it where there is room."""
    return f'<div class="charts"><div>{table}</div>{"".join(f"<figure>{svg}</figure>" for svg in svgs)}</div>'

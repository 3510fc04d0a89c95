"""Named rules that say why a run's figures do not count; each reason gives the figure and the limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pgshoal.bench.model import Cell, Row

#: Why the row does not count, or an empty text. The rows are those of the same experiment, the row itself may be there.
Check = Callable[[Row, Sequence[Row], Cell], str]

CHECKS: Mapping[str, Check] = {}


def examine(row: Row, peers: Sequence[Row], cell: Cell, names: Sequence[str]) -> tuple[str, ...]:
    """Reasons as `name: text`, by the named checks; none for a row that is an error anyway. KeyError: no such check."""
    if row.error:
        return ()
    found = ((name, CHECKS[name](row, peers, cell)) for name in names)
    return tuple(f"{name}: {reason}" for name, reason in found if reason)

"""Figures and variants in words that a reader understands without the source."""

from __future__ import annotations

import pytest

from pgshoal.bench.results.words import listed, number, of_variant, ratio, title


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0"), (25.0, "25"), (1589.6, "1,590"), (16.97, "17.0"), (2.068, "2.07"), (0.0123, "0.0123")],
)
def test_numbers_keep_three_digits(value: float | None, text: str) -> None:
    """As many digits as tell something."""
    assert number(value) == text


def test_ratios_stand_alike() -> None:
    """Two decimals, even where there is nothing behind the point."""
    assert [ratio(value) for value in (1.0, 0.5512, 12.0, 250.4, None)] == ["1.00", "0.55", "12.00", "250", "-"]


@pytest.mark.parametrize(
    ("figure", "unit", "text"),
    [
        ("tps", "tx/s", "transactions/s"),
        ("cpu_us_per_tx", "", "pooler CPU, µs/tx"),
        ("cpu_us_per_tx", "µs/conn", "pooler CPU, µs/conn"),
        ("p99_ms", "ms", "p99, ms"),
        ("row_peak_mb", "MB", "row peak, MB"),
        ("new_figure", "", "new figure"),
    ],
)
def test_figures_have_titles(figure: str, unit: str, text: str) -> None:
    """Known figures have a name, others their own; the unit comes once."""
    assert title(figure, unit) == text


def test_variants_are_words() -> None:
    """Numbers come before what they count."""
    assert of_variant({"clients": 1024, "tls": "both", "layout": "shared"}) == "1,024 clients, TLS both, layout shared"
    assert of_variant({"clients": 1}) == "1 client"
    assert of_variant({}) == ""


def test_lists_are_read_aloud() -> None:
    """Commas, and an `and` at the end."""
    assert [listed(list(text)) for text in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]

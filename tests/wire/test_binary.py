"""Values in binary format mean what their text means."""

from __future__ import annotations

import struct
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.wire.binary import binary, numeric

INT8, INT4, TEXT, NUMERIC = 20, 23, 25, 1700


def read_numeric(value: bytes) -> tuple[Fraction, int]:
    """(value, digits behind the point) as PostgreSQL's documentation of the type has it."""
    count, weight, sign, scale = struct.unpack_from("!HhHH", value)
    groups = struct.unpack(f"!{count}H", value[8:])
    assert all(group < 10000 for group in groups)
    size = sum((group * Fraction(10000) ** (weight - at) for at, group in enumerate(groups)), Fraction(0))
    return (-size if sign == 0x4000 else size), scale


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", "0000 0000 0000 0000"),
        ("0.0", "0000 0000 0000 0001"),
        ("-0", "0000 0000 0000 0000"),
        ("1", "0001 0000 0000 0000 0001"),
        ("10000", "0001 0001 0000 0000 0001"),
        ("12345", "0002 0001 0000 0000 0001 0929"),
        ("-12.5", "0002 0000 4000 0001 000c 1388"),
        ("0.0001", "0001 ffff 0000 0004 0001"),
    ],
)
def test_numerics_byte_by_byte(text: str, value: str) -> None:
    """Groups of four digits without zeros at the ends, their weight, the sign and the scale."""
    assert numeric(text) == bytes.fromhex(value)


@given(st.integers(0, 1), st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(-30, 10))
def test_any_numeric_is_read_back(sign: int, digits: list[int], exponent: int) -> None:
    """With its scale, however it is spelled."""
    value = Decimal((sign, tuple(digits), exponent))
    assert read_numeric(numeric(str(value))) == (Fraction(value), max(-exponent, 0))


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers_that_fit(value: int) -> None:
    """Eight bytes, or four."""
    assert binary(INT8, str(value).encode()) == struct.pack("!q", value)
    assert binary(INT4, str(value >> 32).encode()) == struct.pack("!i", value >> 32)


def test_integers_that_do_not_fit() -> None:
    """The nearest one that does: a table is shown even so."""
    assert binary(INT4, b"2147483648") == struct.pack("!i", 2**31 - 1)
    assert binary(INT4, b"-2147483649") == struct.pack("!i", -(2**31))


def test_text_is_text() -> None:
    """In both formats the same bytes."""
    assert binary(TEXT, b"\xff") == b"\xff"
    assert binary(NUMERIC, b"7") == numeric("7")

"""Values in PostgreSQL's binary format, made of their text."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from struct import Struct, pack
from typing import Final

_NUMERIC: Final = Struct("!HhHH")
#: numeric is made of digits to the base 10000
_GROUP: Final = 4
_NEGATIVE: Final = 0x4000


def numeric(text: str) -> bytes:
    """A numeric: groups of four digits, and how many of them stand before the point."""
    plain = format(Decimal(text), "f")
    whole, _, fraction = plain.lstrip("-").partition(".")
    digits = whole.zfill(-(-len(whole) // _GROUP) * _GROUP)
    weight = len(digits) // _GROUP - 1
    digits += fraction + "0" * (-len(fraction) % _GROUP)
    groups = [int(digits[at : at + _GROUP]) for at in range(0, len(digits), _GROUP)]
    while groups and not groups[0]:
        del groups[0]
        weight -= 1
    while groups and not groups[-1]:
        del groups[-1]
    sign = _NEGATIVE if groups and plain.startswith("-") else 0
    head = _NUMERIC.pack(len(groups), weight if groups else 0, sign, len(fraction))
    return head + pack(f"!{len(groups)}H", *groups)


def _integer(size: int) -> Callable[[str], bytes]:
    largest = (1 << 8 * size - 1) - 1

    def encode(text: str) -> bytes:
        # As text any number is sent. Here one that does not fit may not break the whole table.
        return max(-largest - 1, min(int(text), largest)).to_bytes(size, signed=True)

    return encode


#: type oid -> text to binary; a type that is not here looks the same in both formats
BINARY: Mapping[int, Callable[[str], bytes]] = {20: _integer(8), 23: _integer(4), 1700: numeric}


def binary(oid: int, text: bytes) -> bytes:
    """A value of one of BINARY's types, or of a type that is text anyway."""
    encode = BINARY.get(oid)
    return text if encode is None else encode(text.decode("ascii"))

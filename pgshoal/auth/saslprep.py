"""Prepares a password for SCRAM as RFC 4013 says, and leaves it as it is where PostgreSQL does."""

import stringprep
import unicodedata

_PROHIBITED = (
    stringprep.in_table_a1,  # unassigned in Unicode 3.2
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def saslprep(password: bytes) -> bytes:
    """The prepared password; the bytes unchanged if they are ASCII, not UTF-8, or hold something RFC 4013 forbids."""
    if password.isascii():
        return password
    try:
        text = password.decode("utf-8")
    except UnicodeDecodeError:
        return password
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char for char in text if not stringprep.in_table_b1(char)
    )
    prepared = unicodedata.normalize("NFKC", mapped)
    if not prepared or any(forbidden(char) for char in prepared for forbidden in _PROHIBITED):
        return password
    return prepared.encode("utf-8") if _direction_ok(prepared) else password


def _direction_ok(text: str) -> bool:
    """RFC 3454 section 6: right-to-left text starts and ends as such and holds no left-to-right character."""
    if not any(stringprep.in_table_d1(char) for char in text):
        return True
    if any(stringprep.in_table_d2(char) for char in text):
        return False
    return stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])

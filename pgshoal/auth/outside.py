"""What somebody outside, a directory or PAM, has said about a user and a password."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether the password fits; `why` is for the log when it does not, and never holds a password."""

    fits: bool
    why: str = ""

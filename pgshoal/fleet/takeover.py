"""What a supervisor hands to the program that takes its place: JSON in a memfd, and descriptors that outlive exec."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pgshoal.fleet.ledger import Ledger

#: Changed whenever an older supervisor's state cannot be taken over.
FORMAT: Final = 1
#: Name in the environment: the number of the memfd.
TAKE_OVER: Final = "PGSHOAL_TAKE_OVER"
#: The same for a program that is only asked whether it could.
TRY: Final = "PGSHOAL_TRY_TAKE_OVER"


class CannotTakeOver(Exception):
    """This program cannot go on from there; the text says why."""


@dataclass(frozen=True, slots=True)
class Estate:
    """The state as it was written; `tried` if nothing of it may be used."""

    state: Mapping[str, Any]
    tried: bool

    def __getitem__(self, name: str) -> Any:
        return self.state[name]


def write(state: Mapping[str, Any]) -> int:
    """Put the state into a new memfd, which closes at exec as all others do."""
    fd = os.memfd_create("pgshoal state", os.MFD_CLOEXEC)
    data = json.dumps({"format": FORMAT, **state}).encode()
    while data:
        data = data[os.write(fd, data) :]
    return fd


def inherited(environment: dict[str, str] | os._Environ[str]) -> Estate | None:
    """The state this process was started with, if any; the variables are removed, so that no worker sees them."""
    real, tried = environment.pop(TAKE_OVER, ""), environment.pop(TRY, "")
    if not real and not tried:
        return None
    fd = int(real or tried)
    os.lseek(fd, 0, os.SEEK_SET)
    data = b""
    while piece := os.read(fd, 1 << 20):
        data += piece
    os.close(fd)
    state = json.loads(data)
    if state.get("format") != FORMAT:
        raise CannotTakeOver(f"it takes over states of format {FORMAT}, not {state.get('format')}")
    return Estate(state, bool(tried))


def attempt(estate: Estate) -> None:
    """Whether all of it can be understood here; CannotTakeOver if not."""
    try:
        ledger = Ledger.attach(estate["ledger"], estate["bells"], -1)
    except ValueError as error:
        raise CannotTakeOver(str(error)) from None
    ledger.close()


def keep(fds: Iterable[int], kept: bool) -> None:
    """Let descriptors pass through exec, or not."""
    for fd in fds:
        os.set_inheritable(fd, kept)

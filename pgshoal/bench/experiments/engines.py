"""Which of pgshoal's engines run on this machine."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

from pgshoal.engine.choose import choose
from pgshoal.errors import ConfigError

BEST_FIRST: Final = ("uring", "epoll", "python")


@functools.cache
def unusable(engine: str) -> str:
    """Why an engine cannot run here; empty when it can."""
    try:
        choose(engine, lambda text: None).shutdown()
    except ConfigError as error:
        return str(error)
    return ""


def named(engines: Sequence[str]) -> list[str]:
    """The engines by name, each once: `auto` is the best one that runs here."""
    best = next(engine for engine in BEST_FIRST if not unusable(engine))
    return list(dict.fromkeys(best if engine == "auto" else engine for engine in engines))

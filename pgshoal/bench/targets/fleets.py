"""Fleets of PgBouncers as operators put them together by hand: so_reuseport, a peer list, limits divided, pinned."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pgshoal.demo.pooler import PgBouncer, Pooler

#: Limits on server connections, which every process of a PgBouncer fleet counts for itself.
DIVIDED: Final = (
    "default_pool_size",
    "min_pool_size",
    "reserve_pool_size",
    "max_db_connections",
    "max_user_connections",
)


def share(settings: Mapping[str, object], part: int, whole: int) -> dict[str, object]:
    """The settings of a pooler that is `part` of `whole`: limits rounded down, but never to 0: no limit."""
    found = dict(settings)
    for key in DIVIDED:
        limit = int(str(settings.get(key, 0)))
        if limit:
            found[key] = max(1, limit * part // whole)
    return found


class PgBouncers(PgBouncer):
    """Several PgBouncers on one port, each with its part of the limits. The first one stands for all."""

    def __init__(self, program: Path, databases: Mapping[str, str], count: int, **facts: Any) -> None:
        facts = {**share(facts, 1, count), "so_reuseport": 1}
        super().__init__(program, databases, **facts)
        more = {**facts, "listen_port": self.port}
        self.others = [PgBouncer(program, databases, **more) for _ in range(1, count)]
        self._started: list[PgBouncer] = []

    def start(self) -> None:
        """All of them."""
        super().start()
        for other in self.others:
            other.start()
            self._started.append(other)

    @property
    def running(self) -> bool:
        """Whether all that were started are alive."""
        return super().running and all(other.running for other in self._started)

    def log_text(self) -> str:
        """What each of them has logged so far."""
        return "".join([super().log_text(), *(other.log_text() for other in self.others)])

    def stop(self) -> None:
        """All of them."""
        super().stop()
        for other in self.others:
            other.stop()

    def remove(self) -> None:
        """All of them."""
        super().remove()
        for other in self.others:
            other.remove()


def members(pooler: Pooler) -> Sequence[Pooler]:
    """What a pooler was started as: one process with its children, or several PgBouncers."""
    return (pooler, *pooler.others) if isinstance(pooler, PgBouncers) else (pooler,)


def introduce(poolers: Iterable[Pooler]) -> None:
    """Lets poolers that are not started yet know each other, so that a cancel reaches the one it is for."""
    everybody = [one for pooler in poolers for one in members(pooler)]
    if len(everybody) < 2:
        return
    for number, one in enumerate(everybody, 1):
        one.settings["peer_id"] = number
        one.peers = {at: f"host={other.folder} port={other.port}" for at, other in enumerate(everybody, 1)}


def pin(poolers: Iterable[Pooler]) -> None:
    """Binds each PgBouncer to a processor of its own, as long as there are any; pgshoal binds its workers itself."""
    cpus = sorted(os.sched_getaffinity(0))
    bouncers = [one for pooler in poolers for one in members(pooler) if isinstance(one, PgBouncer)]
    for number, one in enumerate(bouncers):
        os.sched_setaffinity(one.pid, {cpus[number % len(cpus)]})

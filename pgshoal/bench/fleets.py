"""The fleets that are compared: ours in several shapes, and one of PgBouncers as operators put it together by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pgshoal.demo.pooler import PgBouncer, Pooler

PROCESSES: Final = 4
PGBOUNCERS: Final = "4 PgBouncers"
#: What each contender sets beside what all share.
FLEETS: Final[Mapping[str, Mapping[str, object]]] = {
    "1 worker": {"workers": 1},
    "least": {"workers": PROCESSES, "accept_balance": "least"},
    "pack": {"workers": PROCESSES, "accept_balance": "pack"},
    "kernel": {"workers": PROCESSES, "accept_balance": "kernel"},
    "elastic": {"workers": PROCESSES, "accept_balance": "kernel", "budget": "elastic"},
    "static": {"workers": PROCESSES, "accept_balance": "kernel", "budget": "static"},
    PGBOUNCERS: {},
}
#: Limits that an operator divides by the number of PgBouncers.
DIVIDED: Final = ("default_pool_size", "max_client_conn")


class PgBouncers(PgBouncer):
    """Several PgBouncers on one port: so_reuseport, a peer list, limits divided. The first one stands for all."""

    def __init__(self, program: Path, databases: Mapping[str, str], count: int, **facts: Any) -> None:
        facts.update({key: int(facts[key]) // count for key in DIVIDED if key in facts}, so_reuseport=1)
        super().__init__(program, databases, peer_id=1, **facts)
        more = {**facts, "listen_port": self.port}
        self.others = [PgBouncer(program, databases, peer_id=number + 1, **more) for number in range(1, count)]
        everybody = {
            number: f"host={one.folder} port={self.port}" for number, one in enumerate((self, *self.others), 1)
        }
        for one in (self, *self.others):
            one.peers = dict(everybody)

    def start(self) -> None:
        """All of them."""
        super().start()
        for other in self.others:
            other.start()

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


def fleet(contender: str, program: Path, databases: Mapping[str, str], facts: Mapping[str, Any]) -> Pooler:
    """A contender, not started yet."""
    if contender == PGBOUNCERS:
        return PgBouncers(program, databases, PROCESSES, **facts)
    return Pooler(databases, **{**facts, **FLEETS[contender]})


def pids(pooler: Pooler) -> list[int]:
    """The processes a pooler was started as; their children are its too."""
    others = pooler.others if isinstance(pooler, PgBouncers) else []
    return [pooler.pid, *(other.pid for other in others)]

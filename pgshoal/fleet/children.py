"""What the supervisor knows of each worker process, and what a part of the supervisor is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from pgshoal.config.model import Config
from pgshoal.fleet.channel import Channel
from pgshoal.worker.log import Log


@dataclass(slots=True, eq=False)
class Child:
    """One worker process, from its start until it is reaped."""

    number: int
    seat: int
    generation: int  # counts the processes the fleet has started; with the seat it is never used twice
    pid: int
    channel: Channel
    started_s: float  # monotonic
    ready: bool = False
    draining: bool = False  # another process has taken over its number
    told: bool = False  # it was told to end: its death is no news
    engine: str = ""
    pidfd: int = -1
    silent_s: int = 0  # seconds without an answer to a ping
    #: the answer to the last ping: clients, servers, loop_lag_us, cpu_us, memory_bytes, rss_bytes
    vitals: dict[str, int] = field(default_factory=dict)


class Part(Protocol):
    """A duty of the supervisor. Parts are made with the Supervisor and told of every worker."""

    def attach(self, child: Child) -> None:
        """A process was started, and its channel is open: register handlers with `child.channel.on`."""

    def is_ready(self, child: Child) -> None:
        """It serves."""

    def died(self, child: Child) -> None:
        """It is reaped and its channel is closed; what it had sent before has been heard."""


class Keeper(Protocol):
    """The little of the supervisor that a duty needs which can do without workers."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where everything here happens."""

    @property
    def log(self) -> Log:
        """The fleet's log."""

    @property
    def config(self) -> Config:
        """What is in effect now."""

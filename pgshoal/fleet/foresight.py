"""Asks all servers of a configuration for their limits, and says whether its possible connections fit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pgshoal.config.model import Config
from pgshoal.fleet.children import Keeper
from pgshoal.fleet.probe import CannotAsk, Login, Unreachable, ask, logins
from pgshoal.policy import foresight
from pgshoal.policy.foresight import Place, ServerFacts, Verdict, place_text

#: "off" in the environment: servers are not asked by a running fleet.
SWITCH: Final = "PGSHOAL_FORESIGHT"
#: A server is not asked again for what it said this long ago: each question takes one connection beside the pools.
_KEPT_S: Final = 3600.0
#: One that did not say anything is left alone this long, unless we would now come with another login.
_FAILURE_KEPT_S: Final = 60.0
_AT_ONCE: Final = 8
_LINES_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the servers said, and those that did not."""

    verdicts: list[Verdict]
    errors: Mapping[Place, CannotAsk]
    missing: list[str]

    @property
    def exit_code(self) -> int:
        """0 all fits, 1 something does not, 2 a server could not be asked."""
        if any(not verdict.fits for verdict in self.verdicts):
            return 1
        return 2 if self.errors else 0

    def warnings(self) -> Iterator[str]:
        """What an operator should know; nothing if all fits."""
        yield from (verdict.line() for verdict in self.verdicts if not verdict.fits)
        yield from self.missing
        yield from (_cannot(place, why) for place, why in self.errors.items() if isinstance(why, Unreachable))

    def notes(self) -> Iterator[str]:
        """Servers that live and do not let us in, as with SCRAM secrets instead of passwords: nothing is wrong."""
        yield from (_cannot(place, why) for place, why in self.errors.items() if not isinstance(why, Unreachable))


def _cannot(place: Place, why: CannotAsk) -> str:
    return f"server {place_text(place)}: cannot ask for its max_connections: {why}"


@dataclass(slots=True)
class Memory:
    """Facts by place, with the time (loop) they were asked at; and failures, with the logins that were there to try."""

    facts: dict[Place, tuple[ServerFacts, float]] = field(default_factory=dict)
    failures: dict[Place, tuple[CannotAsk, list[Login], float]] = field(default_factory=dict, repr=False)

    def fresh(self, place: Place, now_s: float) -> ServerFacts | None:
        """What need not be asked again."""
        kept = self.facts.get(place)
        return kept[0] if kept is not None and now_s - kept[1] < _KEPT_S else None

    def failure(self, place: Place, ways: list[Login], now_s: float) -> CannotAsk | None:
        """Why it is no use to ask now."""
        kept = self.failures.get(place)
        return kept[0] if kept is not None and kept[1] == ways and now_s - kept[2] < _FAILURE_KEPT_S else None


async def look(config: Config, memory: Memory) -> Outlook:
    """Ask whom `memory` does not know, a few at a time; takes at most server_connect_timeout for each of those."""
    loop = asyncio.get_running_loop()
    places = list(dict.fromkeys(place for pool in foresight.pools(config) for place in pool.places))
    # What is remembered of logins holds passwords: no longer than somebody needs it.
    memory.failures = {place: kept for place, kept in memory.failures.items() if place in places}
    facts: dict[Place, ServerFacts] = {}
    errors: dict[Place, CannotAsk] = {}
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(place: Place) -> None:
        known = memory.fresh(place, loop.time())
        if known is None:
            ways = logins(config, place)
            failure = memory.failure(place, ways, loop.time())
            if failure is not None:
                errors[place] = failure
                return
            async with gate:
                try:
                    known = await ask(config, place)
                except CannotAsk as error:
                    errors[place] = error
                    memory.failures[place] = error, ways, loop.time()
                    return
            memory.facts[place] = (known, loop.time())
        facts[place] = known

    await asyncio.gather(*(one(place) for place in places))
    in_order = {place: facts[place] for place in places if place in facts}
    return Outlook(foresight.assess(config, in_order), errors, foresight.missing(config, in_order))


class Foresight:
    """Looks at start and after a reload, beside everything else, and warns of what it has not warned of before."""

    def __init__(self, supervisor: Keeper) -> None:
        self._supervisor = supervisor
        self._memory = Memory()
        #: the sentences of the last look
        self._said: frozenset[str] = frozenset()
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Begin; a look that is under way is given up, as its configuration is not the one in effect."""
        self.close()
        if os.environ.get(SWITCH, "") == "off":
            return
        self._task = self._supervisor.loop.create_task(self._look(self._supervisor.config))

    def close(self) -> None:
        """The fleet ends."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _look(self, config: Config) -> None:
        log = self._supervisor.log
        try:
            outlook = await look(config, self._memory)
            lines, notes = list(outlook.warnings()), list(outlook.notes())
        except Exception as error:
            # Whatever a server says must not disturb the fleet.
            lines, notes = [f"cannot compare max_connections: {type(error).__name__}: {error}"], []
        said, self._said = self._said, frozenset((*lines, *notes))
        lines, notes = [[line for line in part if line not in said] for part in (lines, notes)]
        for line in lines[:_LINES_MAX]:
            log.warning(line)
        for line in notes[:_LINES_MAX]:
            log.log(line)
        if len(lines) > _LINES_MAX:
            log.warning(f"and {len(lines) - _LINES_MAX} more: see pgshoal check {config.path} --live")

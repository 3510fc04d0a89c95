"""Names to addresses, with a cache per name and the serials of their zones; hosts that need no look-up at all."""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pgshoal.engine.contract import Address
from pgshoal.policy.hosts import serial_grew, zone_of
from pgshoal.worker.dns import Names
from pgshoal.worker.log import Log

#: The addresses of a name in the order to try them, or an empty list if it has none.
Found = Callable[[list[str]], None]

#: Questions under way at once; more wait for their turn.
QUESTIONS_MAX: Final = 8
#: A question without any limit of its own ends all the same.
LIMIT_MOST_S: Final = 60.0


def direct(host: str) -> bool:
    """True for what needs no look-up: an IP literal, a Unix directory, an abstract name."""
    if host.startswith(("/", "@")):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def endpoint(host: str, port: int) -> Address:
    """What the engine connects to; `host` is direct."""
    if host.startswith(("/", "@")):
        return f"{host}/.s.PGSQL.{port}"
    return (host, port)


@dataclass(slots=True)
class Name:
    """What is known of one name. `valid_until_us` 0: never answered."""

    addresses: list[str] = field(default_factory=list)
    valid_until_us: int = 0
    turn: int = 0
    #: the last answer that had any: a failure in between makes no old server right
    last: list[str] = field(default_factory=list)
    asking: bool = False
    #: what is being asked was begun too early: once more, when that is answered
    again: bool = False
    waiting: list[Found] = field(default_factory=list)


class Resolver:
    """Answers are shared by all who ask meanwhile and kept for dns_max_ttl, whatever TTL they come with."""

    def __init__(self, names: Names, log: Log, now_us: Callable[[], int]) -> None:
        self.log = log
        self.now_us = now_us
        self.names: dict[str, Name] = {}
        #: zone -> its serial; 0 = not known
        self.zones: dict[str, int] = {}
        self.max_ttl_s = 15.0
        self.nxdomain_ttl_s = 15.0
        self.zone_check_period_s = 0.0
        self.limit_s = 15.0
        #: called with (name, addresses that are gone) when an answer lacks what an older one had
        self.changed: Callable[[str, set[str]], None] | None = None
        #: called when an answer has been dealt with: whoever waited for it may have begun something
        self.settle: Callable[[], None] = lambda: None
        self._asked = names
        self._line: deque[Callable[[], None]] = deque()
        self._under_way = 0
        self._zones_checked_us = 0
        self._comparing: set[str] = set()
        self._closed = False

    def find(self, host: str, found: Found) -> None:
        """Give the addresses of a host, each first in turn; at once if they are known. An empty list: no such name."""
        if direct(host):
            found([host])
            return
        name = self.names.get(host)
        if name is None:
            name = self.names[host] = Name()
            zone = zone_of(host)
            if zone:
                self.zones.setdefault(zone, 0)
        if name.valid_until_us > self.now_us():
            found(self._next(name))
            return
        name.waiting.append(found)
        self._ask(host, name)

    @staticmethod
    def _next(name: Name) -> list[str]:
        if not name.addresses:
            return []
        at = name.turn % len(name.addresses)
        name.turn += 1
        return name.addresses[at:] + name.addresses[:at]

    # -- questions

    def _ask(self, host: str, name: Name) -> None:
        if not name.asking:
            name.asking = True
            self._queue(partial(self._look_up, host, name))

    def _look_up(self, host: str, name: Name) -> None:
        self._asked.addresses(host, self._limit(), lambda found, code: self._answered(host, name, found, code))

    def _answered(self, host: str, name: Name, addresses: list[str], code: int) -> None:
        if self._over():
            return
        if not addresses:
            self.log.warning(f"DNS lookup failed: {host}: result={code}")
        gone = set(name.last) - set(addresses) if addresses else set()
        name.last = addresses or name.last
        ttl_s = self.max_ttl_s if addresses else self.nxdomain_ttl_s
        name.addresses, name.asking = addresses, False
        name.valid_until_us = max(1, self.now_us() + round(ttl_s * 1e6))
        waiting, name.waiting = name.waiting, []
        for found in waiting:
            found(self._next(name))
        if gone and self.changed is not None:
            self.changed(host, gone)
        if name.again:
            name.again = False
            self._ask(host, name)
        self._advance()

    def _limit(self) -> float:
        return min(self.limit_s, LIMIT_MOST_S) if self.limit_s > 0 else LIMIT_MOST_S

    def _queue(self, begin: Callable[[], None]) -> None:
        self._line.append(begin)
        self._begin()

    def _begin(self) -> None:
        while self._line and self._under_way < QUESTIONS_MAX:
            self._under_way += 1
            self._line.popleft()()

    def _over(self) -> bool:
        """One question less; True if nobody wants its answer."""
        self._under_way -= 1
        return self._closed

    def _advance(self) -> None:
        self._begin()
        self.settle()

    @property
    def queries(self) -> int:
        """Questions under way."""
        return self._under_way

    @property
    def pending(self) -> int:
        """Questions that wait for their turn."""
        return len(self._line)

    # -- zones

    def tick(self) -> None:
        """Ask for the serials of all zones, if that is due."""
        period_us, now_us = round(self.zone_check_period_s * 1e6), self.now_us()
        if period_us <= 0 or now_us - self._zones_checked_us < period_us:
            return
        self._zones_checked_us = now_us
        for zone in set(self.zones) - self._comparing:
            self._comparing.add(zone)
            self._queue(partial(self._compare, zone))

    def _compare(self, zone: str) -> None:
        self._asked.serial(zone, self._limit(), lambda serial: self._compared(zone, serial))

    def _compared(self, zone: str, serial: int | None) -> None:
        self._comparing.discard(zone)
        if self._over():
            return
        old = self.zones[zone]
        if serial is not None:
            self.zones[zone] = serial
            if old and serial_grew(old, serial):
                self.log.log(f"zone '{zone}' serial changed: old={old} new={serial}")
                self._renew(zone)
        self._advance()

    def _renew(self, zone: str) -> None:
        for host in self.names_of(zone):
            name = self.names[host]
            name.again = name.asking
            self._ask(host, name)

    def names_of(self, zone: str) -> Iterator[str]:
        """The names of one zone."""
        return (host for host in list(self.names) if zone_of(host) == zone)

    def close(self) -> None:
        """Nobody waits any more."""
        self._closed = True
        self._line.clear()
        self._asked.close()

"""Names to addresses, with a cache per name, and the choice among the hosts of an entry."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from pgshoal.engine.contract import Address
from pgshoal.worker.log import Log

#: The addresses of a name, or an empty list if it has none.
Found = Callable[[list[str]], None]


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
    """What is known of one name. `valid_until_us` 0: never asked."""

    addresses: list[str] = field(default_factory=list)
    valid_until_us: int = 0
    turn: int = 0
    asking: bool = False
    waiting: list[Found] = field(default_factory=list)


class Resolver:
    """Looks names up in a thread; answers are shared by all who ask meanwhile and kept for dns_max_ttl."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: Log, now_us: Callable[[], int]) -> None:
        self.loop = loop
        self.log = log
        self.now_us = now_us
        self.names: dict[str, Name] = {}
        self.max_ttl_s = 15.0
        self.nxdomain_ttl_s = 15.0
        #: called with (name, addresses that are gone) when an answer lacks what an older one had
        self.changed: Callable[[str, set[str]], None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, host: str, found: Found) -> None:
        """Give one address of a host, each in turn; at once if it is known. An empty list: no such name."""
        if direct(host):
            found([host])
            return
        name = self.names.setdefault(host, Name())
        if name.valid_until_us > self.now_us():
            found(self._next(name))
            return
        name.waiting.append(found)
        if not name.asking:
            name.asking = True
            task = self.loop.create_task(self._ask(host, name))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, host: str, name: Name) -> None:
        addresses: list[str] = []
        try:
            answers = await self.loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(str(answer[4][0]) for answer in answers))
        except (OSError, UnicodeError) as error:
            code = error.errno if isinstance(error, OSError) else 0
            self.log.warning(f"DNS lookup failed: {host}: result={code}")
        self.answered(host, name, addresses)

    def answered(self, host: str, name: Name, addresses: list[str]) -> None:
        """Keep an answer and serve those who wait for it."""
        gone = set(name.addresses) - set(addresses) if addresses else set()
        ttl_s = self.max_ttl_s if addresses else self.nxdomain_ttl_s
        name.addresses, name.asking = addresses, False
        name.valid_until_us = self.now_us() + round(ttl_s * 1e6)
        waiting, name.waiting = name.waiting, []
        for found in waiting:
            found(self._next(name))
        if gone and self.changed is not None:
            self.changed(host, gone)

    @staticmethod
    def _next(name: Name) -> list[str]:
        if not name.addresses:
            return []
        name.turn += 1
        return [name.addresses[(name.turn - 1) % len(name.addresses)]]

    def close(self) -> None:
        """Forget who waits; look-ups under way end by themselves."""
        for task in self._tasks:
            task.cancel()


class Hosts:
    """Which host of an entry's list comes next: each in turn, or the same until it fails."""

    def __init__(self) -> None:
        self._turn: dict[int, int] = {}

    def pick(self, pool: int, hosts: tuple[str, ...], round_robin: bool, failed: bool) -> str:
        """`failed`: the last attempt of this pool did not succeed."""
        at = self._turn.get(pool, -1)
        if at < 0 or round_robin or failed:
            at += 1
        self._turn[pool] = at
        return hosts[at % len(hosts)]

    def forget(self, pool: int) -> None:
        """The pool is gone."""
        self._turn.pop(pool, None)

"""Questions to name servers and the hosts file through c-ares (aiodns): asked anew each time, bounded, cancelled."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from aiodns import DNSResolver

#: Results as c-ares numbers them, which the log shows.
TIMEOUT: Final = 12
BAD_NAME: Final = 8
NO_DATA: Final = 1
NO_SERVER: Final = 11

#: Addresses in c-ares' order, or an empty list and the result that says why.
Addresses = Callable[[list[str], int], None]
#: The serial of a zone; None if it has none or nobody says so.
Serial = Callable[[int | None], None]


class Names(Protocol):
    """Who answers: `Dns`, or a table in a test."""

    def addresses(self, host: str, limit_s: float, done: Addresses) -> None:
        """Find the addresses of a name; `done` is called later, once, unless all is closed before."""

    def serial(self, zone: str, limit_s: float, done: Serial) -> None:
        """Find the serial of a zone."""

    def close(self) -> None:
        """Nobody waits any more."""


class Dns:
    """Asks by way of the system's configuration, or of the file that `resolv_conf` names, read for every question.

    c-ares keeps answers for as long as their TTL says, and nothing turns that off: dns_max_ttl would mean little. So
    each question has a channel of its own. c-ares waits in a thread of its own, so no socket of it is on the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, resolv_conf: str = "") -> None:
        self._loop = loop
        self._resolv_conf = resolv_conf
        self._open: set[_Question] = set()

    def addresses(self, host: str, limit_s: float, done: Addresses) -> None:
        """As in `Names`."""

        def ask(resolver: DNSResolver) -> asyncio.Future[Any]:
            return resolver.getaddrinfo(host, type=1)

        def answer(result: Any, code: int) -> None:
            found = [] if result is None else [node.addr[0].decode() for node in result.nodes]
            done(list(dict.fromkeys(found)), code if result is None else (0 if found else NO_DATA))

        self._ask(ask, limit_s, answer)

    def serial(self, zone: str, limit_s: float, done: Serial) -> None:
        """As in `Names`."""

        def ask(resolver: DNSResolver) -> asyncio.Future[Any]:
            return resolver.query_dns(zone, "SOA")

        def answer(result: Any, code: int) -> None:
            serials = [getattr(record.data, "serial", None) for record in ([] if result is None else result.answer)]
            done(next((serial for serial in serials if serial is not None), None))

        self._ask(ask, limit_s, answer)

    def _ask(
        self, ask: Callable[[DNSResolver], asyncio.Future[Any]], limit_s: float, answer: Callable[[Any, int], None]
    ) -> None:
        try:
            question = _Question(self._loop, self._resolver(), limit_s, answer)
        except (OSError, ValueError, RuntimeError):
            self._loop.call_soon(answer, None, NO_SERVER)
            return
        self._open.add(question)
        question.closed = self._open.discard
        question.begin(ask)

    def _resolver(self) -> DNSResolver:
        # Here, not above: a worker whose hosts are all addresses does not carry it.
        from aiodns import DNSResolver, error

        # Without inotify its thread cannot be had; then its sockets are on our loop, and nobody need be told each time.
        logging.getLogger("aiodns").setLevel(logging.ERROR)
        try:
            if not self._resolv_conf:
                return DNSResolver(loop=self._loop)
            # Not `resolvconf_path`: pycares (5.2) gives the path back before c-ares has read it.
            options = read_resolv_conf(Path(self._resolv_conf).read_text(errors="replace"))
            return DNSResolver(options.pop("servers", None), self._loop, **options)
        except error.DNSError as failed:
            raise RuntimeError(str(failed)) from failed

    def close(self) -> None:
        """As in `Names`."""
        for question in list(self._open):
            question.cancel()


class _Question:
    """One question under way."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        resolver: DNSResolver,
        limit_s: float,
        answer: Callable[[Any, int], None],
    ) -> None:
        self.closed: Callable[[_Question], None] = lambda question: None
        self._resolver: DNSResolver | None = resolver
        self._answer: Callable[[Any, int], None] | None = answer
        self._future: asyncio.Future[Any] | None = None
        self._timer = loop.call_later(limit_s, partial(self._end, None, TIMEOUT))
        self._loop = loop

    def begin(self, ask: Callable[[DNSResolver], asyncio.Future[Any]]) -> None:
        """Ask; a name that c-ares does not take is answered as any other that does not exist."""
        assert self._resolver is not None
        try:
            self._future = ask(self._resolver)
        except (ValueError, RuntimeError):  # UnicodeError is a ValueError
            self._loop.call_soon(self._end, None, BAD_NAME)
        else:
            self._future.add_done_callback(self._done)

    def _done(self, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._end(future.result(), 0)
        else:
            code = error.args[0] if error.args and isinstance(error.args[0], int) else NO_SERVER
            self._end(None, code)

    def _end(self, result: Any, code: int) -> None:
        answer, self._answer = self._answer, None
        self.cancel()
        if answer is not None:
            answer(result, code)

    def cancel(self) -> None:
        """Whoever has asked no longer wants to know."""
        self._answer = None
        self._timer.cancel()
        resolver, self._resolver = self._resolver, None
        if resolver is not None:
            if self._future is not None and not self._future.done():
                self._future.cancel()
                resolver.cancel()
            self.closed(self)  # the resolver frees its channel and thread as it goes


def read_resolv_conf(text: str) -> dict[str, Any]:
    """What aiodns takes of a resolver configuration, as in resolv.conf(5); a name server may have a port.

    Lines that say nothing to us are passed over, as everybody does who reads such a file.
    """
    servers: list[str] = []
    found: dict[str, Any] = {}
    domains: list[str] = []
    for line in text.splitlines():
        words = line.split("#")[0].split(";")[0].split()
        if words[:1] == ["nameserver"] and len(words) > 1 and _is_server(words[1]):
            servers.append(words[1])
        elif words[:1] in (["search"], ["domain"]) and len(words) > 1:
            domains = words[1:]  # the last such line counts
        elif words[:1] == ["options"]:
            for option in words[1:]:
                found.update(_option(option))
    # Without any, the system's own would be taken.
    found |= {"domains": domains} if domains else {"flags": _NO_SEARCH}
    return found | {"servers": servers or ["127.0.0.1"]}


_NO_SEARCH: Final = 1 << 5  # ARES_FLAG_NOSEARCH
_NUMBERS: Final = {"ndots": "ndots", "timeout": "timeout", "attempts": "tries"}


def _option(text: str) -> dict[str, Any]:
    name, _, value = text.partition(":")
    if name == "rotate":
        return {"rotate": True}
    return {_NUMBERS[name]: int(value)} if name in _NUMBERS and value.isdecimal() else {}


def _is_server(text: str) -> bool:
    host, port = text, "53"
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        port = port.removeprefix(":") or "53"
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return port.isdecimal()

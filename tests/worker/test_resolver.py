"""Names to addresses: caching, sharing, turns, and what needs no look-up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pgshoal.worker.resolver import Hosts, Resolver, direct, endpoint
from tests.worker.bench import QuietLog


class Names:
    """A loop whose look-ups are answered from a table, and a clock."""

    def __init__(self, **table: list[str]) -> None:
        self.table = table
        self.asked: list[str] = []
        self.now_us = 1_000_000
        self.log = QuietLog()
        loop: Any = self
        self.resolver = Resolver(loop, self.log, lambda: self.now_us)

    async def getaddrinfo(self, host: str, port: None, type: int) -> list[Any]:
        """As the loop's."""
        self.asked.append(host)
        if not self.table.get(host):
            raise OSError(-2, "Name or service not known")
        return [(2, 1, 6, "", (address, 0)) for address in self.table[host]]

    def create_task(self, coroutine: Any) -> Any:
        """Runs the look-up to its end at once."""
        asyncio.run(coroutine)
        return Done()

    def find(self, host: str) -> list[str]:
        """The answer."""
        found: list[list[str]] = []
        self.resolver.find(host, found.append)
        return found[0]


class Done:
    """A task that has ended."""

    def add_done_callback(self, callback: Any) -> None:
        """At once."""
        callback(self)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "/run/postgresql", "@abstract"])
def test_direct_hosts_need_no_look_up(host: str) -> None:
    """Literals, directories and abstract names are used as they are."""
    names = Names()
    assert direct(host)
    assert names.find(host) == [host]
    assert names.asked == []


def test_endpoints() -> None:
    """Unix directories and abstract names get PostgreSQL's socket name."""
    assert endpoint("10.0.0.1", 5433) == ("10.0.0.1", 5433)
    assert endpoint("/run/pg", 5433) == "/run/pg/.s.PGSQL.5433"
    assert endpoint("@pg", 5433) == "@pg/.s.PGSQL.5433"


def test_addresses_take_turns_and_are_remembered() -> None:
    """One look-up serves dns_max_ttl; its addresses are given in turn."""
    names = Names(db=["10.0.0.1", "10.0.0.2"])
    assert [names.find("db") for _ in range(3)] == [["10.0.0.1"], ["10.0.0.2"], ["10.0.0.1"]]
    assert names.asked == ["db"]
    names.now_us += 15_000_001
    names.find("db")
    assert names.asked == ["db", "db"]


def test_missing_names_are_remembered_too() -> None:
    """A name that does not exist is not asked for again within dns_nxdomain_ttl."""
    names = Names()
    assert names.find("nowhere") == []
    assert names.find("nowhere") == []
    assert names.asked == ["nowhere"]
    assert names.log.has("DNS lookup failed: nowhere: result=-2")


def test_a_lost_address_is_told() -> None:
    """When an answer lacks an old address, its servers can be replaced."""
    names = Names(db=["10.0.0.1", "10.0.0.2"])
    told: list[tuple[str, set[str]]] = []
    names.resolver.changed = lambda host, gone: told.append((host, gone))
    names.find("db")
    names.table["db"] = ["10.0.0.2"]
    names.now_us += 16_000_000
    names.find("db")
    assert told == [("db", {"10.0.0.1"})]


def test_host_lists() -> None:
    """round-robin goes on with every connection, disable only after a failure."""
    hosts = Hosts()
    assert [hosts.pick(1, ("a", "b"), True, False) for _ in range(3)] == ["a", "b", "a"]
    assert [hosts.pick(2, ("a", "b"), False, failed) for failed in (False, False, True, False)] == ["a", "a", "b", "b"]

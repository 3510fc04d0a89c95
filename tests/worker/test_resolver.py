"""Names to addresses: caching, sharing, turns, zones, and what needs no look-up."""

from __future__ import annotations

import pytest

from pgshoal.worker.dns import Addresses, Serial
from pgshoal.worker.resolver import QUESTIONS_MAX, Resolver, direct, endpoint
from tests.worker.bench import QuietLog


class Table:
    """Name servers made of two tables; `held` questions are answered by hand."""

    def __init__(self) -> None:
        self.hosts: dict[str, list[str]] = {}
        self.serials: dict[str, int] = {}
        self.asked: list[str] = []
        self.limits: list[float] = []
        self.hold = False
        self.held: list[tuple[str, Addresses | Serial]] = []
        self.closed = False

    def addresses(self, host: str, limit_s: float, done: Addresses) -> None:
        """As Dns."""
        self.asked.append(host)
        self.limits.append(limit_s)
        if self.hold:
            self.held.append((host, done))
        else:
            self._tell(host, done)

    def _tell(self, host: str, done: Addresses) -> None:
        found = self.hosts.get(host, [])
        done(found, 0 if found else 4)

    def serial(self, zone: str, limit_s: float, done: Serial) -> None:
        """As Dns."""
        self.asked.append(zone)
        if self.hold:
            self.held.append((zone, done))
        else:
            done(self.serials.get(zone))

    def close(self) -> None:
        """As Dns."""
        self.closed = True

    def release(self) -> None:
        """Answers what was held."""
        held, self.held = self.held, []
        for what, done in held:
            if what in self.serials:
                done(self.serials[what])  # type: ignore[call-arg, arg-type]
            else:
                self._tell(what, done)  # type: ignore[arg-type]


class Names:
    """A resolver with a clock, and what was asked for."""

    def __init__(self, **hosts: list[str]) -> None:
        self.table = Table()
        self.table.hosts = {name.replace("_", "."): found for name, found in hosts.items()}
        self.now_us = 1_000_000
        self.log = QuietLog()
        self.resolver = Resolver(self.table, self.log, lambda: self.now_us)

    def pass_time(self, seconds: float) -> None:
        """Moves the clock."""
        self.now_us += round(seconds * 1e6)

    def find(self, host: str) -> list[str]:
        """The answer."""
        found: list[list[str]] = []
        self.resolver.find(host, found.append)
        return found[0]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "/run/postgresql", "@abstract"])
def test_direct_hosts_need_no_look_up(host: str) -> None:
    """Literals, directories and abstract names are used as they are."""
    names = Names()
    assert direct(host)
    assert names.find(host) == [host]
    assert names.table.asked == []
    assert names.resolver.names == {}


def test_endpoints() -> None:
    """Unix directories and abstract names get PostgreSQL's socket name."""
    assert endpoint("10.0.0.1", 5433) == ("10.0.0.1", 5433)
    assert endpoint("/run/pg", 5433) == "/run/pg/.s.PGSQL.5433"
    assert endpoint("@pg", 5433) == "@pg/.s.PGSQL.5433"


def test_addresses_take_turns_and_are_remembered() -> None:
    """One look-up serves dns_max_ttl; each address comes first in turn; an expired answer is asked for at next use."""
    names = Names(db=["10.0.0.1", "10.0.0.2"])
    assert [names.find("db")[0] for _ in range(3)] == ["10.0.0.1", "10.0.0.2", "10.0.0.1"]
    assert names.find("db") == ["10.0.0.2", "10.0.0.1"]
    names.pass_time(14.9)
    names.resolver.tick()
    names.find("db")
    assert names.table.asked == ["db"]
    names.pass_time(0.2)
    names.resolver.tick()
    assert names.table.asked == ["db"]
    names.find("db")
    assert names.table.asked == ["db", "db"]


def test_dns_max_ttl_and_dns_nxdomain_ttl_are_kept_apart() -> None:
    """Good answers and failures have a time each; 0 asks every time."""
    names = Names(db=["10.0.0.1"])
    names.resolver.max_ttl_s, names.resolver.nxdomain_ttl_s = 100, 2
    for _ in range(2):
        names.find("db")
        names.find("nowhere")
        names.pass_time(3)
    assert names.table.asked == ["db", "nowhere", "nowhere"]
    names.resolver.max_ttl_s = 0
    names.pass_time(100)
    names.find("db")
    names.find("db")
    assert names.table.asked[3:] == ["db", "db"]


def test_missing_names_are_remembered_too() -> None:
    """A name that does not exist is logged, and not asked for again within dns_nxdomain_ttl."""
    names = Names()
    assert names.find("nowhere") == []
    assert names.find("nowhere") == []
    assert names.table.asked == ["nowhere"]
    assert names.log.has("DNS lookup failed: nowhere: result=4")


def test_who_asks_meanwhile_shares_the_answer() -> None:
    """One question per name is under way, and everybody gets an address of their own turn."""
    names = Names(db=["10.0.0.1", "10.0.0.2"])
    names.table.hold = True
    found: list[list[str]] = []
    settled: list[int] = []
    names.resolver.settle = lambda: settled.append(len(found))
    for _ in range(2):
        names.resolver.find("db", found.append)
    assert (names.table.asked, names.resolver.queries) == (["db"], 1)
    names.table.release()
    assert [addresses[0] for addresses in found] == ["10.0.0.1", "10.0.0.2"]
    assert (settled, names.resolver.queries) == ([2], 0)


def test_questions_are_bounded() -> None:
    """More than a few names at once wait for their turn, and each has a limit of time."""
    names = Names(**{f"h{number}": ["10.0.0.1"] for number in range(QUESTIONS_MAX + 3)})
    names.table.hold = True
    names.resolver.limit_s = 7
    found: list[list[str]] = []
    for host in names.table.hosts:
        names.resolver.find(host, found.append)
    assert (names.resolver.queries, names.resolver.pending) == (QUESTIONS_MAX, 3)
    names.table.release()
    assert (names.resolver.queries, names.resolver.pending) == (3, 0)
    names.table.release()
    assert len(found) == QUESTIONS_MAX + 3
    assert set(names.table.limits) == {7}


def test_a_lost_address_is_told() -> None:
    """When an answer lacks an old address its servers can be replaced; a failed look-up says nothing of that kind."""
    names = Names(db=["10.0.0.1", "10.0.0.2"])
    told: list[tuple[str, set[str]]] = []
    names.resolver.changed = lambda host, gone: told.append((host, gone))
    names.find("db")
    names.table.hosts["db"] = ["10.0.0.2", "10.0.0.3"]
    names.pass_time(16)
    names.find("db")
    assert told == [("db", {"10.0.0.1"})]
    names.table.hosts["db"] = []
    names.pass_time(16)
    assert names.find("db") == []
    assert told == [("db", {"10.0.0.1"})]
    names.table.hosts["db"] = ["10.0.0.3"]
    names.pass_time(16)
    names.find("db")
    assert told[1:] == [("db", {"10.0.0.2"})]


def test_zones_are_compared_when_due() -> None:
    """A serial that grew has its names looked up at once, whether anybody asks for them or not."""
    names = Names(db_example_test=["10.0.0.1"], db_other_test=["10.0.0.9"])
    names.table.serials = {"example.test": 7}
    told: list[tuple[str, set[str]]] = []
    names.resolver.changed = lambda host, gone: told.append((host, gone))
    names.resolver.zone_check_period_s = 10
    for host in ("db.example.test", "db.other.test"):
        names.find(host)
    assert names.resolver.zones == {"example.test": 0, "other.test": 0}
    names.pass_time(10)
    names.resolver.tick()
    names.resolver.tick()
    assert names.resolver.zones == {"example.test": 7, "other.test": 0}
    asked = len(names.table.asked)
    assert asked == 4
    names.table.serials["example.test"] = 8
    names.table.hosts["db.example.test"] = ["10.0.0.2"]
    names.pass_time(10)
    names.resolver.tick()
    assert told == [("db.example.test", {"10.0.0.1"})]
    assert names.table.asked[asked:].count("db.example.test") == 1
    assert "db.other.test" not in names.table.asked[asked:]
    assert names.log.has("zone 'example.test' serial changed: old=7 new=8")


def test_a_question_from_before_the_change_is_repeated() -> None:
    """Its answer may be the old one, and no later serial would tell."""
    names = Names(db_example_test=["10.0.0.1"])
    names.table.serials = {"example.test": 7}
    names.resolver.zone_check_period_s = 10
    names.find("db.example.test")
    names.pass_time(20)
    names.resolver.tick()
    names.table.hold = True
    names.resolver.find("db.example.test", lambda found: None)
    names.table.serials["example.test"] = 8
    names.pass_time(10)
    names.resolver.tick()
    (question, serial), names.table.held = names.table.held, []
    serial[1](8)  # type: ignore[call-arg, arg-type]
    asked = len(names.table.asked)
    question[1](["10.0.0.1"], 0)  # type: ignore[call-arg, arg-type]
    assert names.table.asked[asked:] == ["db.example.test"]
    names.table.hosts["db.example.test"] = ["10.0.0.2"]
    names.table.release()
    assert names.find("db.example.test") == ["10.0.0.2"]
    assert len(names.table.asked) == asked + 1


def test_zones_are_left_alone_without_a_period() -> None:
    """0 is never; and a zone whose question is still under way is not asked for again."""
    names = Names(db_example_test=["10.0.0.1"])
    names.table.serials = {"example.test": 7}
    names.find("db.example.test")
    names.pass_time(1000)
    names.resolver.tick()
    assert names.table.asked == ["db.example.test"]
    names.table.hold = True
    names.resolver.zone_check_period_s = 1
    for _ in range(3):
        names.pass_time(1)
        names.resolver.tick()
    assert names.table.asked == ["db.example.test", "example.test"]
    names.table.release()
    assert names.resolver.zones == {"example.test": 7}


def test_nobody_hears_anything_after_the_end() -> None:
    """A worker that closes is told nothing more."""
    names = Names(db=["10.0.0.1"])
    names.table.hold = True
    found: list[list[str]] = []
    names.resolver.find("db", found.append)
    names.resolver.close()
    assert names.table.closed
    names.table.release()
    assert found == []

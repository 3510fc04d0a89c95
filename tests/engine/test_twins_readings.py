"""Settings that change how texts are read, under random traffic: engines agree, no statement is read in two ways."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgshoal.engine.contract import PoolMode, PoolSpec
from tests.engine.core.model import Backend
from tests.engine.test_twins_random import EXAMPLES, Twins, pieces
from tests.support.messages import (
    FLUSH,
    SYNC,
    bind,
    close,
    command_complete,
    describe,
    execute,
    parameter_status,
    parse,
    query,
)

Seen = dict[bytes, set[tuple[str, ...]]]
DEFAULTS = {
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "standard_conforming_strings": "on",
}
CHOICES = (
    ("client_encoding", "LATIN1"),
    ("DateStyle", "ISO, DMY"),
    ("TimeZone", "CET"),
    ("TimeZone", "UTC"),
    ("standard_conforming_strings", "off"),
    ("standard_conforming_strings", "on"),
)
SETS = tuple(f"SET {local}{name}='{value}'" for name, value in CHOICES for local in ("", "LOCAL "))
TEXTS = ("select $1", "select '1/2'", "select 'a\\\\b'", "select é", "select 'é\\\\'")
NAMES = ("a", "b", "c", "")


class Reader(Backend):
    """A backend with settings: it reports them as PostgreSQL 14 does, and notes how each statement was read."""

    noisy = False

    def __init__(self, seed: int, seen: Seen) -> None:
        super().__init__(seed)
        self.read = seen
        self.values = dict(DEFAULTS)
        self.session = dict(DEFAULTS)
        self.before = dict(DEFAULTS)
        self.told = dict(DEFAULTS)

    def _ready(self) -> bytes:
        changed = {name: value for name, value in self.values.items() if self.told[name] != value}
        self.told.update(changed)
        return b"".join(parameter_status(*pair) for pair in changed.items()) + super()._ready()

    def _run(self, text: bytes, how: bytes) -> bytes:
        sets = re.findall(r"SET (LOCAL )?(\w+)='([^']*)'", text.decode())
        if sets:
            if self.status == b"E" or self.rng.random() < 0.05 * (b";" not in text):
                return self._fail()
            for local, name, value in sets:
                if not local:
                    self.session[name] = value
                if not local or self.status == b"T":
                    self.values[name] = value
            return command_complete("SET")
        status = self.status
        answer = super()._run(text, how)
        if status == b"I" and self.status == b"T":
            self.before = dict(self.session)
        elif status != b"I" and self.status == b"I":
            self.session = self.session if status == b"T" else self.before
            self.values = dict(self.session)
        return answer

    def _parse(self, name: bytes, rest: bytes) -> bytes:
        answer = super()._parse(name, rest)
        text = rest.partition(b"\0")[0].decode()
        if answer[:1] == b"1" and name.startswith(b"PGBOUNCER_") and name != b"PGBOUNCER_VOID":
            matters = {
                "client_encoding": not text.isascii(),
                "standard_conforming_strings": "\\" in text,
                **dict.fromkeys(("DateStyle", "IntervalStyle", "TimeZone"), "'" in text),
            }
            how = tuple(self.values[setting] for setting, counts in matters.items() if counts)
            self.read.setdefault(name, set()).add(how)
        return answer


def words(rng: random.Random) -> list[bytes]:
    """What a client might send in one go: often with a change of settings in front, or a transaction's end."""
    if rng.random() < 0.35:
        text = rng.choice((*SETS, "begin", "begin", "commit", "commit", "DISCARD ALL"))
        if rng.random() < 0.5:
            return [query(text)]
        name = rng.choice(NAMES)
        return [close("S", name), parse(name, text), bind(name), execute(), rng.choice([SYNC, SYNC, FLUSH])]
    batch: list[bytes] = []
    for _ in range(rng.randrange(1, 4)):
        name = rng.choice(NAMES)
        if rng.random() < 0.4:
            batch += [close("S", name)] * (rng.random() < 0.7) + [parse(name, rng.choice(TEXTS))]
        if rng.random() < 0.2:
            batch.append(describe("S", name))
        batch += [bind(name), execute()]
    return [*batch, SYNC]


def history(seed: int, kinds: tuple[str, str] = ("python", "native")) -> tuple[Twins, Seen]:
    """A random history of clients with different settings."""
    rng = random.Random(seed)
    seen: Seen = {}
    twins = Twins(kinds, lambda number: Reader(number, seen))
    spec = PoolSpec(mode=PoolMode.TRANSACTION, max_prepared_statements=rng.choice([1, 3, 100]))
    twins.pools.append([engine.add_pool(spec) for engine in twins.engines])
    for _ in range(rng.randrange(1, 4)):
        wishes = DEFAULTS | dict(rng.choice(CHOICES) for _ in range(rng.randrange(3)))
        twins.new_client(0, tuple(wishes.items()), 0, -1)
    for _ in range(rng.randrange(1, 4)):
        twins.new_server(0, tuple(DEFAULTS.items()), rng.randrange(2**32))
    for _ in range(60):
        clients, servers = twins.alive(twins.clients), twins.alive(list(twins.servers))
        if not clients or not servers:
            break
        if rng.random() < 0.03:
            client = rng.choice(clients)
            twins.same("emigrate", lambda e, s, n=client: e.emigrate(twins.ids[n][s]))
            twins.check()
        elif rng.random() < 0.5:
            number = rng.choice(clients)
            for piece in pieces(rng, b"".join(words(rng))):
                twins.say(number, piece)
                twins.check()
        else:
            number = rng.choice(servers)
            for piece in pieces(rng, twins.servers[number].answer(rng.choice([1, 3, 20]))):
                if piece:
                    twins.say(number, piece)
                    twins.check()
    return twins, seen


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1))
def test_no_statement_is_read_in_two_ways(seed: int) -> None:
    """Both engines agree, and whatever stands under one internal name is one text with one meaning, on all servers."""
    _, seen = history(seed)
    assert {name: how for name, how in seen.items() if len(how) > 1} == {}


@pytest.mark.parametrize("seed", [15135325])
def test_histories_that_once_differed(seed: int) -> None:
    """Seeds that found a difference stay."""
    history(seed)


def test_the_histories_read_in_many_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements are read again elsewhere, replaced because dates changed, and refused because words did."""
    from pgshoal.engine.python import prepared, renewal

    counts: dict[str, int] = {}

    def counted(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def counting(*facts: object) -> object:
            counts[name] = counts.get(name, 0) + 1
            return call(*facts)

        return counting

    for module, name in ((prepared, "inject"), (prepared, "withdraw"), (renewal, "read")):
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    for seed in range(60):
        history(seed, ("python", "python"))
    assert counts["inject"] > 60
    assert counts["withdraw"] > 10
    assert counts["read"] > 300

"""Both engines under the same random traffic: every byte out, every event and every fact must be equal."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgshoal.engine.contract import EngineLimits, Event, PoolMode, PoolSpec, SocketOptions
from pgshoal.engine.python import renewal
from tests.engine.core.harness import MAKERS, START_US
from tests.engine.core.model import Backend, client_messages, whole_batch
from tests.support.messages import SYNC, parse, query

EXAMPLES = int(os.environ.get("PGSHOAL_TWIN_EXAMPLES", "150"))
PARAMETERS: Sequence[Sequence[tuple[str, str]]] = (
    (),
    (("TimeZone", "UTC"),),
    (("TimeZone", "CET"), ("application_name", "a'b\\c")),
    (("work_mem", "1MB"), ("TimeZone", "utc")),
)


class Differs(AssertionError):
    """The engines have parted."""


class Twins:
    """Two engines, one set of numbers for their connections, and a server behind each server connection."""

    def __init__(self, kinds: tuple[str, str], backend: Callable[[int], Backend] = Backend) -> None:
        self.kinds = kinds
        self.backend = backend
        self.engines = [MAKERS[kind]() for kind in kinds]
        self.now = START_US
        self.ids: list[list[int]] = []
        self.names: list[dict[int, int]] = [{}, {}]
        self.pools: list[list[int]] = []
        self.clients: list[int] = []
        self.servers: dict[int, Backend] = {}
        self.log: list[str] = []
        self.moves = 0
        self.each(lambda engine, side: engine.set_now(self.now))

    def each(self, call: Any) -> list[Any]:
        """The same call on both; an exception's type is an answer too."""
        found = []
        for side, engine in enumerate(self.engines):
            try:
                found.append(call(engine, side))
            except (KeyError, RuntimeError) as error:
                found.append(type(error).__name__)
        return found

    def same(self, what: str, call: Any) -> Any:
        """Both must answer alike."""
        one, two = self.each(call)
        if one != two:
            trace = "\n".join(self.log[-40:])
            if isinstance(one, dict) and isinstance(two, dict):
                keys = [key for key in one if one[key] != two.get(key)]
                one, two = ({key: found.get(key) for key in keys} for found in (one, two))
            raise Differs(f"{what}:\n{self.kinds[0]}: {one}\n{self.kinds[1]}: {two}\nafter\n{trace}")
        return one

    def add(self, pair: list[int]) -> int:
        """A connection both have made."""
        number = len(self.ids)
        self.ids.append(pair)
        for side, conn in enumerate(pair):
            self.names[side][conn] = number
        return number

    def alive(self, numbers: list[int]) -> list[int]:
        """Those that still say something."""
        found = []
        for number in numbers:
            try:
                if self.engines[0].facts(self.ids[number][0]).mode not in ("closing", "frozen"):
                    found.append(number)
            except KeyError:
                continue
        return found

    def new_client(self, pool: int, parameters: Sequence[tuple[str, str]], idle_us: int, wait_us: int) -> None:
        """A client, admitted."""
        number = self.add([engine.accept_manual(1) for engine in self.engines])
        self.log.append(f"client {number} in pool {pool} with {parameters}")
        self.clients.append(number)
        self.say(number, b"\0\0\0\x08\0\x03\0\0")
        self.each(lambda e, s: e.admit(self.ids[number][s], self.pools[pool][s], parameters, idle_us, wait_us))
        self.check()

    def new_server(self, pool: int, parameters: Sequence[tuple[str, str]], seed: int) -> None:
        """A server, enrolled."""
        number = self.add([engine.connect("/nowhere", SocketOptions()) for engine in self.engines])
        self.log.append(f"server {number} in pool {pool} with {parameters}")
        self.servers[number] = self.backend(seed)
        self.each(lambda e, s: e.connected_manual(self.ids[number][s]))
        self.each(lambda e, s: e.enroll(self.ids[number][s], self.pools[pool][s], parameters))
        self.check()

    def say(self, number: int, data: bytes) -> None:
        """Bytes for a connection."""
        self.log.append(f"{number} says {data[:300]!r}")
        self.each(lambda e, s: e.received(self.ids[number][s], data))

    def verb(self, name: str, number: int, *rest: Any) -> None:
        """A verb on a connection."""
        self.log.append(f"{name} {number} {rest}")
        self.same(name, lambda e, s: getattr(e, name)(self.ids[number][s], *rest) or None)
        self.check()

    def check(self) -> None:
        """Events, facts and outputs of everything; what servers got is given to the servers behind them."""
        self.same("wait", lambda e, s: e.wait(0))
        events = self.same("events", lambda e, s: [self.plain(event, s) for event in e.events()])
        for number in range(len(self.ids)):
            self.same(f"facts of {number}", lambda e, s, n=number: self.facts(e, s, n))
            out = self.same(f"output of {number}", lambda e, s, n=number: self.output(e, s, n))
            if isinstance(out, bytes) and out and number in self.servers:
                self.servers[number].hear(out)
        for number in range(len(self.pools)):
            self.same("counts", lambda e, s, n=number: e.pool_counts(self.pools[n][s]))
            self.same("stats", lambda e, s, n=number: e.pool_stats(self.pools[n][s]))
        for event in events:
            if event[0] == Event.RETURNED:
                self.verb("park", event[1])
            elif event[0] == Event.FAULT:
                self.verb("close", event[1], b"gone", "")
            elif event[0] == Event.MOVED:
                self.arrive(event[3])

    def arrive(self, state: bytes) -> None:
        """A client that has moved comes back."""
        number = self.add([engine.immigrate(-1, 1, state) for engine in self.engines])
        self.log.append(f"{number} comes back with {state!r}")
        self.clients.append(number)
        self.moves += 1
        self.check()
        self.each(lambda e, s: e.admit(self.ids[number][s], self.pools[0][s], [], 0, -1))
        self.check()

    def output(self, engine: Any, side: int, number: int) -> bytes:
        """What stands to be sent; nothing for a connection that is gone."""
        try:
            out: bytes = engine.output(self.ids[number][side])
        except KeyError:
            return b""
        return out

    def plain(self, event: tuple[Any, ...], side: int) -> tuple[Any, ...]:
        """An event with our own numbers."""
        if event[0] == Event.STARVED:
            return (Event.STARVED, [pool[side] for pool in self.pools].index(event[1]))
        return (Event(event[0]), self.names[side][event[1]], *event[2:])

    def facts(self, engine: Any, side: int, number: int) -> Any:
        """Facts with our own numbers."""
        conn = self.ids[number][side]
        found = engine.facts(conn)
        if found.mode == "closing":
            # Its socket is all that is left of it.
            return found.send_pending or "KeyError"
        values = {name: getattr(found, name) for name in found.__dataclass_fields__}
        values["link"] = self.names[side].get(found.link, -1)
        values["reading"] = engine.reading(conn)
        values["parameters"] = engine.parameters(conn)
        return values


def pieces(rng: random.Random, data: bytes) -> list[bytes]:
    """Cuts bytes at random places, or not at all."""
    if rng.random() < 0.5 or len(data) < 2:
        return [data]
    places = sorted(rng.randrange(len(data)) for _ in range(rng.randrange(1, 5)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True) if a < b]


def client_step(twins: Twins, rng: random.Random) -> None:
    """A client says something, whole or not, sane or not."""
    alive = twins.alive(twins.clients)
    if not alive:
        twins.new_client(0, rng.choice(PARAMETERS), 0, -1)
        return
    number = rng.choice(alive)
    data = b"".join(client_messages(rng))
    if rng.random() < 0.03:
        at = rng.randrange(len(data))
        data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    for piece in pieces(rng, data):
        twins.say(number, piece)
        twins.check()


def server_step(twins: Twins, rng: random.Random) -> None:
    """A server answers some of what it was asked."""
    alive = twins.alive(list(twins.servers))
    if not alive:
        twins.new_server(0, rng.choice(PARAMETERS[:3]), rng.randrange(2**32))
        return
    asked = [number for number in alive if twins.servers[number].input]
    number = rng.choice(asked or alive)
    data = twins.servers[number].answer(rng.randrange(1, 12))
    if rng.random() < 0.01:
        data += bytes(rng.randrange(256) for _ in range(rng.randrange(1, 12)))
    for piece in pieces(rng, data):
        if piece:
            twins.say(number, piece)
            twins.check()


def changed_step(twins: Twins, rng: random.Random) -> None:
    """A table changes under a statement that is prepared; it is used, and anything may come between."""
    alive = twins.alive(twins.clients)
    if not alive:
        return
    client, name = rng.choice(alive), rng.choice("abc")
    twins.say(client, query("commit") + parse(name, rng.choice(["select 1", "select 2"]), (23,)) + SYNC)
    twins.check()
    for _ in range(3):
        for number in twins.alive(list(twins.servers)):
            twins.say(number, twins.servers[number].answer(100))
            twins.check()
    for backend in twins.servers.values():
        backend.outdated |= backend.statements.keys()
    if rng.random() < 0.2:
        twins.say(client, query("begin"))
    for piece in pieces(rng, b"".join(whole_batch(rng, name))):
        twins.say(client, piece)
        twins.check()
    for _ in range(4):
        for number in twins.alive(list(twins.servers)):
            for piece in pieces(rng, twins.servers[number].answer(rng.choice([1, 2, 5]))):
                twins.say(number, piece)
                twins.check()
        if rng.random() < 0.3:
            client_step(twins, rng)


def verb_step(twins: Twins, rng: random.Random) -> None:
    """Python does something, or somebody leaves, or time passes."""
    choice = rng.randrange(13)
    server = rng.choice(list(twins.servers))
    client = rng.choice(twins.clients)
    if choice == 0:
        twins.verb("decide", server, rng.random() < 0.5)
    elif choice == 1:
        twins.verb("hold", server)
    elif choice in (2, 3):
        twins.verb("unhold", server)
    elif choice == 4:
        twins.same("take", lambda e, s: e.take(twins.ids[server][s]))
        twins.check()
        if rng.random() < 0.5:
            twins.verb("send", server, query("check"))
            if answer := twins.servers[server].answer(100):
                twins.say(server, answer)
                twins.check()
        twins.verb("park", server)
    elif choice == 5 and rng.random() < 0.3:
        twins.verb("received_eof", rng.choice([server, client]))
    elif choice == 6 and rng.random() < 0.3:
        twins.verb("close", rng.choice([server, client]), b"bye", rng.choice(["", "why"]))
    elif choice == 7:
        paused = rng.random() < 0.5
        twins.log.append(f"pause {paused}")
        twins.each(lambda e, s: e.pause_pool(twins.pools[0][s], paused))
        twins.check()
    elif choice == 8:
        twins.verb("unwait", client)
    elif choice in (9, 10):
        twins.log.append(f"emigrate {client}")
        twins.same("emigrate", lambda e, s: e.emigrate(twins.ids[client][s]))
        twins.check()
    else:
        twins.now += rng.choice([1, 1_000, 2_000_000])
        twins.each(lambda e, s: e.set_now(twins.now))
        twins.same("overdue", lambda e, s: sorted((twins.names[s][conn], key) for conn, key in e.overdue(twins.now)))
        twins.check()


def run(seed: int, kinds: tuple[str, str] = ("python", "native"), steps: int = 80) -> Twins:
    """One random history."""
    rng = random.Random(seed)
    twins = Twins(kinds)
    mode = rng.choice([PoolMode.TRANSACTION] * 4 + [PoolMode.SESSION, PoolMode.STATEMENT])
    extra = ("work_mem",) if rng.random() < 0.5 else ()
    limits = EngineLimits(max_packet_size=1_000_000, extra_parameters=extra, queued_query_timeout_us=3_000_000)
    twins.each(lambda e, s: e.set_limits(limits))
    spec = PoolSpec(
        mode=mode,
        max_prepared_statements=rng.choice([0, 1, 2, 3, 100]),
        round_robin=rng.random() < 0.3,
        decide=rng.random() < 0.1,
        query_timeout_us=1_500_000,
        query_wait_timeout_us=rng.choice([0, 2_500_000]),
        query_wait_notify_us=1_000_000,
        idle_transaction_timeout_us=rng.choice([0, 1_000_000]),
        transaction_timeout_us=rng.choice([0, 3_000_000]),
    )
    twins.pools.append([engine.add_pool(spec) for engine in twins.engines])
    for _ in range(rng.randrange(1, 4)):
        twins.new_client(0, rng.choice(PARAMETERS), rng.choice([0, 1_000_000]), rng.choice([-1, 0, 500_000]))
    for _ in range(rng.randrange(1, 3)):
        twins.new_server(0, rng.choice(PARAMETERS[:3]), rng.randrange(2**32))
    for _ in range(steps):
        point = rng.random()
        if point < 0.4:
            client_step(twins, rng)
        elif point < 0.88:
            server_step(twins, rng)
        elif point < 0.97:
            verb_step(twins, rng)
        elif rng.random() < 0.5:
            twins.new_client(0, rng.choice(PARAMETERS), 0, -1)
        else:
            twins.new_server(0, rng.choice(PARAMETERS[:3]), rng.randrange(2**32))
    return twins


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1))
def test_the_engines_agree(seed: int) -> None:
    """Whatever clients, servers and Python do, both engines send the same bytes and tell the same things."""
    run(seed)


def changing(seed: int, kinds: tuple[str, str] = ("python", "native")) -> Twins:
    """A random history of tables that change under prepared statements."""
    rng = random.Random(seed)
    twins = Twins(kinds)
    spec = PoolSpec(mode=PoolMode.TRANSACTION, max_prepared_statements=rng.choice([1, 2, 100]))
    twins.pools.append([engine.add_pool(spec) for engine in twins.engines])
    for _ in range(rng.randrange(1, 4)):
        twins.new_client(0, rng.choice(PARAMETERS), 0, -1)
    for _ in range(rng.randrange(1, 3)):
        twins.new_server(0, rng.choice(PARAMETERS[:3]), rng.randrange(2**32))
    for _ in range(8):
        changed_step(twins, rng)
    return twins


@pytest.mark.parametrize("seed", [2783788, 51410833])
def test_changes_that_once_differed(seed: int) -> None:
    """Seeds that found a difference stay."""
    changing(seed)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1))
def test_the_engines_agree_on_changed_results(seed: int) -> None:
    """Both withhold the same errors and send the same batches again."""
    changing(seed)


def test_batches_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The histories of changing tables lead to batches that are sent again, and to errors that come late."""
    sent_again: list[bool] = []
    again = renewal.again

    def counted(*facts: Any) -> bool:
        sent_again.append(again(*facts))
        return sent_again[-1]

    monkeypatch.setattr(renewal, "again", counted)
    for seed in range(60):
        changing(seed, ("python", "python"))
    assert sent_again.count(True) > 60
    assert sent_again.count(False) > 6


def test_the_traffic_reaches_deep_states() -> None:
    """The random histories do link, prepare, evict, fail and copy: otherwise they would prove little."""
    heard: set[int] = set()
    transactions = moves = 0
    for seed in range(60):
        twins = run(seed, ("python", "python"))
        for backend in twins.servers.values():
            heard |= backend.seen
        transactions += twins.engines[0].pool_stats(twins.pools[0][0]).xact_count
        moves += twins.moves
    assert heard >= set(b"QPBDECSHFdcf")
    assert transactions > 200
    assert moves > 30


@pytest.mark.parametrize("seed", [1, 11, 15, 29, 107, 138, 174, 215, 263, 335])
def test_histories_that_once_differed(seed: int) -> None:
    """Seeds that found a difference stay."""
    run(seed)

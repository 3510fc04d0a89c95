"""Sockets go from worker to worker by letterbox, and none is ever lost on the way."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pgshoal.config.model import Settings
from pgshoal.fleet.channel import Message
from pgshoal.fleet.ledger import Kind, Ledger
from pgshoal.worker import balance, steer
from pgshoal.worker.balance import Balance
from pgshoal.worker.link import Place
from tests.worker.alone import Alone

TCP, UNIX = 7, 8


class Fleet(Alone):
    """A link whose messages the test sends, descriptors included."""

    def tell(self, verb: str, fd: int = -1, **fields: Any) -> None:
        """As if the supervisor had said so; `fd` is duplicated as the channel does."""
        self.handlers[verb](Message(verb, fields, fd=os.dup(fd) if fd >= 0 else -1))


class Sailor:
    """One worker: its balance is real, what stands around it records."""

    def __init__(self, shoal: Shoal, number: int) -> None:
        self.number = number
        self.shoal = shoal
        self.clients = 0
        self.adopted: list[tuple[int, int]] = []  # (inode, listener)
        self.unread: list[tuple[int, int]] = []  # the same, of those whose header is to be read
        self.diverts = False
        self.readers: dict[int, Callable[[], None]] = {}
        self.steered: list[int] = []
        ledger = Ledger.attach(shoal.ledger.fd, shoal.ledger.bells, number)
        self.fleet = Fleet(Place(number=number, seat=number, workers=len(shoal.pairs)), ledger)
        self.row = ledger.row(Kind.CLIENTS, "")
        engine = SimpleNamespace(now_us=lambda: shoal.now_us, adopt=self._adopt, divert=self._divert)
        loop = SimpleNamespace(
            add_reader=lambda fd, call, *given: self.readers.__setitem__(fd, lambda: call(*given)),
            remove_reader=lambda fd: self.readers.pop(fd, None),
        )
        worker = SimpleNamespace(
            fleet=self.fleet,
            engine=engine,
            loop=loop,
            config=SimpleNamespace(settings=shoal.settings),
            front=SimpleNamespace(connections=lambda: self.clients),
            listeners=SimpleNamespace(
                is_tcp=lambda listener: listener == TCP,
                like=lambda tcp: TCP if tcp else UNIX,
                tcp_descriptors=lambda: [shoal.pairs[0][0].fileno()],
            ),
            proxied=SimpleNamespace(take=self._take),
            log=SimpleNamespace(debug=lambda text: None),
            settle=lambda: None,
        )
        self.balance = Balance(cast("Any", worker))

    def _adopt(self, fd: int, listener: int) -> None:
        inode = os.fstat(fd).st_ino
        os.close(fd)
        if listener not in (TCP, UNIX):
            raise ValueError(listener)
        self.adopted.append((inode, listener))

    def _take(self, fd: int, listener: int) -> None:
        self.unread.append((os.fstat(fd).st_ino, listener))
        os.close(fd)

    def _divert(self, on: bool) -> None:
        self.diverts = on

    def count(self, clients: int) -> None:
        """It has so many clients, and the ledger knows."""
        ledger = self.fleet.ledger
        for _ in range(clients, self.clients):
            ledger.leave(self.row)
        for _ in range(self.clients, clients):
            ledger.admit(self.row, 0)
        self.clients = clients

    def accept(self, listener: int = TCP) -> int:
        """A client connects to this worker; the number that tells sockets apart."""
        near, far = socket.socketpair()
        far.close()
        inode = os.fstat(near.fileno()).st_ino
        self.balance.diverted(near.detach(), listener)
        return inode

    def read(self) -> None:
        """What its loop would do."""
        for reader in list(self.readers.values()):
            reader()

    def beat(self) -> None:
        """Its heart and its maintenance."""
        self.fleet.ledger.beat(self.shoal.now_us)
        self.balance.tick()


class Shoal:
    """Several workers, their boxes and their ledger."""

    def __init__(self, how: str, workers: int = 3, **settings: Any) -> None:
        self.now_us = 10_000_000
        self.settings = Settings(accept_balance=cast("Any", how), **settings)
        self.ledger = Ledger.create(workers)
        self.pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(workers)]
        for number in range(workers):
            self.ledger.occupy(number, number)
        self.workers = [Sailor(self, number) for number in range(workers)]
        for sailor in self.workers:
            for number, (slot, _) in enumerate(self.pairs):
                slot.setblocking(False)
                sailor.fleet.tell("slot", slot.fileno(), number=number)
            sailor.fleet.tell("box", self.pairs[sailor.number][1].fileno(), number=sailor.number)
        self.roster(*range(workers))
        self.tick()

    def roster(self, *numbers: int) -> None:
        """These serve."""
        for sailor in self.workers:
            sailor.fleet.tell("roster", workers=[[number, number, os.getpid() + number] for number in numbers])

    def tick(self, us: int = 333_000) -> None:
        """Time passes; hearts beat."""
        self.now_us += us
        for sailor in self.workers:
            sailor.fleet.ledger.beat(self.now_us)
        for sailor in self.workers:
            sailor.beat()

    def close(self) -> None:
        """Give everything back."""
        for sailor in self.workers:
            sailor.balance.close()
            sailor.fleet.ledger.close()
        for pair in self.pairs:
            for sock in pair:
                sock.close()
        self.ledger.close()
        self.ledger.close_descriptors()


@pytest.fixture
def shoals() -> Iterator[Callable[..., Shoal]]:
    """Makes shoals and ends them."""
    made: list[Shoal] = []

    def make(how: str = "least", workers: int = 3, **settings: Any) -> Shoal:
        made.append(Shoal(how, workers, **settings))
        return made[-1]

    yield make
    for shoal in made:
        shoal.close()


def test_a_client_goes_to_the_least_loaded_worker(shoals: Callable[..., Shoal]) -> None:
    """The very socket arrives there, under the listener of its kind."""
    first, second, third = shoals().workers
    first.count(3)
    second.count(2)
    first.shoal.tick()
    tcp, unix = first.accept(), first.accept(UNIX)
    third.read()
    assert third.adopted == [(tcp, TCP), (unix, UNIX)]
    assert first.adopted == []


def test_what_was_handed_over_stays(shoals: Callable[..., Shoal]) -> None:
    """A worker adopts what lies in its box even if it has the most clients by now."""
    first, second, third = shoals().workers
    first.count(5)
    third.count(5)
    first.shoal.tick()
    inode = first.accept()
    second.count(50)
    second.read()
    assert second.adopted == [(inode, TCP)]


def test_a_worker_without_more_clients_keeps_them(shoals: Callable[..., Shoal]) -> None:
    """Nobody is better off: the socket is adopted where it was accepted."""
    first, *_ = shoals().workers
    inode = first.accept()
    assert first.adopted == [(inode, TCP)]


def test_a_full_box_costs_nobody_a_client(shoals: Callable[..., Shoal]) -> None:
    """The next best worker gets the client, in the end the one that accepted it."""
    shoal = shoals(workers=2)
    first, second = shoal.workers
    slot = shoal.pairs[1][0]
    with suppress(BlockingIOError):
        while True:
            slot.send(b"t")
    first.count(5)
    shoal.tick()
    inode = first.accept()
    assert first.adopted == [(inode, TCP)]
    second.read()
    assert second.adopted == []


def test_a_worker_that_left_the_roster_gets_nobody(shoals: Callable[..., Shoal]) -> None:
    """From the moment the supervisor says so, however few clients it has."""
    shoal = shoals()
    first, _, third = shoal.workers
    first.count(5)
    third.count(1)
    shoal.tick()
    shoal.roster(0, 2)
    inode = first.accept()
    third.read()
    assert third.adopted == [(inode, TCP)]


def test_a_worker_whose_heart_has_stopped_gets_nobody(shoals: Callable[..., Shoal]) -> None:
    """A stopped process is still in the roster, but its clients would wait for it."""
    shoal = shoals(workers=2)
    first, second = shoal.workers
    first.count(5)
    for _ in range(10):
        shoal.now_us += 333_000
        first.beat()
    inode = first.accept()
    second.read()
    assert first.adopted == [(inode, TCP)]
    assert not first.diverts


def test_a_lent_box_is_read_until_it_is_taken_back(shoals: Callable[..., Shoal]) -> None:
    """Letters for a number without a process are served by another worker, and no more when it has one."""
    shoal = shoals()
    first, second, third = shoal.workers
    first.count(5)
    third.count(5)
    shoal.tick()
    second.fleet.tell("unbox", number=1)
    third.fleet.tell("box", shoal.pairs[1][1].fileno(), number=1)
    one = first.accept()
    third.read()
    third.fleet.tell("unbox", number=1)
    first.accept()
    third.read()
    second.read()
    assert (second.adopted, third.adopted) == ([], [(one, TCP)])


def test_letters_outlive_their_reader(shoals: Callable[..., Shoal]) -> None:
    """What a worker has not read before it ended is read by the next process of its number."""
    shoal = shoals(workers=2)
    first, second = shoal.workers
    first.count(2)
    shoal.tick()
    inode = first.accept()
    second.balance.close()
    second.fleet.tell("box", shoal.pairs[1][1].fileno(), number=1)
    second.read()
    assert second.adopted == [(inode, TCP)]


def test_only_who_must_look_diverts(shoals: Callable[..., Shoal]) -> None:
    """kernel never diverts; least and pack do from the start; a reload changes it at the next tick."""
    shoal = shoals("kernel")
    assert not any(sailor.diverts for sailor in shoal.workers)
    for how, diverts in (("least", True), ("pack", True), ("kernel", False)):
        shoal.settings = Settings(accept_balance=cast("Any", how))
        for sailor in shoal.workers:
            sailor.balance._worker.config = cast("Any", SimpleNamespace(settings=shoal.settings))
        shoal.tick()
        assert all(sailor.diverts is diverts for sailor in shoal.workers)


@pytest.mark.parametrize("how", ["least", "kernel"])
def test_with_proxy_protocol_headers_are_read_by_whoever_serves(shoals: Callable[..., Shoal], how: str) -> None:
    """All divert from the start; a TCP client is handed over unread and then read, one on a Unix socket is not."""
    shoal = shoals(how, proxy_protocol="on")
    first, second, _ = shoal.workers
    assert all(sailor.diverts for sailor in shoal.workers)
    first.count(5 if how == "least" else 0)
    shoal.tick()
    inode, local = first.accept(), first.accept(UNIX)
    for sailor in shoal.workers[1:]:
        sailor.read()
    reader = first if how == "kernel" else second
    assert reader.unread == [(inode, TCP)]
    assert (local, UNIX) in [pair for sailor in shoal.workers for pair in sailor.adopted]
    assert all(sailor.diverts for sailor in shoal.workers)


def test_least_leaves_short_visits_to_the_kernel(shoals: Callable[..., Shoal]) -> None:
    """While clients stay for less than a second on average they are not diverted."""
    shoal = shoals()
    first, *others = shoal.workers
    for _ in range(100):
        first.balance.accepted()
    shoal.tick()
    assert not first.diverts
    assert all(sailor.diverts for sailor in others)
    shoal.tick()
    assert first.diverts


def test_pack_fills_the_first_worker_and_steers_the_kernel(
    shoals: Callable[..., Shoal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that arrive elsewhere go to worker 0, and the kernel is told; beyond sixteen the next one is woken."""
    said: list[int] = []
    monkeypatch.setattr(steer, "steer", lambda sock, place: said.append(place))
    shoal = shoals("pack")
    first, second, third = shoal.workers
    third.accept()
    first.read()
    assert (len(first.adopted), said) == (1, [0])
    for _ in range(16):
        first.accept()
    second.read()
    assert (len(first.adopted), len(second.adopted)) == (16, 1)
    assert said[-1] == 1


def test_pack_passes_over_a_busy_worker(shoals: Callable[..., Shoal], monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's count of CPU time decides, read again after a tenth of a second."""
    monkeypatch.setattr(steer, "steer", lambda sock, place: None)
    shoal = shoals("pack")
    first, second, _ = shoal.workers
    monkeypatch.setattr(balance, "_cpu_us", lambda pid: shoal.now_us if pid == os.getpid() else 0)
    shoal.tick()
    shoal.tick()
    inode = first.accept()
    second.read()
    assert second.adopted == [(inode, TCP)]


def test_steering_ends_with_pack(shoals: Callable[..., Shoal], monkeypatch: pytest.MonkeyPatch) -> None:
    """After a reload to another accept_balance the kernel chooses again."""
    said: list[int] = []
    monkeypatch.setattr(steer, "steer", lambda sock, place: said.append(place))
    shoal = shoals("pack")
    first, *_ = shoal.workers
    first.accept()
    first.balance._worker.config = cast("Any", SimpleNamespace(settings=Settings(accept_balance="least")))
    first.beat()
    assert said == [0, steer.NOBODY]


def test_the_cpu_time_of_a_process_can_be_read() -> None:
    """What the gauge is fed with grows while a process works."""
    before = balance._cpu_us(os.getpid())
    while balance._cpu_us(os.getpid()) < before + 2000:
        sum(range(1000))


def test_clients_on_their_way_are_counted_by_everybody(shoals: Callable[..., Shoal]) -> None:
    """As a letter, as expected by who has read it, and as a client: whoever decides meanwhile sees them."""
    shoal = shoals(workers=2)
    first, second = shoal.workers
    first.count(4)
    second.count(1)
    shoal.tick()
    for _ in range(3):
        first.accept()
    shoal.now_us += 10_000
    first.accept()
    assert len(first.adopted) == 1
    second.read()
    shoal.now_us += 10_000
    second.balance._look()
    assert second.balance._placement.loads[1].clients == 4
    for _ in range(3):
        second.balance.entered()
    second.count(4)
    shoal.now_us += 10_000
    second.balance._look()
    assert second.balance._placement.loads[1].clients == 4


def test_who_says_nothing_is_forgotten(shoals: Callable[..., Shoal]) -> None:
    """A probe that connects and leaves does not count for longer than a moment."""
    shoal = shoals(workers=2)
    first, second = shoal.workers
    first.accept()
    shoal.tick()
    assert second.balance._placement.loads[0].clients == 0

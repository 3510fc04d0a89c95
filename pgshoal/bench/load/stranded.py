"""Clients that all landed on two workers of a fleet: what they get of a pool that was meant for all."""

from __future__ import annotations

import selectors
import socket
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pgshoal.bench.load.raw import READY, WAIT_S, startup_packet
from pgshoal.bench.model import Outcome, Scene

if TYPE_CHECKING:
    from pgshoal.demo.pgbench import Target

CLIENTS: Final = 32
WORKERS: Final = 2
TRIES_MAX: Final = 50 * CLIENTS
#: Holds a server for a while without using a CPU, so that servers are what is scarce.
QUERY: Final = b"select pg_sleep(0.005)"
WARM_UP_S: Final = 1.0


class Visitor:
    """A client that asks the same thing again and again; `seat` is its worker's, as its cancel key tells."""

    def __init__(self, host: str, port: int, user: str) -> None:
        self.socket = socket.create_connection((host, port), WAIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(startup_packet(user, "postgres"))
        greeting = b""
        while greeting[-6:-1] != READY:
            piece = self.socket.recv(65536)
            if not piece:
                raise RuntimeError(f"the pooler closed the connection: {greeting[-200:]!r}")
            greeting += piece
        # BackendKeyData (12 bytes of body and length, the first of the key is the seat) and ReadyForQuery come last.
        self.seat = greeting[-6 - 8]
        self.asked_s = 0.0

    def ask(self) -> None:
        """Send the query; the clock starts."""
        self.asked_s = time.perf_counter()
        self.socket.sendall(b"Q" + struct.pack("!i", len(QUERY) + 5) + QUERY + b"\0")

    def hear(self) -> bool:
        """Read; True when the answer is complete. RuntimeError if it is not the expected one."""
        data = self.socket.recv(65536)
        if not data or data[:1] == b"E":
            raise RuntimeError(f"the pooler answered {data[:200]!r}")
        return data[-6:-1] == READY


def gather(address: Target) -> list[Visitor]:
    """As many clients as wanted, all on the first two workers that turn up; the others leave again."""
    chosen: list[Visitor] = []
    seats: list[int] = []
    for _ in range(TRIES_MAX):
        visitor = Visitor(address.host, address.port, address.user)
        if visitor.seat not in seats and len(seats) < WORKERS:
            seats.append(visitor.seat)
        mine = sum(one.seat == visitor.seat for one in chosen)
        if visitor.seat in seats and mine < CLIENTS // WORKERS:
            chosen.append(visitor)
        else:
            visitor.socket.close()
        if len(chosen) == CLIENTS:
            return chosen
    raise RuntimeError(f"{TRIES_MAX} connections, but only {len(chosen)} on {WORKERS} workers")


def ask_all(visitors: list[Visitor], seconds: float) -> list[float]:
    """Everybody asks as fast as answers come; how long each took that ended in time, in seconds."""
    times: list[float] = []
    with selectors.DefaultSelector() as selector:
        for visitor in visitors:
            selector.register(visitor.socket, selectors.EVENT_READ, visitor)
            visitor.ask()
        end = time.perf_counter() + seconds
        open_questions = len(visitors)
        while open_questions:
            ready = selector.select(WAIT_S)
            if not ready:
                raise RuntimeError(f"no answer for {WAIT_S:.0f} s")
            for key, _ in ready:
                visitor = key.data
                if not visitor.hear():
                    continue
                now = time.perf_counter()
                if now < end:
                    times.append(now - visitor.asked_s)
                    visitor.ask()
                else:
                    open_questions -= 1
    return times


@dataclass(frozen=True)
class StrandedLoad:
    """Queries that sleep, from clients who are all on two workers."""

    @property
    def generators(self) -> int:
        """One thread."""
        return 1

    def run(self, scene: Scene) -> Outcome:
        """What they get of the pool, and how long each query takes."""
        visitors = gather(scene.opened.address())
        seconds = scene.knobs.float("compare_seconds")
        try:
            ask_all(visitors, WARM_UP_S)
            with scene.meter.interval():
                times = ask_all(visitors, seconds)
        finally:
            for visitor in visitors:
                visitor.socket.close()
        latencies = np.array(times, np.float32) * 1000
        return Outcome({"tps": len(times) / seconds}, len(times), latencies)

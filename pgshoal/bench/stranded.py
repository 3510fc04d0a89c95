"""Clients that all landed on two workers of a fleet: what they get of a pool that was meant for all."""

from __future__ import annotations

import selectors
import socket
import statistics
import struct
import time
from collections.abc import Mapping
from typing import Final

from pgshoal.bench.raw import READY, WAIT_S, startup_packet
from pgshoal.demo.pooler import Pooler

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


def gather(pooler: Pooler, user: str) -> list[Visitor]:
    """As many clients as wanted, all on the first two workers that turn up; the others leave again."""
    chosen: list[Visitor] = []
    seats: list[int] = []
    for _ in range(TRIES_MAX):
        visitor = Visitor(pooler.host, pooler.port, user)
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


def measure(pooler: Pooler, user: str, seconds: float) -> Mapping[str, float]:
    """Transactions per second, and the time that 99 of 100 stay below, in milliseconds."""
    visitors = gather(pooler, user)
    try:
        run(visitors, WARM_UP_S)
        times = run(visitors, seconds)
    finally:
        for visitor in visitors:
            visitor.socket.close()
    p99 = statistics.quantiles(times, n=100)[98]
    return {"throughput": len(times) / seconds, "p99": p99 * 1000, "median": statistics.median(times) * 1000}


def run(visitors: list[Visitor], seconds: float) -> list[float]:
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

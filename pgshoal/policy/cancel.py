"""Cancel keys: how they are made, read and routed, and who may still wait for a cancel to be delivered."""

from __future__ import annotations

import hmac
from collections.abc import Container
from dataclasses import dataclass, field
from hashlib import blake2s
from struct import Struct
from typing import Final

SHORT_BYTES: Final = 8
LONG_BYTES: Final = 32
#: The oldest minor version of protocol 3 whose clients understand keys longer than 8 bytes.
LONG_SINCE_MINOR: Final = 2
HOPS_MAX: Final = 3
SEATS_MAX: Final = 127

NOBODY: Final = "failed cancel request"
NO_PEER: Final = "could not find peer to forward request to"
NO_HOPS: Final = "failed to forward cancel request because its TTL was exhausted"

_LONG_VERSION: Final = 1
_MAC_BYTES: Final = 12
#: Version and 3 random bytes (what a client shows as the process id), hop budget, peer, seat, generation, random.
_LONG: Final = Struct("<B3sBHBI8s")
_HOPS_AT: Final = 4
#: Random bytes that a short and a long key take.
SHORT_RANDOM: Final = 8
LONG_RANDOM: Final = 11
#: A fleet of a small max_client_conn may still be told to cancel everything at once.
CARRIERS_LEAST: Final = 100
#: More that wait for the same server at the same time tell it nothing new.
PER_CLIENT_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a worker puts into its keys. `secret` vouches for long keys and is the fleet's; peer_id 0: no peering."""

    peer_id: int = 0
    seat: int = 0
    generation: int = 0
    secret: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Here:
    """One of this worker's clients; `key` as it was given out."""

    key: bytes


@dataclass(frozen=True, slots=True)
class Seat:
    """A client of another worker of this fleet."""

    seat: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Peer:
    """A client of another node; `key` with one hop less."""

    peer_id: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Lost:
    """Nobody's; the text is for the log."""

    reason: str


Route = Here | Seat | Peer | Lost


def seats_of(workers: int) -> int:
    """How many seats a fleet has: each worker may have a successor, and two more are a reserve."""
    return min(2 * workers + 2, SEATS_MAX)


# -- making


def short_key(stamp: Stamp, random: bytes) -> bytes:
    """PgBouncer's layout: the seat in byte 0, with peering the peer id in bytes 1 and 2 and the hops in byte 7."""
    key = bytearray(random[:SHORT_BYTES])
    key[0] = stamp.seat
    if stamp.peer_id:
        key[1] = stamp.peer_id & 0xFF
        key[2] = stamp.peer_id >> 8
        key[7] |= HOPS_MAX
    return bytes(key)


def long_key(stamp: Stamp, random: bytes) -> bytes:
    """For clients of protocol 3.2: more random bytes, the process they are from, and a proof that we made it."""
    body = _LONG.pack(
        _LONG_VERSION, random[:3], HOPS_MAX, stamp.peer_id, stamp.seat, stamp.generation & 0xFFFFFFFF, random[3:11]
    )
    return body + _mac(stamp.secret, body)


def _mac(secret: bytes, body: bytes) -> bytes:
    # The hop budget changes on the way, so it is not vouched for.
    plain = body[:_HOPS_AT] + body[_HOPS_AT + 1 :]
    return blake2s(plain, key=secret[:32], digest_size=_MAC_BYTES).digest()


# -- reading


def route(key: bytes, stamp: Stamp, seats: int, peers: Container[int]) -> Route:
    """Where a cancel request goes that has come from outside. `seats`: how many this fleet has."""
    if len(key) == SHORT_BYTES:
        return _route_short(key, stamp, seats, peers)
    if len(key) == LONG_BYTES and key[0] == _LONG_VERSION and key[_HOPS_AT] <= HOPS_MAX:
        return _route_long(key, stamp, seats, peers)
    return Lost(NOBODY)


def seat_of(key: bytes) -> int:
    """The seat in a key of this fleet, -1 for what is no key of ours."""
    if len(key) == SHORT_BYTES:
        return key[0]
    return key[7] if len(key) == LONG_BYTES else -1


def made_by(key: bytes, generation: int) -> bool:
    """Whether the process of that generation can have made a key; a short one does not tell."""
    return len(key) != LONG_BYTES or key[8:12] == (generation & 0xFFFFFFFF).to_bytes(4, "little")


def _route_short(key: bytes, stamp: Stamp, seats: int, peers: Container[int]) -> Route:
    if stamp.peer_id:
        peer_id = key[1] | key[2] << 8
        if peer_id != stamp.peer_id:
            hops = key[7] & HOPS_MAX
            return _forward(peer_id, hops, key[:7] + bytes((key[7] - (hops > 0),)), peers)
        # Hops are spent on the way here; the key as it was given out has all of them.
        key = key[:7] + bytes((key[7] | HOPS_MAX,))
    return _seated(key, key[0], stamp, seats)


def _route_long(key: bytes, stamp: Stamp, seats: int, peers: Container[int]) -> Route:
    _, _, hops, peer_id, seat, generation, _ = _LONG.unpack_from(key)
    if peer_id != stamp.peer_id and stamp.peer_id:
        return _forward(peer_id, hops, _with_hops(key, max(hops - 1, 0)), peers)
    if not hmac.compare_digest(key[_LONG.size :], _mac(stamp.secret, key[: _LONG.size])):
        return Lost(NOBODY)
    if seat == stamp.seat and generation != stamp.generation & 0xFFFFFFFF:
        return Seat(seat, _with_hops(key, HOPS_MAX))  # of the process before: its clients may have moved
    return _seated(_with_hops(key, HOPS_MAX), seat, stamp, seats)


def _with_hops(key: bytes, hops: int) -> bytes:
    return key[:_HOPS_AT] + bytes((hops,)) + key[_HOPS_AT + 1 :]


def _forward(peer_id: int, hops: int, key: bytes, peers: Container[int]) -> Route:
    if not hops:
        return Lost(NO_HOPS)
    return Peer(peer_id, key) if peer_id in peers else Lost(NO_PEER)


def _seated(key: bytes, seat: int, stamp: Stamp, seats: int) -> Route:
    if seat == stamp.seat:
        return Here(key)
    return Seat(seat, key) if seat < seats else Lost(NOBODY)


# -- budgets


def carriers_max(max_client_conn: int) -> int:
    """Connections that brought a cancel request and are still open, in one worker.

    They have a budget of their own, so that a storm of them takes no client's place.
    """
    return max(CARRIERS_LEAST, max_client_conn // 4)


def may_deliver(under_way: int, connections: int, pool_size: int) -> bool:
    """Whether a cancel may open its connection to a server now.

    One at a time for each server, so there are never more of these than servers in the whole fleet;
    `connections` are all of the pool in this worker, which may have twice its size (0: no limit).
    """
    return under_way == 0 and (pool_size == 0 or connections < 2 * pool_size)


def may_forward(forwards: int, max_client_conn: int) -> bool:
    """Whether one more request for another node may wait, for whichever peer: nobody can check those keys here.

    They never take more than half of the worker's budget, lest a peer that does not answer costs our own clients
    their cancels.
    """
    return forwards < carriers_max(max_client_conn) // 2

"""Cancel keys: layouts, where each goes, and how many may wait."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.policy.cancel import (
    CARRIERS_LEAST,
    HOPS_MAX,
    LONG_BYTES,
    LONG_RANDOM,
    NO_HOPS,
    NO_PEER,
    NOBODY,
    PER_CLIENT_MAX,
    SHORT_BYTES,
    Here,
    Lost,
    Peer,
    Seat,
    Stamp,
    carriers_max,
    long_key,
    made_by,
    may_deliver,
    may_forward,
    route,
    seat_of,
    seats_of,
    short_key,
)  # fmt: skip

SEATS = 10
HOME = Stamp(peer_id=0x0102, seat=3, generation=70_000, secret=b"s" * 32)
PEERS = (7, 0x0102)
stamps = st.builds(
    Stamp,
    peer_id=st.integers(0, 65535),
    seat=st.integers(0, SEATS - 1),
    generation=st.integers(0, 2**40),
    secret=st.binary(min_size=1, max_size=32),
)
random = st.binary(min_size=LONG_RANDOM, max_size=LONG_RANDOM)


def with_hops(key: bytes, hops: int) -> bytes:
    """The key as it looks after some of its way."""
    if len(key) == LONG_BYTES:
        return key[:4] + bytes((hops,)) + key[5:]
    return key[:7] + bytes((key[7] & ~3 | hops,))


# Layouts


@given(stamps, random)
def test_short_keys_have_the_layout_that_pgbouncer_reads(stamp: Stamp, chance: bytes) -> None:
    """Seat below 0x80 in byte 0; with peering the peer id, low byte first, in 1 and 2, and all hops in byte 7."""
    key = short_key(stamp, chance)
    assert len(key) == SHORT_BYTES
    assert key[0] == stamp.seat == seat_of(key)
    assert key[3:7] == chance[3:7]
    if stamp.peer_id:
        assert key[1] | key[2] << 8 == stamp.peer_id
        assert key[7] & 3 == HOPS_MAX
        assert key[7] >> 2 == chance[7] >> 2
    else:
        assert key[1:] == chance[1:8]


@given(stamps, random)
def test_long_keys_begin_like_a_process_id(stamp: Stamp, chance: bytes) -> None:
    """32 bytes whose first four are a positive number that differs from client to client."""
    key = long_key(stamp, chance)
    assert len(key) == LONG_BYTES
    assert key[0] < 0x80
    assert key[1:4] == chance[:3]
    assert seat_of(key) == stamp.seat
    assert made_by(key, stamp.generation)
    assert not made_by(key, stamp.generation + 1)


def test_a_stamp_does_not_show_its_secret() -> None:
    """Printed anywhere, it gives nothing away."""
    assert "ssss" not in repr(HOME)


@given(st.binary(max_size=300).filter(lambda key: len(key) not in (SHORT_BYTES, LONG_BYTES)))
def test_other_lengths_are_nobodys(key: bytes) -> None:
    """A key of a length we never give out is no key."""
    assert route(key, HOME, SEATS, PEERS) == Lost(NOBODY)
    assert seat_of(key) == -1


# Routes within the fleet


@given(stamps, random, st.booleans(), st.integers(0, HOPS_MAX))
def test_a_key_comes_back_to_the_worker_that_gave_it(stamp: Stamp, chance: bytes, long: bool, hops: int) -> None:
    """Unchanged, or with hops spent on the way when peering is on: it is found as it was given out."""
    key = (long_key if long else short_key)(stamp, chance)
    came = with_hops(key, hops) if stamp.peer_id else key
    assert route(came, stamp, SEATS, ()) == Here(key)


@given(stamps, random, st.booleans(), st.integers(0, SEATS - 1))
def test_a_key_of_another_seat_goes_there(stamp: Stamp, chance: bytes, long: bool, seat: int) -> None:
    """Any worker of the fleet knows from the key alone whose it is."""
    key = (long_key if long else short_key)(replace(stamp, seat=seat), chance)
    expected = Here(key) if seat == stamp.seat else Seat(seat, key)
    assert route(key, stamp, SEATS, ()) == expected


def test_a_seat_that_the_fleet_does_not_have_is_nobodys() -> None:
    """Nothing is sent through the fleet for a key that nobody can have."""
    key = short_key(replace(HOME, seat=SEATS), bytes(8))
    assert route(key, HOME, SEATS, PEERS) == Lost(NOBODY)
    assert route(b"\xff" + key[1:], HOME, SEATS, PEERS) == Lost(NOBODY)


@given(random, st.integers(0, LONG_BYTES - 1), st.integers(1, 255))
def test_a_forged_long_key_goes_nowhere(chance: bytes, at: int, flip: int) -> None:
    """Whatever byte is changed, no other worker hears of it; only the hop budget may differ."""
    key = bytearray(long_key(replace(HOME, peer_id=0), chance))
    key[at] ^= flip
    found = route(bytes(key), replace(HOME, peer_id=0), SEATS, PEERS)
    if at == 4 and key[4] <= HOPS_MAX:
        assert isinstance(found, Here)
    else:
        assert found == Lost(NOBODY)


def test_a_long_key_under_another_secret_or_of_an_earlier_process_is_nobodys() -> None:
    """The fleet's secret makes the proof, and a seat's next process does not know the keys of the one before."""
    key = long_key(HOME, bytes(LONG_RANDOM))
    assert route(key, replace(HOME, secret=b"t" * 32), SEATS, PEERS) == Lost(NOBODY)
    # Where the clients of the process before are is for the supervisor to say.
    assert route(key, replace(HOME, generation=70_001), SEATS, PEERS) == Seat(3, key)
    assert route(key, replace(HOME, seat=4, generation=70_001), SEATS, PEERS) == Seat(3, key)


@pytest.mark.parametrize("generation", [1, 2**32, 2**32 + 5])
def test_generations_wrap(generation: int) -> None:
    """After 2^32 processes a key still fits its own."""
    stamp = replace(HOME, generation=generation)
    key = long_key(stamp, bytes(LONG_RANDOM))
    assert route(key, stamp, SEATS, PEERS) == Here(key)
    assert made_by(short_key(stamp, bytes(8)), generation)


# Routes between nodes


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("hops", range(HOPS_MAX + 1))
def test_a_key_of_another_node_goes_there_with_one_hop_less(long: bool, hops: int) -> None:
    """Without hops it goes nowhere, so that a ring of nodes cannot pass it round for ever."""
    key = with_hops((long_key if long else short_key)(replace(HOME, peer_id=7), bytes(range(100, 111))), hops)
    found = route(key, HOME, SEATS, PEERS)
    assert found == (Peer(7, with_hops(key, hops - 1)) if hops else Lost(NO_HOPS))


@pytest.mark.parametrize("long", [False, True])
def test_a_key_of_a_node_we_do_not_know_is_dropped(long: bool) -> None:
    """Only what stands in [peers] is dialled."""
    key = (long_key if long else short_key)(replace(HOME, peer_id=8), bytes(range(100, 111)))
    assert route(key, HOME, SEATS, PEERS) == Lost(NO_PEER)


def test_our_own_entry_among_the_peers_is_never_dialled() -> None:
    """All nodes may share one [peers] section."""
    key = short_key(replace(HOME, seat=1), bytes(range(100, 108)))
    assert route(key, HOME, SEATS, PEERS) == Seat(1, key)


def test_without_peering_there_is_no_other_node() -> None:
    """peer_id 0: the same bytes are random, whatever [peers] says."""
    home = replace(HOME, peer_id=0)
    key = short_key(home, b"\0\7\0\0\0\0\0\0")
    assert route(key, home, SEATS, PEERS) == Here(key)


@given(st.integers(0, HOPS_MAX))
def test_two_nodes_that_point_at_each_other_stop(hops: int) -> None:
    """A key of a third node that both wrongly send to the other is dropped after its hops."""
    key = with_hops(short_key(replace(HOME, peer_id=9), bytes(8)), hops)
    for _ in range(hops):
        found = route(key, HOME, SEATS, (9,))
        assert isinstance(found, Peer)
        key = found.key
    assert route(key, HOME, SEATS, (9,)) == Lost(NO_HOPS)


@given(st.binary(max_size=40), stamps)
def test_whatever_comes_has_a_route(key: bytes, stamp: Stamp) -> None:
    """No bytes raise, and none of them make a long key of ours."""
    found = route(key, stamp, SEATS, PEERS)
    assert isinstance(found, Here | Seat | Peer | Lost)
    if len(key) == LONG_BYTES and not stamp.peer_id:
        assert isinstance(found, Lost)


# Budgets


def test_seats() -> None:
    """As many as the ledger has columns, in seven bits."""
    assert [seats_of(workers) for workers in (1, 4, 62, 63, 1000)] == [4, 10, 126, 127, 127]


@pytest.mark.parametrize(
    ("under_way", "connections", "size", "allowed"),
    [(0, 1, 1, True), (0, 2, 1, False), (1, 1, 10, False), (0, 1000, 0, True), (1, 1, 0, False)],
)
def test_one_delivery_for_each_server(under_way: int, connections: int, size: int, allowed: bool) -> None:
    """Never two to the same server, and never more than twice the pool's size altogether."""
    assert may_deliver(under_way, connections, size) is allowed


def test_cancel_requests_have_a_budget_of_their_own() -> None:
    """A quarter of what clients may have, some even where that is little; those for other nodes get half at most."""
    assert carriers_max(0) == CARRIERS_LEAST
    assert carriers_max(5000) == 1250
    assert may_forward(624, 5000)
    assert not may_forward(625, 5000)
    assert PER_CLIENT_MAX < CARRIERS_LEAST

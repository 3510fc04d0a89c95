"""Feeds one byte stream to fresh framers cut in every way that matters, and demands the same facts each time."""

from collections.abc import Callable

from pgshoal.wire.framing import Frame, Framer


def frames_of(make: Callable[[], Framer], stream: bytes) -> list[Frame]:
    """The frames of a stream fed whole; fails if any single cut, or feeding byte by byte, gives others."""
    whole = make().feed(stream)
    by_byte = make()
    assert [frame for at in range(len(stream)) for frame in by_byte.feed(stream[at : at + 1])] == whole
    for cut in range(len(stream) + 1):
        framer = make()
        assert framer.feed(stream[:cut]) + framer.feed(stream[cut:]) == whole, cut
    return whole

"""The channel: messages arrive whole and in order, whatever the cut, each with its own descriptor."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgshoal.fleet import channel as module
from pgshoal.fleet.channel import Channel, Garbage, Message, receive


class Wire:
    """Two channels, or one and the bare socket of its peer."""

    def __init__(self, both: bool = True, failed: module.Failed | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        ours, self.peer = socket.socketpair()
        self.ended: list[str] = []
        self.left = Channel(ours, self.loop, lambda: self.ended.append("left"), failed)
        self.right = Channel(self.peer, self.loop, lambda: self.ended.append("right")) if both else None

    def until(self, reached: Callable[[], bool]) -> None:
        """Run the loop until then."""

        async def wait() -> None:
            while not reached():
                await asyncio.sleep(0)

        self.loop.run_until_complete(asyncio.wait_for(wait(), 20))

    def close(self) -> None:
        """Both ends and the loop."""
        self.left.close()
        if self.right is not None:
            self.right.close()
        self.peer.close()
        self.loop.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    """Two channels."""
    made = Wire()
    yield made
    made.close()


def talk(wire: Wire) -> Channel:
    """The other channel."""
    assert wire.right is not None
    return wire.right


def tagged() -> int:
    """A descriptor that can be told from others."""
    return os.memfd_create("tag")


def same(one: int, other: int) -> bool:
    """Whether two descriptors are the same file."""
    return os.fstat(one).st_ino == os.fstat(other).st_ino


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
fields = st.dictionaries(st.text().filter(lambda name: name not in ("verb", "id", "re")), json_values, max_size=3)
messages = st.lists(st.tuples(fields, st.binary(max_size=50), st.booleans()), max_size=6)


@settings(max_examples=60, deadline=None)
@given(messages=messages, data=st.data())
def test_any_cut_of_the_bytes_gives_the_same_messages(messages: list[Any], data: st.DataObject) -> None:
    """Messages with their own blob and descriptor come out, however the bytes are cut on their way."""
    wire = Wire(both=False)
    heard: list[Message] = []
    wire.left.on("v", heard.append)
    files = [tagged() if wants else -1 for _, _, wants in messages]
    try:
        for (given_fields, blob, _), fd in zip(messages, files, strict=True):
            send_in_pieces(wire, packet(given_fields, blob, fd), fd, data)
        wire.until(lambda: len(heard) == len(messages))
        for message, (given_fields, blob, _), fd in zip(heard, messages, files, strict=True):
            assert (message.fields, message.blob) == (given_fields, blob)
            assert (message.fd >= 0) == (fd >= 0)
            assert fd < 0 or same(message.fd, fd)
    finally:
        for fd in [*files, *(message.fd for message in heard)]:
            if fd >= 0:
                os.close(fd)
        wire.close()


def packet(given_fields: dict[str, Any], blob: bytes, fd: int) -> bytes:
    """What a channel would send."""
    ours, theirs = socket.socketpair()
    loop = asyncio.new_event_loop()
    sender = Channel(ours, loop, lambda: None)
    sender.send("v", given_fields, blob, fd)
    sender.close()
    loop.close()
    found = b""
    with theirs:
        while piece := theirs.recv(65536):
            found += piece
    return found


def send_in_pieces(wire: Wire, whole: bytes, fd: int, data: st.DataObject) -> None:
    """The descriptor goes with the first piece, as the kernel keeps it."""
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=4)))
    for at, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", fd))] if fd >= 0 and at == 0 else []
        wire.peer.sendmsg([whole[at:end]], rights)
        wire.loop.run_until_complete(asyncio.sleep(0))


def test_a_blob_larger_than_the_socket_buffer(wire: Wire) -> None:
    """It arrives whole, and what was said after it arrives after it."""
    blob = os.urandom(5_000_000)
    heard: list[Message] = []
    talk(wire).on("big", heard.append)
    talk(wire).on("small", heard.append)
    wire.left.send("big", {}, blob)
    wire.left.send("small")
    wire.until(lambda: len(heard) == 2)
    assert heard[0].blob == blob
    assert heard[1].verb == "small"


def test_questions_and_answers(wire: Wire) -> None:
    """Each answer finds its question, in any order; an answer nobody wants any more is dropped."""
    asked: list[Message] = []
    talk(wire).on("ask", asked.append)
    answers: dict[str, Any] = {}
    for name in ("one", "two", "three"):
        number = wire.left.ask("ask", lambda answer, name=name: answers.update({name: answer}), {"name": name})  # type: ignore[misc]
    wire.left.forget(number)
    wire.until(lambda: len(asked) == 3)
    for request in reversed(asked):
        talk(wire).reply(request, {"to": request["name"]})
    wire.until(lambda: len(answers) == 2)
    assert {name: answer["to"] for name, answer in answers.items()} == {"one": "one", "two": "two"}


def test_a_dying_peer_answers_every_question_with_none(wire: Wire) -> None:
    """Whoever asked is told, and `closed` is called once; a later question is answered with None too."""
    answers: list[Message | None] = []
    wire.left.ask("a", answers.append)
    wire.left.ask("b", answers.append)
    talk(wire).close()
    wire.until(lambda: not wire.left.open)
    assert answers == [None, None]
    assert wire.ended == ["left"]
    wire.left.ask("c", answers.append)
    wire.until(lambda: len(answers) == 3)
    wire.left.send("nobody hears")
    assert wire.ended == ["left"]


def test_a_peer_given_up_answers_every_question_with_none(wire: Wire) -> None:
    """Also while the kernel still holds its socket open; nobody is told that the channel has ended."""
    answers: list[Message | None] = []
    wire.left.ask("first", answers.append)
    wire.left.ask("second", answers.append)
    wire.left.give_up()
    assert answers == [None, None]
    assert wire.ended == []
    assert not wire.left.open


def test_what_was_sent_before_the_end_is_heard(wire: Wire) -> None:
    """`drain` hears the last words of a peer that is gone."""
    heard: list[Message] = []
    wire.left.on("last", heard.append)
    for _ in range(20):
        talk(wire).send("last", {}, b"x" * 1000)
    talk(wire).close()
    wire.left.drain()
    assert len(heard) == 20
    assert wire.ended == ["left"]


def test_a_descriptor_for_nobody_is_closed(wire: Wire) -> None:
    """A message without a handler leaks nothing."""
    heard: list[Message] = []
    talk(wire).on("known", heard.append)
    fd = tagged()
    before = len(os.listdir("/proc/self/fd"))
    wire.left.send("unknown", fd=fd)
    wire.left.send("known")
    wire.until(lambda: bool(heard))
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(fd)


def test_descriptors_under_way_are_closed_at_the_end(wire: Wire) -> None:
    """Neither those that were not sent yet nor those that were not taken leak."""
    fd = tagged()
    before = len(os.listdir("/proc/self/fd"))
    wire.left.send("full", {}, b"x" * 3_000_000)
    for _ in range(10):
        wire.left.send("later", fd=fd)
    wire.left.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1
    os.close(fd)


GARBAGE = [
    b"\0\0\0\x02\0\0\0\0\0{}",  # no verb
    b"\0\0\0\x04\0\0\0\0\0nope",
    b"\0\0\0\x02\0\0\0\0\0[]",
    b'\0\0\0\x0a\0\0\0\0\0{"verb":1}',
    b"\0\0\0\x02\0\0\0\0\x07{}",  # seven descriptors
    b'\0\0\0\x0c\0\0\0\0\x01{"verb":"v"}',  # a descriptor that is not there
    b"\xff\xff\xff\xff\0\0\0\0\0",
    b"\0\0\0\x01\xff\xff\xff\xff\0",
    b"\0\0\xea\x60\0\0\0\0\0" + b"[" * 60000,
]


@pytest.mark.parametrize("text", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_ends_the_channel(text: bytes) -> None:
    """What cannot be read is told of, and nothing after it is believed."""
    failures: list[tuple[str, Exception]] = []
    wire = Wire(both=False, failed=lambda verb, error: failures.append((verb, error)))
    wire.peer.sendall(text)
    wire.until(lambda: not wire.left.open)
    assert [(verb, type(error)) for verb, error in failures] == [("", Garbage)]
    assert wire.ended == ["left"]
    wire.close()


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_are_survived(data: bytes) -> None:
    """No input raises anything out of the channel."""
    failures: list[Exception] = []
    wire = Wire(both=False, failed=lambda _, error: failures.append(error))
    wire.peer.sendall(data)
    wire.peer.close()
    wire.left.drain()
    assert not wire.left.open
    assert all(isinstance(error, Garbage) for error in failures)
    wire.close()


def test_a_handler_that_fails_is_told_of() -> None:
    """With `failed` the error goes there, and the channel lives."""
    failures: list[tuple[str, Exception]] = []
    wire = Wire(failed=lambda verb, error: failures.append((verb, error)))
    heard: list[Message] = []
    wire.left.on("bad", lambda message: message["missing"])
    wire.left.on("good", heard.append)
    talk(wire).send("bad")
    talk(wire).send("good")
    wire.until(lambda: bool(heard))
    assert [(verb, type(error)) for verb, error in failures] == [("bad", KeyError)]
    wire.close()


def test_a_handler_may_close_the_channel(wire: Wire) -> None:
    """Messages behind it are not heard any more, and their descriptors are closed."""
    fd = tagged()
    heard: list[str] = []

    def stop(message: Message) -> None:
        heard.append(message.verb)
        wire.left.close()

    wire.left.on("stop", stop)
    talk(wire).send("stop")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        talk(wire).send("stop", fd=fd)
    wire.until(lambda: bool(heard))
    assert heard == ["stop"]
    assert "left" not in wire.ended
    assert len(os.listdir("/proc/self/fd")) <= before
    os.close(fd)


def test_a_peer_that_does_not_read_ends_its_channel(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for it is bounded."""
    monkeypatch.setattr(module, "BACKLOG_MAX", 1_000_000)
    for _ in range(20):
        wire.left.send("x", {}, b"y" * 100_000)
    assert not wire.left.open
    assert wire.ended == ["left"]


def test_receive_reads_one_message_and_no_byte_more() -> None:
    """Before there is a loop, the first message is read alone; the rest stays for the channel."""
    loop = asyncio.new_event_loop()
    ours, theirs = socket.socketpair()
    sender = Channel(ours, loop, lambda: None)
    fd = tagged()
    blob = b"b" * 1_000_000
    found: list[Message] = []
    reader = threading.Thread(target=lambda: found.append(receive(theirs)))
    reader.start()
    sender.send("boot", {"seat": 3}, blob)
    sender.send("listen", fd=fd)

    async def wait() -> None:
        while not found:
            await asyncio.sleep(0)

    loop.run_until_complete(wait())
    reader.join()
    assert (found[0].verb, found[0]["seat"], found[0].blob) == ("boot", 3, blob)
    rest: list[Message] = []
    channel = Channel(theirs, loop, lambda: None)
    channel.on("listen", rest.append)
    while not rest:
        loop.run_until_complete(asyncio.sleep(0))
    assert same(rest[0].fd, fd)
    os.close(rest[0].fd)
    os.close(fd)
    sender.close()
    channel.close()
    loop.close()


def test_receive_from_a_dead_peer() -> None:
    """The end before or within a message is an EOFError."""
    ours, theirs = socket.socketpair()
    ours.sendall(b"\0\0\0\x02")
    ours.close()
    with theirs, pytest.raises(EOFError):
        receive(theirs)


def test_a_kernel_that_cannot_take_more_is_asked_again(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many descriptors under way is no reason to give up the worker."""
    heard: list[Message] = []
    talk(wire).on("x", heard.append)
    real = wire.left._sock.sendmsg
    refusals = [errno.ETOOMANYREFS, errno.ENOBUFS]

    def send(*arguments: Any) -> int:
        if refusals:
            raise OSError(refusals.pop(), "no")
        return real(*arguments)

    class Sock:
        """The socket, at first unwilling."""

        sendmsg = staticmethod(send)
        fileno = wire.left._sock.fileno
        recvmsg = wire.left._sock.recvmsg
        close = wire.left._sock.close

    wire.left._sock = Sock()  # type: ignore[assignment]
    wire.left.send("x")
    wire.left.send("x")
    assert wire.left.backlog == 2
    wire.until(lambda: len(heard) == 2)
    assert wire.left.backlog == 0
    assert wire.ended == []


def test_the_last_words_are_sent(wire: Wire) -> None:
    """`finish` waits until the other end has taken what was queued, or the time is over."""
    for _ in range(30):
        wire.left.send("x", {}, b"y" * 100_000)
    heard: list[Message] = []
    talk(wire).on("x", heard.append)
    wire.left.finish(0.01)
    assert wire.left.backlog > 0

    def read() -> None:
        while len(heard) < 30:
            talk(wire).drain()

    reader = threading.Thread(target=read)
    reader.start()
    wire.left.finish(20)
    assert wire.left.backlog == 0
    reader.join()
    assert len(heard) == 30

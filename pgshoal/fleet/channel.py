"""The channel of supervisor and worker: small messages with an optional blob and descriptor, over one socketpair."""

from __future__ import annotations

import array
import contextlib
import errno
import json
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio

_HEAD: Final = struct.Struct("!IIB")  # bytes of JSON, bytes of blob, descriptors
_READ: Final = 256 * 1024
_FDS_MAX: Final = 64
#: The kernel has too many descriptors under way, or no memory for the moment.
_LATER: Final = frozenset({errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM})
_LATER_S: Final = 0.02
#: More than a whole configuration with a large user list; a worker that lets so much pile up has stopped.
BACKLOG_MAX: Final = 256 * 1024 * 1024


class Garbage(ValueError):
    """What came over a channel is no message."""


@dataclass(slots=True)
class Message:
    """One message. `fields` is JSON; `fd` belongs to whoever takes the message, -1 for none."""

    verb: str
    fields: dict[str, Any] = field(default_factory=dict)
    blob: bytes = b""
    fd: int = -1

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


def decode(head: tuple[int, int, int], body: bytes | bytearray) -> Message:
    """A message from its unpacked head and the bytes that follow it."""
    text_bytes = head[0]
    try:
        fields = json.loads(bytes(body[:text_bytes]).decode("utf-8", "surrogateescape"))
        verb = fields.pop("verb")
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise Garbage("not a message") from None
    if not isinstance(verb, str):
        raise Garbage("a verb that is no text")
    return Message(verb, fields, bytes(body[text_bytes:]))


def receive(sock: socket.socket) -> Message:
    """Read one message without a descriptor from a blocking socket, and not a byte more. EOFError at its end."""
    head = _HEAD.unpack(_exactly(sock, _HEAD.size))
    return decode(head, _exactly(sock, head[0] + head[1]))


def _exactly(sock: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        more = sock.recv(size - len(found))
        if not more:
            raise EOFError("the channel has ended")
        found += more
    return bytes(found)


Handler = Callable[[Message], None]
#: What is told of a message that is garbage, or whose handler failed: the verb ("" if there is none) and the error.
Failed = Callable[[str, Exception], None]
#: What a request is answered with; None if the other side is gone.
Done = Callable[[Message | None], None]


# The standard library's send_fds and recv_fds do not pass their flags on: what came would be inherited.


def rights(fd: int) -> list[tuple[int, int, array.array[int]]]:
    """The ancillary data that carries one descriptor."""
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]


def descriptors(parts: Iterable[tuple[int, int, bytes]]) -> Iterator[int]:
    """The descriptors in what `recvmsg` gave; they are the caller's."""
    for level, kind, raw in parts:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found = array.array("i")
            found.frombytes(raw[: len(raw) - len(raw) % found.itemsize])
            yield from found


class Channel:
    """One end. Handlers are called in the order of messages; requests are answered by `reply`, once, at any time.

    The reserved fields are `verb`, `id` (a request's number) and `re` (of the request that is answered).
    """

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        closed: Callable[[], None],
        failed: Failed | None = None,
    ) -> None:
        """`closed` is called once, when the other end is gone; not after `close`.

        Without `failed` errors of handlers are raised. Garbage ends the channel in any case.
        """
        sock.setblocking(False)
        self._sock = sock
        self._loop = loop
        self._closed = closed
        self._failed = failed
        self._handlers: dict[str, Handler] = {}
        self._asked: dict[int, Done] = {}
        self._number = 0
        self._owed: set[int] = set()
        self._out: deque[tuple[memoryview, int]] = deque()
        self._out_bytes = 0
        self._in = bytearray()
        self._fds: deque[int] = deque()
        self.open = True
        loop.add_reader(sock.fileno(), self._readable)

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._sock.fileno()

    @property
    def backlog(self) -> int:
        """Messages that are not sent yet."""
        return len(self._out)

    @property
    def asking(self) -> int:
        """Requests whose answer is still to come."""
        return len(self._asked)

    # -- speaking

    def on(self, verb: str, handler: Handler) -> None:
        """Who hears of messages of this kind."""
        self._handlers[verb] = handler

    def send(self, verb: str, fields: Mapping[str, Any] | None = None, blob: bytes = b"", fd: int = -1) -> None:
        """Send, or queue. `fd` is duplicated by the kernel: the caller keeps its own, and may close it at once."""
        if not self.open:
            return
        text = json.dumps({**(fields or {}), "verb": verb}).encode("utf-8", "surrogateescape")
        packet = memoryview(_HEAD.pack(len(text), len(blob), fd >= 0) + text + blob)
        self._out.append((packet, os.dup(fd) if fd >= 0 else -1))
        self._out_bytes += len(packet)
        if self._out_bytes > BACKLOG_MAX:
            self._end()
        elif len(self._out) == 1:
            self._flush()

    def ask(
        self, verb: str, done: Done, fields: Mapping[str, Any] | None = None, blob: bytes = b"", fd: int = -1
    ) -> int:
        """Send a request; `done` gets the answer, or None if the channel ends first. Its number serves `forget`."""
        self._number += 1
        number = self._number
        if not self.open:
            self._loop.call_soon(done, None)
            return number
        self._asked[number] = done
        self.send(verb, {**(fields or {}), "id": number}, blob, fd)
        return number

    def forget(self, number: int) -> None:
        """The answer is not wanted any more."""
        self._asked.pop(number, None)

    def reply(self, request: Message, fields: Mapping[str, Any] | None = None, blob: bytes = b"") -> None:
        """Answer a request."""
        self._owed.discard(request["id"])
        self.send("", {**(fields or {}), "re": request["id"]}, blob)

    # -- hearing

    def _readable(self) -> None:
        ancillary = socket.CMSG_SPACE(_FDS_MAX * array.array("i").itemsize)
        try:
            data, parts, _, _ = self._sock.recvmsg(_READ, ancillary, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            data, parts = b"", []
        self._fds.extend(descriptors(parts))
        if not data:
            self._end()
            return
        self._in += data
        try:
            messages = self._messages()
        except Garbage as error:
            if self._failed is not None:
                self._failed("", error)
            self._end()
            return
        for message in messages:
            if self.open:
                self._hear(message)
            elif message.fd >= 0:
                os.close(message.fd)

    def drain(self) -> None:
        """Hear all that has arrived, to the end if the other end is gone."""
        if not self.open:
            return
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        while self.open and poll.poll(0):
            self._readable()

    def _messages(self) -> list[Message]:
        found: list[Message] = []
        at = 0
        while len(self._in) - at >= _HEAD.size:
            head = _HEAD.unpack_from(self._in, at)
            text_bytes, blob_bytes, fds = head
            if fds > 1 or text_bytes + blob_bytes > BACKLOG_MAX:
                raise Garbage("not a message")
            start = at + _HEAD.size
            end = start + text_bytes + blob_bytes
            if len(self._in) < end:
                break
            if fds and not self._fds:
                raise Garbage("a descriptor is missing")
            message = decode(head, self._in[start:end])
            message.fd = self._fds.popleft() if fds else -1
            found.append(message)
            at = end
        del self._in[:at]
        return found

    def _hear(self, message: Message) -> None:
        if self._failed is None:
            self._dispatch(message)
            return
        try:
            self._dispatch(message)
        except Exception as error:
            self._failed(message.verb, error)

    def _dispatch(self, message: Message) -> None:
        answered = message.fields.get("re")
        if answered is not None:
            done = self._asked.pop(answered, None)
            if done is not None:
                done(message)
            return
        if "id" in message.fields:
            self._owed.add(message["id"])
        handler = self._handlers.get(message.verb)
        if handler is not None:
            handler(message)
        elif message.fd >= 0:
            os.close(message.fd)

    # -- sending

    def _flush(self) -> None:
        while self.open and self._out:
            packet, fd = self._out[0]
            try:
                sent = self._sock.sendmsg([packet], rights(fd) if fd >= 0 else [], socket.MSG_NOSIGNAL)
            except BlockingIOError:
                self._loop.add_writer(self._sock.fileno(), self._writable)
                return
            except OSError as error:
                if error.errno in _LATER:
                    self._loop.call_later(_LATER_S, self._flush)
                else:
                    self._end()
                return
            if fd >= 0:
                os.close(fd)
            self._out_bytes -= sent
            if sent < len(packet):
                self._out[0] = (packet[sent:], -1)
            else:
                self._out.popleft()

    def _writable(self) -> None:
        self._loop.remove_writer(self._sock.fileno())
        self._flush()

    # -- across a re-execution

    @property
    def owes(self) -> int:
        """How many requests were not answered yet."""
        return len(self._owed)

    def export(self) -> dict[str, Any]:
        """What the next program needs to go on, with descriptor numbers; from now on nothing may be heard or said."""
        return {
            "fd": self.fileno(),
            "number": self._number,
            "owed": sorted(self._owed),
            "in": self._in.hex(),
            "in_fds": list(self._fds),
            "out": [[bytes(packet).hex(), fd] for packet, fd in self._out],
        }

    def adopt(self, state: Mapping[str, Any]) -> None:
        """Go on from there. What was asked of the program before is answered with `reached` false."""
        self._number = state["number"]
        self._in += bytes.fromhex(state["in"])
        self._fds.extend(state["in_fds"])
        for text, fd in state["out"]:
            packet = memoryview(bytes.fromhex(text))
            self._out.append((packet, fd))
            self._out_bytes += len(packet)
        self._flush()
        for number in state["owed"]:
            self.send("", {"re": number, "reached": False, "parts": [], "missing": []})

    # -- the end

    def finish(self, limit_s: float) -> None:
        """Send what is queued, for so long: this process ends."""
        poll = select.poll()
        end_s = time.monotonic() + limit_s
        while self.open and self._out and (left_s := end_s - time.monotonic()) > 0:
            poll.register(self._sock, select.POLLOUT)
            poll.poll(left_s * 1000)
            self._flush()

    def close(self) -> None:
        """Close this end. Answers still owed never come."""
        if not self.open:
            return
        self.open = False
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        self._asked.clear()
        left = [fd for _, fd in self._out if fd >= 0] + list(self._fds)
        self._out.clear()
        self._fds.clear()
        for fd in left:
            with contextlib.suppress(OSError):
                os.close(fd)

    def give_up(self) -> None:
        """Close this end because the other process is dead, though its kernel may still hold the socket (io_uring)."""
        asked = list(self._asked.values())
        self.close()
        for done in asked:
            done(None)

    def _end(self) -> None:
        if not self.open:
            return
        self.give_up()
        self._closed()

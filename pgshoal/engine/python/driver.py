"""The driver with sockets: one epoll, edge-triggered for the engine's own, level-triggered for asyncio's."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from typing import TYPE_CHECKING, Any

from pgshoal.engine.contract import Event
from pgshoal.engine.python import sockets
from pgshoal.engine.python.conn import CLOSING, FROZEN, MOVING, WAITING, Client, Conn, Server
from pgshoal.engine.python.frames import ERR_CRASHED
from pgshoal.engine.python.moving import client_from
from pgshoal.engine.python.sockets import Channel, Listener
from pgshoal.engine.python.tls import TlsChannel, TlsFailure

if TYPE_CHECKING:
    from pgshoal.engine.contract import Address, SocketOptions
    from pgshoal.engine.python.core import Core

_IN = select.EPOLLIN
_OUT = select.EPOLLOUT
_HUP = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_EDGE = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_ACCEPTS_PER_WAKE = 64
_LINGER_NOT = struct.pack("ii", 1, 0)
_CHUNK_MIN = 8 * 1024
_CHUNK_MAX = 128 * 1024


class EpollDriver:
    """Moves bytes between sockets and the core."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._epoll = select.epoll()
        self._channels: dict[int, Channel] = {}
        self._listeners: dict[int, Listener] = {}
        self._by_number: dict[int, Listener] = {}
        self._foreign: dict[int, int] = {}
        self._diverting = False
        #: To be read again without a new edge, and paused ones with bytes waiting.
        self._again: list[Channel] = []
        self._paused: set[Channel] = set()
        core.now = sockets.clock_us()

    # -- the loop

    def wait(self, timeout_s: float | None) -> list[tuple[int, int]]:
        """One wake: everything the sockets have to say."""
        core = self._core
        if self._paused:
            self._wake_paused()
        again = self._again
        if again or core.events:
            timeout_s = 0
        ready = self._epoll.poll(-1 if timeout_s is None else timeout_s, 512)
        core.now = sockets.clock_us()
        if again:
            self._again = []
        foreign: list[tuple[int, int]] = []
        accepting: list[Listener] = []
        channels = self._channels
        for fd, mask in ready:
            channel = channels.get(fd)
            if channel is not None:
                if mask & _OUT and (channel.blocked or channel.connecting):
                    self._writable(channel)
                if mask & ~_OUT and not channel.connecting:
                    self._read(channel, mask)
            elif fd in self._foreign:
                foreign.append((fd, (1 if mask & ~_OUT else 0) | (2 if mask & ~_IN else 0)))
            elif fd in self._listeners:
                accepting.append(self._listeners[fd])
        # Not before: a new socket may get the number of one closed above, of which `ready` has still something to say.
        for listener in accepting:
            self._accept(listener)
        for channel in again:
            if not channel.closed:
                channel.again = False
                self._read(channel, _IN)
        return [(fd, bits & self._foreign[fd]) for fd, bits in foreign if fd in self._foreign] if foreign else foreign

    def watch(self, fd: int, mask: int) -> None:
        """Watch a descriptor for asyncio."""
        bits = (_IN if mask & 1 else 0) | (_OUT if mask & 2 else 0)
        if fd in self._foreign:
            self._epoll.modify(fd, bits)
        else:
            self._epoll.register(fd, bits)
        self._foreign[fd] = mask

    def unwatch(self, fd: int) -> None:
        """Watch it no more; it may be closed already."""
        if self._foreign.pop(fd, None) is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(fd)

    def shutdown(self) -> None:
        """Close everything."""
        for channel in list(self._channels.values()):
            self._drop(channel)
        for listener in list(self._by_number):
            self.unlisten(listener)
        self._epoll.close()
        self._core.drop_descriptors(os.close)

    # -- reading

    def _read(self, channel: Channel, mask: int) -> None:
        conn = channel.conn
        core = self._core
        if channel.closed:
            return
        if mask & _HUP:
            channel.ending = True
        if not core.reading(conn) and (channel.tls is None or not channel.tls.handshaking):
            self._not_now(channel)
            return
        size = channel.chunk
        try:
            data = channel.recv(size)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._ended(channel)
            return
        got = len(data)
        if channel.tls is None:
            core.received(conn, data)
        else:
            self._decrypt(channel, data)
        if core.dirty:
            self.flush()
        if got == size or channel.ending:
            if got == size and size < _CHUNK_MAX:
                channel.chunk = size * 2
            self._read_again(channel)
        elif size > _CHUNK_MIN and got < _CHUNK_MIN:
            channel.chunk = _CHUNK_MIN

    def _read_again(self, channel: Channel) -> None:
        if not channel.again and not channel.closed:
            channel.again = True
            self._again.append(channel)

    def _not_now(self, channel: Channel) -> None:
        """Bytes, or the end, have come for a connection that is not read."""
        conn = channel.conn
        if conn.mode is CLOSING or conn.mode is FROZEN or conn.mode is MOVING:
            if channel.ending and conn.mode is CLOSING and not conn.out:
                self._core.forget(conn)
                self.flush()
            return
        if channel.ending and conn.mode is WAITING:
            self._ended(channel)
        else:
            self._paused.add(channel)

    def _wake_paused(self) -> None:
        core = self._core
        for channel in [c for c in self._paused if c.closed or core.reading(c.conn)]:
            self._paused.discard(channel)
            self._read_again(channel)

    def resume(self, conn: Conn) -> None:
        """Kept for symmetry with the manual driver: paused connections are looked at before each wait."""

    def _ended(self, channel: Channel) -> None:
        core = self._core
        conn = channel.conn
        self._paused.discard(channel)
        if conn.gone:
            return
        if conn.mode is CLOSING or conn.mode is FROZEN:
            if conn.mode is CLOSING:
                core.forget(conn)
        else:
            core.lost(conn, ERR_CRASHED if conn.is_server else "client unexpected eof")
            core.settle()
        self.flush()

    def _decrypt(self, channel: Channel, data: bytes) -> None:
        tls = channel.tls
        assert tls is not None
        core = self._core
        conn = channel.conn
        try:
            secured = tls.feed(data)
            if secured is not None:
                core.emit((Event.SECURED, conn.id, *secured))
            self._push(channel)
            while not channel.closed and not conn.gone:
                plain = tls.read()
                if not plain:
                    break
                core.received(conn, plain)
            if tls.ended and not conn.gone:
                self._ended(channel)
        except TlsFailure as failure:
            self._push(channel)
            self._tls_failed(conn, str(failure))

    def _tls_failed(self, conn: Conn, text: str) -> None:
        core = self._core
        if conn.gone:
            return
        if conn.mode is CLOSING or conn.mode is FROZEN:
            core.forget(conn)
        else:
            core.lost(conn, f"tls: {text}")
            core.settle()
        self.flush()

    # -- writing

    def flush(self) -> None:
        """Send what was added, close what is gone."""
        dirty = self._core.dirty
        for conn in dirty:
            conn.dirty = False
            channel = conn.socket
            if channel is None:
                continue
            if conn.gone:
                self._drop(channel)
            elif not channel.blocked and not channel.connecting and conn.out:
                self._push(channel)
            if conn.mode is MOVING and not channel.blocked and not channel.closed:
                self._hand_over(channel)
        dirty.clear()

    def _push(self, channel: Channel) -> None:
        """Send as much as the socket takes."""
        conn = channel.conn
        out = conn.out
        tls = channel.tls
        data = tls.wrap(out) if tls is not None else out[0] if len(out) == 1 else b"".join(out)
        if not data:
            return
        try:
            sent = channel.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            # What the peer sent before it went is still to be read; the end is found there.
            sent = len(data)
            channel.ending = True
            self._read_again(channel)
        if tls is None or not tls.handshaking:
            out.clear()
        if sent == len(data):
            conn.out_size = len(b"".join(out)) if out else 0
            if channel.blocked:
                channel.blocked = False
                self._epoll.modify(channel.fd, _EDGE)
            if tls is not None:
                tls.rest = b""
            if conn.full:
                self._core.flushed(conn)
            if conn.mode is CLOSING:
                self._core.forget(conn)
            elif conn.mode is MOVING:
                self._hand_over(channel)
            return
        rest = data[sent:]
        conn.out_size = len(rest)
        if tls is not None:
            tls.rest = rest
            out.append(b"")
        else:
            out.append(rest)
        if conn.full:
            self._core.flushed(conn)
        if not channel.blocked:
            channel.blocked = True
            self._epoll.modify(channel.fd, _EDGE | _OUT)

    def _writable(self, channel: Channel) -> None:
        conn = channel.conn
        if channel.connecting:
            error = channel.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                self._connect_failed(channel, os.strerror(error))
            else:
                self._connected(channel)
            return
        self._push(channel)
        self.flush()
        if conn.gone and not channel.closed:
            self._drop(channel)

    def _hand_over(self, channel: Channel) -> None:
        """The socket goes to Python with its connection."""
        client = channel.conn
        assert isinstance(client, Client)
        self._release(channel)
        self._core.moved(client, channel.sock.detach())

    def _release(self, channel: Channel) -> None:
        channel.closed = True
        channel.conn.socket = None  # no circle is left for the collector to find
        self._paused.discard(channel)
        self._channels.pop(channel.fd, None)
        # Closing alone would not take it out of the set: a duplicate may share the file.
        self._epoll.unregister(channel.fd)

    def _drop(self, channel: Channel) -> None:
        """Close the socket."""
        if channel.closed:
            return
        self._release(channel)
        if channel.tls is not None and not channel.blocked:
            last = channel.tls.farewell()
            if last:
                with contextlib.suppress(OSError):
                    channel.send(last)
        if channel.conn.is_server:
            sockets.shut_writing(channel.sock)
        elif channel.blocked:
            # Bytes that the peer did not take die with the socket, now and not after the system's patience.
            with contextlib.suppress(OSError):
                channel.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        channel.sock.close()

    # -- connecting and accepting

    def _add(self, sock: socket.socket, conn: Conn, connecting: bool) -> Channel:
        channel = Channel(sock, conn, connecting, _CHUNK_MIN)
        conn.socket = channel
        self._channels[channel.fd] = channel
        self._epoll.register(channel.fd, _EDGE | _OUT if connecting else _EDGE)
        return channel

    def connect(self, server: Server, address: Address, options: SocketOptions) -> None:
        """Begin; CONNECTED or CLOSED follows."""
        try:
            sock = sockets.begin_connect(address, options)
        except OSError as error:
            self._core.forget(server)
            self._core.emit((Event.CLOSED, server.id, f"connect failed: {error.strerror or error}"))
            self.flush()
            return
        self._add(sock, server, True)

    def _connected(self, channel: Channel) -> None:
        channel.connecting = False
        server = channel.conn
        assert isinstance(server, Server)
        server.connecting = False
        self._epoll.modify(channel.fd, _EDGE)
        self._core.emit((Event.CONNECTED, server.id))

    def _connect_failed(self, channel: Channel, text: str) -> None:
        server = channel.conn
        if server.mode is not CLOSING:
            self._core.emit((Event.CLOSED, server.id, f"connect failed: {text}"))
        self._core.forget(server)
        self.flush()

    def listen(self, fd: int, number: int, options: SocketOptions) -> None:
        """Accept from our own duplicate of `fd`."""
        listener = Listener(fd, number, options)
        self._by_number[number] = listener
        self._listeners[listener.fd] = listener
        self._epoll.register(listener.fd, _IN)

    def pause_listener(self, number: int) -> None:
        """Accept nothing for now."""
        listener = self._by_number[number]
        if not listener.paused:
            listener.paused = True
            self._epoll.unregister(listener.fd)

    def resume_listener(self, number: int) -> None:
        """Accept again."""
        listener = self._by_number[number]
        if listener.paused:
            listener.paused = False
            self._epoll.register(listener.fd, _IN)

    def unlisten(self, number: int) -> None:
        """Forget a listener."""
        listener = self._by_number.pop(number)
        self._listeners.pop(listener.fd, None)
        if not listener.paused:
            # To close it is not enough: others have the socket open too, and epoll would go on to watch it.
            self._epoll.unregister(listener.fd)
        listener.sock.close()

    def _accept(self, listener: Listener) -> None:
        core = self._core
        for _ in range(_ACCEPTS_PER_WAKE):
            if listener.paused:
                return
            try:
                sock, _peer = listener.sock.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self.pause_listener(listener.number)
                core.emit((Event.ACCEPT_FAILED, listener.number, error.strerror or str(error)))
                return
            sock.setblocking(False)
            sockets.tune(sock, listener.options)
            if self._diverting:
                core.emit((Event.DIVERTED, sock.detach(), listener.number))
                continue
            channel = self._add(sock, core.accepted(listener.number), False)
            self._read(channel, _IN)

    def divert(self, on: bool) -> None:
        """While on, accepted sockets go to Python."""
        self._diverting = on

    def adopt(self, fd: int, number: int) -> None:
        """Take a socket as if it had been accepted here."""
        sock = sockets.take_over(fd)
        listener = self._by_number.get(number)
        if listener is None:
            sock.close()
            raise ValueError(f"unknown listener {number}")
        with contextlib.suppress(OSError):  # of a peer that is gone already
            sockets.tune(sock, listener.options)
        self._add(sock, self._core.accepted(number), False)

    def arrive(self, fd: int, listener: int, state: bytes) -> Client:
        """A client from elsewhere, in dialogue."""
        sock = sockets.take_over(fd)
        try:
            client = client_from(self._core, listener, state)
        except ValueError:
            sock.close()
            raise
        self._add(sock, client, False)
        return client

    def encrypted(self, conn: Conn) -> bool:
        """Whether TLS is on."""
        return conn.socket is not None and conn.socket.tls is not None

    def descriptor(self, conn: Conn) -> int:
        """The number of its socket."""
        if conn.socket is None:
            raise KeyError(conn.id)
        return conn.socket.fd  # type: ignore[no-any-return]

    # -- facts and TLS

    def addresses(self, conn: Conn) -> tuple[str, int, str, int]:
        """Peer and own address."""
        return sockets.addresses(conn.socket)

    def credentials(self, conn: Conn) -> tuple[int, int, int]:
        """Who is behind a Unix socket."""
        return sockets.credentials(conn.socket)

    def start_tls(self, conn: Conn, context: Any, server_name: str, early: bytes) -> None:
        """From here on everything is encrypted; plain output still standing goes first."""
        channel = conn.socket
        if channel.tls is not None:
            raise RuntimeError("TLS is on already")
        plain = b"".join(conn.out)
        conn.out.clear()
        conn.out_size = 0
        try:
            channel.tls = TlsChannel(context, server_name, plain)
        except ValueError as error:
            self._core.emit((Event.CLOSED, conn.id, f"tls: {error}"))
            self._core.forget(conn)
            self.flush()
            return
        self._decrypt(channel, early)

    def set_now(self, now_us: int) -> None:
        """The clock is real here."""
        raise RuntimeError("only with the driver manual")

"""The listening sockets this worker accepts from; the supervisor made them and sends them over the channel."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pgshoal.config.model import Settings
from pgshoal.engine.contract import SocketOptions

if TYPE_CHECKING:
    from pgshoal.fleet.channel import Message
    from pgshoal.worker.app import Worker

#: After accept() has failed, which mostly means that descriptors ran out.
ACCEPT_PAUSE_S: Final = 5.0
#: What the kernel had accepted for us when we stopped to accept is still to come; then the listener may be forgotten.
LAST_ACCEPT_S: Final = 1.0


@dataclass(slots=True)
class Open:
    """One socket; `fd` is this worker's own copy."""

    name: str
    tcp: bool
    fd: int
    closing: bool = False


class Listeners:
    """All listening sockets; the engine accepts from them under the supervisor's numbers."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._open: dict[int, Open] = {}
        self._serving = False
        worker.fleet.on("listen", self.take)
        worker.fleet.on("lend", self.take)
        worker.fleet.on("unlend", lambda message: self._let_go(message["listener"]))

    def take(self, message: Message) -> None:
        """A socket has come: accept from it, or once `serve` was called."""
        number = int(message["listener"])
        self._drop(number)
        self._open[number] = Open(str(message["name"]), bool(message["tcp"]), message.fd)
        if self._serving:
            self._listen(number)

    def serve(self) -> None:
        """Everything is ready: accept."""
        self._serving = True
        for number in self._open:
            self._listen(number)

    def _listen(self, number: int) -> None:
        options = socket_options(self._worker.config.settings)
        self._worker.engine.listen(self._open[number].fd, number, options)

    def is_tcp(self, listener: int) -> bool:
        """Whether clients of this socket come over the network; also of one that is closed by now."""
        found = self._open.get(listener)
        return found is None or found.tcp

    def like(self, tcp: bool) -> int:
        """A socket of the same kind, for clients that another worker has accepted; 0 if we have none."""
        return next((number for number, one in self._open.items() if one.tcp is tcp), 0)

    def tcp_descriptors(self) -> list[int]:
        """The sockets of ours that share their port with other workers'."""
        return [one.fd for one in self._open.values() if one.tcp]

    def close_tcp(self) -> None:
        """A shutdown has begun: only the Unix socket stays, for the console."""
        for number in [number for number, one in self._open.items() if one.tcp]:
            self._drop(number)

    def leave(self) -> None:
        """Others accept from all of them: no more, but what was accepted is still served."""
        for number in list(self._open):
            self._let_go(number)

    def _let_go(self, number: int) -> None:
        found = self._open.get(number)
        if found is None or found.closing:
            return
        found.closing = True
        if self._serving:
            self._worker.engine.pause_listener(number)
        self._worker.loop.call_later(LAST_ACCEPT_S, self._forget, number, found)

    def _forget(self, number: int, found: Open) -> None:
        if self._open.get(number) is found:
            self._drop(number)
            self._worker.settle()

    def close(self) -> None:
        """Accept no more."""
        for number in list(self._open):
            self._drop(number)

    def accept_failed(self, listener: int, text: str) -> None:
        """The engine has paused the listener; it is tried again after a while."""
        worker = self._worker
        worker.log.error(f"accept() failed: {text}")
        worker.loop.call_later(ACCEPT_PAUSE_S, self._resume, listener)

    def _resume(self, listener: int) -> None:
        found = self._open.get(listener)
        if found is not None and not found.closing:
            self._worker.engine.resume_listener(listener)
            self._worker.settle()

    def _drop(self, number: int) -> None:
        found = self._open.pop(number, None)
        if found is None:
            return
        if self._serving:
            self._worker.engine.unlisten(number)
        os.close(found.fd)


def socket_options(settings: Settings) -> SocketOptions:
    """What the settings say of TCP sockets."""
    return SocketOptions(
        keepalive=settings.tcp_keepalive,
        keepidle_s=settings.tcp_keepidle,
        keepintvl_s=settings.tcp_keepintvl,
        keepcnt=settings.tcp_keepcnt,
        user_timeout_ms=settings.tcp_user_timeout,
        buffer_bytes=settings.tcp_socket_buffer,
    )

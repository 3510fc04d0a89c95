"""The twin's own driver, where the kernel's reports are made to come in an unlucky order."""

from __future__ import annotations

import select
import socket
from typing import Any

import pytest

from pgshoal.engine.contract import Event
from pgshoal.engine.python.driver import EpollDriver
from pgshoal.engine.python.engine import PythonEngine
from tests.engine.rig import OPTIONS

GONE = select.EPOLLIN | select.EPOLLRDHUP


class Epoll:
    """An epoll whose next report is written by the test."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self.script: list[tuple[int, int]] | None = None

    def poll(self, timeout: float, most: int) -> list[tuple[int, int]]:
        """The script once, then the truth."""
        if self.script is not None:
            script, self.script = self.script, None
            return script
        found: list[tuple[int, int]] = self.real.poll(timeout, most)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def test_a_new_client_does_not_inherit_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket closed in this wake and its number used again: what was reported of the old one is not the new one's."""
    engine = PythonEngine()
    driver = engine._driver
    assert isinstance(driver, EpollDriver)
    epoll = Epoll(driver._epoll)
    monkeypatch.setattr(driver, "_epoll", epoll)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        engine.listen(listener.fileno(), 1, OPTIONS)
        ((own, _),) = driver._listeners.items()
        with socket.create_connection(listener.getsockname()):
            engine.wait(1)
            ((number, _),) = driver._channels.items()
        with socket.create_connection(listener.getsockname()) as second:
            # The first client has closed; its report is followed by a second one that is as old.
            epoll.script = [(number, GONE), (own, select.EPOLLIN), (number, GONE)]
            engine.wait(1)
            ((again, channel),) = driver._channels.items()
            assert again == number
            assert not channel.ending
            second.sendall(b"\0\0\0\x08\x04\xd2\x16\x2f")
            engine.wait(1)
            assert engine.events()[-1][0] == Event.PACKET
        engine.shutdown()

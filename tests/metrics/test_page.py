"""Listening for the page, and what is said when that fails."""

from __future__ import annotations

import socket
import sys

import pytest

from pgshoal.fleet.pidfile import Fatal
from pgshoal.metrics import page
from tests.fleet.conftest import MakeStage, make

__all__ = ["make"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "*"])
def test_addresses(host: str) -> None:
    """Names, both families, and all addresses."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with page.listen(f"{host}:{port}") as sock:
        assert sock.getsockname()[1] == port


def test_a_port_that_is_taken() -> None:
    """The error names the setting, the address and the reason."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Fatal, match=f"http_listen: cannot listen on {address}: Address already in use"):
            page.listen(address)


def test_without_the_libraries(make: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who did not install them is told what to install, and the address is free again."""
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    sock = socket.create_server(("127.0.0.1", 0))
    with pytest.raises(Fatal, match=r"http_listen: aiohttp is not installed: pip install 'pgshoal\[metrics\]'"):
        page.Page(make().fleet, sock)
    assert sock.fileno() == -1

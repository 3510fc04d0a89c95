"""Tells systemd how the fleet stands, if systemd started it."""

from __future__ import annotations

import os
import socket

from pgshoal.worker.log import Log


def notify(state: str, log: Log) -> None:
    """One datagram to NOTIFY_SOCKET: READY=1, STOPPING=1, RELOADING=1 with its time, STATUS=…"""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    where = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        try:
            sock.sendto(state.encode(), where)
        except OSError as error:
            log.debug(f"sd_notify: {error}")

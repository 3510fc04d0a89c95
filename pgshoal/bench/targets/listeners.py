"""Which processes of this machine listen on a port, and are a pooler by their name."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
#: A process that forwards a port to a container is none of these, and what it costs is not the pooler's.
POOLERS: Final = ("pgbouncer", "pgshoal")
LISTENING: Final = "0A"


def pooler_roots(host: str, port: int) -> dict[str, int]:
    """The poolers behind an address, by name, without those that another one of them started.

    Empty when the host is another machine, when nothing there is known to be a pooler, or when we may not look.
    """
    if not is_ours(host):
        return {}
    wanted = {f"socket:[{inode}]" for inode in inodes(port)}
    found = {pid for pid in processes() if wanted and named_so(pid) and holds(pid, wanted)}
    roots = sorted(pid for pid in found if parent(pid) not in found)
    return {f"main/{number}" if len(roots) > 1 else "main": pid for number, pid in enumerate(roots)}


def is_ours(host: str) -> bool:
    """Whether a host is this machine by its loopback; another address may be a container's or a balancer's."""
    try:
        addresses = {str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return False
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)


def inodes(port: int) -> Iterator[str]:
    """The sockets that listen on a port, on whichever address."""
    for name in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for words in map(str.split, lines):
            if words[3] == LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                yield words[9]


def processes() -> Iterator[int]:
    """All that we see."""
    return (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())


def named_so(pid: int) -> bool:
    """Whether the command line names a pooler that is known."""
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[:4]
    except OSError:
        return False
    return any(Path(word).name.split(".")[0] in POOLERS for word in words)


def holds(pid: int, wanted: set[str]) -> bool:
    """Whether it has one of these sockets open."""
    try:
        return any(str(link.readlink()) in wanted for link in (PROC / str(pid) / "fd").iterdir())
    except OSError:
        return False  # it has ended, or is somebody's whom we may not look at


def parent(pid: int) -> int:
    """Who started it; 0 when it has ended."""
    try:
        return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0

"""Hosts with addresses of their own on one network: network namespaces for root, loopback addresses for others."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from tests.support.pooler import PgBouncer, Pooler

T = TypeVar("T")
_TURNS = itertools.count()
_CLONE_NEWNET = 0x40000000
IP = shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin") or "ip"


def ip(*words: str) -> None:
    """One step of ip(8)."""
    subprocess.run([IP, *words], check=True, capture_output=True, text=True)


def enter(path: str) -> None:
    """Moves this thread to a network namespace."""
    with open(path, "rb") as place:
        if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), _CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


def in_namespace(name: str, work: Callable[[], T]) -> T:
    """Runs `work` in a network namespace; processes it starts stay there.

    Not in a thread of its own: what we start is told to die with the thread that started it.
    """
    with open("/proc/thread-self/ns/net", "rb") as here:
        enter(f"/run/netns/{name}")
        try:
            return work()
        finally:
            enter(f"/proc/self/fd/{here.fileno()}")


class Host:
    """An address, and a way to start processes behind it."""

    def __init__(self, address: str, namespace: str = "") -> None:
        self.address = address
        self.namespace = namespace

    def run(self, work: Callable[[], T]) -> T:
        """Runs what starts a process."""
        return in_namespace(self.namespace, work) if self.namespace else work()


class Hosts:
    """Some hosts that reach each other and are reached from here: `with Hosts(2) as (a, b):`.

    In namespaces they hang on a bridge in a namespace of its own, so that no rule of this machine's firewall counts.
    """

    def __init__(self, count: int) -> None:
        self.isolated = os.geteuid() == 0
        # Names and addresses of their own: the kernel takes its time to remove those of the test before.
        turn = next(_TURNS)
        at = (os.getpid() * 16 + turn) % 500
        self.net = f"198.{18 + at // 250}.{at % 250}" if self.isolated else f"127.{at // 250 + 2}.{at % 250}"
        self.tag = f"pgs{os.getpid()}n{turn}"
        self.hosts = [Host(f"{self.net}.{at + 2}", f"{self.tag}h{at}" if self.isolated else "") for at in range(count)]

    def _plug(self, at: int, namespace: str) -> None:
        """A cable from the bridge to a namespace, or to this one."""
        here = ["-n", namespace] if namespace else []
        inner, outer = f"{self.tag}i{at}", f"{self.tag}o{at}"
        switch = f"{self.tag}sw"
        ip("-n", switch, "link", "add", outer, "type", "veth", "peer", "name", inner)
        ip("-n", switch, "link", "set", inner, "netns", namespace or str(os.getpid()))
        ip("-n", switch, "link", "set", outer, "master", "bridge", "up")
        ip(*here, "addr", "add", f"{self.net}.{at + 1}/24", "dev", inner)
        ip(*here, "link", "set", inner, "up")

    def __enter__(self) -> list[Host]:
        if self.isolated:
            try:
                self._build()
            except BaseException:
                self._remove()
                raise
        return self.hosts

    def _build(self) -> None:
        switch = f"{self.tag}sw"
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for host in self.hosts:
            ip("netns", "add", host.namespace)
            ip("-n", host.namespace, "link", "set", "lo", "up")
        for at, namespace in enumerate(["", *(host.namespace for host in self.hosts)]):
            self._plug(at, namespace)

    def _remove(self) -> None:
        # A cable goes with either of its ends.
        for name in [f"{self.tag}sw", *(host.namespace for host in self.hosts)]:
            subprocess.run([IP, "netns", "del", name], check=False, capture_output=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.isolated:
            self._remove()


class NodePooler(Pooler):
    """pgshoal on a host."""

    def __init__(self, host: Host, databases: Mapping[str, str], **settings: Any) -> None:
        self.place = host
        self.host = host.address
        super().__init__(databases, **settings)

    def _spawn(self) -> subprocess.Popen[bytes]:
        return self.place.run(super()._spawn)


class NodePgBouncer(PgBouncer):
    """PgBouncer on a host."""

    def __init__(self, host: Host, databases: Mapping[str, str], **settings: Any) -> None:
        self.place = host
        self.host = host.address
        super().__init__(databases, **settings)

    def _spawn(self) -> subprocess.Popen[bytes]:
        return self.place.run(super()._spawn)

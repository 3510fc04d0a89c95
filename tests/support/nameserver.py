"""A name server on loopback, at a port of its own, whose answers the test changes."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset


class NameServer:
    """`with NameServer() as names:` answers for `names.zone`; what it is not told does not exist.

    Everything has a TTL of 300 s, so that whoever heeds it is found out.
    """

    TTL_S = 300

    def __init__(self) -> None:
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind(("127.0.0.1", 0))
        self.port: int = self._sock.getsockname()[1]
        #: host -> its addresses, of both families
        self.hosts: dict[str, list[str]] = {}
        #: zone -> serial of its SOA record
        self.serials: dict[str, int] = {}
        #: (name, type) in the order they were asked for
        self.asked: list[tuple[str, str]] = []
        self.silent = False
        self.folder = Path(tempfile.mkdtemp(prefix="pgshoal-names-"))
        self.folder.chmod(0o755)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def resolv_conf(self, *lines: str) -> str:
        """The path of a resolver configuration that names this server; everybody may read it."""
        path = self.folder / "resolv.conf"
        path.write_text("\n".join((f"nameserver 127.0.0.1:{self.port}", "options timeout:1 attempts:2", *lines, "")))
        return str(path)

    def count(self, name: str) -> int:
        """How often the IPv4 address of a name was asked for."""
        return self.asked.count((name, "A"))

    def _serve(self) -> None:
        while True:
            try:
                packet, client = self._sock.recvfrom(4096)
            except OSError:
                return
            if not packet:
                return
            reply = self._reply(dns.message.from_wire(packet))
            if reply is not None:
                with contextlib.suppress(OSError):
                    self._sock.sendto(reply.to_wire(), client)

    def _reply(self, question: dns.message.Message) -> dns.message.Message | None:
        asked = question.question[0]
        name, kind = asked.name.to_text(omit_final_dot=True).lower(), dns.rdatatype.to_text(asked.rdtype)
        self.asked.append((name, kind))
        if self.silent:
            return None
        reply = dns.message.make_response(question)
        reply.flags |= dns.flags.AA | dns.flags.RA
        texts = self._records(name, kind)
        if texts is None:
            reply.set_rcode(dns.rcode.NXDOMAIN)
        elif texts:
            reply.answer.append(dns.rrset.from_text(asked.name, self.TTL_S, "IN", kind, *texts))
        return reply

    def _records(self, name: str, kind: str) -> list[str] | None:
        """None: no such name."""
        if kind == "SOA" and name in self.serials:
            return [f"ns.{name}. root.{name}. {self.serials[name]} 3600 600 86400 60"]
        if name not in self.hosts and name not in self.serials:
            return None
        v6 = kind == "AAAA"
        return [a for a in self.hosts.get(name, ()) if kind in ("A", "AAAA") and (":" in a) is v6]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join()
        self._sock.close()
        shutil.rmtree(self.folder, ignore_errors=True)

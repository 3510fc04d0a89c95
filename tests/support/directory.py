"""An LDAP directory of our own on loopback: slapd with some people in it, in a folder that goes away with it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from pgshoal.demo.account import run, spawn, unprivileged
from pgshoal.demo.cluster import free_port
from tests.support.certs import Authority

BASE = "dc=example,dc=org"
PEOPLE = f"ou=people,{BASE}"
MANAGER, MANAGER_PASSWORD = f"cn=manager,{BASE}", "manager-secret"
#: uid -> password; the last two have names that mean something in filters and DNs
PASSWORDS = {
    "alice": "alice-ldap",
    "plain_user": "plain-secret",
    "carol": "carol-ldap",
    "star*(x)": "star-ldap",
    "comma, =x": "comma-ldap",
}
START_LIMIT_S = 15.0
MODULES = "/usr/lib/ldap"


def program(name: str) -> str:
    """slapd and its tools are not on everybody's path."""
    return shutil.which(name, path=f"/usr/sbin:/usr/local/sbin:/usr/lib/openldap:{os.environ.get('PATH', '')}") or name


class Directory:
    """`with Directory(authority) as d:` listens on d.port, with StartTLS, and on d.tls_port with TLS from the start."""

    host = "127.0.0.1"
    #: an address its certificate is not made for
    nameless = "127.0.0.2"

    def __init__(self, authority: Authority) -> None:
        self.account = unprivileged()
        self.folder = Path(tempfile.mkdtemp(prefix="pgshoal-ldap-"))
        self.folder.chmod(0o755)
        self.port, self.tls_port = free_port(), free_port()
        self._authority = authority
        self._process: subprocess.Popen[bytes] | None = None

    def _fill(self) -> None:
        data, config, people = self.folder / "data", self.folder / "slapd.conf", self.folder / "people.ldif"
        data.mkdir()
        pair = self._authority.server
        config.write_text(
            "".join(f"include /etc/ldap/schema/{name}.schema\n" for name in ("core", "cosine", "inetorgperson"))
            + f"modulepath {MODULES}\nmoduleload back_mdb\npidfile {self.folder}/pid\n"
            f"TLSCACertificateFile {self._authority.ca_file}\nTLSCertificateFile {pair.cert}\n"
            f"TLSCertificateKeyFile {pair.key}\n"
            f"database mdb\nmaxsize 10485760\nsuffix {BASE}\nrootdn {MANAGER}\nrootpw {MANAGER_PASSWORD}\n"
            f"directory {data}\naccess to attrs=userPassword by anonymous auth by * none\naccess to * by * read\n"
        )
        entries = [
            f"dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\no: example\ndc: example\n",
            f"dn: {PEOPLE}\nobjectClass: organizationalUnit\nou: people\n",
        ]
        for number, (uid, password) in enumerate(PASSWORDS.items()):
            rdn = uid.replace(",", "\\2C").replace("=", "\\3D")
            entries.append(
                f"dn: uid={rdn},{PEOPLE}\nobjectClass: inetOrgPerson\nuid: {uid}\ncn: {uid}\nsn: x{number}\n"
                f"mail: {number}@example.org\nuserPassword: {password}\n"
            )
        people.write_text("\n".join(entries))
        if self.account is not None:
            for path in (self.folder, data, config, people):
                self.account.own(path)
        run([program("slapadd"), "-f", config, "-l", people], self.account)

    def start(self) -> None:
        """Starts slapd and waits until it listens."""
        hosts = (self.host, self.nameless)
        urls = " ".join(f"ldap://{host}:{self.port} ldaps://{host}:{self.tls_port}" for host in hosts)
        argv: list[str | Path] = [program("slapd"), "-h", urls, "-f", self.folder / "slapd.conf", "-d", "0"]
        self._process = spawn(argv, self.account)
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex((self.host, self.port)) == 0:
                    return
            time.sleep(0.05)
        self.stop()
        raise RuntimeError("slapd does not accept connections")

    def stop(self) -> None:
        """Stops it; what it holds stays."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(START_LIMIT_S)

    def __enter__(self) -> Self:
        try:
            self._fill()
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

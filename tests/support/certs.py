"""Certificates for tests, made by an authority of our own: one for servers on loopback, one per client user."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import trustme

NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Certificate:
    """The paths of one certificate with its chain, and of its key."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority whose files live in a folder that every account can read."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="pgshoal-ca-"))
        self.folder.chmod(0o755)
        self._ca = trustme.CA()
        self.ca_file = self.folder / "ca.pem"
        self._ca.cert_pem.write_to_path(self.ca_file)
        self.server = self.issue("server", *NAMES)

    def issue(self, file_name: str, *identities: str, common_name: str | None = None) -> Certificate:
        """Issues a certificate for host names or addresses, or for a user given as common_name."""
        made = self._ca.issue_cert(*identities, common_name=common_name)
        cert, key = self.folder / f"{file_name}.crt", self.folder / f"{file_name}.key"
        cert.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        made.private_key_pem.write_to_path(key)
        key.chmod(0o644)  # test keys only: the pooler under test runs as another account
        return Certificate(cert, key)

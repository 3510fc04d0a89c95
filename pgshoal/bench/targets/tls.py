"""Certificates of a stand: one for servers on loopback, from an authority of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

NAMES: Final = ("localhost", "127.0.0.1", "127.0.0.2")


def certificates() -> Path:
    """A folder with server.crt, server.key and ca.crt, readable for the servers' account; the caller removes it."""
    import trustme

    folder = Path(tempfile.mkdtemp(prefix="pgshoal-tls-"))
    folder.chmod(0o755)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.crt")
    made = authority.issue_cert(*NAMES)
    (folder / "server.crt").write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
    made.private_key_pem.write_to_path(folder / "server.key")
    (folder / "server.key").chmod(0o644)  # of this run alone: servers run as another account
    return folder

"""What tests of replication share: servers that keep enough WAL for it, and ways to run PostgreSQL's own tools."""

from __future__ import annotations

import hashlib
import shutil
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgshoal.demo.account import run
from tests.support import messages as m
from tests.support.fakeclient import FakeClient, Message
from tests.support.postgres import HBA, Postgres

ROLE = "alice"
SETTINGS = {"wal_level": "logical", "max_wal_senders": "20", "max_replication_slots": "20"}
#: Physical replication is covered by the word `replication` alone.
HBA_REPLICATION = ("local replication all trust", "host replication all all trust", *HBA)


@contextmanager
def replicating(major: int) -> Iterator[Postgres]:
    """A server whose role `alice` may replicate."""
    with Postgres(major, settings=SETTINGS, hba=HBA_REPLICATION) as server:
        server.query(f"alter role {ROLE} replication")
        yield server


@contextmanager
def owned_folder(pg: Postgres) -> Iterator[Path]:
    """A folder that belongs to the account the tools run under."""
    folder = Path(tempfile.mkdtemp(prefix="pgshoal-wal-"))
    folder.chmod(0o755)
    if pg.account is not None:
        pg.account.own(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def tool(pg: Postgres, name: str, *argv: str | Path) -> str:
    """Runs one of PostgreSQL's programs to its end."""
    return run([pg.programs[name], *argv], pg.account)


def digest(path: Path) -> str:
    """What a file holds, in short."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def slots(pg: Postgres) -> list[str]:
    """Names of the server's replication slots."""
    return [row[0] for row in pg.query("select slot_name from pg_replication_slots order by 1")]


def start_stream(client: FakeClient, slot: str) -> None:
    """A temporary slot of test_decoding, and the stream of it: CopyBoth has begun when this returns."""
    client.query(f"CREATE_REPLICATION_SLOT {slot} TEMPORARY LOGICAL test_decoding")
    client.send(m.query(f"START_REPLICATION SLOT {slot} LOGICAL 0/0"))
    assert client.read().kind == "W"


def decoded(client: FakeClient, contains: str) -> list[bytes]:
    """The texts test_decoding sends, up to the first that contains the words."""
    found: list[bytes] = []
    while not found or contains.encode() not in found[-1]:
        got = client.read()
        if text := _text(got):
            found.append(text)
    return found


def _text(got: Message) -> bytes:
    assert got.kind == "d", got
    return got.payload[25:] if got.payload[:1] == b"w" else b""


def keepalive_reply(position: int) -> bytes:
    """A standby's status as CopyData: all up to `position` is flushed, and please answer."""
    return m.message(b"d", b"r" + struct.pack("!QQQqB", position, position, position, 0, 1))

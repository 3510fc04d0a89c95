"""A throw-away cluster starts where it can be reached, restarts on its port and leaves nothing behind."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pgshoal.demo.account import unprivileged
from pgshoal.demo.cluster import Cluster
from pgshoal.demo.programs import embedded


def test_a_cluster_leaves_nothing_behind() -> None:
    """It listens on loopback and on its socket while it lives; afterwards process and files are gone."""
    with Cluster(embedded(unprivileged())) as cluster:
        pid, folder = cluster.pid, cluster.folder
        socket.create_connection((cluster.host, cluster.port), 5).close()
        assert (folder / f".s.PGSQL.{cluster.port}").exists()
        port = cluster.port
        cluster.stop()
        cluster.start()
        assert cluster.port == port
    assert not folder.exists()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to step down")
def test_the_server_never_runs_as_root() -> None:
    """Started by root, the postmaster belongs to the unprivileged account."""
    account = unprivileged()
    assert account is not None
    with Cluster(embedded(account)) as cluster:
        assert Path(f"/proc/{cluster.pid}").stat().st_uid == account.uid


def test_a_server_that_cannot_start_shows_its_log() -> None:
    """A wrong setting ends in an error that quotes the server."""
    cluster = Cluster(embedded(unprivileged()), {"no_such_setting": "1"})
    with pytest.raises(RuntimeError, match="no_such_setting"):
        cluster.__enter__()
    assert not cluster.folder.exists()

"""Descriptors that are needed and what is said when they are not to be had; core dumps; orphans."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pgshoal.config.model import Config, DatabaseConfig, Secret, Settings
from pgshoal.fleet.hygiene import Need, complain, end_tasks, need, raise_descriptor_limit
from tests.fleet.graveyard import Heard

CONFIG = Config(
    "",
    Settings(max_client_conn=1000, default_pool_size=10),
    {"a": DatabaseConfig("a", user="u"), "b": DatabaseConfig("b")},
    secrets={"x": Secret("plain", "x"), "y": Secret("plain", "y")},
)


def test_what_processes_need() -> None:
    """A worker may have all clients and all servers, the supervisor a duplicate of every server and its channels."""
    assert need(CONFIG, 4) == Need(clients=1000, servers=30, worker=1130, supervisor=30 + 64 + 100)


def test_pools_without_limit_have_at_most_a_server_for_each_client() -> None:
    """pool_size = 0 does not make the need infinite."""
    open_pool = Config("", Settings(max_client_conn=50), {"a": DatabaseConfig("a", user="u", pool_size=0)})
    assert need(open_pool, 1).servers == 50


def test_the_limit_is_raised_and_told() -> None:
    """After it the soft limit is the hard one, and the log has PgBouncer's line."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    log = Heard()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[1]), before[1]))
        raise_descriptor_limit(CONFIG, log, 4)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert soft == hard == before[1]
    line = f"kernel file descriptor limit: {soft} (hard: {hard}); max_client_conn: 1000, max expected fd use: 1130"
    assert log.lines[0] == line


@pytest.mark.parametrize(
    ("limit", "start"),
    [
        (1130, ""),
        (-1, ""),
        (
            1129,
            "max_client_conn = 1000 and 30 possible server connections may need 1130 file descriptors, the limit is",
        ),
        (
            1100,
            "max_client_conn = 1000 and 30 possible server connections may need 1130 file descriptors, the limit is",
        ),
        (1099, "max_client_conn = 1000 does not fit into 1099 file descriptors"),
    ],
)
def test_too_few_descriptors(limit: int, start: str) -> None:
    """What cannot fit is told with the setting and the numbers."""
    log = Heard()
    complain(need(CONFIG, 4), limit, log)
    assert [line.startswith(start) for line in log.lines] == ([True] if start else [])


CRASH = """
import os, resource, sys
from pgshoal.fleet.hygiene import forbid_core_dumps
hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
print(forbid_core_dumps(), resource.getrlimit(resource.RLIMIT_CORE)[0] == hard, len(os.listdir("/proc/self/fd")) > 0)
sys.stdout.flush()
os.abort()
"""


def crash(folder: Path, wanted: str) -> tuple[str, bool]:
    """What a crashing process said, and whether its folder has a core file."""
    environment = {**os.environ, "PGSHOAL_CORE_DUMPS": wanted, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", CRASH], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGABRT, done.stderr
    return done.stdout.strip(), any(path.name.startswith("core") for path in folder.iterdir())


def test_no_core_dump(tmp_path: Path) -> None:
    """A process that crashes leaves no core file, whatever limit it was given."""
    assert crash(tmp_path, "") == ("True False True", False)


def test_core_dumps_on_request(tmp_path: Path) -> None:
    """With PGSHOAL_CORE_DUMPS=1 the limits of the environment stand."""
    said, _ = crash(tmp_path, "1")
    assert said == "False True True"


def test_tasks_end_with_their_loop() -> None:
    """A task that waits is cancelled and has ended when the loop is closed."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(asyncio.sleep(600))
    loop.run_until_complete(asyncio.sleep(0))
    end_tasks(loop)
    assert task.cancelled()
    end_tasks(loop)
    loop.close()


ORPHANS = """
import os, subprocess
from pgshoal.fleet.hygiene import reap_strangers
own, stranger = (subprocess.Popen(["true"]) for _ in range(2))
for child in (own, stranger):
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
first = reap_strangers({own.pid})
code = own.wait()
print(set(first) <= {stranger.pid}, code, [*first, *reap_strangers(())] == [stranger.pid])
"""


def test_strangers_are_reaped_and_ours_are_left() -> None:
    """A child nobody knows is reaped; one of ours stays for its owner."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", ORPHANS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "0", "True"]

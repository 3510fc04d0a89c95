"""What a process owes to its system: enough descriptors, no secrets in core files, no zombies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pgshoal.config.model import Config
from pgshoal.policy import foresight
from pgshoal.worker.log import Log

#: Descriptors of a process beside clients and servers: log, listeners, engine, resolver, TLS files, console.
SPARE_DESCRIPTORS: Final = 100
#: Descriptors of the supervisor for each worker: channel, process, bells, listeners; twice while it is replaced.
_PER_WORKER: Final = 16
#: Set to 1 to let processes dump core as the limits of their environment say.
DUMPS_WANTED: Final = "PGSHOAL_CORE_DUMPS"
# Neither 0, which a core_pattern that is a pipe ignores, nor more: with 1 the kernel takes no dump for a pipe and
# writes no file, which is always longer. See core(5) and do_coredump.
_NO_CORE: Final = 1


@dataclass(frozen=True, slots=True)
class Need:
    """Descriptors that one worker, and the supervisor, may come to use."""

    clients: int
    servers: int
    worker: int
    supervisor: int

    @property
    def most(self) -> int:
        """What the limit must be, as it is the same for all processes."""
        return max(self.worker, self.supervisor)


def need(config: Config, workers: int) -> Need:
    """All clients may come to one worker, with every server; the supervisor holds a duplicate of each server."""
    clients = config.settings.max_client_conn
    possible = foresight.most(config, foresight.pools(config))
    # No pool has more servers than it had clients at one time.
    servers = clients if possible is None else possible
    worker = clients + servers + SPARE_DESCRIPTORS
    return Need(clients, servers, worker, servers + workers * _PER_WORKER + SPARE_DESCRIPTORS)


def raise_descriptor_limit(config: Config, log: Log, workers: int) -> Need:
    """Take what the hard limit allows, which workers inherit; say what may be needed, and when that is not enough."""
    wanted = need(config, workers)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    log.log(
        f"kernel file descriptor limit: {soft} (hard: {hard}); "
        f"max_client_conn: {wanted.clients}, max expected fd use: {wanted.most}"
    )
    complain(wanted, soft, log)
    return wanted


def complain(wanted: Need, limit: int, log: Log) -> None:
    """An error if the clients do not fit, a warning if they do not with all servers that are possible."""
    if limit < 0 or limit >= wanted.most:  # -1 is "no limit"
        return
    advice = "raise the hard limit (LimitNOFILE= of systemd, ulimit -Hn)"
    if wanted.clients + SPARE_DESCRIPTORS > limit:
        log.error(
            f"max_client_conn = {wanted.clients} does not fit into {limit} file descriptors: {advice} or lower it"
        )
    else:
        log.warning(
            f"max_client_conn = {wanted.clients} and {wanted.servers} possible server connections may need "
            f"{wanted.most} file descriptors, the limit is {limit}: {advice}, or lower max_client_conn or pool sizes"
        )


def forbid_core_dumps(environment: Mapping[str, str] = os.environ) -> bool:
    """No core file of this process or of those it starts: they hold passwords, keys and clients' data.

    The limit does it, not PR_SET_DUMPABLE: that would also take /proc/PID/fd and debuggers from the account itself,
    which may read the configuration with the same secrets anyhow, and it is forgotten at exec.
    Returns whether dumps are off.
    """
    if environment.get(DUMPS_WANTED, "") not in ("", "0"):
        return False
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    soft = _NO_CORE if hard == resource.RLIM_INFINITY or hard >= _NO_CORE else hard
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    return resource.getrlimit(resource.RLIMIT_CORE)[0] in (0, _NO_CORE)


def end_tasks(loop: asyncio.AbstractEventLoop, limit_s: float = 1.0) -> None:
    """Cancel what still runs in a loop that has stopped, and let it end; the loop is closed after that."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        with contextlib.suppress(RuntimeError):  # somebody stopped the loop once more
            loop.run_until_complete(asyncio.wait(tasks, timeout=limit_s))


def reap_strangers(ours: Collection[int]) -> list[int]:
    """Reap ended children that are none of `ours`: as process 1 of a container we inherit every orphan.

    Returns their process ids. Stops at the first of ours, whose turn is elsewhere.
    """
    reaped: list[int] = []
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return reaped
        if ended is None or ended.si_pid in ours:
            return reaped
        with contextlib.suppress(ChildProcessError):
            os.waitpid(ended.si_pid, os.WNOHANG)
        reaped.append(ended.si_pid)

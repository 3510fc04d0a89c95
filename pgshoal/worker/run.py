"""Runs one worker in the foreground: load, become the right account, listen, serve, and end with an exit code."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pgshoal import __version__
from pgshoal.config.load import load
from pgshoal.config.model import Config
from pgshoal.console.session import AdminConsole
from pgshoal.engine.choose import choose
from pgshoal.engine.selector import EngineLoop, EngineSelector
from pgshoal.errors import ConfigError
from pgshoal.worker import account, signals
from pgshoal.worker.app import Worker
from pgshoal.worker.listeners import CannotListen
from pgshoal.worker.log import Log
from pgshoal.worker.reload import warn_unbuilt
from pgshoal.worker.welcome import PGBOUNCER_VERSION

#: Descriptors beside clients and servers: log, listeners, engine, resolver.
SPARE_DESCRIPTORS: Final = 100
#: Clients come and go without cycles; a collector that looks at the young ones every 700 finds nothing.
GC_THRESHOLDS: Final = (10_000, 20, 50)


class Fatal(Exception):
    """The pooler cannot start; the text is for the log."""


def main(config_path: str, *, quiet: bool = False, overrides: Mapping[str, str] | None = None) -> int:
    """Serve until told to end; returns the exit code. `overrides` are settings that beat the file's."""
    log = Log(stderr=not quiet)
    try:
        config = load(config_path, overrides)
    except (ConfigError, OSError) as error:
        log.error(str(error))
        log.fatal("cannot load config file")
        log.flush()
        return 1
    try:
        return _serve(config, log, quiet, dict(overrides or {}))
    except Fatal as error:
        log.fatal(str(error))
        return 1
    finally:
        log.flush()


def _serve(config: Config, log: Log, quiet: bool, overrides: dict[str, str]) -> int:
    settings = config.settings
    _become(settings.user)
    _open_log(config, log, quiet)
    for warning in config.warnings:
        log.error(str(warning))
    warn_unbuilt(config, log)
    raise_descriptor_limit(config, log)
    pidfile = Pidfile(settings.pidfile, log)
    try:
        engine = choose(settings.engine, log.log)
    except (ConfigError, OSError) as error:
        raise Fatal(str(error)) from error
    selector = EngineSelector(engine)
    loop = EngineLoop(selector)
    worker = Worker(config, engine, log, loop, overrides)
    worker.console = AdminConsole(worker)
    selector.on_events = worker.drain
    try:
        return _run(worker, pidfile)
    finally:
        worker.close()
        pidfile.remove()
        loop.close()
        engine.shutdown()


def _run(worker: Worker, pidfile: Pidfile) -> int:
    loop, log = worker.loop, worker.log
    asyncio.set_event_loop(loop)
    worker.on_stop = loop.stop
    try:
        worker.tls.apply(worker.config.settings)
        worker.configure()
        worker.listeners.open()
    except (CannotListen, ConfigError, OSError, ValueError) as error:
        raise Fatal(str(error)) from error
    pidfile.write()
    signals.install(worker)
    worker.start()
    log.log(f"process up: PgBouncer {PGBOUNCER_VERSION}, pgshoal {__version__}, engine: {worker.engine.name}")
    worker.notify("READY=1")
    log.flush()
    # What was imported and built so far stays; the collector need not look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    if worker.exit_code is None:
        loop.run_forever()
    return worker.exit_code or 0


def _become(user: str | None) -> None:
    if user and os.geteuid() == 0:
        try:
            account.become(user)
        except (LookupError, OSError) as error:
            raise Fatal(str(error)) from error
    if os.geteuid() == 0:
        raise Fatal("PgBouncer should not run as root")


def _open_log(config: Config, log: Log, quiet: bool) -> None:
    settings = config.settings
    log.set_verbose(settings.verbose)
    try:
        log.reopen(settings.logfile, stderr=not quiet)
    except OSError as error:
        raise Fatal(f"cannot open logfile '{settings.logfile}': {error.strerror}") from error
    log.use_syslog(settings.syslog, settings.syslog_ident, settings.syslog_facility)


def raise_descriptor_limit(config: Config, log: Log) -> None:
    """Every client and server needs a descriptor: take what the hard limit allows, and say what may be needed."""
    settings = config.settings
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    pools = max(len(config.databases), 1)
    forced = sum(1 for entry in config.databases.values() if entry.user is not None)
    users = max(len(config.secrets), 1)
    expected = (
        settings.max_client_conn + SPARE_DESCRIPTORS + settings.default_pool_size * (forced + (pools - forced) * users)
    )
    if soft < hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    log.log(
        f"kernel file descriptor limit: {soft} (hard: {hard}); "
        f"max_client_conn: {settings.max_client_conn}, max expected fd use: {expected}"
    )


class Pidfile:
    """The file that names the running process; another living one is a reason not to start."""

    def __init__(self, path: str, log: Log) -> None:
        self.path = Path(path) if path else None
        self.written = False
        if self.path is None or not self.path.exists():
            return
        if _alive(self.path):
            raise Fatal(f"pidfile '{path}' exists, another instance running?")
        log.log("stale pidfile, removing")
        self.path.unlink()

    def write(self) -> None:
        """After this the file is ours."""
        if self.path is None:
            return
        try:
            with self.path.open("x") as file:
                file.write(f"{os.getpid()}\n")
        except OSError as error:
            raise Fatal(f"could not open pidfile '{self.path}': {error.strerror}") from error
        self.written = True

    def remove(self) -> None:
        """At the end; somebody else's file is left alone."""
        if self.path is not None and self.written:
            self.path.unlink(missing_ok=True)


def _alive(path: Path) -> bool:
    try:
        pid = int(path.read_text().strip())
    except (OSError, ValueError):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # In a container the process before us often had our number.
    return pid > 0 and pid != os.getpid()

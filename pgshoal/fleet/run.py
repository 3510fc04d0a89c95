"""Runs the fleet in the foreground: load, become the right account, listen, start workers, end with an exit code."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from functools import partial
from typing import Any

from pgshoal import __version__
from pgshoal.config.load import load
from pgshoal.config.model import Config
from pgshoal.errors import ConfigError
from pgshoal.fleet import hygiene, signals, takeover, upgrade
from pgshoal.fleet.background import Background
from pgshoal.fleet.cpus import affinity, too_many_workers
from pgshoal.fleet.listening import CannotListen, refuse_second
from pgshoal.fleet.pidfile import Fatal, Pidfile
from pgshoal.fleet.supervisor import Supervisor
from pgshoal.fleet.takeover import Estate
from pgshoal.metrics import page
from pgshoal.worker import account
from pgshoal.worker.log import Log
from pgshoal.worker.reload import check_log_file
from pgshoal.worker.signals import FOR_THE_SUPERVISOR
from pgshoal.worker.welcome import PGBOUNCER_VERSION


class PromptLog(Log):
    """Lines of the supervisor are few and must not wait."""

    __slots__ = ()

    def write(self, level: int, text: str) -> None:
        """At once."""
        super().write(level, text)
        self.flush()


def main(
    config_path: str,
    *,
    quiet: bool = False,
    overrides: Mapping[str, str] | None = None,
    background: Background | None = None,
    program: str = "pgshoal",
) -> int:
    """Serve until told to end; returns the exit code.

    `overrides` are settings that beat the file's, `background` is where to go before listening, and `program` is the
    module that Python runs to do the same again.
    """
    log = PromptLog(stderr=not quiet)
    hygiene.forbid_core_dumps()
    try:
        estate = takeover.inherited(os.environ)
    except (takeover.CannotTakeOver, ValueError, OSError) as error:
        log.fatal(str(error))
        return 1
    if estate is not None and estate.tried:
        return _try(estate, config_path, overrides)
    try:
        config = load(config_path, overrides)
    except (ConfigError, OSError) as error:
        log.error(str(error))
        log.fatal("cannot load config file")
        return 1
    try:
        if estate is None:
            if os.geteuid() != 0:  # as root we would make a file that the account cannot open
                _open_log(config, log, quiet)
            _become(config.settings.user, program)
        return _serve(config, log, quiet, dict(overrides or {}), estate, background)
    except Fatal as error:
        log.fatal(str(error))
        return 1
    except Exception:
        # In the background nobody would see it on stderr.
        log.fatal(f"internal error: {traceback.format_exc().rstrip()}")
        return 1


def _try(estate: Estate, config_path: str, overrides: Mapping[str, str] | None) -> int:
    """For an older supervisor that wants to become this program: whether that would work, and if not, one line why."""
    try:
        takeover.attempt(estate)
        config = upgrade.fitting(load(config_path, overrides), estate)
        affinity(config.settings.worker_cpu_affinity, estate["workers"])
        check_log_file(config)
        # The workers will be of this program too.
        importlib.import_module("pgshoal.worker.run")
    except (takeover.CannotTakeOver, ConfigError, ImportError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _serve(
    config: Config,
    log: Log,
    quiet: bool,
    overrides: dict[str, str],
    estate: Estate | None,
    background: Background | None,
) -> int:
    if estate is not None:
        config = upgrade.fitting(config, estate)
    settings = config.settings
    _open_log(config, log, quiet)
    for warning in config.warnings:
        log.error(str(warning))
    if crowd := too_many_workers(settings.workers):
        log.warning(crowd)
    if estate is None:
        _refuse_second(config)
    pidfile = Pidfile(settings.pidfile, log, ours=estate is not None)
    if background is not None:
        quiet = True
        if estate is None:
            _leave_terminal(config, background)
        # Lines now carry another process id, and a terminal that is gone gets none of them.
        _open_log(config, log, quiet)
    loop = asyncio.new_event_loop()
    try:
        supervisor = Supervisor(config, log, loop, overrides, quiet, estate)
    except (ConfigError, OSError) as error:
        raise Fatal(str(error)) from error
    hygiene.raise_descriptor_limit(config, log, supervisor.workers)
    metrics: page.Page | None = None
    try:
        if estate is None:
            supervisor.sockets.open(settings)
            # From now on somebody may send a signal: it waits until there is a handler, as it does in an upgrade.
            signal.pthread_sigmask(signal.SIG_BLOCK, FOR_THE_SUPERVISOR)
            pidfile.write()
        metrics = _open_page(supervisor, estate)
        if background is not None:
            background.is_up()
        return _run(supervisor, estate)
    except CannotListen as error:
        raise Fatal(str(error)) from error
    finally:
        if metrics is not None:
            metrics.close()
        supervisor.close()
        pidfile.remove()
        loop.close()


def _open_page(supervisor: Supervisor, estate: Estate | None) -> page.Page | None:
    """The HTTP page, if there is to be one. An upgrade goes on without it rather than end the fleet."""
    address = supervisor.config.settings.http_listen
    if address == "off":
        return None
    try:
        metrics = page.Page(supervisor, page.listen(address))
    except Fatal as error:
        if estate is None:
            raise
        supervisor.log.error(str(error))
        return None
    supervisor.log.log(f"metrics and health by HTTP on {address}")
    return metrics


def _run(supervisor: Supervisor, estate: Estate | None) -> int:
    loop = supervisor.loop
    asyncio.set_event_loop(loop)
    loop.set_exception_handler(partial(_failed, supervisor.log))
    signals.install(supervisor)

    def up() -> None:
        engine = supervisor.children[0].engine
        what = f"PgBouncer {PGBOUNCER_VERSION}, pgshoal {__version__}, engine: {engine}, workers: {supervisor.workers}"
        supervisor.log.log(f"process up: {what}")
        supervisor.notify("READY=1")

    supervisor.on_up = up
    if estate is None:
        supervisor.begin()
        supervisor.foresight.look()
    else:
        upgrade.adopt(supervisor, estate)
        supervisor.pulse.begin()
        loop.call_soon(supervisor.restart, None, lambda wrong: None)
    if supervisor.exit_code is None or supervisor.children:
        loop.run_forever()
    return supervisor.exit_code or 0


def _failed(log: Log, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A bug in a callback costs that callback; the fleet goes on."""
    error = context.get("exception")
    text = "".join(traceback.format_exception(error)) if error else str(context.get("message"))
    log.error(f"internal error in the supervisor: {text.rstrip()}")


def _refuse_second(config: Config) -> None:
    try:
        refuse_second(config.settings)
    except CannotListen as error:
        raise Fatal(str(error)) from None


def _leave_terminal(config: Config, background: Background) -> None:
    if not config.settings.pidfile:
        raise Fatal("daemon needs pidfile configured")
    try:
        background.enter()
    except OSError as error:
        raise Fatal(f"cannot go into the background: {error.strerror}") from error


def _become(user: str | None, program: str) -> None:
    if user:
        try:
            account.become(user, program)
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
        # There is no other place to say so.
        log.reopen("", stderr=True)
        raise Fatal(f"Cannot open logfile: '{settings.logfile}': {error.strerror}") from error
    log.use_syslog(settings.syslog, settings.syslog_ident, settings.syslog_facility)

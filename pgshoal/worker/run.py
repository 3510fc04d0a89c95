"""One worker process: boot over the channel, build, serve, and end with an exit code."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import socket
from typing import TYPE_CHECKING, Final

from pgshoal.console.session import AdminConsole
from pgshoal.engine.choose import choose
from pgshoal.engine.selector import EngineLoop, EngineSelector
from pgshoal.errors import ConfigError
from pgshoal.fleet.channel import Channel, Message, receive
from pgshoal.fleet.ledger import Ledger
from pgshoal.worker import signals
from pgshoal.worker.app import Worker
from pgshoal.worker.leaving import Leaving
from pgshoal.worker.link import FleetLink, Place
from pgshoal.worker.log import Log
from pgshoal.worker.reload import Reloading
from pgshoal.worker.vitals import vitals

if TYPE_CHECKING:
    from pgshoal.config.model import Config

#: Exit codes: ended as told, and failed at boot; anything else is a crash.
ENDED: Final = 0
FAILED_AT_BOOT: Final = 3
#: How long the supervisor may take to hear what the worker had to say at its end.
LAST_WORDS_S: Final = 2.0
#: Clients come and go without cycles; a collector that looks at the young ones every 700 finds nothing.
GC_THRESHOLDS: Final = (10_000, 20, 50)


class BootFailed(Exception):
    """The worker cannot serve; the text is for the log."""


def main(channel_fd: int, ledger_fd: int, bell_fds: list[int]) -> int:
    """Serve until told to end, or until the supervisor is gone; returns the exit code."""
    signals.ignore()
    for fd in (channel_fd, ledger_fd, *bell_fds):
        os.set_inheritable(fd, False)
    sock = socket.socket(fileno=channel_fd)
    try:
        boot = receive(sock)
    except (EOFError, OSError):
        return ENDED  # the supervisor ended before it had said anything
    config: Config = pickle.loads(boot.blob)
    place = placed(boot)
    log = Log(stderr=not place.quiet)
    try:
        _open_log(config, log)
        _bind(boot["cpus"], log)
        _name(f"pgshoal-{place.number}")
        ledger = Ledger.attach(ledger_fd, bell_fds, place.seat)
        return _serve(config, place, ledger, sock, log)
    except BootFailed as error:
        log.fatal(str(error))
        return FAILED_AT_BOOT
    finally:
        log.flush()


def placed(boot: Message) -> Place:
    """The worker's place in the fleet."""
    secret = bytes.fromhex(boot["key_secret"])
    fields = (boot[name] for name in ("number", "seat", "generation", "workers"))
    number, seat, generation, workers = fields
    return Place(
        number, seat, generation, workers, secret, dict(boot["overrides"]), bool(boot["quiet"]), dict(boot["state"])
    )


def _bind(cpus: list[int], log: Log) -> None:
    if cpus:
        try:
            os.sched_setaffinity(0, cpus)
        except OSError as error:
            log.warning(f"worker_cpu_affinity: cannot run on CPU {','.join(map(str, cpus))} only: {error.strerror}")


def _name(text: str) -> None:
    """What top and ps show beside the process."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
        file.write(text)


def _open_log(config: Config, log: Log) -> None:
    settings = config.settings
    log.set_verbose(settings.verbose)
    try:
        log.reopen(settings.logfile)
    except OSError as error:
        raise BootFailed(f"cannot open logfile '{settings.logfile}': {error.strerror}") from error
    log.use_syslog(settings.syslog, settings.syslog_ident, settings.syslog_facility)


def _serve(config: Config, place: Place, ledger: Ledger, sock: socket.socket, log: Log) -> int:
    told = log.log if place.number == 0 else log.debug  # what all workers would say is said once
    try:
        engine = choose(config.settings.engine, told)
    except (ConfigError, OSError) as error:
        raise BootFailed(str(error)) from error
    selector = EngineSelector(engine)
    loop = EngineLoop(selector)
    asyncio.set_event_loop(loop)
    end = Ending()
    channel = Channel(sock, loop, end.orphaned)
    link = FleetLink(place, ledger, channel, log)
    try:
        worker = end.worker = Worker(config, engine, log, loop, link)
    except (ConfigError, OSError, ValueError) as error:
        raise BootFailed(str(error)) from error
    worker.on_stop = loop.stop
    worker.console = AdminConsole(worker)
    selector.on_events = worker.drain
    link.settle = worker.settle
    try:
        _run(worker, link)
    finally:
        worker.close()
        channel.finish(LAST_WORDS_S)
        channel.close()
        loop.close()
        engine.shutdown()
    return worker.exit_code or ENDED


class Ending:
    """What happens when the channel ends."""

    def __init__(self) -> None:
        self.worker: Worker | None = None

    def orphaned(self) -> None:
        """The supervisor is gone: nobody counts for us any more."""
        if self.worker is not None:
            self.worker.log.error("the supervisor is gone, exiting")
            self.worker.stop(ENDED)


def _run(worker: Worker, link: FleetLink) -> None:
    try:
        worker.tls.use(worker.tls.read(worker.config))
        worker.configure()
    except (ConfigError, OSError, ValueError) as error:
        raise BootFailed(str(error)) from error
    Leaving(worker)
    Reloading(worker)
    link.on("ping", lambda message: link.reply(message, vitals(worker)))
    link.on("go", lambda message: _go(worker, link))
    worker.log.flush()
    worker.loop.run_forever()


def _go(worker: Worker, link: FleetLink) -> None:
    worker.start()
    worker.listeners.serve()
    link.send("ready", {"pid": os.getpid(), "engine": worker.engine.name})
    # What was imported and built so far stays; the collector need not look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)

"""RELOAD and SET for the whole fleet: parsed once, prepared by all workers, then committed by all or by none."""

from __future__ import annotations

import pickle
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

from pgshoal.config import changes, load
from pgshoal.config.model import Settings
from pgshoal.errors import ConfigError
from pgshoal.fleet.rounds import Round
from pgshoal.worker.reload import check_log_file, reopen_log

if TYPE_CHECKING:
    from pgshoal.config.changes import Changes
    from pgshoal.config.model import Config
    from pgshoal.fleet.channel import Message
    from pgshoal.fleet.children import Child
    from pgshoal.fleet.supervisor import Supervisor

_TLS: Final = tuple(name for row in fields(Settings) if "_tls" in (name := row.name))

#: Called with what is wrong, "" if all is well.
Done = Callable[[str], None]


@dataclass(slots=True)
class Step:
    """A configuration on its way into the workers. Without `tls` their TLS stays as it is."""

    fresh: Config
    blob: bytes
    tls: bool
    done: Done
    prepared: frozenset[Child] = frozenset()


class Reconfigure:
    """One change after another: the next begins when all workers have answered to the last."""

    def __init__(self, supervisor: Supervisor, changed: Callable[[Changes], None]) -> None:
        """`changed` is told what a commit has changed."""
        self._fleet = supervisor
        self._changed = changed
        #: called after a commit, with the new configuration in effect
        self.on_commit: Callable[[], None] = lambda: None
        self._waiting: deque[tuple[Callable[[], None], Done]] = deque()
        self._busy = False
        #: the settings that TLS was last set up with; a SET may have left those in effect incomplete
        self._tls: Settings = supervisor.config.settings
        #: what each worker that does not serve yet was booted with
        self._booted: dict[Child, Config] = {}

    # -- what is asked

    def reload(self, done: Done) -> None:
        """Read the files again; if anything is wrong with them, or one worker cannot use them, nothing changes.

        An auth_file that cannot be read whole is no failure, as in PgBouncer: all secrets stay, the rest is taken.
        """
        self._next(lambda: self._reload(done), done)

    def set(self, key: str, value: str, done: Done, tls_failed: Callable[[], None]) -> None:
        """Change one setting; `tls_failed` is called first if it is kept without a TLS set-up that works."""
        self._next(lambda: self._set(key, value, done, tls_failed), done)

    def _next(self, begin: Callable[[], None], done: Done) -> None:
        self._waiting.append((begin, done))
        if not self._busy:
            self._busy = True
            self._begin()

    def _begin(self) -> None:
        begin, done = self._waiting.popleft()
        try:
            begin()
        except Exception as error:
            # A bug; without this it would hold up all changes to come, and cost the worker that asked its life.
            self._fleet.log.error(traceback.format_exc())
            self._end(done, f"internal error: {error!r}")

    def _end(self, done: Done, wrong: str) -> None:
        if wrong:
            self._fleet.log.error(wrong)
        done(wrong)
        if self._waiting:
            self._fleet.loop.call_soon(self._begin)
        else:
            self._busy = False

    def _reload(self, done: Done) -> None:
        fleet = self._fleet
        fleet.notify(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

        def finished(wrong: str) -> None:
            fleet.notify("READY=1")
            if "client_tls_" in wrong or "server_tls_" in wrong:
                fleet.log.error("TLS configuration could not be reloaded, keeping old configuration")
            if wrong:
                fleet.log.warning("config file loading failed")
            else:
                fleet.log.log("config file loaded by all workers")
            done(wrong)

        try:
            found = load.load(fleet.config.settings.conffile or fleet.config.path, fleet.overrides)
            fresh = load.keep_secrets(fleet.config.secrets, found)
        except (ConfigError, OSError, ValueError) as error:
            self._end(finished, str(error))
        else:
            self._prepare(fresh, True, finished)

    def _set(self, key: str, value: str, done: Done, tls_failed: Callable[[], None]) -> None:
        fleet = self._fleet
        tls = "_tls_" in key or "_tls13_" in key
        try:
            fresh = load.set_value(fleet.config, key, value)
        except ConfigError as error:
            self._end(done, str(error))
            return
        if fresh is fleet.config:
            self._end(done, "")
            return

        def prepared(wrong: str) -> None:
            if not wrong or not tls:
                done(wrong)
                return
            # Kept all the same: the next SET may bring the file that is still missing.
            tls_failed()
            self._waiting.appendleft((lambda: self._prepare(fresh, False, done), done))

        try:
            _require_consistent(fresh, key, tls)
        except ConfigError as error:
            self._end(prepared, str(error))
        else:
            self._prepare(fresh, tls, prepared)

    # -- the two steps

    def _prepare(self, fresh: Config, tls: bool, done: Done) -> None:
        fleet = self._fleet
        try:
            check_log_file(fresh)
        except ConfigError as error:
            self._end(done, str(error))
            return
        children = fleet.others(None)
        step = Step(fresh, pickle.dumps(fresh), tls, done, frozenset(children))
        Round(children, "prepare", {"tls": tls}, lambda asked: self._prepared(step, asked), step.blob).begin()

    def _prepared(self, step: Step, asked: Round) -> None:
        wrong = next((answer["error"] for _, answer in asked.answers if answer.fields.get("error")), "")
        if wrong:
            children = [child for child, _ in asked.answers]
            Round(children, "discard", {"reason": wrong}, lambda _: self._end(step.done, wrong)).begin()
            return
        self._commit(step)

    def _commit(self, step: Step) -> None:
        fleet, old = self._fleet, self._fleet.config
        found = changes.difference(old, step.fresh)
        config = fleet.config = changes.keep_boot_settings(old, step.fresh)
        if step.tls:
            self._tls = config.settings
        reopen_log(config, fleet.log)
        for warning in config.warnings:
            fleet.log.error(str(warning))
        for name in found.needs_restart:
            fleet.log.warning(f"{name} changes only at a restart")
        self._changed(found)
        self.on_commit()
        children = fleet.others(None)
        for child in children:
            if child not in step.prepared:
                self._tell(child, step.blob, step.tls)
        Round(children, "commit", {}, lambda _: self._end(step.done, "")).begin()

    # -- workers that come later

    def attach(self, child: Child) -> None:
        """It is booted with the configuration of this moment."""
        self._booted[child] = self.bootable()

    def is_ready(self, child: Child) -> None:
        """If that has changed meanwhile, it learns of it now."""
        config = self._fleet.config
        if self._booted.pop(child, config) is not config:
            self._tell(child, pickle.dumps(config), tls=self.bootable() is config)
            child.channel.ask("commit", lambda answer: None)

    def bootable(self) -> Config:
        """What a new worker begins with: the configuration, with TLS settings that could be used."""
        config = self._fleet.config
        kept = {name: getattr(self._tls, name) for name in _TLS}
        if all(getattr(config.settings, name) == value for name, value in kept.items()):
            return config
        return replace(config, settings=replace(config.settings, **kept))

    def _tell(self, child: Child, blob: bytes, tls: bool) -> None:
        """The first step for a worker that others need not wait for."""

        def answered(answer: Message | None) -> None:
            if answer is not None and answer.fields.get("error"):
                self._fleet.log.error(f"worker {child.number} (pid {child.pid}): {answer['error']}")

        child.channel.ask("prepare", answered, {"tls": tls}, blob)

    def died(self, child: Child) -> None:
        """It needs no configuration."""
        self._booted.pop(child, None)


def _require_consistent(fresh: Config, key: str, tls: bool) -> None:
    """A TLS setting must fit to all others; another one is not to blame for TLS settings that do not fit yet."""
    try:
        load.require_consistent(fresh)
    except ConfigError as error:
        if tls or error.key == key:
            raise

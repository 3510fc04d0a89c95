"""A new configuration in a running worker: what can fail is prepared first, then all is swapped in at once."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgshoal.config import changes, effective, load
from pgshoal.errors import ConfigError
from pgshoal.worker import clients
from pgshoal.worker.records import Database, User

if TYPE_CHECKING:
    from pgshoal.config.changes import Changes
    from pgshoal.config.model import Config
    from pgshoal.fleet.channel import Message
    from pgshoal.worker.app import Worker
    from pgshoal.worker.log import Log
    from pgshoal.worker.tlsfiles import Contexts


@dataclass(frozen=True, slots=True)
class Prepared:
    """A configuration of which nothing can fail any more; `contexts` None leaves TLS as it is."""

    config: Config
    contexts: Contexts | None


class Reloading:
    """The worker's side of the supervisor's two steps: all workers prepare, then all commit, or all discard."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.prepared: Prepared | None = None
        worker.fleet.on("prepare", self._prepare)
        worker.fleet.on("commit", self._commit)
        worker.fleet.on("discard", self._discard)

    def _prepare(self, message: Message) -> None:
        fleet = self.worker.fleet
        try:
            # From our own supervisor, over a socket nobody else has.
            fresh: Config = pickle.loads(message.blob)
            self.prepared = prepare(self.worker, fresh, message["tls"])
        except (ConfigError, OSError, ValueError) as error:
            self.prepared = None
            fleet.reply(message, {"error": str(error)})
        else:
            fleet.reply(message)

    def _commit(self, message: Message) -> None:
        prepared, self.prepared = self.prepared, None
        try:
            if prepared is not None:
                commit(self.worker, prepared)
        finally:
            self.worker.fleet.reply(message)

    def _discard(self, message: Message) -> None:
        self.prepared = None
        self.worker.fleet.reply(message)


def apply(worker: Worker, fresh: Config, tls: bool = True) -> Changes:
    """Both steps at once."""
    return commit(worker, prepare(worker, fresh, tls))


def prepare(worker: Worker, fresh: Config, tls: bool = True) -> Prepared:
    """Try what can fail, the log file and TLS files, and change nothing. ConfigError or ValueError says what is wrong.

    Without `tls` the TLS set-up stays as it is: after a SET that left it incomplete, other settings must still change.
    """
    check_log_file(fresh)
    return Prepared(fresh, worker.tls.read(fresh) if tls else None)


def check_log_file(config: Config) -> None:
    """Raise the error of a log file that cannot be opened, at the line that names it."""
    path = config.settings.logfile
    if not path:
        return
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644))
    except OSError as error:
        raise load.at_setting(config, "logfile", f"cannot open the file: {error.strerror}") from None


def reopen_log(config: Config, log: Log) -> None:
    """The log as the settings want it; a file that is gone since it was checked leaves the old one in use."""
    settings = config.settings
    try:
        log.reopen(settings.logfile)
    except OSError as error:
        log.error(f"logfile = {settings.logfile}: cannot open the file: {error.strerror}")
    log.set_verbose(settings.verbose)
    log.use_syslog(settings.syslog, settings.syslog_ident, settings.syslog_facility)


def commit(worker: Worker, prepared: Prepared) -> Changes:
    """Put a prepared configuration in effect."""
    old = worker.config
    found = changes.difference(old, prepared.config)
    fresh = worker.config = changes.keep_boot_settings(old, prepared.config)
    reopen_log(fresh, worker.log)
    if prepared.contexts is not None:
        worker.tls.use(prepared.contexts)
    if found.secrets:
        worker.key_cache.forget()
    tls = {pool.id: effective.server_tls(old.settings, pool.database.config) for pool in worker.pools.by_id.values()}
    _users(worker)
    _databases(worker, old, found)
    worker.configure()
    for pool in list(worker.pools.by_id.values()):
        worker.pools.refresh(pool)
        if found.server_tls and tls.get(pool.id) != effective.server_tls(fresh.settings, pool.database.config):
            worker.pause.make_dirty(pool)
        worker.growth.want(pool)
    changed = {*found.databases_added, *found.databases_removed, *found.databases_dirty}
    worker.welcomes.doubt(lambda name: found.server_tls or name in changed or name not in fresh.databases)
    clients.retune(worker)
    worker.warm()
    return found


def _users(worker: Worker) -> None:
    """Users keep their records, which pools and clients hold; secrets and limits are those of the files now."""
    pools, config = worker.pools, worker.config
    names = {**config.users, **config.secrets}
    for name in names:
        user = pools.users.get(name)
        if user is None:
            # Somebody's forced user may become one who can log in.
            forced = pools.forced.pop(name) if name in pools.forced else User(name, None)
            user = pools.users[name] = forced
        _set_secret(user, config)
    for name in [name for name in pools.users if name not in names]:
        user = pools.users.pop(name)
        _set_secret(user, config)
        if any(pool.user is user for pool in pools.by_id.values()):
            pools.forced[name] = user
    for user in pools.forced.values():
        _set_secret(user, config)


def _set_secret(user: User, config: Config) -> None:
    secret = config.secrets.get(user.name)
    if secret != user.secret:
        user.secret = secret
        # They prove a password that is no longer the one on file.
        user.scram_keys = None


def _databases(worker: Worker, old: Config, found: Changes) -> None:
    pools, config = worker.pools, worker.config
    for name, database in list(pools.databases.items()):
        entry = config.database(name)
        if entry is None:
            worker.log.warning(f"dropping database '{name}' as it does not exist anymore or inactive auto-database")
            worker.pause.remove(database)
            worker.pause.enable(database)
            del pools.databases[name]
            continue
        change = changes.entry_change(old, database.config, entry)
        if change == "dirty" and entry.user != database.config.user:
            _rekey(worker, database)
        database.config, database.auto = entry, entry.auto
        if change == "dirty":
            for pool in pools.of_database(database):
                worker.pause.make_dirty(pool)
    for name, entry in config.databases.items():
        if name not in pools.databases:
            pools.databases[name] = Database(name, entry)
        pools.keep_alive(pools.databases[name])


def _rekey(worker: Worker, database: Database) -> None:
    """The forced user changed: clients of the old pools belong to another pool now, so they log in again."""
    worker.pause.remove(database)

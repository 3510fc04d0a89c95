"""RELOAD and SET: a whole new configuration is parsed first, then swapped in at once, or nothing changes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pgshoal.config import changes, load
from pgshoal.config.check import unbuilt_in_use, unbuilt_line
from pgshoal.errors import ConfigError
from pgshoal.worker import clients
from pgshoal.worker.records import Database, User

if TYPE_CHECKING:
    from pgshoal.config.changes import Changes
    from pgshoal.config.model import Config
    from pgshoal.worker.app import Worker
    from pgshoal.worker.log import Log


def reload(worker: Worker) -> bool:
    """Read the files again; False if anything in them is wrong: then all stays as it was and the log says why."""
    worker.notify(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
    try:
        fresh = load.load(worker.config.settings.conffile or worker.config.path, worker.overrides)
        apply(worker, fresh)
    except (ConfigError, OSError, ValueError) as error:
        worker.log.error(str(error))
        worker.log.warning("config file loading failed")
        return False
    finally:
        worker.notify("READY=1")
    return True


def apply(worker: Worker, fresh: Config, tls: bool = True) -> Changes:
    """Put a checked configuration in effect. What can fail (TLS files, the log file) comes before the swap.

    Without `tls` the TLS set-up stays as it is: after a SET that left it incomplete, other settings must still change.
    """
    old = worker.config
    found = changes.difference(old, fresh)
    fresh = changes.keep_boot_settings(old, fresh)
    settings = fresh.settings
    try:
        worker.log.reopen(settings.logfile)
    except OSError as error:
        raise load.at_setting(fresh, "logfile", f"cannot open the file: {error.strerror}") from None
    try:
        if tls:
            worker.tls.apply(settings)
    except (ValueError, OSError):
        worker.log.reopen(old.settings.logfile)
        raise
    worker.log.set_verbose(settings.verbose)
    worker.log.use_syslog(settings.syslog, settings.syslog_ident, settings.syslog_facility)
    for warning in fresh.warnings:
        worker.log.error(str(warning))
    warn_unbuilt(fresh, worker.log)
    for name in found.needs_restart:
        worker.log.warning(f"{name} changes only at a restart")
    worker.config = fresh
    if found.secrets:
        worker.key_cache.forget()
    _users(worker)
    _databases(worker, old, found)
    worker.configure()
    for pool in list(worker.pools.by_id.values()):
        worker.pools.refresh(pool)
        if found.server_tls:
            worker.pause.make_dirty(pool)
        worker.growth.want(pool)
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


def warn_unbuilt(config: Config, log: Log) -> None:
    """Say which settings in use have no effect, because their behaviour is not built."""
    for found in unbuilt_in_use(config):
        log.warning(f"not built yet, without effect: {unbuilt_line(found)}")

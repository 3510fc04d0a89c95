"""What a start would refuse of a file that can be read: found by what the start uses, without serving anybody."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pgshoal.config.load import at_setting
from pgshoal.config.model import Config
from pgshoal.engine.choose import choose
from pgshoal.errors import ConfigError
from pgshoal.fleet.cpus import affinity, too_many_workers, usable_cpus
from pgshoal.fleet.listening import CannotListen, group_id, resolve
from pgshoal.worker.tlsfiles import TlsFiles

#: Each is made by the start in a folder that must exist.
_MADE: Final = ("logfile", "pidfile")


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """How it went; with `errors` the start is refused."""

    errors: tuple[ConfigError, ...]
    warnings: tuple[str, ...]


def rehearse(config: Config) -> Rehearsal:
    """Try all that does not disturb a pooler that runs: no address is bound to its port, and no file is made."""
    warnings: list[str] = []
    errors: list[ConfigError] = []
    for part in (_engine_and_tls, _accounts, _cpus, _files, _addresses):
        errors += part(config, warnings.append)
    return Rehearsal(tuple(errors), tuple(warnings))


def _engine_and_tls(config: Config, warn: Callable[[str], None]) -> Iterator[ConfigError]:
    """TLS as the engine that would run makes it."""
    try:
        engine = choose(config.settings.engine, lambda line: None)
    except (ConfigError, OSError) as error:
        yield at_setting(config, "engine", error.reason if isinstance(error, ConfigError) else str(error))
        return
    try:
        TlsFiles(engine).read(config)
    except ConfigError as error:
        yield error
    finally:
        engine.shutdown()


def _accounts(config: Config, warn: Callable[[str], None]) -> Iterator[ConfigError]:
    settings = config.settings
    user, root = settings.user, os.geteuid() == 0
    if user:
        try:
            other = pwd.getpwnam(user).pw_uid != os.geteuid()
        except KeyError:
            yield at_setting(config, "user", "there is no such account")
        else:
            if root and other:
                warn(f"checked as root: whether {user} may read the files is not known")
    elif root:
        warn("checked as root: whether the account that will run may read the files is not known")
    if settings.unix_socket_group and settings.unix_socket_dir and not settings.unix_socket_dir.startswith("@"):
        try:
            group_id(settings.unix_socket_group)
        except KeyError:
            yield at_setting(config, "unix_socket_group", "there is no such group")


def _cpus(config: Config, warn: Callable[[str], None]) -> Iterator[ConfigError]:
    settings = config.settings
    if warning := too_many_workers(settings.workers):
        warn(warning)
    try:
        affinity(settings.worker_cpu_affinity, settings.workers or usable_cpus())
    except ConfigError as error:
        yield at_setting(config, "worker_cpu_affinity", error.reason)


def _files(config: Config, warn: Callable[[str], None]) -> Iterator[ConfigError]:
    settings = config.settings
    for key in _MADE:
        path = getattr(settings, key)
        if path and os.path.isdir(path):
            yield at_setting(config, key, "this is a folder")
        elif path and not Path(path).absolute().parent.is_dir():
            yield at_setting(config, key, "its folder does not exist")
    folder = settings.unix_socket_dir
    if folder and not folder.startswith("@") and not os.path.isdir(folder):
        yield at_setting(config, "unix_socket_dir", "there is no such folder")


def _addresses(config: Config, warn: Callable[[str], None]) -> Iterator[ConfigError]:
    settings = config.settings
    failed: list[str] = []
    count = 0
    for address in settings.listen_addr:
        try:
            found = resolve(address, settings.listen_port)
        except CannotListen as error:
            yield at_setting(config, "listen_addr", str(error))
            return
        count += len(found)
        failed += [reason for family, host in found if (reason := _unusable(family, host))]
    if failed and len(failed) == count:
        yield at_setting(config, "listen_addr", f"no address can be listened on: {', '.join(failed)}")
    else:
        for reason in failed:
            warn(f"listen_addr: cannot listen on {reason}")
    if not settings.listen_addr and not settings.unix_socket_dir:
        warn("listen_addr and unix_socket_dir are empty: the start needs sockets that systemd hands over")


def _unusable(family: socket.AddressFamily, host: str) -> str:
    """Why this machine cannot have the address, on whatever port; "" if it can."""
    try:
        with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
            probe.bind((host, 0))
    except OSError as error:
        return f"{host}: {error.strerror}"
    return ""

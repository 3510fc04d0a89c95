"""Which engine runs: the setting `engine`, what the system allows, and one log line that says so."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from pgshoal.errors import ConfigError

if TYPE_CHECKING:
    from pgshoal.engine.contract import Engine

CHOICES = ("auto", "uring", "epoll", "python")

Say = Callable[[str], None]


class _Make(Protocol):
    def __call__(self, driver: str) -> Engine: ...


def _native() -> _Make | None:
    """The native engine's class, None if the compiled module is not installed."""
    try:
        module = importlib.import_module("pgshoal.engine.native")
    except ModuleNotFoundError as error:
        if error.name != "pgshoal_engine":
            raise
        return None
    return cast(_Make, module.NativeEngine)


def _python() -> Engine:
    module = importlib.import_module("pgshoal.engine.python")
    return cast("Engine", module.PythonEngine())


def choose(setting: str, say: Say) -> Engine:
    """An engine for the setting `engine`; `say` gets at most one line, when `auto` did not get the best.

    ConfigError when an engine asked for by name cannot run here.
    """
    if setting not in CHOICES:
        raise _unusable(setting, f"not one of {', '.join(CHOICES)}")
    if setting == "python":
        return _python()
    native = _native()
    if native is None:
        if setting != "auto":
            raise _unusable(setting, "the package pgshoal-engine is not installed")
        say("engine: the package pgshoal-engine is not installed, running on the slower Python engine")
        return _python()
    if setting == "auto":
        return _best(native, say)
    try:
        return native(setting)
    except OSError as error:
        raise _unusable(setting, str(error)) from error


def _unusable(setting: str, reason: str) -> ConfigError:
    return ConfigError("", 0, "engine", setting, reason)


def _best(native: _Make, say: Say) -> Engine:
    try:
        return native("uring")
    except OSError as error:
        say(f"engine: io_uring is not available, using epoll ({error})")
    return native("epoll")

"""Choosing an engine: what `auto` takes, what is said, and what cannot be had."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest

from pgshoal.engine import choose as module
from pgshoal.engine.choose import choose
from pgshoal.errors import ConfigError

Install = Callable[..., None]


@pytest.fixture
def said() -> list[str]:
    """What the log would hold."""
    return []


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts stand-ins for both engines in place; `native` None means that the compiled module is not there."""

    def act(native: Callable[[str], object] | None) -> None:
        def imported(name: str) -> ModuleType | SimpleNamespace:
            if name == "pgshoal.engine.python":
                return SimpleNamespace(PythonEngine=lambda: "the twin")
            if native is None:
                raise ModuleNotFoundError("No module named 'pgshoal_engine'", name="pgshoal_engine")
            return SimpleNamespace(NativeEngine=native)

        monkeypatch.setattr(module.importlib, "import_module", imported)  # type: ignore[attr-defined]

    return act


def chosen(name: str, said: list[str]) -> object:
    """What `choose` gives, which these stand-ins make a text."""
    return choose(name, said.append)


def test_auto_takes_io_uring_and_says_nothing(install: Install, said: list[str]) -> None:
    """The best engine is no news."""
    install(lambda driver: f"native {driver}")
    assert chosen("auto", said) == "native uring"
    assert said == []


def test_auto_falls_back_to_epoll_and_says_why_once(install: Install, said: list[str]) -> None:
    """One line names the reason."""

    def native(driver: str) -> str:
        if driver == "uring":
            raise OSError("memlock: the limit of locked memory is too low")
        return f"native {driver}"

    install(native)
    assert chosen("auto", said) == "native epoll"
    assert len(said) == 1
    assert "memlock" in said[0]


def test_auto_without_the_module_runs_the_twin_and_says_so_once(install: Install, said: list[str]) -> None:
    """A missing package is not fatal."""
    install(None)
    assert chosen("auto", said) == "the twin"
    assert len(said) == 1
    assert "pgshoal-engine" in said[0]


def test_python_needs_no_module_and_says_nothing(install: Install, said: list[str]) -> None:
    """Who asks for the twin gets it."""
    install(None)
    assert chosen("python", said) == "the twin"
    assert said == []


@pytest.mark.parametrize("setting", ["uring", "epoll"])
def test_a_named_engine_is_never_replaced(install: Install, said: list[str], setting: str) -> None:
    """An engine asked for by name that is not there is an error of the configuration."""
    install(None)
    with pytest.raises(ConfigError, match=f"engine = {setting}: .*not installed"):
        choose(setting, said.append)


def test_a_named_engine_that_the_system_forbids_is_an_error(install: Install, said: list[str]) -> None:
    """The reason of the system reaches the operator."""

    def native(driver: str) -> str:
        raise OSError("seccomp forbids io_uring")

    install(native)
    with pytest.raises(ConfigError, match="engine = uring: seccomp forbids io_uring"):
        choose("uring", said.append)


def test_unknown_settings_are_refused(said: list[str]) -> None:
    """Only the four words are allowed."""
    with pytest.raises(ConfigError, match="auto, uring, epoll, python"):
        choose("kqueue", said.append)


def test_a_broken_module_is_not_a_missing_one(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another import error is shown as it is, not taken for absence."""

    def imported(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'other'", name="other")

    monkeypatch.setattr(importlib, "import_module", imported)
    with pytest.raises(ModuleNotFoundError, match="other"):
        choose("auto", pytest.fail)


def test_the_real_engines_answer_to_their_names(engine: str) -> None:
    """Each engine can be chosen by name on a machine that has it."""
    made = choose(engine, pytest.fail)
    try:
        assert made.name == engine
    finally:
        made.shutdown()

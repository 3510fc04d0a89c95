"""Fixtures that every test may ask for: real servers, a certificate authority and the engines to test on."""

from __future__ import annotations

import importlib.util
import os
import shutil
import zlib
from collections.abc import Iterator

import pytest

from tests.support.certs import Authority
from tests.support.postgres import Postgres
from tests.worker import alone

ENGINES = ("uring", "epoll", "python")
# Scripted servers count connections: a fleet that is started asks nobody for limits unless a test is about that.
os.environ["PGSHOAL_FORESIGHT"] = "off"
NATIVE = frozenset({"uring", "epoll"})


def wanted_engines() -> tuple[str, ...]:
    """All engines, or those that PGSHOAL_TEST_ENGINES (separated by commas) allows."""
    given = os.environ.get("PGSHOAL_TEST_ENGINES", "")
    names = tuple(name.strip() for name in given.split(",") if name.strip()) or ENGINES
    if unknown := set(names) - set(ENGINES):
        raise pytest.UsageError(
            f"PGSHOAL_TEST_ENGINES names {', '.join(sorted(unknown))}; allowed: {', '.join(ENGINES)}"
        )
    return names


def engines_of(metafunc: pytest.Metafunc) -> tuple[str, ...]:
    """All that are wanted; one of them in modules that say SPREAD, unless PGSHOAL_TEST_WHOLE is set.

    Such modules are about what is Python's in every engine and take their time: each of their tests runs on one
    engine, another one for the next test.
    """
    engines = wanted_engines()
    if not getattr(metafunc.module, "SPREAD", False) or os.environ.get("PGSHOAL_TEST_WHOLE"):
        return engines
    return (engines[zlib.crc32(metafunc.definition.nodeid.encode()) % len(engines)],)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs each test that asks for `engine` once per engine."""
    if "engine" in metafunc.fixturenames:
        metafunc.parametrize("engine_name", engines_of(metafunc), ids=str, scope="session")


@pytest.fixture(scope="session")
def engine(engine_name: str) -> str:
    """The value for the setting `engine`; a missing native engine is a failure, never a silent skip."""
    if engine_name in NATIVE and importlib.util.find_spec("pgshoal_engine") is None:
        pytest.fail(
            "the native engine is not built (make setup); PGSHOAL_TEST_ENGINES=python restricts the run", pytrace=False
        )
    return engine_name


@pytest.fixture(autouse=True)
def ledgers_closed() -> Iterator[None]:
    """A worker in a test leaves its ledger's descriptors behind."""
    yield
    while alone.MADE:
        alone.MADE.pop().close_descriptors()


@pytest.fixture(scope="session")
def authority() -> Iterator[Authority]:
    """The certificate authority of this test run."""
    made = Authority()
    yield made
    shutil.rmtree(made.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def pg15(authority: Authority) -> Iterator[Postgres]:
    """The system's PostgreSQL 15, with TLS on."""
    with Postgres(15, tls=authority) as server:
        yield server


@pytest.fixture(scope="session")
def pg18() -> Iterator[Postgres]:
    """The embedded PostgreSQL 18, built without TLS."""
    with Postgres(18) as server:
        yield server


@pytest.fixture(params=["pg15", "pg18"], scope="session")
def pg(request: pytest.FixtureRequest) -> Postgres:
    """Both servers, one after the other."""
    server: Postgres = request.getfixturevalue(request.param)
    return server

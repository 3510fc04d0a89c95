"""Recipes about tracked parameters that broke other poolers."""

from __future__ import annotations

from collections.abc import Callable

from tests.e2e.reports.conftest import Lane, MakePooler
from tests.support import messages as m
from tests.support.postgres import Postgres

OpenLane = Callable[..., Lane]


def show(lane: Lane, name: str) -> str:
    """The value a client sees."""
    found = lane.ask(m.query(f"show {name}"))
    return next(message.payload[6:].decode() for message in found if message.kind == "D")


def test_parameter_the_server_does_not_report(make_pooler: MakePooler, lanes: OpenLane) -> None:
    """search_path tracked on PostgreSQL 15: each client sees its own, one without sees the default."""
    pooler = make_pooler(track_extra_parameters="search_path, enable_seqscan")
    a, b = lanes(pooler, search_path="pg_catalog", enable_seqscan="off"), lanes(pooler)
    for _ in range(2):
        assert show(a, "search_path") == "pg_catalog"
        assert show(a, "enable_seqscan") == "off"
        assert show(b, "search_path") == '"$user", public'
        assert show(b, "enable_seqscan") == "on"


def test_set_config_does_not_leak(make_pooler: MakePooler, lanes: OpenLane) -> None:
    """pg_dump's set_config('search_path', '', false) does not reach the next client."""
    pooler = make_pooler(track_extra_parameters="search_path, enable_seqscan")
    a, b = lanes(pooler), lanes(pooler)
    a.ask(m.query("select pg_catalog.set_config('search_path', '', false)"))
    assert show(b, "search_path") == '"$user", public'


def test_reported_parameters_follow_the_client(make_pooler: MakePooler, lanes: OpenLane) -> None:
    """SET of any reported parameter belongs to its client, without being listed anywhere."""
    pooler = make_pooler()
    a, b = lanes(pooler), lanes(pooler, application_name="bee")
    a.ask(m.query("set default_transaction_read_only = on"))
    a.ask(m.query("set intervalstyle = 'sql_standard'"))
    a.ask(m.query("set application_name = 'it''s \\ me'"))
    assert show(b, "default_transaction_read_only") == "off"
    assert show(b, "intervalstyle") == "postgres"
    assert show(b, "application_name") == "bee"
    assert show(a, "default_transaction_read_only") == "on"
    assert show(a, "intervalstyle") == "sql_standard"
    assert show(a, "application_name") == "it's \\ me"


def test_canonical_values_cost_no_further_set(make_pooler: MakePooler, lanes: OpenLane, pg15: Postgres) -> None:
    """`-c datestyle=ISO` is set once; after the server's canonical spelling is known no SET is sent again."""
    pooler = make_pooler()
    a = lanes(pooler, options="-c datestyle=ISO")
    a.ask(m.query("select 1"))
    pg15.query("alter system set log_statement = 'all'")
    pg15.reload()
    try:
        marker = len(pg15.log_text())
        for _ in range(5):
            a.ask(m.query("select 'canonical'"))
        seen = pg15.log_text()[marker:]
    finally:
        pg15.query("alter system reset log_statement")
        pg15.reload()
    assert seen.lower().count("set datestyle") == 0


def test_empty_then_equal_application_names(make_pooler: MakePooler, lanes: OpenLane) -> None:
    """An empty application_name, then the same value set by two clients, each seen as set."""
    pooler = make_pooler()
    a, b = lanes(pooler, application_name=""), lanes(pooler)
    assert show(a, "application_name") == ""
    for lane in (a, b):
        lane.ask(m.query("set application_name = 'same'"))
    assert show(a, "application_name") == show(b, "application_name") == "same"
    a.ask(m.query("set application_name = 'changed'"))
    assert show(b, "application_name") == "same"


def test_role_settings_reach_new_clients(make_pooler: MakePooler, lanes: OpenLane, pg15: Postgres) -> None:
    """ALTER ROLE ... SET timezone is seen by a new client once the pool has a new server, without a restart."""
    pooler = make_pooler(auth_type="trust")
    assert show(lanes(pooler, "bob"), "timezone") != "Asia/Tokyo"
    pg15.query("alter role bob set timezone = 'Asia/Tokyo'")
    try:
        pooler.admin("RECONNECT app")
        assert show(lanes(pooler, "bob"), "timezone") == "Asia/Tokyo"
    finally:
        pg15.query("alter role bob reset timezone")
        pooler.admin("RECONNECT app")

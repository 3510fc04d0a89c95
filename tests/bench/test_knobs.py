"""The knobs: where a value comes from, what it may be, and what a record of the run shows."""

from __future__ import annotations

import json

import pytest

from pgshoal.bench.knobs import KNOBS, TABLE, Knob, Knobs, resolve


def knobs(*, quick: bool = False, env: dict[str, str] | None = None, **options: str | None) -> Knobs:
    """All knobs, with these options and this environment."""
    return resolve(options, env or {}, quick)


def test_an_option_beats_the_environment_which_beats_the_size() -> None:
    """--units, then PGSHOAL_BENCH_UNITS, then the harness's UNITS, then quick or full."""
    ours, theirs = {"PGSHOAL_BENCH_UNITS": "2"}, {"UNITS": "3"}
    assert knobs(env=ours | theirs, units="1").int("units") == 1
    assert knobs(env=ours | theirs).int("units") == 2
    assert knobs(env=theirs).int("units") == 3
    assert knobs().int("units") == int(KNOBS["units"].full)
    assert knobs(quick=True).int("units") == int(KNOBS["units"].quick)


def test_what_is_empty_is_not_given() -> None:
    """An option of None and an empty variable leave the size's value."""
    assert knobs(env={"UNITS": "", "PGSHOAL_BENCH_UNITS": ""}, units=None).int("units") == int(KNOBS["units"].full)


@pytest.mark.parametrize("name", ["UNITS", "A_CONCURRENCY", "B_CONCURRENCY", "C_HOLD", "DIRECT_PORT", "POOLER_PORT",
                                  "PG_PORT", "PG_MAX_CONNECTIONS"])  # fmt: skip
def test_the_harness_s_names_set_the_knobs_of_these_names(name: str) -> None:
    """Numbers of the laptop harness keep their names."""
    assert knobs(env={name: "77"}).int(name.lower()) == 77


def test_the_harness_s_texts() -> None:
    """So do its folder and the server."""
    found = knobs(env={"RESULTS_DIR": "/r", "PG_HOST": "h", "PG_USER": "u", "PG_DATABASE": "d", "PG_PASSWORD": "p"})
    assert [found.text(name) for name in ("results", "pg_host", "pg_user", "pg_database", "pg_password")] == [
        *("/r", "h", "u", "d", "p")
    ]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("units", "many", "is no whole number"),
        ("units", "1.5", "is no whole number"),
        ("units", "0", "is less than 1"),
        ("seconds", "nan", "is no number"),
        ("seconds", "soon", "is no number"),
        ("pin", "maybe", "is none of"),
        ("engine", "turbo", "is none of auto, uring, epoll, python"),
        ("engines", "epoll,turbo", "has 'turbo', which is none of auto, uring, epoll, python"),
        ("pg_port", "99999", "is more than 65535"),
        ("pg_port", "0", "is less than 1"),
        ("pooler_port", "70000", "is more than 65535"),
        ("direct_port", "70000", "is more than 65535"),
        ("targets", "nonsense", "is none of direct, pgshoal, pgbouncer, HOST:PORT"),
        ("targets", "direct,nonsense", "has 'nonsense', which is none of direct, pgshoal, pgbouncer, HOST:PORT"),
        ("targets", "h:99999", "is none of"),
        ("targets", ":6432", "is none of"),
        ("processes", "1,two", "is no whole number"),
        ("processes", "2,0", "is less than 1"),
        ("processes", ",", "is an empty list"),
        ("targets", "", "is an empty list"),
    ],
)
def test_a_bad_value_names_where_it_came_from(name: str, text: str, reason: str) -> None:
    """The option or the variable, and the value, stand in the error."""
    with pytest.raises(ValueError, match=f"{KNOBS[name].option}: '{text}' {reason}"):
        resolve({name: text}, {}, quick=False)
    if text:
        with pytest.raises(ValueError, match=f"PGSHOAL_BENCH_{name.upper()}: '{text}' {reason}"):
            knobs(env={f"PGSHOAL_BENCH_{name.upper()}": text})


def test_an_unknown_option_is_refused() -> None:
    """A slip in a name does not pass as a run with other sizes."""
    with pytest.raises(ValueError, match="no knob unit;"):
        knobs(unit="1")


def test_lists_flags_and_texts_are_read() -> None:
    """Lists keep their order, spaces do not matter."""
    found = knobs(processes="4, 1,2", targets=" direct , h:6432", pin="Yes", engine=" epoll ")
    assert found.ints("processes") == (4, 1, 2)
    assert found.texts("targets") == ("direct", "h:6432")
    assert found.flag("pin") is True
    assert found.text("engine") == "epoll"


def test_a_knob_is_asked_for_by_its_kind() -> None:
    """A mistake in a declaration shows at once."""
    with pytest.raises(TypeError, match="seconds is of kind float"):
        knobs().int("seconds")


def test_secrets_are_in_no_record() -> None:
    """A password, also one of digits and commas, is a text; it is in no record and no repr, but known to be secret."""
    found = knobs(pg_password="s3,cret ")
    assert found.text("pg_password") == "s3,cret "
    assert found.secrets() == ("s3,cret ",)
    assert "s3,cret" not in repr(found) + json.dumps(found.as_dict())
    assert found.as_dict()["units"] == int(KNOBS["units"].full)
    assert knobs().secrets() == ()


@pytest.mark.parametrize("knob", TABLE, ids=lambda knob: knob.name)
def test_every_row_is_whole(knob: Knob) -> None:
    """Both values can be read, quick is not larger than full, and the text is there and short."""
    full, quick = (knob.read(text, knob.name) for text in (knob.full, knob.quick))
    longer = knob.name == "b_hold_ms"  # a quick burst holds longer than a busy machine needs to fork
    if isinstance(full, int | float) and isinstance(quick, int | float) and not longer:
        assert quick <= full
    assert 0 < len(knob.text) < 80


def test_names_are_told_apart() -> None:
    """No two knobs have a name or a variable in common."""
    variables = [variable for knob in TABLE for variable in knob.variables]
    assert len(KNOBS) == len(TABLE)
    assert len(set(variables)) == len(variables)

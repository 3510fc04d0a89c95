"""The harness's CSV files hold every sample and every client, by its names."""

from __future__ import annotations

import csv
from pathlib import Path

from pgshoal.bench.results.csvfiles import flat


def lines(path: Path) -> list[dict[str, str]]:
    """A file's lines by their headings."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_all_latencies_are_written(written: Path) -> None:
    """Both cases, every repeat, every sample."""
    found = lines(written / "exp_a_latencies.csv")
    assert len(found) == 3 * 3 * 800
    assert {line["case"] for line in found} == {"direct", "pgbouncer", "pgshoal"}
    assert {line["repeat"] for line in found} == {"0", "1", "2"}
    assert all(float(line["latency_ms"]) > 0 for line in found)


def test_all_clients_are_written_with_their_errors(written: Path) -> None:
    """Who failed, and with which words of the server."""
    failed = [line for line in lines(written / "exp_b_outcomes.csv") if line["succeeded"] == "0"]
    assert len(failed) == 75
    assert {line["case"] for line in failed} == {"direct"}
    assert all("sorry, too many clients already" in line["error"] for line in failed)


def test_connection_counts_are_written(written: Path) -> None:
    """Every sample of the interval."""
    found = lines(written / "exp_c_backends.csv")
    assert max(float(line["backends"]) for line in found if line["case"] == "direct") == 25
    assert max(float(line["backends"]) for line in found if line["case"] == "pgshoal") == 10


def test_metadata_hold_facts_and_headlines(written: Path) -> None:
    """Versions, knobs and the medians, one key each."""
    found = {line["key"]: line["value"] for line in lines(written / "run_metadata.csv")}
    assert found["versions.pgbouncer"] == "PgBouncer 1.26.1"
    assert found["knobs.processes"] == "[1, 2, 4]"
    assert found["connect.pgshoal.units_per_s"] == "3289"
    assert found["scaling.pgshoal x4.256 clients.tps"] == "69600"
    assert not any("password" in key for key in found)


def test_facts_in_facts_get_names_with_dots() -> None:
    """However deep."""
    assert list(flat({"a": 1, "b": {"c": [1], "d": {"e": "x"}}})) == [("a", 1), ("b.c", "[1]"), ("b.d.e", "x")]

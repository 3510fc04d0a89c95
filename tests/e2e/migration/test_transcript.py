"""Transcripts: what varies is left out, and no difference passes unexpected or stays away unnoticed."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.migration.transcript import Expected, Transcript, differing, settled, settled_log


def of(*lines: str) -> Transcript:
    """A transcript of one chapter."""
    made = Transcript()
    made.chapter("one")
    for line in lines:
        made.say(line)
    return made


def test_only_what_differs_is_told() -> None:
    """Lines of either side, with the chapter and the side."""
    assert differing(of("a", "b"), of("a", "b")) == []
    assert differing(of("a", "b", "c"), of("a", "x", "c", "d")) == ["[one] - b", "[one] + x", "[one] + d"]


def test_each_difference_is_expected_and_each_expected_one_is_seen(tmp_path: Path) -> None:
    """As often as it stands in the file, under words that the page of differences has."""
    path = tmp_path / "x.differences"
    path.write_text("# A reload is atomic.\n[one] - b\n[one] + x\n\n# Nobody has ever said this\n[one] - c\n")
    expected = Expected(path)
    assert expected.undocumented() == ["Nobody has ever said this"]
    assert expected.faults(["[one] - b", "[one] + x", "[one] - c"]) == []
    assert expected.faults(["[one] - b", "[one] - b", "[one] - c"]) == ["unexpected: [one] - b", "not seen: [one] + x"]


def test_what_varies_is_left_out() -> None:
    """Times, ports, pointers and ages; not the words around them."""
    line = "2026-01-02 03:04:05.678 UTC [77] LOG C-0x55d0: shop/web@127.0.0.1:40000 closing because: close req (age=3s)"
    other = (
        line.replace("05.678", "59.999")
        .replace("77", "78")
        .replace("55d0", "abc")
        .replace("40000", "5")
        .replace("=3", "=0")
    )
    assert (
        settled_log(line)
        == settled_log(other)
        == ["LOG C: shop/web@127.0.0.1:<port> closing because: close req (age=<n>)"]
    )
    assert settled_log(line.replace("close req", "x")) != settled_log(line)
    assert settled("a 2026-01-02 03:04:05 UTC 12") == "a <time> 12"

"""A folder's rows alone make its report: one file, complete, that can be drawn again."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pgshoal.bench.results import page, report
from pgshoal.bench.results.book import Book
from pgshoal.bench.results.chapters import Chapter, Part, Run, read, undeclared
from pgshoal.bench.results.combine import gathered
from pgshoal.bench.results.tables import Table
from tests.bench.results.planted import DIRECT, declarations, plant, run_of

VOID = {"meta", "br", "link", "path", "use"}


class Checker(HTMLParser):
    """Sees to it that every element is closed in its turn, and notes ids, links and words."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attrs)
        self.links += [value for name, value in attrs if name in ("href", "src", "xlink:href") and value]
        if tag == "section" and given.get("id"):
            self.ids.append(given["id"] or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data + " "


@pytest.fixture(scope="module")
def html(written: Path) -> Checker:
    """The report as a browser reads it."""
    checker = Checker()
    checker.feed((written / "report.html").read_text())
    assert checker.open == []
    return checker


def test_the_report_is_one_file(html: Checker, written: Path) -> None:
    """No script, no picture and no style from elsewhere."""
    assert not html.tags & {"script", "img", "link", "iframe", "object"}
    assert all(link.startswith("#") for link in html.links)
    assert not re.search(r"@import|url\((?!#)", (written / "report.html").read_text())


def test_the_head_says_what_was_measured_where(html: Checker) -> None:
    """Machine, versions, seed and sizes; no secret."""
    for words in ("A processor, 2.4 GHz", "PgBouncer 1.26.1", "15.19", "seed", "6.18.44", "processes"):
        assert words in html.words
    assert "hidden" not in html.words


def test_each_experiment_has_its_chapter(html: Checker) -> None:
    """In the order of declarations, each reached from the head, the published figures last."""
    assert html.ids == ["connect", "burst", "scaling", "compare", "published"]
    assert [f"#{name}" for name in html.ids[:-1]] == html.links[:4]
    assert "what do more processes bring at the same total budget?" in html.words


def test_invalid_and_failed_runs_are_told(html: Checker, written: Path) -> None:
    """With their reasons, and marked in the table."""
    assert "runs 1, 2 and 3: machine-free: the machine was 1.2% idle (limit 5%)" in html.words
    assert "pgshoal engine=uring, run 1: it fell over" in html.words
    assert (written / "report.html").read_text().count('<tr class="doubtful">') >= 2


def test_every_chart_is_drawn_and_kept(written: Path) -> None:
    """As many pictures in the page as files of each kind."""
    text = (written / "report.html").read_text()
    names = {path.stem for path in (written / "charts").glob("*.svg")}
    assert names == {path.stem for path in (written / "charts").glob("*.png")}
    assert names >= {"connect-1-bars", "connect-2-latency", "burst-1-outcomes", "scaling-1-scaling", "scaling-3-cpu"}
    assert text.count("<svg") == text.count("<figure>") == len(names) == 11


def test_a_report_can_be_drawn_again(tmp_path: Path) -> None:
    """From rows, facts and samples alone comes the same page, byte for byte."""
    folders = [tmp_path / "first", tmp_path / "moved"]
    plant(folders[0], names=("connect",))
    first = report.write(folders[0], declarations()).read_text()
    folders[1].mkdir()
    for name in ("rows.jsonl", "run.json"):
        shutil.copy(folders[0] / name, folders[1])
    shutil.copytree(folders[0] / "latencies", folders[1] / "latencies")
    assert report.write(folders[1], declarations()).read_text() == first


def test_summaries_hold_tables_and_sentences(written: Path) -> None:
    """One for repositories, one for terminals."""
    markdown = (written / "summary.md").read_text()
    assert "| pgshoal | 3,289 |" in markdown
    assert "**Direct lost 75 of 100 clients; pgbouncer and pgshoal lost none.**" in markdown
    assert "| *pgbouncer x4* | *256 clients* |" in markdown
    assert "| connect | pooled / direct, units/s (A) | pgbouncer | 2.07 | 1.92 | 0.93 |" in markdown
    assert "|  |  | pgshoal | 2.07 | 2.07 | 1.00 |" in markdown
    assert "|  | pooled / direct, p99 | pgbouncer | 0.55 |" in markdown
    text = (written / "summary.txt").read_text()
    assert "Direct lost 75 of 100 clients" in text
    assert "\x1b" not in text


def test_experiments_nobody_declares_get_a_plain_chapter(written: Path) -> None:
    """A folder of another version shows its figures all the same."""
    run = read(written, {"connect": declarations()["connect"]})
    assert [chapter.name for chapter in run.chapters] == [
        "connect", "burst", "scaling", "compare-simple-16", "compare-tls",
    ]  # fmt: skip
    assert run.chapters[1].finding == "Direct lost 75 of 100 clients; pgbouncer and pgshoal lost none."


def test_a_folder_without_rows_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command says so and fails."""
    assert report.main([tmp_path]) == 1
    assert "has no rows" in capsys.readouterr().out


def test_the_command_draws_and_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One folder: its report is there, its tables are printed."""
    plant(tmp_path, names=("burst",))
    assert report.main([tmp_path]) == 0
    assert (tmp_path / "report.html").exists()
    assert "Direct lost 75 of 100 clients" in capsys.readouterr().out


def test_words_of_rows_are_no_markup(tmp_path: Path) -> None:
    """Errors come from servers and may hold anything."""
    Book(tmp_path).add(replace(run_of("x", DIRECT), error="<script>alert(1)</script> [red]"))
    text = report.write(tmp_path, {}).read_text()
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; [red]" in text


def test_a_chapter_says_nothing_twice() -> None:
    """Experiments of which the same is to be said share the sentence."""
    doubtful = gathered([replace(run_of("x", DIRECT), figures={"tps": 1.0}, invalid=("steal: much",))])
    part = Part(undeclared("x"), doubtful)
    assert Chapter("x", [part, part]).finding == "No conclusion: no run is valid (steal)."


def test_cells_left_out_for_one_reason_are_one_line() -> None:
    """With how many they are; a single one is named."""
    cells = {"tls|a|": "no TLS", "tls|b|": "no TLS", "scaling|a|clients=8": "no TLS", "nodes|a|": "no HAProxy"}
    assert report.left_out(cells) == ["no TLS: 3 cells of tls and scaling", "no HAProxy: nodes a"]


def test_what_was_not_run_is_told(tmp_path: Path) -> None:
    """Cells left out and experiments given up stand in the head, with the reason."""
    book = Book(tmp_path)
    book.begin({"left_out": {"x|pgshoal 2 nodes|": "no haproxy"}, "failed": {"y": "PostgreSQL ended"}})
    book.add(replace(run_of("x", DIRECT), figures={"tps": 1.0}))
    text = report.write(tmp_path, {}).read_text()
    assert "no haproxy: x pgshoal 2 nodes" in text
    assert "y: PostgreSQL ended" in text


def test_long_lists_are_folded() -> None:
    """Seven complaints do not push the charts off the screen, three do not hide."""
    assert "<details>" in page.warning("x", ["a"] * 7)
    assert "<details>" not in page.warning("x", ["a"] * 3)
    assert page.warning("x", []) == ""


def test_numbers_stand_right_and_words_left() -> None:
    """The first columns of a table are words."""
    text = page.table(Table(("target", "tps"), (("a <b>", "1"),), frozenset({0}), 1))
    assert '<td class="text">a &lt;b&gt;</td><td>1</td>' in text
    assert '<tr class="doubtful">' in text


def test_questions_get_their_mark(run: Run) -> None:
    """What is no question stays as it is."""
    assert [chapter.question[-1] for chapter in run.chapters] == ["?", "?", "?", "r"]

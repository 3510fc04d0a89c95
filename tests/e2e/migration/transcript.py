"""What clients and operators of a site heard, line by line, and how two programs' transcripts are compared."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import psycopg

from tests.support.fakeclient import LoginRefused

DIFFERENCES = Path(__file__).parents[3] / "docs" / "differences.md"
#: What must vary from run to run, wherever it stands.
_VARYING = (
    (re.compile(r"0x[0-9a-f]+"), "<ptr>"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [A-Z]+"), "<time>"),
    (re.compile(r"\b(127\.0\.0\.\d+|unix|localhost)([:|])\d+"), r"\1\2<port>"),
    (re.compile(r"unix\(\d+\)"), "unix(<pid>)"),
    (re.compile(r"from (127\.0\.0\.\d+):<port>"), r"from \1:<port>"),
    (re.compile(r'(socket "[^"]*\.s\.PGSQL\.|, port )\d+'), r"\1<port>"),
    (re.compile(r"\(age=\s*\d+s\)"), "(age=<n>)"),
)
_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d [\d:.]+ \S+ \[\d+\] (\w+) (.*)")
_LOG_VARYING = (
    (re.compile(r"\b([CS])-<ptr>"), r"\1"),
    (re.compile(r"(process up: PgBouncer [\d.]+),.*"), r"\1"),
    (re.compile(r"(TLS handshake error|closing because: tls): .*?( \(age=<n>\))?$"), r"\1: <why>\2"),
    (re.compile(r"(kernel file descriptor limit): .*"), r"\1"),
)
#: How many servers there are, and when one more is opened, is a matter of speed.
_OPENED = re.compile(r"LOG S: .* (new connection to server|SSL established)")
#: Each worker registers a database and has servers of its own.
_OF_WORKERS = re.compile(r"log: (LOG|WARNING) (S: |.*registered new auto-database|dropping|server login failed)")
#: What comes when its time has come, whatever happens; what a fleet says of its own processes.
_APART = ("LOG stats: ", "LOG worker ")


def settled(text: str) -> str:
    """The text without what must vary."""
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    return text


def settled_log(text: str) -> list[str]:
    """The lines of a log, each once and sorted: when a server is closed is a matter of chance, that it is, is not."""
    found = set()
    for line in text.splitlines():
        match = _LOG_LINE.fullmatch(line)
        said = settled(f"{match[1]} {match[2]}" if match else line)
        for pattern, instead in _LOG_VARYING:
            said = pattern.sub(instead, said)
        if not said.startswith(_APART):
            found.add(said)
    return sorted(found)


def error_text(error: BaseException) -> str:
    """An error as a program would print it: SQLSTATE if there is one, and the words."""
    state = getattr(error, "sqlstate", None)
    return " ".join(f"{state or type(error).__name__}: {error}".split())


class Transcript:
    """Lines in chapters, in the order in which they were heard."""

    def __init__(self, folder: str = "") -> None:
        """`folder`: where the site's files are, which has another name in each run."""
        self.chapters: dict[str, list[str]] = {}
        self._folder = folder or "<folder>"
        self._lines: list[str] = []
        self._opened: set[str] = set()

    def chapter(self, title: str) -> None:
        """Begin a new one."""
        self._lines = self.chapters.setdefault(title, [])

    def say(self, *facts: object, sep: str = " ") -> None:
        """One line, or some."""
        self._lines += settled(sep.join(map(str, facts)).replace(self._folder, "<folder>")).splitlines()

    def log(self, text: str) -> None:
        """What the log says of this chapter."""
        lines = settled_log(text.replace(self._folder, "<folder>"))
        self._opened.update(line for line in lines if _OPENED.match(line))
        self._lines += [f"log: {line}" for line in lines if not _OPENED.match(line)]

    def of_any_fleet(self, left_out: Sequence[str]) -> Transcript:
        """What does not depend on which worker has which server: without these chapters, and lines about servers."""
        made = Transcript()
        for title, lines in self.chapters.items():
            if title not in left_out:
                made.chapters[title] = [line for line in lines if not _OF_WORKERS.match(line)]
        return made

    def finish(self) -> Transcript:
        """After the last chapter: what servers were opened in all of them."""
        self.chapter("servers")
        self._lines += [f"log: {line}" for line in sorted(self._opened)]
        return self

    def attempt(self, what: str, work: Callable[[], Any]) -> None:
        """What comes of it: its value or its error."""
        try:
            found = work()
        except (psycopg.Error, OSError, LoginRefused) as error:
            self.say(what, "->", error_text(error))
        else:
            self.say(what, "->", found)


def differing(theirs: Transcript, ours: Transcript) -> list[str]:
    """The lines that only one of them has, in order, each with its chapter."""
    assert list(theirs.chapters) == list(ours.chapters)
    found = []
    for title, one in theirs.chapters.items():
        other = ours.chapters[title]
        for kind, a, b, c, d in difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
            if kind != "equal":
                found += [f"[{title}] - {line}" for line in one[a:b]]
                found += [f"[{title}] + {line}" for line in other[c:d]]
    return found


class Expected:
    """The differences that a site is to see, from a file: `# ` and the words of the page, then the lines."""

    def __init__(self, path: Path) -> None:
        self.words: list[str] = []
        self.lines: list[str] = []
        for line in path.read_text().splitlines():
            if line.startswith("# "):
                self.words.append(line[2:])
            elif line:
                assert self.words, f"{path.name}: no words of the page before: {line}"
                self.lines.append(line)

    def undocumented(self) -> list[str]:
        """Words that no row of the page of differences begins with."""
        page = DIFFERENCES.read_text()
        return [words for words in self.words if f"\n- **{words}" not in page]

    def faults(self, found: Iterable[str]) -> list[str]:
        """What was seen and is not expected, and what is expected and was not seen."""
        seen, wanted = Counter(found), Counter(self.lines)
        return [f"unexpected: {line}" for line in (seen - wanted).elements()] + [
            f"not seen: {line}" for line in (wanted - seen).elements()
        ]

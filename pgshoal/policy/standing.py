"""What stands in the whole fleet (paused, disabled, shutting down), and whether a console command fits to it."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any, Final

#: Commands that make an entry of a name that only `*` knows; those that undo something do not.
REGISTERS: Final = frozenset({"PAUSE", "KILL", "RECONNECT", "WAIT_CLOSE", "DISABLE"})
#: Commands about one database or all, and their word in "cannot ... admin db".
ACTIONS: Final = {
    "PAUSE": "pause",
    "KILL": "kill",
    "RECONNECT": "reconnect",
    "WAIT_CLOSE": "wait in",
    "DISABLE": "disable",
    "ENABLE": "enable",
    "RESUME": "resume",
}


class Standing:
    """A view of the state that a new worker is booted with; plain lists and flags, because it travels as JSON."""

    def __init__(self, facts: MutableMapping[str, Any]) -> None:
        self.facts = facts
        for name, empty in (("paused", False), ("paused_databases", []), ("disabled_databases", []), ("shutdown", "")):
            facts.setdefault(name, empty)

    @property
    def everything_paused(self) -> bool:
        """PAUSE, or a shutdown that waits for servers."""
        return bool(self.facts["paused"]) or self.facts["shutdown"] == "servers"

    def touches(self, name: str) -> bool:
        """Whether this database is paused or disabled."""
        return name in self.facts["paused_databases"] or name in self.facts["disabled_databases"]

    def judge(self, command: str, database: str, console: bool, known: bool) -> str:
        """The key of the refusal, or "". `database` "" means all; `console` and `known` say what the name is."""
        if command in ("PAUSE", "KILL") and self.everything_paused:
            return "already_paused"
        if not database:
            return self._judge_all(command)
        if console:
            return "database_not_paused" if command == "RESUME" else "cannot_touch_admin_db"
        if not known:
            return "console_no_such_database"
        if command == "RESUME" and database not in self.facts["paused_databases"]:
            return "database_not_paused"
        return ""

    def _judge_all(self, command: str) -> str:
        if command in ("DISABLE", "ENABLE"):
            return "database_required"
        if command == "RESUME" and self.facts["shutdown"]:
            return "console_shutting_down"
        if command == "RESUME" and not self.facts["paused"]:
            return "not_paused"
        return ""

    def record(self, command: str, database: str, databases: Iterable[str]) -> None:
        """Keep what a command that fits has changed; `databases`: all there are, for KILL without a name."""
        if command == "PAUSE" and not database:
            self.facts["paused"] = True
        elif command == "RESUME" and not database:
            self.facts["paused"] = False
        elif command in ("PAUSE", "KILL"):
            for name in [database] if database else databases:
                self._put("paused_databases", name, True)
        elif command == "RESUME":
            self._put("paused_databases", database, False)
        elif command in ("DISABLE", "ENABLE"):
            self._put("disabled_databases", database, command == "DISABLE")

    def forget(self, gone: Iterable[str]) -> None:
        """These databases do not exist any more."""
        for name in gone:
            self._put("paused_databases", name, False)
            self._put("disabled_databases", name, False)

    def _put(self, which: str, name: str, wanted: bool) -> None:
        names: list[str] = self.facts[which]
        if wanted and name not in names:
            names.append(name)
        elif not wanted and name in names:
            names.remove(name)

    # -- somebody who came later

    def copy(self) -> dict[str, Any]:
        """As it stands now, for `missed`."""
        names = ("paused", "paused_databases", "disabled_databases")
        return {name: list(found) if isinstance(found := self.facts[name], list) else found for name in names}

    def missed(self, then: dict[str, Any]) -> list[tuple[str, str]]:
        """(command, database) that bring a worker which was booted with `then` to what stands now."""
        steps: list[tuple[str, str]] = []
        if self.facts["paused"] != then["paused"]:
            steps.append(("PAUSE" if self.facts["paused"] else "RESUME", ""))
        for which, do, undo in (("paused_databases", "PAUSE", "RESUME"), ("disabled_databases", "DISABLE", "ENABLE")):
            now, before = self.facts[which], then[which]
            steps += [(do, name) for name in now if name not in before]
            steps += [(undo, name) for name in before if name not in now]
        return steps

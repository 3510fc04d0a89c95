"""`pgshoal check`: validates a configuration and tells what is in effect, and from where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pgshoal.config.load import load
from pgshoal.config.model import Config, DatabaseConfig, PeerConfig, UserConfig
from pgshoal.config.settings import SETTINGS, Section, Setting
from pgshoal.config.show import HIDDEN, ShownSetting, shown_settings
from pgshoal.errors import printable


@dataclass(frozen=True, slots=True)
class EntryLine:
    """One entry of [databases], [users] or [peers] with the values written for it."""

    section: Section
    name: str
    values: tuple[tuple[str, str], ...]
    source: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The outcome for a valid configuration; an invalid one is a ConfigError instead."""

    path: str
    settings: tuple[ShownSetting, ...]
    entries: tuple[EntryLine, ...]
    secrets: int
    rules: int | None
    """Of the hba file; None with another auth_type."""
    warnings: tuple[str, ...]
    show_all: bool

    def lines(self) -> Iterator[str]:
        """Render the report as plain lines; without show_all only settings that were written are listed."""
        yield from map(printable, self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.path}: valid"
        yield from (f"warning: {warning}" for warning in self.warnings)
        yield from self._setting_lines()
        for section in ("databases", "users", "peers"):
            entries = [entry for entry in self.entries if entry.section == section]
            if entries:
                yield from ("", f"[{section}]")
                yield from map(_entry_line, entries)
        yield from ("", f"secrets read from auth_file: {self.secrets}")
        if self.rules is not None:
            yield f"rules read from auth_hba_file: {self.rules}"

    def _setting_lines(self) -> Iterator[str]:
        yield from ("", "[pgbouncer]")
        for shown in self.settings:
            if self.show_all or not shown.is_default:
                value = "NULL" if shown.value is None else shown.value
                yield f"{shown.name} = {value}  ({shown.source or 'default'})"

    def __str__(self) -> str:
        """The whole report as text."""
        return "\n".join(self.lines())


def check(path: str, show_all: bool = False) -> CheckReport:
    """Load `path` and report on it; an invalid configuration raises ConfigError."""
    return report_on(load(path), show_all)


def report_on(config: Config, show_all: bool = False, more: tuple[str, ...] = ()) -> CheckReport:
    """The report on a configuration, with `more` warnings than its own."""
    entries = tuple(_entries(config))
    warnings = (*map(str, config.warnings), *more)
    rules = len(config.hba) if config.settings.auth_type == "hba" else None
    return CheckReport(config.path, shown_settings(config), entries, len(config.secrets), rules, warnings, show_all)


def _entries(config: Config) -> Iterator[EntryLine]:
    for section, name, entry in _records(config):
        origin = config.origins[section, name]
        values = tuple((row.name, _shown(row, entry)) for row in _written(section, entry))
        yield EntryLine(section, name, values, f"{origin.file}:{origin.line}")


def _records(config: Config) -> Iterator[tuple[Section, str, DatabaseConfig | UserConfig | PeerConfig]]:
    for database in config.databases.values():
        yield "databases", database.name, database
    if config.autodb is not None:
        yield "databases", "*", config.autodb
    for user in config.users.values():
        yield "users", user.name, user
    for peer in config.peers.values():
        yield "peers", str(peer.peer_id), peer


def _written(section: Section, entry: object) -> Iterator[Setting]:
    for row in SETTINGS:
        if row.section == section:
            value = getattr(entry, row.attribute)
            unset = None if row.default is None else row.kind.parse(row.default)
            if value not in (unset, ()):
                yield row


def _shown(row: Setting, entry: object) -> str:
    return HIDDEN if row.secret else row.kind.show(getattr(entry, row.attribute))


def _entry_line(entry: EntryLine) -> str:
    values = " ".join(f"{key}={_quoted(value)}" for key, value in entry.values)
    return f"{entry.name} = {values}  ({entry.source})"


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'" if " " in value or value.startswith("'") else value

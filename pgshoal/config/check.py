"""`pgshoal check`: validates a configuration and tells what is in effect, from where, and what is not built yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pgshoal.config.load import load
from pgshoal.config.model import Config, DatabaseConfig, PeerConfig, UserConfig
from pgshoal.config.settings import BY_NAME, SETTINGS, Section, Setting
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
class Unbuilt:
    """A setting without behaviour: where it is used, and its value there."""

    section: Section
    name: str
    value: str | None
    source: str
    doc: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The outcome for a valid configuration; an invalid one is a ConfigError instead."""

    path: str
    settings: tuple[ShownSetting, ...]
    entries: tuple[EntryLine, ...]
    secrets: int
    rules: int | None
    """Of the hba file; None with another auth_type."""
    unbuilt: tuple[Unbuilt, ...]
    """Used in this configuration; with show_all, also every other setting that is not built."""
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
        if self.unbuilt:
            yield from ("", "Not built yet, so without effect:")
            yield from map(unbuilt_line, self.unbuilt)

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
    config = load(path)
    entries = tuple(_entries(config))
    unbuilt = [*unbuilt_in_use(config)]
    if show_all:
        used = {(found.section, found.name) for found in unbuilt}
        unbuilt += [found for found in _all_unbuilt() if (found.section, found.name) not in used]
    warnings = tuple(str(warning) for warning in config.warnings)
    rules = len(config.hba) if config.settings.auth_type == "hba" else None
    return CheckReport(
        path, shown_settings(config), entries, len(config.secrets), rules, tuple(unbuilt), warnings, show_all
    )


def unbuilt_in_use(config: Config) -> Iterator[Unbuilt]:
    """What the configuration asks for and the pooler does not do."""
    yield from _unbuilt_settings(config)
    yield from _unbuilt_entries(config)


def unbuilt_line(unbuilt: Unbuilt) -> str:
    """One setting that is not built, its value, its meaning and where it was written."""
    value = "" if unbuilt.value is None else f" = {unbuilt.value}"
    place = f"  ({unbuilt.source})" if unbuilt.source else ""
    return f"[{unbuilt.section}] {unbuilt.name}{value}: {unbuilt.doc}{place}"


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


def _unbuilt_settings(config: Config) -> Iterator[Unbuilt]:
    rows = BY_NAME["pgbouncer"]
    for shown in shown_settings(config):
        row = rows[shown.name]
        value = getattr(config.settings, row.attribute)
        default = None if row.default is None else row.kind.parse(row.default)
        if not shown.is_default and value != default and not row.is_built(value):
            yield Unbuilt("pgbouncer", row.name, shown.value, shown.source, row.doc)


def _unbuilt_entries(config: Config) -> Iterator[Unbuilt]:
    for section, name, entry in _records(config):
        origin = config.origins.get((section, name))
        source = f"{origin.file}:{origin.line}" if origin is not None else ""
        for row in _written(section, entry):
            value = getattr(entry, row.attribute)
            if not row.is_built(value):
                yield Unbuilt(section, row.name, _shown(row, entry), source, row.doc)


def _all_unbuilt() -> Iterator[Unbuilt]:
    for row in SETTINGS:
        if row.built and row.except_values:
            yield Unbuilt(row.section, row.name, " | ".join(sorted(row.except_values)), "", row.doc)
        elif not row.built:
            yield Unbuilt(row.section, row.name, None, "", row.doc)


def _entry_line(entry: EntryLine) -> str:
    values = " ".join(f"{key}={_quoted(value)}" for key, value in entry.values)
    return f"{entry.name} = {values}  ({entry.source})"


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'" if " " in value or value.startswith("'") else value

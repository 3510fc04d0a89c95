"""Settings as text: the rows of SHOW CONFIG, and where each value was written."""

from __future__ import annotations

from dataclasses import dataclass

from pgshoal.config.model import Config
from pgshoal.config.settings import BY_NAME, Setting

HIDDEN = "<hidden>"
_AS_WRITTEN = frozenset({"list", "TLS versions"})


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """One [pgbouncer] setting as text; None prints as NULL; `source` is file:line, empty for a default."""

    name: str
    value: str | None
    default: str | None
    reloadable: bool
    source: str

    @property
    def is_default(self) -> bool:
        """Whether nothing was written for it."""
        return not self.source


def shown_settings(config: Config) -> tuple[ShownSetting, ...]:
    """All [pgbouncer] settings in alphabetical order."""
    return tuple(_shown(config, row) for _, row in sorted(BY_NAME["pgbouncer"].items()))


def _shown(config: Config, row: Setting) -> ShownSetting:
    origin = config.origins.get(("pgbouncer", row.name))
    source = "" if origin is None else f"{origin.file}:{origin.line}" if origin.line else origin.file
    return ShownSetting(row.name, _text(config, row), row.default, row.reloadable, source)


def _text(config: Config, row: Setting) -> str | None:
    value = getattr(config.settings, row.attribute)
    if value is None:
        return None
    if row.secret:
        return HIDDEN
    if row.kind.name in _AS_WRITTEN:
        # Lists are shown as they were written, which may differ in blanks or keywords from what they mean.
        origin = config.origins.get(("pgbouncer", row.name))
        return row.default if origin is None else origin.text
    return row.kind.show(value)

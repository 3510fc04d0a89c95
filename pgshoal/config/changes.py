"""The difference between two configurations: what RELOAD has to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from pgshoal.config import effective
from pgshoal.config.model import Config, DatabaseConfig
from pgshoal.config.settings import BY_NAME

EntryChange = Literal["same", "changed", "dirty", "removed"]
Name = TypeVar("Name", str, int)


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs; names are sorted. A dirty database must reconnect its servers, a changed one need not."""

    settings: tuple[str, ...]
    """[pgbouncer] settings that change now, including lines that were removed."""
    needs_restart: tuple[str, ...]
    """[pgbouncer] settings that differ but keep their old value until a restart."""
    databases_added: tuple[str, ...]
    databases_removed: tuple[str, ...]
    databases_dirty: tuple[str, ...]
    databases_changed: tuple[str, ...]
    """Entries that differ without being dirty."""
    autodb: EntryChange
    """What happens to the databases made by `*`; "removed" only concerns names without an entry of their own."""
    users: tuple[str, ...]
    """[users] entries added, removed or changed."""
    peers: tuple[int, ...]
    secrets: tuple[str, ...]
    """Users whose secret in auth_file was added, removed or changed."""
    client_tls: bool
    """Client-side TLS settings differ; they apply to new clients."""
    server_tls: bool
    """Server-side TLS settings differ; servers of the pools are dirty that have not all of their own."""

    @property
    def nothing(self) -> bool:
        """Whether the two configurations are the same in every respect that counts."""
        lists = (self.settings, self.needs_restart, self.databases_added, self.databases_removed, self.databases_dirty)
        more = (self.databases_changed, self.users, self.peers, self.secrets)
        return not any((*lists, *more)) and self.autodb == "same"


def keep_boot_settings(old: Config, new: Config) -> Config:
    """`new` as it can be in effect in a running process: settings that need a restart keep their old value."""
    kept: dict[str, Any] = {
        row.attribute: getattr(old.settings, row.attribute)
        for row in BY_NAME["pgbouncer"].values()
        if not row.reloadable
    }
    origins = dict(new.origins)
    for row in BY_NAME["pgbouncer"].values():
        place = ("pgbouncer", row.name)
        if not row.reloadable:
            origins.pop(place, None)
            if place in old.origins:
                origins[place] = old.origins[place]
    return replace(new, settings=replace(new.settings, **kept), origins=origins)


def difference(old: Config, new: Config) -> Changes:
    """Compare two whole configurations; `new` is what the files say, before keep_boot_settings."""
    differing = [
        row
        for _, row in sorted(BY_NAME["pgbouncer"].items())
        if getattr(old.settings, row.attribute) != getattr(new.settings, row.attribute)
    ]
    settings = tuple(row.name for row in differing if row.reloadable)
    entries = {name: entry_change(old, entry, new.databases.get(name)) for name, entry in sorted(old.databases.items())}
    return Changes(
        settings=settings,
        needs_restart=tuple(row.name for row in differing if not row.reloadable),
        databases_added=tuple(sorted(new.databases.keys() - old.databases.keys())),
        databases_removed=_named(entries, "removed"),
        databases_dirty=_named(entries, "dirty"),
        databases_changed=_named(entries, "changed"),
        autodb="same" if old.autodb is None else entry_change(old, old.autodb, new.autodb),
        users=_differing(old.users, new.users),
        peers=_differing(old.peers, new.peers),
        secrets=_differing(old.secrets, new.secrets),
        client_tls=any(name.startswith("client_tls") for name in settings),
        server_tls=any(name.startswith("server_tls") for name in settings),
    )


def entry_change(config: Config, old: DatabaseConfig, new: DatabaseConfig | None) -> EntryChange:
    """What becomes of the servers of one entry, listed or made by `*`, when `new` stands for its name."""
    if new is None:
        return "removed"
    if _server_side(config, old) != _server_side(config, new):
        return "dirty"
    # Sizes, limits, pool mode, encodings and passwords apply without closing anything.
    return "same" if replace(old, auto=new.auto) == new else "changed"


def _server_side(config: Config, entry: DatabaseConfig) -> tuple[object, ...]:
    """The part of an entry that decides to what, and as whom, its servers are connected."""
    return (
        entry.server_dbname,
        effective.server_hosts(config, entry),
        entry.port,
        entry.user,
        entry.connect_query,
        entry.auth_dbname,
        entry.auth_query,
        entry.load_balance_hosts,
        entry.target_session_attrs,
        effective.server_tls(config.settings, entry),
    )


def _named(entries: Mapping[str, EntryChange], change: EntryChange) -> tuple[str, ...]:
    return tuple(name for name, found in entries.items() if found == change)


def _differing(old: Mapping[Name, object], new: Mapping[Name, object]) -> tuple[Name, ...]:
    return tuple(sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key)))

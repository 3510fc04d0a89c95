"""Loads a configuration: the whole file becomes one Config, or one ConfigError and nothing changes."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pgshoal.config.hba import HbaFile, read_hba
from pgshoal.config.ident import IdentFile, read_ident
from pgshoal.config.ini import Assignment, Header, connection_string, read_ini
from pgshoal.config.ldap import BadLdapOption, LdapOptions, parse_ldap_options
from pgshoal.config.model import (
    DATABASE_NAME_BYTES_MAX,
    Config,
    DatabaseConfig,
    Origin,
    PeerConfig,
    Secret,
    Settings,
    UserConfig,
)
from pgshoal.config.settings import BY_NAME, Section, Setting
from pgshoal.config.userlist import NAME_BYTES_MAX, UserList, classify, read_userlist
from pgshoal.errors import ConfigError

CONSOLE_DATABASE = "pgbouncer"
COMMAND_LINE = "command line"
CONSOLE = "console"
#: Ends the name of an override that holds only where the file says nothing.
UNLESS_SET = "?"
#: After a change of one of these, the files of users and access are read again.
_FILES = frozenset({"auth_type", "auth_file", "auth_hba_file", "auth_ident_file", "auth_ldap_options"})


def load(path: str, overrides: Mapping[str, str] | None = None) -> Config:
    """Read `path`, its includes, and the files of users and access; `overrides` are [pgbouncer] values that win,
    except that one named `workers?` gives way to a `workers` in the file.

    Raises ConfigError with file, line, key, value and what is allowed. A missing or broken auth_file, and lines of the
    hba and ident files that are passed over, do not raise: they are in `warnings`, as PgBouncer too starts with them.
    """
    builder = _Builder(path)
    for item in read_ini(path):
        builder.take(item)
    for key, text in (overrides or {}).items():
        name = key.removesuffix(UNLESS_SET)
        if name == key or ("pgbouncer", name) not in builder.origins:
            builder.take(Assignment("pgbouncer", name, text, COMMAND_LINE, 0))
    config = builder.finish()
    require_consistent(config)
    return _with_secrets(config)


def set_value(config: Config, key: str, text: str) -> Config:
    """The configuration after the console's SET; a key that needs a restart is checked, then left as it is.

    TLS values may disagree with each other here: call require_consistent before TLS is set up again.
    """
    origin = Origin(CONSOLE, 0, text)
    row = _row("pgbouncer", key, origin)
    values: dict[str, Any] = {row.attribute: _value(row, key, text, origin)}
    if not row.reloadable:
        return config
    settings = replace(config.settings, **values)
    origins = {**config.origins, ("pgbouncer", row.name): origin}
    changed = replace(config, settings=settings, origins=origins)
    return keep_secrets(config.secrets, _with_secrets(changed)) if key in _FILES else changed


def keep_secrets(secrets: Mapping[str, Secret], fresh: Config) -> Config:
    """`fresh` for a process that has `secrets` in effect: they stay if its auth_file could not be read whole.

    A file that is missing, or half written, for a moment must not lock everybody out, operators included.
    """
    if not fresh.auth_file_broken:
        return fresh
    kept = at_setting(fresh, "auth_file", "the secrets that were in effect before stay")
    return replace(fresh, secrets=secrets, warnings=(*fresh.warnings, kept))


def require_consistent(config: Config) -> None:
    """Check the settings against each other; raises ConfigError at the setting that asks for the others."""
    settings = config.settings
    if settings.client_tls_sslmode != "disable" and not (
        settings.client_tls_key_file and settings.client_tls_cert_file
    ):
        reason = "To allow TLS connections from clients, client_tls_key_file and client_tls_cert_file must be set."
        raise at_setting(config, "client_tls_sslmode", reason)
    if settings.client_tls_sslmode in ("verify-ca", "verify-full") and not settings.client_tls_ca_file:
        raise at_setting(config, "client_tls_sslmode", "client_tls_sslmode requires client_tls_ca_file")
    if settings.proxy_protocol == "on" and not settings.proxy_protocol_networks:
        raise at_setting(config, "proxy_protocol", "proxy_protocol = on requires proxy_protocol_networks")
    if settings.auth_type == "cert" and settings.client_tls_sslmode != "verify-full":
        raise at_setting(config, "auth_type", "auth_type=cert requires client_tls_sslmode=SSLMODE_VERIFY_FULL")


def at_setting(config: Config, key: str, reason: str) -> ConfigError:
    """The error of one setting, at the place where it was written."""
    origin = config.origins.get(("pgbouncer", key), Origin(config.path, 0, ""))
    return ConfigError(origin.file, origin.line, key, origin.text, reason)


def _with_secrets(config: Config) -> Config:
    """What stands in the files of users and access."""
    settings = config.settings
    # With these two methods PgBouncer does not read the file either.
    wanted = settings.auth_file if settings.auth_type not in ("any", "pam") else None
    users = read_userlist(wanted) if wanted else UserList()
    ident, hba = IdentFile(), HbaFile()
    if settings.auth_type == "hba":
        ident = read_ident(settings.auth_ident_file) if settings.auth_ident_file else ident
        hba = read_hba(settings.auth_hba_file, ident.maps)
    warnings = (*(() if users.error is None else (users.error,)), *ident.warnings, *hba.warnings)
    asks_directory = settings.auth_type == "ldap" or any(rule.method == "ldap" for rule in hba.rules)
    if asks_directory and importlib.util.find_spec("ldap3") is None:
        warnings += (at_setting(config, "auth_type", "ldap lets nobody in without ldap3: pip install 'pgshoal[ldap]'"),)
    return replace(
        config,
        secrets=users.secrets,
        auth_file_broken=users.error is not None,
        hba=hba.rules,
        ident=ident.maps,
        ldap=_ldap(config),
        warnings=warnings,
    )


def _ldap(config: Config) -> LdapOptions | None:
    text = config.settings.auth_ldap_options
    if text is None or config.settings.auth_type != "ldap":
        return None
    try:
        return parse_ldap_options(text)
    except BadLdapOption as bad:
        found = at_setting(config, "auth_ldap_options", f"{bad.key}: {bad.allowed}")
        # Its value may hold a password.
        raise ConfigError(found.file, found.line, found.key, None, found.reason) from None


class _Builder:
    """Collects one load; nothing leaves it before everything was read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.main_seen = False
        self.values: dict[str, Any] = {}
        self.origins: dict[tuple[str, str], Origin] = {}
        self.databases: dict[str, DatabaseConfig] = {}
        self.autodb: DatabaseConfig | None = None
        self.users: dict[str, UserConfig] = {}
        self.peers: dict[int, PeerConfig] = {}

    def take(self, item: Header | Assignment) -> None:
        """Apply one line."""
        if isinstance(item, Header):
            self._header(item)
            return
        origin = Origin(item.file, item.line, item.value)
        match item.section:
            case "pgbouncer":
                self._main(item.key, origin)
            case "databases":
                self._database(item.key, origin)
            case "users":
                self._user(item.key, origin)
            case "peers":
                self._peer(item.key, origin)
            case _:
                raise ConfigError(item.file, item.line, item.key, None, "a value before the first section")

    def _header(self, header: Header) -> None:
        if header.section not in BY_NAME:
            reason = "sections are [pgbouncer], [databases], [users] and [peers]"
            raise ConfigError(header.file, header.line, f"[{header.section}]", None, reason)
        if header.section == "pgbouncer":
            self.main_seen = True
            # A repeated header starts the section again, except for keys whose default is unset.
            for row in BY_NAME["pgbouncer"].values():
                if row.default is not None:
                    self.values.pop(row.attribute, None)
                    self.origins.pop(("pgbouncer", row.name), None)

    def _main(self, key: str, origin: Origin) -> None:
        row = _row("pgbouncer", key, origin)
        self.values[row.attribute] = _value(row, key, origin.text, origin)
        self.origins["pgbouncer", row.name] = origin

    def _database(self, name: str, origin: Origin) -> None:
        if name == CONSOLE_DATABASE:
            raise ConfigError(origin.file, origin.line, name, None, 'database name "pgbouncer" is reserved')
        _bounded(name, DATABASE_NAME_BYTES_MAX, "a database name", origin)
        self.origins["databases", name] = origin
        entry = DatabaseConfig(name, **_entry_values("databases", name, origin))
        if entry.user is not None:
            _bounded(entry.user, NAME_BYTES_MAX, "a user name", origin, f"{name}: user")
        # An entry written twice is not merged: the later one stands alone.
        if name == "*":
            self.autodb = entry
        else:
            self.databases[name] = entry

    def _user(self, name: str, origin: Origin) -> None:
        _bounded(name, NAME_BYTES_MAX, "a user name", origin)
        self.origins["users", name] = origin
        self.users[name] = UserConfig(name, **_entry_values("users", name, origin))

    def _peer(self, name: str, origin: Origin) -> None:
        if not (name.isascii() and name.isdigit() and len(name) <= 5 and 1 <= int(name) <= 65535):
            raise ConfigError(origin.file, origin.line, name, None, "a peer is named by a number from 1 to 65535")
        values = _entry_values("peers", name, origin)
        if "host" not in values:
            raise ConfigError(origin.file, origin.line, name, None, f"host was not provided for peer {name}")
        self.origins["peers", str(int(name))] = origin
        self.peers[int(name)] = PeerConfig(int(name), **values)

    def finish(self) -> Config:
        """The Config, still without secrets."""
        if not self.main_seen:
            raise ConfigError(self.path, 0, "[pgbouncer]", None, "this section must exist")
        self.values.setdefault("conffile", self.path)
        return Config(
            self.path,
            Settings(**self.values),
            self.databases,
            self.autodb,
            self.users,
            self.peers,
            origins=self.origins,
        )


def _bounded(name: str, limit: int, what: str, origin: Origin, label: str | None = None) -> None:
    if len(name.encode(errors="surrogateescape")) > limit:
        raise ConfigError(origin.file, origin.line, label or name, None, f"{what} may have {limit} bytes")


def _entry_values(section: Section, name: str, origin: Origin) -> dict[str, Any]:
    """Parse a connection string by the rows of its section; repeated keys: the last one wins."""
    values: dict[str, Any] = {}
    try:
        pairs = list(connection_string(origin.text))
    except ValueError as error:
        raise ConfigError(origin.file, origin.line, name, None, f"syntax error in connection string: {error}") from None
    for key, text in pairs:
        label = f"{name}: {key}"
        row = _row(section, key, origin, label)
        value = _value(row, label, text, origin)
        values[row.attribute] = classify(text) if row.name == "password" else value
    return values


def _row(section: Section, key: str, origin: Origin, label: str | None = None) -> Setting:
    rows = BY_NAME[section]
    row = rows.get(key)
    if row is None:
        # The value of a misspelt key may be a password: it is not shown.
        raise ConfigError(origin.file, origin.line, label or key, None, "unknown parameter" + _hint(key, rows))
    return row


def _hint(key: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(key.lower(), names, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _value(row: Setting, label: str, text: str, origin: Origin) -> object:
    try:
        return row.kind.parse(text)
    except ValueError:
        shown = None if row.secret else text
        raise ConfigError(origin.file, origin.line, label, shown, f"must be {row.kind.allowed}") from None

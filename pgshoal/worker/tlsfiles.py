"""TLS material and policy, from settings to engine contexts, for clients and for servers."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pgshoal.auth.channel_binding import own_end_point
from pgshoal.config import effective
from pgshoal.config.model import Config, DatabaseConfig, Origin, ServerTls, Settings
from pgshoal.config.settings import BY_NAME
from pgshoal.engine.contract import Engine, TlsContext, TlsSettings
from pgshoal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_VERIFY: Final = ("verify-ca", "verify-full")
_STRICT: Final = ("require", *_VERIFY)
_Stamp = tuple[tuple[int, int, int], ...]
#: What each setting decides of what an engine gets, in the order in which they are tried to find the one to blame.
_DECIDES: Final = {
    "tls_cert_file": ("certificate_pem", "key_pem"),
    "tls_protocols": ("versions",),
    "tls_ciphers": ("ciphers",),
    "tls13_ciphers": ("tls13_ciphers",),
    "tls_ecdhcurve": ("curve",),
    "tls_ca_file": ("ca_pem", "request_certificate", "require_certificate", "verify_chain", "verify_name"),
}


class BadTls(ValueError):
    """TLS cannot be set up, because of the value of one setting."""

    def __init__(self, key: str, value: str, reason: str, text: str = "") -> None:
        super().__init__(text or f"{key} = {value}: {reason}")
        self.key = key
        self.value = value
        self.reason = reason
        #: the entry of [databases] whose servers it is about
        self.entry: DatabaseConfig | None = None

    def __str__(self) -> str:
        """Begins with the name of the entry."""
        return super().__str__() if self.entry is None else f"{self.entry.name}: {super().__str__()}"

    def located(self, config: Config) -> ConfigError:
        """With the place where the value was written, in the entry or for all."""
        entry, label = self.entry, self.key
        place = ("pgbouncer", self.key)
        if entry is not None:
            label = f"{entry.name}: {self.key}"
            place = place if getattr(entry, self.key) is None else ("databases", entry.name)
        origin = config.origins.get(place, Origin(config.path, 0, ""))
        return ConfigError(origin.file, origin.line, label, self.value, self.reason)


@dataclass(frozen=True, slots=True)
class Contexts:
    """What the files of some settings make."""

    settings: Settings
    client: TlsContext | None
    binding: bytes | None
    servers: dict[ServerTls, tuple[TlsContext, _Stamp]]


class TlsFiles:
    """The contexts new connections use. Connections that exist keep what they have."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: for accepted connections; None = TLS is not offered
        self.client: TlsContext | None = None
        #: what SCRAM of those connections can be bound to; None if the certificate allows none
        self.binding: bytes | None = None
        #: a TCP client without TLS is refused
        self.client_required = False
        self._settings = Settings()
        #: entries with the same settings share a context
        self._servers: dict[ServerTls, tuple[TlsContext, _Stamp]] = {}

    def apply(self, settings: Settings, entries: Iterable[DatabaseConfig] = ()) -> None:
        """Read all files and take the settings; ValueError with a readable text leaves everything as it was."""
        self.use(self.prepare(settings, entries))

    def prepare(self, settings: Settings, entries: Iterable[DatabaseConfig] = ()) -> Contexts:
        """Read all files and change nothing; ValueError with a readable text if they cannot be used."""
        client, binding = self._client_context(settings)
        servers: dict[ServerTls, tuple[TlsContext, _Stamp]] = {}
        for entry in (None, *entries):
            wanted = effective.server_tls(settings, entry)
            if wanted.server_tls_sslmode == "disable" or wanted in servers:
                continue
            try:
                servers[wanted] = self._stamped(wanted)
            except BadTls as bad:
                bad.entry = entry
                raise
        return Contexts(settings, client, binding, servers)

    def read(self, config: Config) -> Contexts:
        """Prepare what a configuration says; ConfigError names the place of a value that cannot be used."""
        try:
            return self.prepare(config.settings, config.entries())
        except BadTls as bad:
            raise bad.located(config) from None

    def use(self, contexts: Contexts) -> None:
        """Take what was prepared."""
        self.client, self.binding = contexts.client, contexts.binding
        self.client_required = contexts.settings.client_tls_sslmode in _STRICT
        self._settings, self._servers = contexts.settings, dict(contexts.servers)

    def server_side(self, entry: DatabaseConfig | None = None) -> TlsContext:
        """For a connection to a server of this entry; files that have changed are read again.

        ValueError if they cannot be used.
        """
        wanted = effective.server_tls(self._settings, entry)
        found = self._servers.get(wanted)
        if found is None or found[1] != _stamp(wanted):
            found = self._servers[wanted] = self._stamped(wanted)
        return found[0]

    def _stamped(self, wanted: ServerTls) -> tuple[TlsContext, _Stamp]:
        stamp = _stamp(wanted)
        return self._server_context(wanted), stamp

    def _client_context(self, settings: Settings) -> tuple[TlsContext | None, bytes | None]:
        mode = settings.client_tls_sslmode
        if mode == "disable":
            return None, None
        if not settings.client_tls_key_file or not settings.client_tls_cert_file:
            raise ValueError(
                "To allow TLS connections from clients, client_tls_key_file and client_tls_cert_file must be set."
            )
        if mode in _VERIFY and not settings.client_tls_ca_file:
            raise ValueError("client_tls_sslmode requires client_tls_ca_file")
        found = client_settings(settings)

        def build(wanted: TlsSettings) -> tuple[TlsContext, bytes | None]:
            return self._engine.server_context(wanted), own_end_point(wanted.certificate_pem)

        try:
            return build(found)
        except ValueError:
            raise _blame(settings, "client", found, build) from None

    def _server_context(self, settings: ServerTls) -> TlsContext:
        found = server_settings(settings)
        try:
            return self._engine.client_context(found)
        except ValueError:
            raise _blame(settings, "server", found, self._engine.client_context) from None


def _blame(
    settings: Settings | ServerTls, side: str, found: TlsSettings, build: Callable[[TlsSettings], object]
) -> BadTls:
    """Which setting it is that cannot be used: the first one without which all before it can."""
    trial = TlsSettings()
    for what, names in _DECIDES.items():
        trial = replace(trial, **{name: getattr(found, name) for name in names})
        try:
            build(trial)
        except ValueError as error:
            key = f"{side}_{what}"
            value = BY_NAME["pgbouncer"][key].kind.show(getattr(settings, key)) or ""
            if what == "tls_cert_file":
                value += f", {side}_tls_key_file = {getattr(settings, f'{side}_tls_key_file')}"
            return BadTls(key, value, str(error))
    raise AssertionError("what fails as a whole fails with its last part")


def client_settings(settings: Settings) -> TlsSettings:
    """What clients meet; a CA file means that certificates they bring are verified, whatever the mode."""
    return TlsSettings(
        certificate_pem=_read("client_tls_cert_file", settings.client_tls_cert_file),
        key_pem=_read("client_tls_key_file", settings.client_tls_key_file),
        ca_pem=_read("client_tls_ca_file", settings.client_tls_ca_file),
        versions=_versions(settings.client_tls_protocols),
        ciphers=settings.client_tls_ciphers,
        tls13_ciphers=settings.client_tls13_ciphers or "",
        curve=_curve(settings.client_tls_ecdhcurve),
        request_certificate=bool(settings.client_tls_ca_file),
        require_certificate=settings.client_tls_sslmode in _VERIFY,
        # Without it an engine may take any certificate that is not required, and hba lines would believe it.
        verify_chain=bool(settings.client_tls_ca_file),
    )


def server_settings(settings: Settings | ServerTls) -> TlsSettings:
    """What we bring to servers and ask of them."""
    mode = settings.server_tls_sslmode
    return TlsSettings(
        certificate_pem=_read("server_tls_cert_file", settings.server_tls_cert_file),
        key_pem=_read("server_tls_key_file", settings.server_tls_key_file),
        ca_pem=_read("server_tls_ca_file", settings.server_tls_ca_file),
        versions=_versions(settings.server_tls_protocols),
        ciphers=settings.server_tls_ciphers,
        tls13_ciphers=settings.server_tls13_ciphers or "",
        verify_chain=mode in _VERIFY,
        verify_name=mode == "verify-full",
    )


#: OpenSSL's name of each curve with several, in lower case. P-521 stands for the engines that have it.
_CURVES: Final = {
    "p-256": "prime256v1",
    "secp256r1": "prime256v1",
    "p-384": "secp384r1",
    "p-521": "secp521r1",
    "x25519": "X25519",
}


def _curve(name: str) -> str:
    """What the engine is asked for. OpenSSL's libraries of today take `none` like `auto`, too."""
    known = name.lower()
    return "" if known in ("", "auto", "none") else _CURVES.get(known, name)


def _versions(protocols: Sequence[str]) -> tuple[str, ...]:
    return tuple("TLSv1" if name == "tlsv1.0" else "TLSv" + name.removeprefix("tlsv") for name in protocols)


def _read(key: str, path: str) -> bytes:
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadTls(key, path, reason, f"{key}: {path}: {reason}") from None


def _stamp(settings: ServerTls) -> _Stamp:
    """Changes when a server-side file was replaced or written to."""
    found: list[tuple[int, int, int]] = []
    for path in (settings.server_tls_ca_file, settings.server_tls_cert_file, settings.server_tls_key_file):
        try:
            status = os.stat(path) if path else None
        except OSError:
            status = None
        found.append((status.st_ino, status.st_size, status.st_mtime_ns) if status else (0, 0, 0))
    return tuple(found)

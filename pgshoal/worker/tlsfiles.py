"""TLS material and policy, from settings to engine contexts, for clients and for servers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pgshoal.auth.channel_binding import own_end_point
from pgshoal.config import effective
from pgshoal.config.model import DatabaseConfig, ServerTls, Settings
from pgshoal.engine.contract import Engine, TlsContext, TlsSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_VERIFY: Final = ("verify-ca", "verify-full")
_STRICT: Final = ("require", *_VERIFY)
_Stamp = tuple[tuple[int, int, int], ...]


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
            except ValueError as error:
                raise ValueError(str(error) if entry is None else f"{entry.name}: {error}") from None
        return Contexts(settings, client, binding, servers)

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
        try:
            return self._engine.server_context(found), own_end_point(found.certificate_pem)
        except ValueError as error:
            raise ValueError(f"{_written(settings, 'client')}: {error}") from None

    def _server_context(self, settings: ServerTls) -> TlsContext:
        found = server_settings(settings)
        try:
            return self._engine.client_context(found)
        except ValueError as error:
            raise ValueError(f"{_written(settings, 'server')}: {error}") from None


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


def _written(settings: Settings | ServerTls, side: str) -> str:
    """The settings one of which the engine cannot use, as they stand in the file."""
    names = [f"{side}_tls_{what}" for what in ("cert_file", "key_file", "ca_file", "ciphers")]
    if isinstance(settings, Settings) and side == "client" and _curve(settings.client_tls_ecdhcurve):
        names.append("client_tls_ecdhcurve")
    return ", ".join(f"{name} = {getattr(settings, name)}" for name in names if getattr(settings, name))


def _versions(protocols: Sequence[str]) -> tuple[str, ...]:
    return tuple("TLSv1" if name == "tlsv1.0" else "TLSv" + name.removeprefix("tlsv") for name in protocols)


def _read(key: str, path: str) -> bytes:
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{key}: {path}: {error.strerror}") from None


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

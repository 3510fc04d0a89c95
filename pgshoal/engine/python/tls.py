"""TLS for the twin: contexts from settings, and one connection's records through memory buffers."""

from __future__ import annotations

import contextlib
import os
import ssl
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgshoal.engine.contract import TlsSettings

_VERSIONS = {
    "TLSv1.0": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_OFF = {
    ssl.TLSVersion.TLSv1: ssl.OP_NO_TLSv1,
    ssl.TLSVersion.TLSv1_1: ssl.OP_NO_TLSv1_1,
    ssl.TLSVersion.TLSv1_2: ssl.OP_NO_TLSv1_2,
    ssl.TLSVersion.TLSv1_3: ssl.OP_NO_TLSv1_3,
}
_KEYWORDS = {
    "default": "",
    "": "",
    "secure": "HIGH:!aNULL:!eNULL",
    "normal": "HIGH:MEDIUM:+3DES:!aNULL",
    "fast": "HIGH:!aNULL:!eNULL",
    "compat": "HIGH:MEDIUM:!aNULL:!eNULL",
    "legacy": "ALL:!aNULL:!eNULL",
    "all": "ALL:!aNULL:!eNULL",
    "insecure": "ALL:!aNULL:!eNULL",
}
_CHUNK = 64 * 1024


class TlsFailure(Exception):
    """The handshake or a record was not acceptable."""


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message or "certificate verify failed"
    return (error.reason or str(error)).replace("_", " ").lower()


def _load_pair(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """The standard library reads files only: these stand in memory, so that no key touches a disk."""
    if not settings.key_pem:
        raise ValueError("TLS certificate without a key")
    certificate = os.memfd_create("certificate")
    key = os.memfd_create("key")
    try:
        os.write(certificate, settings.certificate_pem)
        os.write(key, settings.key_pem)
        context.load_cert_chain(f"/proc/self/fd/{certificate}", f"/proc/self/fd/{key}", password=_no_password)
    except ssl.SSLError as error:
        raise ValueError(f"TLS certificate or key cannot be used: {_reason(error)}") from error
    finally:
        os.close(certificate)
        os.close(key)


def _no_password() -> bytes:
    raise ValueError("TLS key is encrypted")


def _context(settings: TlsSettings, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    unknown = [version for version in settings.versions if version not in _VERSIONS]
    if unknown or not settings.versions:
        raise ValueError(f"unknown TLS versions: {', '.join(unknown)}" if unknown else "no TLS version is allowed")
    wanted = {_VERSIONS[version] for version in settings.versions}
    context.minimum_version = min(wanted)
    context.maximum_version = max(wanted)
    for version, off in _OFF.items():
        if min(wanted) < version < max(wanted) and version not in wanted:
            context.options |= off
    ciphers = _KEYWORDS.get(settings.ciphers.lower(), settings.ciphers)
    if ciphers:
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError as error:
            raise ValueError(f"TLS ciphers cannot be used: {settings.ciphers}") from error
    if settings.tls13_ciphers:
        raise ValueError("the python engine cannot choose TLS 1.3 ciphers")
    if settings.curve:
        try:
            context.set_ecdh_curve(settings.curve)
        except (ssl.SSLError, ValueError) as error:
            raise ValueError(f"the curve {settings.curve} is not available") from error
    context.set_alpn_protocols(["postgresql"])
    if settings.certificate_pem:
        _load_pair(context, settings)
    if settings.ca_pem:
        try:
            context.load_verify_locations(cadata=settings.ca_pem.decode("ascii", "ignore"))
        except (ssl.SSLError, ValueError) as error:
            raise ValueError("TLS CA certificates cannot be used") from error
    return context


def _note_name(sslobj: Any, name: str | None, context: ssl.SSLContext) -> None:
    sslobj.sni_name = name or ""


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """For connections we accepted."""
    if not settings.certificate_pem:
        raise ValueError("TLS needs a certificate and a key")
    context = _context(settings, ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = _note_name
    if settings.require_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
    elif settings.request_certificate:
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """For connections we made."""
    context = _context(settings, ssl.PROTOCOL_TLS_CLIENT)
    if settings.verify_chain or settings.verify_name:
        context.verify_mode = ssl.CERT_REQUIRED
        if not settings.ca_pem:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    context.check_hostname = settings.verify_name
    return context


class TlsChannel:
    """One connection's TLS: ciphertext in, plaintext out, and the other way."""

    __slots__ = ("_incoming", "_object", "_outgoing", "ended", "handshaking", "rest")

    def __init__(self, context: Any, server_name: str, plain: bytes) -> None:
        """`plain` is output from before TLS, which goes first."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        server_side = context.protocol == ssl.PROTOCOL_TLS_SERVER
        self._object = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_name or None
        )
        self.handshaking = True
        self.ended = False
        #: What stands to be sent as it is.
        self.rest = plain

    def feed(self, data: bytes) -> tuple[str, str, str, str, bytes | None] | None:
        """Received bytes; the facts of the handshake when it is done by them."""
        if data:
            self._incoming.write(data)
        if not self.handshaking:
            return None
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLError as error:
            raise TlsFailure(_reason(error)) from error
        self.handshaking = False
        cipher = self._object.cipher()
        return (
            self._object.version() or "",
            cipher[0] if cipher else "",
            self._object.selected_alpn_protocol() or "",
            getattr(self._object, "sni_name", ""),
            self._object.getpeercert(binary_form=True),
        )

    def read(self) -> bytes:
        """Plaintext, b"" if there is none now; then `ended` tells whether more may come."""
        if self.handshaking:
            return b""
        try:
            data: bytes = self._object.read(_CHUNK)
        except ssl.SSLWantReadError:
            return b""
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self.ended = True
            return b""
        except ssl.SSLError as error:
            raise TlsFailure(_reason(error)) from error
        if not data:
            self.ended = True
        return data

    def wrap(self, out: Iterable[bytes]) -> bytes:
        """What is to be sent: what stood, then the handshake, then the output as records."""
        if not self.handshaking:
            plain = b"".join(out)
            if plain:
                self._object.write(plain)
        if self._outgoing.pending:
            self.rest += self._outgoing.read()
        return self.rest

    def farewell(self) -> bytes:
        """The closing alert."""
        if self.handshaking:
            return b""
        with contextlib.suppress(ssl.SSLError, OSError, ValueError):
            self._object.unwrap()
        return self._outgoing.read()

"""TLS towards PostgreSQL for the few connections the supervisor makes itself: cancel requests and questions."""

from __future__ import annotations

import ssl
from typing import Final

from pgshoal.config.model import ServerTls

STRICT: Final = ("require", "verify-ca", "verify-full")
_VERSIONS: Final = {
    "tlsv1.0": ssl.TLSVersion.TLSv1,
    "tlsv1.1": ssl.TLSVersion.TLSv1_1,
    "tlsv1.2": ssl.TLSVersion.TLSv1_2,
    "tlsv1.3": ssl.TLSVersion.TLSv1_3,
}


def context(settings: ServerTls, *, verify_name: bool) -> ssl.SSLContext:
    """What server_tls_* say, for the ssl module. ValueError names the setting that cannot be used.

    Without `verify_name` verify-full checks the chain alone, for those who know only an address.
    """
    mode = settings.server_tls_sslmode
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = verify_name and mode == "verify-full"
    made.verify_mode = ssl.CERT_REQUIRED if mode in ("verify-ca", "verify-full") else ssl.CERT_NONE
    try:
        _versions(made, settings)
        if made.verify_mode is ssl.CERT_REQUIRED:
            if settings.server_tls_ca_file:
                made.load_verify_locations(settings.server_tls_ca_file)
            else:
                made.load_default_certs()
        if settings.server_tls_cert_file and settings.server_tls_key_file:
            made.load_cert_chain(settings.server_tls_cert_file, settings.server_tls_key_file)
        if settings.server_tls_ciphers not in ("", "default", "secure", "compat", "legacy", "normal", "fast", "all"):
            made.set_ciphers(settings.server_tls_ciphers)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise ValueError(f"server_tls_*: {error}") from None
    return made


def _versions(made: ssl.SSLContext, settings: ServerTls) -> None:
    wanted = [_VERSIONS[name] for name in settings.server_tls_protocols if name in _VERSIONS]
    old = {ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1}
    # The ssl module warns of old versions, and the library's default refuses them anyhow.
    modern = sorted(version for version in wanted if version not in old)
    if modern:
        made.minimum_version, made.maximum_version = modern[0], modern[-1]

"""The names in a client's certificate that a user can be compared with."""

from __future__ import annotations


def names(der: bytes) -> tuple[str, ...]:
    """The common name, DNS names and addresses, each as it stands: no wildcard, no folding of case. Broken: none."""
    # Imported by the first login that needs it: it takes 9 MB, and most workers never do.
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        certificate = x509.load_der_x509_certificate(der)
        found = [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[:1]]
    except ValueError:
        return ()
    try:
        more = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        found += more.value.get_values_for_type(x509.DNSName)
        found += map(str, more.value.get_values_for_type(x509.IPAddress))
    except (x509.ExtensionNotFound, ValueError):
        pass
    # What stands behind a zero byte would be hidden from whoever issued the certificate.
    return tuple(name for name in found if name and "\0" not in name)

"""The tls-server-end-point channel binding of RFC 5929: a hash of the server's certificate."""


def tls_server_end_point(certificate_der: bytes) -> bytes | None:
    """The binding data; None if the certificate's signature names no hash (Ed25519) and so allows no binding."""
    # Imported by the first login that needs it: it takes 10 MB, and most workers never do.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509 import load_der_x509_certificate

    try:
        algorithm = load_der_x509_certificate(certificate_der).signature_hash_algorithm
    except (ValueError, UnsupportedAlgorithm):
        return None
    if algorithm is None:
        return None
    if isinstance(algorithm, hashes.MD5 | hashes.SHA1):
        algorithm = hashes.SHA256()
    digest = hashes.Hash(algorithm)
    digest.update(certificate_der)
    return digest.finalize()

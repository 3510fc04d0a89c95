"""The one exception a failed authentication raises."""


class AuthFailed(Exception):
    """The peer did not prove itself; `reason` is for the log, never for the peer, and holds no secret."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BadMechanism(AuthFailed):
    """The peer chose or offered no SASL mechanism we can use."""

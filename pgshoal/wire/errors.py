"""The one exception that malformed protocol input raises."""


class WireError(Exception):
    """The peer sent bytes that are not the PostgreSQL protocol; `reason` is safe to log and to send."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

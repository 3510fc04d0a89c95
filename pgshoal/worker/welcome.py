"""What a client is told at the end of its login, prepared once per pool and per set of startup parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pgshoal.policy.startup import merge_parameters
from pgshoal.wire.build import AUTH_OK, parameter_statuses

if TYPE_CHECKING:
    from pgshoal.worker.records import Welcome

#: The version clients and the console are told: whose behaviour this pooler has.
PGBOUNCER_VERSION: Final = "1.26.1"
_REMEMBERED_MAX: Final = 64

Parameters = tuple[tuple[str, str], ...]


class WelcomePlan:
    """A pool's part of the welcome; `told` adds one client's own parameters.

    Drivers send the same few parameters again and again, so the answers are remembered.
    """

    __slots__ = ("_defaults", "_fixed", "_last", "_remembered", "limits")

    def __init__(self, welcome: Welcome, pool_mode: str, max_prepared_statements: int, order: tuple[str, ...]) -> None:
        """`order`: the names a client may set, in the order clients are told."""
        reported = {name.lower(): value for name, value in welcome.parameters}
        tracked = {name.lower() for name in order}
        tracked.add("session_authorization")
        own: Parameters = (
            ("pgbouncer.max_prepared_statements", str(max_prepared_statements)),
            ("pgbouncer.pool_mode", pool_mode),
        )
        untracked = tuple(pair for pair in welcome.parameters if pair[0].lower() not in tracked)
        self._fixed = parameter_statuses((("pgbouncer.version", PGBOUNCER_VERSION), *untracked, *own))
        self._defaults: Parameters = tuple((name, reported[name.lower()]) for name in order if name.lower() in reported)
        # Told like the tracked ones, but nobody may set it.
        session = reported.get("session_authorization")
        self._last = b"" if session is None else parameter_statuses((("session_authorization", session),))
        #: by login user: (client_idle_timeout, query_wait_timeout) as `admit` takes them
        self.limits: dict[str, tuple[int, int]] = {}
        self._remembered: dict[Parameters, tuple[bytes, Parameters]] = {}

    def told(self, wished: Parameters) -> tuple[bytes, Parameters]:
        """(AuthenticationOk and all ParameterStatus, the client's full set of tracked values)."""
        found = self._remembered.get(wished)
        if found is None:
            merged = merge_parameters(self._defaults, wished)
            found = AUTH_OK + self._fixed + parameter_statuses(merged) + self._last, merged
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[wished] = found
        return found

"""When to start again what has failed: soon at first, then ever later. Pure; times are in monotonic seconds.

Called by `streams.ops.relay_care`.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_SECONDS = 5.0  # from the failure to the first restart
LAST_SECONDS = 300.0
RAN_SECONDS = 300.0  # what ran for so long has got over it: its next failure is a first one


@dataclass(slots=True)
class Restarts:
    """The restarts of one thing: told at each look whether it has failed, it says whether to restart it now."""

    count: int = 0  # since it last ran for long
    _failed_since: float | None = None
    _ran_since: float | None = None

    @property
    def wait_seconds(self) -> float:
        """From a failure to the restart: doubled with each."""
        return min(LAST_SECONDS, FIRST_SECONDS * 2.0 ** min(self.count, 64))

    def runs(self, now: float) -> None:
        """It has not failed."""
        self._failed_since = None
        if self._ran_since is None:
            self._ran_since = now
        if now - self._ran_since >= RAN_SECONDS:
            self.count = 0

    def is_due(self, now: float) -> bool:
        """It has failed; whether it is time for a restart."""
        self._ran_since = None
        if self._failed_since is None:
            self._failed_since = now
        return now - self._failed_since >= self.wait_seconds

    def restarted(self) -> None:
        """It was restarted, so a failure that is seen from now on is another one."""
        self.count += 1
        self._failed_since = None

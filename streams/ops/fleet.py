"""What is known of the workers of one `streams run`: their last word, and their totals over restarts. No I/O.

Kept by streams/ops/supervisor.py, shown by the command line's table and by streams/ops/metrics.py.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from streams.runtime.status import OUTCOMES, Status, ended

RATE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Tally:
    """One worker's last status, and its totals over all the processes that it has been.

    Frozen, and replaced as a whole: another thread never sees a record counted twice. A process that is killed takes
    with it what it counted in its last second.
    """

    before: Mapping[str, int] = field(default_factory=dict)  # by outcome, of processes that ended
    status: Status | None = None  # None until the present process has said something
    heard_at: float = 0.0  # monotonic seconds

    def heard(self, status: Status, now: float) -> Tally:
        """The process says how it is."""
        return replace(self, status=status, heard_at=now)

    def over(self) -> Tally:
        """The process ended."""
        return Tally(self.records)

    @property
    def records(self) -> dict[str, int]:
        """By outcome, from the first process on."""
        now = self.status.records if self.status else {}
        return {outcome: self.before.get(outcome, 0) + now.get(outcome, 0) for outcome in OUTCOMES}


class Rate:
    """Records a second over the last RATE_SECONDS."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, records: int, now: float) -> None:
        """There were so many at this moment."""
        self._seen.append((now, records))
        while len(self._seen) > 1 and self._seen[1][0] <= now - RATE_SECONDS:
            self._seen.popleft()

    def per_second(self) -> float | None:
        """None until there is a second look."""
        if len(self._seen) < 2:
            return None
        (since, before), (until, after) = self._seen[0], self._seen[-1]
        return (after - before) / (until - since) if until > since else None


@dataclass(frozen=True, slots=True)
class Row:
    """One worker as it is now."""

    reader: str
    tally: Tally
    silent_seconds: float  # since its last word, or since its start
    life: Literal["runs", "waits", "over"]  # waits: for its restart; over: it was told to stop, and has
    restarts_in_seconds: float
    restarts: int
    rate_per_second: float | None

    @property
    def blocked_seconds(self) -> float:
        """The age of the oldest record in flight; it grows on while the worker is silent."""
        blocked = self.tally.status.blocked if self.tally.status else None
        return blocked.seconds + self.silent_seconds if blocked else 0.0


def total(rows: list[Row]) -> Counter[str]:
    """The records of several workers, by outcome."""
    summed: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
    for row in rows:
        summed.update(row.tally.records)
    return summed


def finished(tally: Tally) -> int:
    """How many records came to their end, over all processes."""
    return ended(tally.records)

"""What a bounded replay reads, how fast, and when it will be through. Pure: the time is an argument.

Called by `streams.runtime.bounded`, which reads, and by `streams.ops.replay_runs`, which plans and watches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from streams.core.groups import Log, Partition
from streams.core.offsets import Position
from streams.core.replay import Target
from streams.errors import ConfigError, ReplayRefused

BURST_SECONDS = 0.1  # what was not used of a rate is kept for so long


class Bound(NamedTuple):
    """Of one partition: the first position to read, and the first not to read any more."""

    start: Position
    end: Position


@dataclass(frozen=True, slots=True)
class Window:
    """What a replay reads. The times, in milliseconds since the epoch, are a filter: those in a log have no order."""

    bounds: Mapping[Partition, Bound]
    since_ms: int | None = None
    until_ms: int | None = None  # the first that is too late

    def holds(self, partition: Partition, position: int, time_ms: int) -> bool:
        """Whether a record is to be read."""
        bound = self.bounds.get(partition)
        return (
            bound is not None
            and bound.start <= position < bound.end
            and (self.since_ms is None or time_ms >= self.since_ms)
            and (self.until_ms is None or time_ms < self.until_ms)
        )

    @property
    def offsets(self) -> int:
        """How many there are, markers and what the times leave out included."""
        return sum(bound.end - bound.start for bound in self.bounds.values())


def window(
    since: Target, until: Target, logs: Mapping[Partition, Log], first: Mapping[Partition, Position | None]
) -> Window:
    """The window from one target to another; `first` is the first record at or after the time `since`.

    Up to a time means up to the end of the log as it is now, since a record of before may stand anywhere in it.
    Raises ConfigError for a window that is the wrong way round, ReplayRefused for an empty one.
    """
    if "shift" in (since.kind, until.kind):
        raise ConfigError("a replay's own group has no commit to shift: give a time, an offset, earliest or latest")
    since_ms, until_ms = (one.value if one.kind == "time" else None for one in (since, until))
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise ConfigError("--from is not before --to")
    bounds = {}
    for partition, log in sorted(logs.items()):
        start = _start(since, log, first.get(partition))
        bounds[partition] = Bound(start, max(start, _end(until, log)))
    made = Window(bounds, since_ms, until_ms)
    if not made.offsets:
        raise ReplayRefused("the log has no record between --from and --to")
    return made


def is_whole(since: Target, until: Target, logs: Mapping[Partition, Log]) -> bool:
    """Whether everything that was ever in the log is read."""
    return since.kind == "earliest" and until.kind == "latest" and all(log.start == 0 for log in logs.values())


def eta_seconds(about: int, read: int, seconds: float, rate_per_second: float | None) -> float | None:
    """How long the rest takes: at the pace so far, of `seconds`, and no faster than the rate; None if unknown."""
    left = max(0, about - read)
    paces = [each for each in (read / seconds if seconds > 0 else 0, rate_per_second) if each]
    return left / min(paces) if paces else None


class Pace:
    """No more than so many records a second; None: as they come. `now` is in monotonic seconds."""

    def __init__(self, rate_per_second: float | None, now: float) -> None:
        self._rate = rate_per_second
        self._saved = 0.0
        self._at = now

    def allowed(self, records_max: int, now: float) -> int:
        """How many may be read now."""
        if self._rate is None:
            return records_max
        self._saved = min(1 + self._rate * BURST_SECONDS, self._saved + (now - self._at) * self._rate)
        self._at = now
        return min(records_max, int(self._saved))

    def took(self, records: int) -> None:
        """So many were read."""
        self._saved -= records

    @property
    def wait_seconds(self) -> float:
        """Until the next is allowed."""
        return max(0.0, 1.0 - self._saved) / self._rate if self._rate else 0.0


def _start(since: Target, log: Log, first: Position | None) -> Position:
    if since.kind == "earliest":
        return log.start
    if since.kind == "time":
        return log.end if first is None else min(first, log.end)
    return log.end if since.kind == "latest" else _inside(since.value, log)


def _end(until: Target, log: Log) -> Position:
    if until.kind == "earliest":
        return log.start
    return _inside(until.value, log) if until.kind == "offset" else log.end


def _inside(offset: int, log: Log) -> Position:
    return Position(min(max(offset, log.start), log.end))

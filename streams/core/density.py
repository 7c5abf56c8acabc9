"""Records per offset: how many records lie between two offsets of a partition's log. Pure.

Markers of transactions, aborted records and compaction take offsets that no reader sees, so offsets overstate a job
count: 1.3 to 2.0 times were seen with one marker for every few records. Where a few offsets were read
(`streams.kafka.record_counts`) the ratio is known; in between it is taken to change evenly. A log's past does not
change, so what was measured stays true. Called by `streams.core.series`, and by
`streams.ops.lag_series` for what to read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

SPAN_OFFSETS = 256  # one reading: enough for a ratio to a hundredth, and one fetch of records of half a kilobyte
# The end is read again when it has come so far: until then what comes is taken to be like what came before.
TAIL_OFFSETS = 64
# A burst is denser than what comes before and after it: a reading that has its end inside is kept in parts. Otherwise
# one figure for all is the better one, for it stands for what lies around too.
PART_OFFSETS = 32
_PARTS_DIFFER = 0.2
POINTS_MAX = 256
# A gap of more than this share of the backlog is read in its middle, so the backlog is known at five places or more.
_GAP_SHARE = 0.25


class Point(NamedTuple):
    """A measured place: the middle of the offsets that were read, and how many of them were records (0 to 1)."""

    offset: float
    records_per_offset: float


class Span(NamedTuple):
    """Offsets to read: from `start` to before `end`."""

    start: int
    end: int

    @property
    def middle(self) -> float:
        return (self.start + self.end) / 2


class Reading(NamedTuple):
    """Offsets that were read, and which of them are records, in the log's order."""

    span: Span
    records: Sequence[int]

    @property
    def points(self) -> list[Point]:
        """What is known by it: one point, or one a part if the parts differ."""
        start, end = self.span
        count = max(1, (end - start) // PART_OFFSETS)
        parts = [Span(*both) for both in pairwise(start + (end - start) * n // count for n in range(count + 1))]
        points = [self._point(part) for part in parts]
        shares = [point.records_per_offset for point in points]
        return points if max(shares) - min(shares) > _PARTS_DIFFER else [self._point(self.span)]

    def _point(self, part: Span) -> Point:
        within = bisect_left(self.records, part.end) - bisect_left(self.records, part.start)
        return Point(part.middle, within / (part.end - part.start))


@dataclass(frozen=True)
class Density:
    """What is known of one partition: points in the log's order, and how far towards its end it was read."""

    points: tuple[Point, ...] = ()
    read_until: int = 0

    def with_reading(self, reading: Reading) -> Density:
        """Know this too; every second point is forgotten when they become too many, the ends never."""
        points = list(self.points)
        for point in reading.points:
            insort(points, point)
        while len(points) > POINTS_MAX:
            points = [*points[:-1:2], points[-1]]
        return Density(tuple(points), max(self.read_until, reading.span.end))

    def records_between(self, start: float, end: float) -> float | None:
        """The records from `start` to before `end`, negative when they stand the other way; None if nothing is known.

        The integral of the records per offset, which is linear between two points and constant beyond the last ones.
        """
        if start == end:
            return 0.0
        return self._until(end) - self._until(start) if self.points else None

    def at(self, offset: float) -> float | None:
        """The records per offset at a place; None if nothing is known."""
        if not self.points:
            return None
        above = bisect_right(self._offsets, offset)
        if above in (0, len(self.points)):
            return self.points[max(0, above - 1)].records_per_offset
        low, high = self.points[above - 1], self.points[above]
        share = (offset - low.offset) / (high.offset - low.offset)
        return low.records_per_offset + share * (high.records_per_offset - low.records_per_offset)

    def unknown(self, position: int, log_start: int, log_end: int) -> list[Span]:
        """What should be read to know the backlog of a reader at `position`, and what comes and goes, best first."""
        wanted = [_around(position, log_start, log_end)]
        middle = self._middle_of_gap(position, log_end)
        if middle is not None:
            wanted.append(_around(middle, log_start, log_end))
        far = [span for span in wanted if span.start < span.end and self._is_far(span.middle)]
        return list(dict.fromkeys([*self._unread_end(log_start, log_end), *far]))

    @cached_property
    def _offsets(self) -> list[float]:
        return [point.offset for point in self.points]

    @cached_property
    def _sums(self) -> list[float]:
        """Records from the first point to each point."""
        sums = [0.0]
        for low, high in pairwise(self.points):
            mean = (low.records_per_offset + high.records_per_offset) / 2
            sums.append(sums[-1] + (high.offset - low.offset) * mean)
        return sums

    def _until(self, offset: float) -> float:
        """Records from the first point to the offset."""
        below = max(0, bisect_right(self._offsets, offset) - 1)
        point, here = self.points[below], self.at(offset)
        assert here is not None
        return self._sums[below] + (offset - point.offset) * (point.records_per_offset + here) / 2

    def _unread_end(self, log_start: int, log_end: int) -> Iterable[Span]:
        tail = Span(max(log_start, log_end - SPAN_OFFSETS, self.read_until), log_end)
        if tail.end - tail.start >= (TAIL_OFFSETS if self.points else 1):
            yield tail

    def _is_far(self, offset: float) -> bool:
        return all(abs(point.offset - offset) > SPAN_OFFSETS for point in self.points)

    def _middle_of_gap(self, position: int, log_end: int) -> int | None:
        """The middle of the widest stretch of the backlog that nothing is known of; None if all are narrow."""
        known = [position, *(point.offset for point in self.points if position < point.offset < log_end), log_end]
        width, low = max((high - low, low) for low, high in pairwise(known))
        return int(low + width / 2) if width > max(2 * SPAN_OFFSETS, _GAP_SHARE * (log_end - position)) else None


def _around(offset: int, log_start: int, log_end: int) -> Span:
    """A span that has the offset in its middle, as far as the log reaches."""
    start = max(log_start, min(offset - SPAN_OFFSETS // 2, log_end - SPAN_OFFSETS))
    return Span(start, min(log_end, start + SPAN_OFFSETS))

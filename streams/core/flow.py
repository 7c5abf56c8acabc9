"""What comes and goes: rates in records per second, the shape of a lag, and when it is worked off. Pure.

The slopes are Theil's and Sen's: the median of the slopes of all pairs of samples, which a third of wrong samples does
not move (H. Theil 1950, "A rank-invariant method of linear and polynomial regression analysis"; P. K. Sen 1968,
"Estimates of the regression coefficient based on Kendall's tau", JASA 63:1379). Called by `streams.core.outlook`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations
from statistics import median
from typing import NamedTuple

from streams.core.groups import Partition
from streams.core.series import Sample, complete, recent

SAMPLES_MIN = 3
# The lag falls only if it does so for a while: what is committed at once, every five seconds, makes it fall too.
FALLING_SAMPLES_MIN = 4
FALLING_SHARE_MIN = 0.25
# A group keeps up when it would be through with what waits in this time: that much is always on its way.
KEEPS_UP_SECONDS = 2.0
BURST_SECONDS_MIN = 10.0  # what is worked off faster than that is no burst
# A change under 2 % of what comes is no trend, however steady the samples are.
TREND_SHARE_MIN = 0.02
RECORDS_MIN = 2.0
_ONE_RECORD = 0.5  # one record behind a marker is measured as a little less than one
# A line through n samples of deviation d has, over their time, an error of d * sqrt(12 / n); a trend is 2.5 of them.
TREND_ERRORS_MIN = 2.5
_DEVIATIONS_A_MEDIAN = 1.4826  # of normally distributed errors, as usual for the median absolute deviation


class Shape(StrEnum):
    """How a lag goes on. The words are those of the three pictures that every lag chart shows."""

    FLAT = "flat"
    SPIKE_DECAY = "spike-decay"
    RAMP = "ramp"


class Level(NamedTuple):
    """Records that have arrived and that were done, at a time in seconds; only differences mean something."""

    at: float
    arrived: float
    done: float


@dataclass(frozen=True, slots=True)
class Flow:
    """Rates over `seconds` and `samples`; `shape` is None while it is too early to tell.

    `capacity_per_second` is what is done while work waits all the time, None when it did not, or workers came or went.
    `drain_seconds` is 0 for who keeps up, None for a backlog that does not get smaller.
    """

    seconds: float
    samples: int
    rate_in_per_second: float
    rate_out_per_second: float
    backlog_records: float
    shape: Shape | None
    capacity_per_second: float | None
    drain_seconds: float | None

    @property
    def shortfall_per_second(self) -> float:
        """By how much too little is done: the ramp's slope."""
        return max(0.0, self.rate_in_per_second - self.rate_out_per_second)

    @property
    def keeps_up(self) -> bool:
        """Whether what waits is no more than what is always on its way."""
        return self.drain_seconds == 0


def partition_flow(samples: Sequence[Sample], partition: Partition) -> Flow | None:
    """The flow of one partition; None while there are too few samples."""
    known = [(sample.at, sample.places[partition]) for sample in recent(samples) if partition in sample.places]
    if not known:
        return None
    return flow([Level(at, place.arrived, place.done) for at, place in known], known[-1][1].backlog)


def group_flow(samples: Sequence[Sample]) -> Flow | None:
    """The flow of all partitions of a group together; None while there are too few samples."""
    known = [sample for sample in complete(recent(samples)) if sample.places]
    if not known:
        return None
    seen = flow([_level(sample) for sample in known], sum(place.backlog for place in known[-1].places.values()))
    if seen is not None and len({sample.members for sample in known}) > 1:
        return replace(seen, capacity_per_second=None)  # of how many workers, nobody could say
    return seen


def flow(levels: Sequence[Level], backlog: float) -> Flow | None:
    """The flow through these levels, of which `backlog` records wait now; None if they are too few.

    Once the lag falls, only what came after its peak counts: what a burst was like says nothing of what follows it.
    """
    if len(levels) < SAMPLES_MIN:
        return None
    whole, falling = _Line(levels), _Line(_since_peak(levels))
    if _keeps_up(backlog, whole.rate_out):
        return _flow(whole, backlog, Shape.FLAT, 0.0)
    is_long = len(falling.levels) >= FALLING_SAMPLES_MIN and falling.seconds >= FALLING_SHARE_MIN * whole.seconds
    if is_long and falling.trend < 0:
        net = falling.rate_out - falling.rate_in
        return _flow(falling, backlog, Shape.SPIKE_DECAY, backlog / net)
    if whole.trend > 0:
        return _flow(whole, backlog, Shape.RAMP, None)
    if whole.is_leaving(backlog):
        return _flow(whole, backlog, None, None)
    # What is committed at once, every five seconds, waits until then; it is no backlog if it is gone in between.
    is_through = _keeps_up(_least_backlog(levels, backlog), whole.rate_out)
    return _flow(whole, backlog, Shape.FLAT, 0.0 if is_through else None)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between all pairs of points (time, value); 0 if there are no two times."""
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2) if b[0] != a[0]]
    return median(slopes) if slopes else 0.0


class _Line:
    """The straight line through levels: both rates, and how far the lag strays from what they say."""

    def __init__(self, levels: Sequence[Level]) -> None:
        self.levels = levels
        self.seconds = levels[-1].at - levels[0].at
        # A topic that was made anew, or a group that was set back, goes backwards: nothing is done at such a rate.
        self.rate_in = max(0.0, slope([(level.at, level.arrived) for level in levels]))
        self.rate_out = max(0.0, slope([(level.at, level.done) for level in levels]))
        rests = [_waiting(level) - (self.rate_in - self.rate_out) * (level.at - levels[0].at) for level in levels]
        middle = median(rests)
        self.rest = rests[-1] - middle
        self.deviation = _DEVIATIONS_A_MEDIAN * median(abs(rest - middle) for rest in rests)

    @property
    def trend(self) -> float:
        """By how many records the lag changes over the samples; 0 for what chance, or a busy moment, explains."""
        change = (self.rate_in - self.rate_out) * self.seconds
        error = self.deviation * math.sqrt(12 / len(self.levels))
        least = max(TREND_ERRORS_MIN * error, TREND_SHARE_MIN * self.rate_in * self.seconds, RECORDS_MIN)
        return change if abs(change) >= least else 0.0

    def is_leaving(self, backlog: float) -> bool:
        """Whether the last sample is far above the line, as just after a burst."""
        return self.rest > max(3 * self.deviation, backlog / 2, BURST_SECONDS_MIN * self.rate_out, RECORDS_MIN)


def _flow(line: _Line, backlog: float, shape: Shape | None, drain: float | None) -> Flow:
    is_lagging = not _keeps_up(_least_backlog(line.levels, backlog), line.rate_out)
    return Flow(
        seconds=line.seconds,
        samples=len(line.levels),
        rate_in_per_second=line.rate_in,
        rate_out_per_second=line.rate_out,
        backlog_records=backlog,
        shape=shape,
        capacity_per_second=line.rate_out if is_lagging else None,
        drain_seconds=drain,
    )


def _keeps_up(backlog: float, rate_out: float) -> bool:
    return backlog < max(_ONE_RECORD, KEEPS_UP_SECONDS * rate_out)


def _waiting(level: Level) -> float:
    return level.arrived - level.done


def _least_backlog(levels: Sequence[Level], backlog: float) -> float:
    """The least that waited at any time, from what waits now and what came and went since."""
    return backlog - _waiting(levels[-1]) + min(map(_waiting, levels))


def _since_peak(levels: Sequence[Level]) -> Sequence[Level]:
    """The levels from the last of the highest lags on."""
    peak = max(range(len(levels)), key=lambda number: (_waiting(levels[number]), number))
    return levels[peak:]


def _level(sample: Sample) -> Level:
    places = sample.places.values()
    return Level(sample.at, sum(place.arrived for place in places), sum(place.done for place in places))

"""Samples of a group over time, with offsets turned into records. Pure.

A sample is added to a series by `after`, which carries the counts on from the sample before: what has arrived and what
was done since the series began. Called by `streams.ops.lag_series`; read by `streams.core.flow` and
`streams.core.health`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from streams.core.density import Density
from streams.core.groups import Partition
from streams.core.lag import GroupLag, Mark, PartitionLag

SECONDS = 60.0  # what is looked at: long enough for commits every 5 s, short enough to see a worker stop
SAMPLES_MAX = 31  # of them, evenly: all pairs are compared, which for 4,000 partitions takes a second


@dataclass(frozen=True, slots=True)
class Place:
    """One partition at one time.

    `lag` is in offsets, as `streams lag` shows it. `arrived` and `done` are records since the series began, of which
    only differences mean something; `backlog` is the records that wait.
    """

    committed: int | None
    end: int
    lag: int
    arrived: float
    done: float
    backlog: float

    @property
    def position(self) -> int:
        """The next offset to be read, past control records that nothing follows."""
        return self.end - self.lag


@dataclass(frozen=True, slots=True)
class Sample:
    """A group at a time in seconds since the epoch; partitions of which something is unknown are absent."""

    at: float
    members: int | None
    places: Mapping[Partition, Place]


def after(previous: Sample | None, lag: GroupLag, density: Callable[[Partition], Density], at: float) -> Sample:
    """The sample of a group's lag that follows `previous`, or begins a series."""
    places = {}
    for row in lag.partitions:
        partition = Partition(row.topic, row.partition)
        before = previous.places.get(partition) if previous else None
        if (place := _place(row, before, density(partition))) is not None:
            places[partition] = place
    return Sample(at, lag.members, places)


def recent(samples: Sequence[Sample], seconds: float = SECONDS) -> list[Sample]:
    """The samples of the last `seconds`, at most SAMPLES_MAX of them: evenly, with the first and the last."""
    inside = [sample for sample in samples if sample.at >= samples[-1].at - seconds]
    if len(inside) <= SAMPLES_MAX:
        return inside
    step = (len(inside) - 1) / (SAMPLES_MAX - 1)
    return [inside[round(number * step)] for number in range(SAMPLES_MAX)]


def complete(samples: Iterable[Sample]) -> list[Sample]:
    """The samples that know every partition which the last one knows: only those can be added up."""
    known = list(samples)
    wanted = known[-1].places.keys() if known else set()
    return [sample for sample in known if wanted <= sample.places.keys()]


def only(sample: Sample, partitions: Collection[Partition]) -> Sample:
    """The part of a sample that is of these partitions."""
    return replace(sample, places={one: sample.places[one] for one in partitions if one in sample.places})


def _place(row: PartitionLag, before: Place | None, density: Density) -> Place | None:
    if row.lag_records is None or row.log_end is None or Mark.DELETED in row.marks:
        return None
    position = row.log_end - row.lag_records
    backlog = density.records_between(position, row.log_end)
    if before is None or row.log_end < before.end:  # the first, or of a log that was made anew
        arrived, done = (None, None) if backlog is None else (backlog, 0.0)
    else:
        came = density.records_between(before.end, row.log_end)
        went = density.records_between(before.position, position)
        arrived = None if came is None else before.arrived + came
        done = None if went is None else before.done + went
    if arrived is None or done is None or backlog is None:
        return None
    return Place(row.committed, row.log_end, row.lag_records, arrived, done, max(0.0, backlog))

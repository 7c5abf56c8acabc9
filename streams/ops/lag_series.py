"""Samples of groups as they are taken, with records counted, kept in memory for as long as somebody watches.

Called by `streams lag` (--watch and whatever else needs rates) and by the recorder; calls `streams.kafka.record_counts`
for what is read to turn offsets into records, and `streams.core.outlook` to judge.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import zip_longest

from streams.config import Settings
from streams.core.density import Density, Point, Span
from streams.core.groups import Partition
from streams.core.lag import GroupLag
from streams.core.outlook import Outlook, Parked, outlook
from streams.core.series import Sample, after
from streams.kafka.record_counts import RecordCounts
from streams.ops.lag_facts import OUTBOX

# All readings of one sample together. What is not read by then is read with the next sample; until then it is taken to
# be as its neighbourhood.
_READINGS_SECONDS_MAX = 1.0
_KEPT = 900  # half an hour of a sample every two seconds
_A_RECORD_AN_OFFSET = Density((Point(0, 1.0),))  # of the outbox, which has neither markers nor gaps to speak of


class LagSeries:
    """The series of some groups. Use it in a `with`, from one thread."""

    def __init__(self, config: Settings) -> None:
        self._resources = ExitStack()
        self._counts = self._resources.enter_context(RecordCounts(config))
        self._densities: dict[Partition, Density] = {}
        self._samples: defaultdict[str, deque[Sample]] = defaultdict(lambda: deque(maxlen=_KEPT))
        self._capacities: defaultdict[str, dict[int, float]] = defaultdict(dict)

    def __enter__(self) -> LagSeries:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def go_on_from(
        self, samples: Mapping[str, Sequence[Sample]], capacities: Mapping[str, Mapping[int, float]]
    ) -> None:
        """Begin with what was recorded before."""
        for group, each in samples.items():
            self._samples[group].extend(each)
        for group, known in capacities.items():
            self._capacities[group].update(known)

    def add(self, lags: Sequence[GroupLag], at: float) -> None:
        """Take a sample of these lags, which were seen `at` a time in seconds since the epoch."""
        self._measure(lags)
        for lag in lags:
            series = self._samples[lag.group]
            series.append(after(series[-1] if series else None, lag, self._density, at))

    def outlook(
        self,
        lag: GroupLag,
        parked: Mapping[Partition, Parked] | None = None,
        seconds_a_job: float | None = None,
    ) -> Outlook:
        """Judge a group by its samples so far."""
        capacities = self._capacities[lag.group]
        seen = outlook(lag, self._samples[lag.group], parked, capacities, seconds_a_job)
        if seen.flow and seen.flow.capacity_per_second and lag.members:
            capacities[lag.members] = seen.flow.capacity_per_second
        return seen

    def samples(self, group: str) -> Sequence[Sample]:
        """What is kept of a group, oldest first."""
        return self._samples[group]

    def _density(self, partition: Partition) -> Density:
        return _A_RECORD_AN_OFFSET if partition.topic == OUTBOX else self._densities.get(partition, Density())

    def _measure(self, lags: Iterable[GroupLag]) -> None:
        """Read a little wherever too little is known of how many records there are."""
        deadline = time.monotonic() + _READINGS_SECONDS_MAX
        wanted = self._unknown(lags)
        for spans in zip_longest(*wanted.values()):  # a reading is one span of each partition
            chosen = {partition: span for partition, span in zip(wanted, spans, strict=True) if span is not None}
            found = self._counts.read(chosen, deadline - time.monotonic())
            for partition, reading in found.items():
                self._densities[partition] = self._density(partition).with_reading(reading)

    def _unknown(self, lags: Iterable[GroupLag]) -> dict[Partition, list[Span]]:
        """The spans to read of each partition, best first, once each however many groups stand there."""
        wanted: defaultdict[Partition, list[Span]] = defaultdict(list)
        for lag in lags:
            for row in lag.partitions:
                if row.log_start is None or row.log_end is None or row.lag_records is None:
                    continue
                partition = Partition(row.topic, row.partition)
                if row.log_end < self._density(partition).read_until:
                    del self._densities[partition]  # the log was made anew
                spans = self._density(partition).unknown(row.log_end - row.lag_records, row.log_start, row.log_end)
                wanted[partition] += [span for span in spans if span not in wanted[partition]]
        return wanted

"""All that can be said of a group: its lag, what comes and goes, how well it is, and what it needs. Pure.

Called by `streams.ops.lag_watch` and the recorder with a series of samples; `streams.core.sentences` puts it in words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from streams.core.flow import Flow, Shape, group_flow, partition_flow
from streams.core.groups import Partition
from streams.core.health import Health, partition_health, worst
from streams.core.lag import GroupLag
from streams.core.series import Sample, only, recent
from streams.core.sizing import Advice, advise


@dataclass(frozen=True, slots=True)
class Parked:
    """Records that failed and wait for their next attempt, out of the log's way."""

    records: int
    oldest_seconds: float | None


@dataclass(frozen=True, slots=True)
class PartitionOutlook:
    """One partition's part; None for what is unknown."""

    flow: Flow | None = None
    health: Health | None = None
    parked: Parked | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """One group. `drain_seconds` is 0 for who keeps up, None if unknown or if the lag does not get smaller.

    `parked` is None for a group that is no reader of ours; `slot_bytes` is the relay's alone. `samples` are those that
    it was judged by, oldest first.
    """

    lag: GroupLag
    flow: Flow | None = None
    health: Health | None = None
    drain_seconds: float | None = None
    advice: Advice | None = None
    parked: Parked | None = None
    partitions: Mapping[Partition, PartitionOutlook] = field(default_factory=dict)
    slot_bytes: int | None = None
    samples: Sequence[Sample] = ()

    @property
    def shape(self) -> Shape | None:
        return self.flow.shape if self.flow else None

    def of(self, partition: Partition) -> PartitionOutlook:
        """What is known of a partition."""
        return self.partitions.get(partition, PartitionOutlook())


def outlook(
    lag: GroupLag,
    samples: Sequence[Sample],
    parked: Mapping[Partition, Parked] | None = None,
    capacities: Mapping[int, float] | None = None,
    seconds_a_job: float | None = None,
    slot_bytes: int | None = None,
) -> Outlook:
    """Judge a group by its lag now and its samples, oldest first. `parked` is None for groups that do not park."""
    rows = {Partition(row.topic, row.partition): row for row in lag.partitions}
    flows = {one: partition_flow(samples, one) for one in rows} if samples else {}
    healths = {one: partition_health(samples, one, row) for one, row in rows.items()} if samples else {}
    known = {one: each for one, each in flows.items() if each is not None}
    total = group_flow(samples)
    return Outlook(
        lag=lag,
        flow=total,
        health=worst(healths.values()),
        drain_seconds=drain_seconds(total, [*worker_flows(lag, samples, known)]),
        advice=advise(total, known, lag.members, capacities or {}, seconds_a_job) if total else None,
        parked=None if parked is None else _together(parked),
        partitions={one: PartitionOutlook(flows.get(one), healths.get(one), _parked_in(parked, one)) for one in rows},
        slot_bytes=slot_bytes,
        samples=samples,
    )


def worker_flows(lag: GroupLag, samples: Sequence[Sample], partitions: Mapping[Partition, Flow]) -> Iterator[Flow]:
    """What flows through each worker, and through each partition of which nobody says who reads it.

    A worker reads its partitions in turns, by batches: what it gets done of one of them says little of when it is
    through.
    """
    for worker in set(lag.owners.values()):
        owned = {one for one in partitions if lag.owners.get(one) == worker}
        if (seen := group_flow([only(sample, owned) for sample in recent(samples)])) is not None:
            yield seen
    yield from (flow for one, flow in partitions.items() if one not in lag.owners)


def drain_seconds(total: Flow | None, parts: Collection[Flow]) -> float | None:
    """When the last part of a group is through; None if one never is.

    While the group's lag falls, a part whose own does not is taken to be through with it: were it too much for its
    worker, the group's lag would grow with it once the others are through.
    """
    if total is None or total.drain_seconds is None:
        return None
    if total.keeps_up and any(one.shape is Shape.RAMP for one in parts):
        return None
    return max([total.drain_seconds, *(one.drain_seconds for one in parts if one.drain_seconds)])


def _parked_in(parked: Mapping[Partition, Parked] | None, partition: Partition) -> Parked | None:
    return None if parked is None else parked.get(partition, Parked(0, None))


def _together(parked: Mapping[Partition, Parked]) -> Parked:
    oldest = [one.oldest_seconds for one in parked.values() if one.oldest_seconds is not None]
    return Parked(sum(one.records for one in parked.values()), max(oldest, default=None))

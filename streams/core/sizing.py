"""How many workers a group needs, and when more of them cannot help. Pure.

Little's law, L = lambda * W (J. D. C. Little 1961, "A proof for the queuing formula L = lambda W", Operations Research
9:383): jobs that come at a rate, each of which takes a worker some seconds, keep rate times seconds workers busy.
Called by `streams.core.outlook` and `streams lag --size`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from streams.core.flow import Flow, Shape
from streams.core.groups import Partition

# More workers that bring less than a fifth of what they should have brought are held up by something that they share.
_GAIN_MIN = 0.2
_WORKERS_FACTOR_MIN = 1.5


@dataclass(frozen=True, slots=True)
class Hot:
    """A partition that alone gets more than a worker does; a partition has one worker, whatever their number."""

    partition: Partition
    rate_in_per_second: float
    worker_per_second: float


@dataclass(frozen=True, slots=True)
class Shared:
    """What fewer and more workers did per second, which is nearly the same: all wait for what they write to."""

    few: int
    few_per_second: float
    many: int
    many_per_second: float


@dataclass(frozen=True, slots=True)
class Advice:
    """What would close a shortfall. `more_workers` and `seconds_per_job` are None where a job's time is unknown.

    `workers_max` is how many can work at once: one a partition. `hot` and `shared` say why more workers cannot help.
    """

    shortfall_per_second: float
    more_workers: int | None
    seconds_per_job: float | None
    workers: int | None
    workers_max: int
    hot: Hot | None = None
    shared: Shared | None = None


def workers_for(rate_per_second: float, seconds_per_job: float) -> int:
    """The workers that jobs of this rate keep busy, a part of one counting as one."""
    return math.ceil(round(rate_per_second * seconds_per_job, 9))


def seconds_per_job(workers: int | None, capacity_per_second: float | None) -> float | None:
    """How long a job takes a worker, of workers that are busy all the time; None if that is not known."""
    return workers / capacity_per_second if workers and capacity_per_second else None


def advise(
    flow: Flow,
    partitions: Mapping[Partition, Flow],
    members: int | None,
    capacities: Mapping[int, float],
    seconds_a_job: float | None = None,
) -> Advice:
    """What a group that falls short needs. `capacities` are records per second by the number of workers of that time.

    `seconds_a_job` is what the caller knows of a job's time; without it, it is measured.
    """
    workers = None if members is None else min(members, len(partitions))
    a_job = seconds_a_job or seconds_per_job(workers, flow.capacity_per_second)
    return Advice(
        shortfall_per_second=flow.shortfall_per_second,
        more_workers=None if a_job is None else _more_workers(flow.shortfall_per_second, a_job),
        seconds_per_job=a_job,
        workers=workers,
        workers_max=len(partitions),
        hot=hot_partition(flow, partitions, workers),
        shared=shared_limit(capacities),
    )


def _more_workers(shortfall_per_second: float, seconds_a_job: float) -> int:
    """A twentieth of a worker is within the error of what was measured."""
    wanted = shortfall_per_second * seconds_a_job
    return max(1, math.ceil(round(wanted, 1))) if wanted > 0 else 0


def hot_partition(flow: Flow, partitions: Mapping[Partition, Flow], workers: int | None) -> Hot | None:
    """The one partition that falls behind while all others keep up, and gets more than a worker does."""
    behind = [partition for partition, each in partitions.items() if not each.keeps_up]
    if len(behind) != 1 or len(partitions) == 1 or not workers or partitions[behind[0]].shape is not Shape.RAMP:
        return None
    alone = partitions[behind[0]]
    # Its own worker is busy all the time, so what that does is what a worker can do, if it has nothing else to do.
    worker = max(alone.rate_out_per_second, flow.rate_out_per_second / workers)
    return Hot(behind[0], alone.rate_in_per_second, worker) if alone.rate_in_per_second > worker else None


def shared_limit(capacities: Mapping[int, float]) -> Shared | None:
    """The fewest and the most workers that were seen busy, if the many did hardly more than the few."""
    if not capacities:
        return None
    few, many = min(capacities), max(capacities)
    if few == 0 or many < _WORKERS_FACTOR_MIN * few or capacities[few] == 0:
        return None
    gain = capacities[many] / capacities[few] - 1
    return Shared(few, capacities[few], many, capacities[many]) if gain < _GAIN_MIN * (many / few - 1) else None

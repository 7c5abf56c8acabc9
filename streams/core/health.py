"""Whether a group is well, by Burrow's rules. Pure.

The five rules, and their order, are those of Burrow's evaluator (linkedin/Burrow,
core/internal/evaluator/caching.go, calculatePartitionStatus). Burrow sees every commit, a sample only what is committed
by then. So a sample counts as a commit if the group had members, which commit again and again, or if the offset is
another one than before: a group without members commits nothing. Called by `streams.core.outlook`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from streams.core.groups import Partition
from streams.core.lag import PartitionLag
from streams.core.series import SECONDS, Sample

SECONDS_MIN = 10.0  # over less than that, a reader of slow jobs would seem to stand still


class Health(StrEnum):
    """From well to worst."""

    OK = "OK"
    WARN = "WARN"
    STOP = "STOP"
    STALL = "STALL"
    REWIND = "REWIND"


_ORDER = list(Health)


class Commit(NamedTuple):
    """What was committed for a partition, when (in seconds), and the lag in offsets that it left."""

    at: float
    committed: int
    lag: int


def evaluate(commits: Sequence[Commit], lag_now: int, now: float) -> Health:
    """The health of one partition by the commits that were seen of late, oldest first."""
    # Rule 1: whoever was at the end at any time is well.
    if lag_now == 0 or any(commit.lag == 0 for commit in commits):
        return Health.OK
    if not commits:
        return Health.STOP
    steps = list(pairwise(commits))
    rules = {
        # Rule 2: the offset went back.
        Health.REWIND: any(b.committed < a.committed for a, b in steps),
        # Rule 3: the last commit is longer ago than all of them took.
        Health.STOP: now - commits[-1].at > commits[-1].at - commits[0].at,
        # Rule 4: commits of always the same offset, and there is something to read.
        Health.STALL: all(b.committed == a.committed for a, b in steps),
        # Rule 5: the lag got smaller from no commit to the next.
        Health.WARN: all(b.lag >= a.lag for a, b in steps),
    }
    return next((health for health, is_so in rules.items() if is_so), Health.OK)


def partition_health(samples: Sequence[Sample], partition: Partition, now: PartitionLag | None = None) -> Health | None:
    """The health of one partition; None while the samples cover too little time, or know nothing of it.

    `now` may be later than the last sample: a reader that has just been started has committed since. It may be a little
    earlier too, so that it has committed less says nothing.
    """
    seen = [sample for sample in samples if sample.at >= samples[-1].at - SECONDS and partition in sample.places]
    if not seen or partition not in samples[-1].places or seen[-1].at - seen[0].at < SECONDS_MIN:
        return None
    last = seen[-1].places[partition]
    health = evaluate(list(_commits(seen, partition)), last.lag, seen[-1].at)
    stands = health in (Health.STOP, Health.STALL)
    went_on = now is not None and now.committed is not None and now.committed > (last.committed or 0)
    return Health.OK if stands and went_on else health


def worst(healths: Iterable[Health | None]) -> Health | None:
    """A group is as ill as its worst partition; None if nothing is known of any."""
    return max((health for health in healths if health is not None), key=_ORDER.index, default=None)


def _commits(samples: Sequence[Sample], partition: Partition) -> Iterable[Commit]:
    before = samples[0].places[partition].committed
    for sample in samples:
        place = sample.places[partition]
        if place.committed is not None and (sample.members or place.committed != before):
            yield Commit(sample.at, place.committed, place.lag)
        before = place.committed

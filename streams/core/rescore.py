"""How fast a re-score goes, when it will be through, and how many workers its deadline needs. Pure.

Little's law (streams/core/sizing.py): L = lambda * W. W, the seconds that a document takes a worker, is measured as
workers / rate, and the rate that is needed times W is the workers that are needed. Called by streams/ops/rescore.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from streams.core.partitioning import key_hash
from streams.core.sizing import workers_for

# Enough chunks that one more or less is little, few enough that workers which come or go are soon seen.
CHUNKS_MEASURED = 50


@dataclass(frozen=True, slots=True)
class Finished:
    """One chunk: when it was done, in seconds since the epoch, and how long its documents took its worker."""

    at: float
    seconds: float
    documents: int
    worker: str


@dataclass(frozen=True, slots=True)
class Pace:
    """What `workers` do together."""

    documents_per_second: float
    workers: int

    @property
    def seconds_per_document(self) -> float:
        """Of one worker."""
        return self.workers / self.documents_per_second


def pace(finished: Sequence[Finished], now: float) -> Pace | None:
    """The pace over the last chunks, `finished` being in order of time; None before there is one.

    Time without work counts too: a worker that was killed, or a night without any.
    """
    recent = finished[-CHUNKS_MEASURED:]
    if not recent:
        return None
    seconds = max(now, recent[-1].at) - min(one.at - one.seconds for one in recent)
    documents = sum(one.documents for one in recent)
    return Pace(documents / max(seconds, 1e-3), len({one.worker for one in recent}))


def eta_seconds(pace: Pace, documents: int, busiest: int) -> float:
    """Until so many documents are done, of which the busiest worker has so many; 0 if nobody knows who will have them.

    Five workers do not share twelve partitions evenly, so the busiest is the last.
    """
    return max(documents / pace.documents_per_second, busiest * pace.seconds_per_document)


def workers_needed(pace: Pace, documents: int, seconds: float, partitions: int) -> int | None:
    """The fewest workers that do so many documents in so many seconds; None if no number of them can.

    A partition has one worker, so of twelve, seven workers do no more than six: somebody has two of them.
    """
    if seconds <= 0:
        return None
    busy = documents / seconds * pace.seconds_per_document
    enough = (
        n for n in range(max(1, workers_for(busy, 1.0)), partitions + 1) if partitions >= busy * _share(n, partitions)
    )
    return next(enough, None)


def _share(workers: int, partitions: int) -> int:
    """The partitions of the busiest worker."""
    return math.ceil(partitions / workers)


def key(run_id: int, chunk: int, partitions: int) -> str:
    """A chunk's key in the log: one that falls to partition `chunk` modulo `partitions`.

    Chunks by the dozen do not spread evenly by chance: one worker would be at work long after the others.
    """
    keys = (f"{run_id}/{chunk}/{salt}" for salt in count())
    return next(one for one in keys if key_hash(one.encode()) % partitions == chunk % partitions)

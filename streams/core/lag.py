"""How far a group is behind, from what the broker said. Pure: the time is an argument.

Called by `streams.ops.lag`, which asks the broker in the order that keeps every figure at or above zero: committed
offsets first, the logs' bounds after them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal, NamedTuple

from streams.core.groups import Group, Head, Log, Member, Partition
from streams.core.offsets import Position

Reset = Literal["earliest", "latest"]
Isolation = Literal["read_committed", "read_uncommitted"]
UNKNOWN = "Unknown"  # the state of a group that no broker described


class Mark(StrEnum):
    """What the figures of a partition do not say by themselves."""

    NO_COMMIT = "no commit"
    PAST_THE_END = "committed past the end"
    OPEN_TRANSACTION = "open transaction"
    DELETED = "deleted"
    UNKNOWN = "log unknown"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a group stands in one partition. `position` is the next record that it would read, None if unknown.

    `log` is None when the broker gave no bounds; `exists` is false when the partition was deleted.
    """

    partition: Partition
    committed: Position | None
    log: Log | None
    position: Position | None
    exists: bool = True


class Question(NamedTuple):
    """A read that tells an age: the first record at or after `position`, as seen under `isolation`."""

    partition: Partition
    position: Position
    isolation: Isolation


# The answers: a record, None when nothing but control records is left; a question that is absent had no answer.
Answers = dict[Question, Head | None]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One row of `streams lag`. Offsets as Kafka counts them; None for what is unknown, never 0."""

    topic: str
    partition: int
    committed: int | None
    log_start: int | None
    log_end: int | None
    lag_records: int | None
    lost_records: int | None
    age_seconds: float | None
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group's lag: the sum over its partitions, and the age of its oldest waiting record; None if any is unknown.

    `owners` says which member reads which partition, as far as the coordinator does.
    """

    group: str
    state: str
    lag_records: int | None
    age_seconds: float | None
    partitions: tuple[PartitionLag, ...]
    members: int | None = None
    owners: Mapping[Partition, Member] = field(default_factory=dict)


def standing(
    partition: Partition, committed: Position | None, log: Log | None, reset: Reset, exists: bool = True
) -> Standing:
    """Where a reader of the group would go on: at its commit, or by its reset policy where it has none."""
    return Standing(partition, committed, log, _position(committed, log, reset), exists)


def question(at: Standing, answers: Answers) -> Question | None:
    """What to read next for the age of the oldest waiting record; None when nothing waits, or the age is known."""
    for asked, end in _questions(at):
        if asked not in answers:
            return asked
        if not _nothing_before(end, answers[asked]):
            return None
    return None


def partition_lag(at: Standing, answers: Answers, now: datetime) -> PartitionLag:
    """The row of one partition: lag = max(0, end - max(committed, start)), lost = max(0, start - committed).

    Where only control and aborted records are left before the end, the lag is 0: a reader has nothing to do there.
    """
    return PartitionLag(
        topic=at.partition.topic,
        partition=at.partition.number,
        committed=at.committed,
        log_start=None if at.log is None else at.log.start,
        log_end=None if at.log is None else at.log.end,
        lag_records=_lag(at, answers),
        lost_records=_lost(at),
        age_seconds=_age(at, answers, now),
        marks=tuple(_marks(at)),
    )


def group_lag(group: Group, partitions: Iterable[PartitionLag]) -> GroupLag:
    """Sum up. A deleted partition counts for nothing; a group of which no partition is known has an unknown lag."""
    rows = tuple(sorted(partitions, key=lambda row: (row.topic, row.partition)))
    counted = [row for row in rows if Mark.DELETED not in row.marks]
    lags = [row.lag_records for row in counted if row.lag_records is not None]
    ages = [row.age_seconds for row in counted if row.age_seconds is not None]
    return GroupLag(
        group=group.name,
        state=group.state,
        lag_records=sum(lags) if counted and len(lags) == len(counted) else None,
        age_seconds=max(ages) if counted and len(ages) == len(counted) else None,
        partitions=rows,
        members=None if group.state == UNKNOWN else len(group.members),
        owners=group.owners,
    )


def _position(committed: Position | None, log: Log | None, reset: Reset) -> Position | None:
    if log is None:
        return None
    if committed is None:
        return log.start if reset == "earliest" else log.end
    if committed > log.high:
        return None  # the log was made anew, or someone set it so: a reader starts over by its own policy
    return max(committed, log.start)


def _questions(at: Standing) -> Iterable[tuple[Question, Position]]:
    """The reads that may find a waiting record, each with the end before which the record counts as waiting."""
    if at.log is None or at.position is None:
        return
    if at.position < at.log.end:
        yield Question(at.partition, at.position, "read_committed"), at.log.end
    if max(at.position, at.log.end) < at.log.high:  # an open transaction: its records wait, nobody may read them yet
        yield Question(at.partition, max(at.position, at.log.end), "read_uncommitted"), at.log.high


def _nothing_before(end: Position, head: Head | None) -> bool:
    """Only control records are left before the end; what came after the bounds were asked for does not count."""
    return head is None or head.offset >= end


def _lag(at: Standing, answers: Answers) -> int | None:
    if at.log is None or at.position is None:
        return None
    asked = Question(at.partition, at.position, "read_committed")
    if asked in answers and _nothing_before(at.log.end, answers[asked]):
        return 0
    return max(0, at.log.end - at.position)


def _lost(at: Standing) -> int | None:
    if at.log is None or at.committed is None:
        return None
    return max(0, at.log.start - at.committed)


def _age(at: Standing, answers: Answers, now: datetime) -> float | None:
    if at.position is None:
        return None
    for asked, end in _questions(at):
        if asked not in answers:
            return None
        head = answers[asked]
        if head is not None and not _nothing_before(end, head):
            return _seconds_since(head, now)
    return 0.0


def _seconds_since(head: Head, now: datetime) -> float | None:
    if head.timestamp_ms is None:
        return None
    # A clock ahead of ours gives no negative age.
    return round(max(0.0, now.timestamp() - head.timestamp_ms / 1000), 3)


def _marks(at: Standing) -> Iterable[Mark]:
    if not at.exists:
        yield Mark.DELETED
    elif at.log is None:
        yield Mark.UNKNOWN
    if at.committed is None:
        yield Mark.NO_COMMIT
    if at.log is None:
        return
    if at.committed is not None and at.committed > at.log.high:
        yield Mark.PAST_THE_END
    if at.log.end < at.log.high:
        yield Mark.OPEN_TRANSACTION

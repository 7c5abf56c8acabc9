"""The facts about a consumer group and its logs, as a broker tells them. Pure.

Made by `streams.kafka.admin` and `streams.kafka.heads`; judged by `streams.core.lag` and `streams.core.replay`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import NamedTuple

from streams.core.offsets import Offset, Position


class Partition(NamedTuple):
    """A partition of a topic; printed and typed as `topic:number`."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.number}"


@dataclass(frozen=True, slots=True)
class Commit:
    """What a group has committed for a partition; the metadata is any text of whoever committed."""

    position: Position
    metadata: str | None = None
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """The bounds of a partition's log, as positions.

    `end` is the stable end, up to which read_committed readers see; records of open transactions lie between it and
    `high`, the high watermark.
    """

    start: Position
    end: Position
    high: Position


@dataclass(frozen=True, slots=True)
class Head:
    """The first record at or after a position; the timestamp in milliseconds since the epoch, None if it has none."""

    offset: Offset
    timestamp_ms: int | None


class Member(NamedTuple):
    """A member of a group; its client's id may be that of others too, so its own tells them apart."""

    client: str
    host: str
    id: str

    def __str__(self) -> str:
        return f"{self.client}@{self.host}"


@dataclass(frozen=True, slots=True)
class Group:
    """A group as its coordinator describes it; `owners` says which member reads which partition."""

    name: str
    state: str
    members: tuple[Member, ...] = ()
    owners: Mapping[Partition, Member] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster's id, and how many partitions each topic has."""

    id: str
    topics: Mapping[str, int]

    def partitions(self, topic: str) -> list[Partition]:
        """All partitions of a topic, none if there is no such topic."""
        return [Partition(topic, number) for number in range(self.topics.get(topic, 0))]

    def read_by(self, commits: Iterable[Partition], group: Group | None) -> set[Partition]:
        """All partitions of the topics that a group has commits in or is assigned."""
        topics = {topic for topic, _ in (*commits, *(group.owners if group else ()))}
        return {partition for topic in topics for partition in self.partitions(topic)}


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about a name that does not exist: what may have been meant."""
    every = sorted(known)
    close = get_close_matches(name, every, n=3, cutoff=0.5)
    if close:
        return "the nearest names are " + ", ".join(close)
    return "there are " + ", ".join(every[:5]) + (" and more" if len(every) > 5 else "") if every else "there is none"

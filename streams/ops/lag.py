"""Lag of any group of the cluster: asks the broker, lets `streams.core.lag` judge.

Called by `streams lag`; calls `streams.kafka.admin` and `streams.kafka.heads`. Committed offsets are asked for first,
the logs' bounds after them, so that a group that moves meanwhile never seems to be ahead of its log.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime

from streams.config import Settings
from streams.core.groups import Cluster, Group, Log, Partition, nearest
from streams.core.lag import (
    UNKNOWN,
    Answers,
    GroupLag,
    Question,
    Reset,
    Standing,
    group_lag,
    partition_lag,
    question,
    standing,
)
from streams.core.offsets import Position
from streams.errors import UnknownGroup
from streams.kafka.admin import GroupsAdmin
from streams.kafka.heads import Heads

# All ages together; with the rest of a sample (0.2 s) it stays under 2 s. What is not read by then is unknown, and
# is read by the next sample of a watch, which remembers what it has.
_AGES_SECONDS_MAX = 1.5
# A standing asks at most twice: under read_committed, then for the first record of an open transaction.
_ROUNDS = 2


class LagSampler:
    """Takes samples over one connection and remembers the heads it has read. Use it in a `with`, from one thread.

    `reset` is where the groups' readers start without a commit: auto.offset.reset, which only they know.
    """

    def __init__(self, config: Settings, reset: Reset = "earliest") -> None:
        self._reset: Reset = reset
        self._admin = GroupsAdmin(config)
        self._resources = ExitStack()
        self._heads = {
            isolation: self._resources.enter_context(Heads(config, isolation))
            for isolation in ("read_committed", "read_uncommitted")
        }
        self._known: Answers = {}

    def __enter__(self) -> LagSampler:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def sample(self, names: Sequence[str] = ()) -> list[GroupLag]:
        """The lag of these groups, or of all, sorted by name. Raises UnknownGroup and Unavailable."""
        chosen = self._chosen(names)
        groups = self._admin.describe(chosen)
        committed = self._admin.committed(chosen)
        cluster = self._admin.cluster()
        partitions = {
            name: cluster.read_by(commits, groups.get(name)) | commits.keys() for name, commits in committed.items()
        }
        logs = self._admin.logs({partition for each in partitions.values() for partition in each})
        now = datetime.now(UTC)
        standings = {
            name: [_standing(one, committed[name], logs, cluster, self._reset) for one in each]
            for name, each in partitions.items()
        }
        answers = self._answers([one for each in standings.values() for one in each])
        return [
            group_lag(
                groups.get(name, Group(name, UNKNOWN)),
                (partition_lag(one, answers, now) for one in standings.get(name, ())),
            )
            for name in chosen
        ]

    def existing(self, names: Sequence[str]) -> list[str]:
        """Those of the names that are groups. Raises Unavailable."""
        known = set(self._admin.names())
        return [name for name in names if name in known]

    def _chosen(self, names: Sequence[str]) -> list[str]:
        known = self._admin.names()
        for name in names:
            if name not in known:
                raise UnknownGroup(f"there is no consumer group {name}; {nearest(name, known)}")
        return sorted(set(names)) if names else known

    def _answers(self, standings: Iterable[Standing]) -> Answers:
        """The heads that tell the ages, all partitions of all groups under one deadline."""
        deadline = time.monotonic() + _AGES_SECONDS_MAX
        answers: Answers = {}
        for _ in range(_ROUNDS):
            asked = {one for at in standings if (one := question(at, answers)) is not None}
            answers |= {one: self._known[one] for one in asked & self._known.keys()}
            answers |= self._read(asked - answers.keys(), deadline)
        self._known = {one: head for one, head in answers.items() if head is not None}  # an end may move on
        return answers

    def _read(self, asked: set[Question], deadline: float) -> Answers:
        answers: Answers = {}
        for isolation, heads in self._heads.items():
            places = {(one.partition, one.position): one for one in asked if one.isolation == isolation}
            found = heads.read(places, deadline - time.monotonic())
            answers |= {places[place]: head for place, head in found.items()}
        return answers


def _standing(
    partition: Partition, commits: dict[Partition, Position], logs: dict[Partition, Log], cluster: Cluster, reset: Reset
) -> Standing:
    exists = partition.number < cluster.topics.get(partition.topic, 0)
    return standing(partition, commits.get(partition), logs.get(partition), reset, exists)

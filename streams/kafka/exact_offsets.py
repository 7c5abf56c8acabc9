"""A group's commits, byte for byte: read, written, removed.

Called by `streams.ops.replay`; sends `streams.kafka.group_requests`. confluent-kafka will not do here (2.16.1): it ends
every metadata that it writes with a NUL byte, reads on past the end of one that has none, into whatever lies there, and
cannot remove a commit. Other clients keep their state in the metadata (Confluent's Parallel Consumer would not start
from one with a byte too many), so what is restored must be what was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from aiokafka.errors import for_code

from streams.config import Settings
from streams.core.groups import Commit, Partition
from streams.core.offsets import Position
from streams.errors import ReplayRefused, StackError, Unavailable
from streams.kafka import coordinator
from streams.kafka.group_requests import CommitOffsets, FetchOffsets, RemoveOffsets

_NO_GENERATION, _NO_MEMBER = -1, ""  # a commit by nobody: allowed while the group has no members
_NO_EPOCH = -1
_NO_ERROR = 0
_UNSTABLE_OFFSET_COMMIT = 88
# How a broker says that a group has members, so that its offsets are theirs alone.
_IN_USE = {
    25: "UNKNOWN_MEMBER_ID",
    27: "REBALANCE_IN_PROGRESS",
    68: "NON_EMPTY_GROUP",
    86: "GROUP_SUBSCRIBED_TO_TOPIC",
}


class ExactOffsets:
    """Commits of any group of one cluster. Every call makes its connections anew."""

    def __init__(self, config: Settings) -> None:
        self._config = config

    def read(self, group: str) -> dict[Partition, Commit]:
        """All commits of the group, none if there is no such group.

        Raises ReplayRefused while a transaction is about to change them, Unavailable.
        """
        answer = coordinator.ask(self._config, group, FetchOffsets(group, None, True, {}))
        found = {}
        for topic, partitions, _ in answer.topics:
            for number, offset, epoch, metadata, code, _ in partitions:
                _check(code, group, Partition(topic, number))
                found[Partition(topic, number)] = Commit(Position(offset), metadata, None if epoch < 0 else epoch)
        _check(answer.error_code, group)
        return {partition: commit for partition, commit in found.items() if commit.position >= 0}

    def write(self, group: str, commits: Mapping[Partition, Commit]) -> None:
        """Commit for a group without members. Raises ReplayRefused if it has some, StackError, Unavailable."""
        topics = [
            (topic, [(one.number, *_fields(commits[one])) for one in partitions])
            for topic, partitions in _by_topic(commits)
        ]
        answer = coordinator.ask(self._config, group, CommitOffsets(group, _NO_GENERATION, _NO_MEMBER, topics))
        _check_results(answer, group)

    def remove(self, group: str, partitions: Iterable[Partition]) -> None:
        """Leave the partitions without a commit. Raises as `write` does."""
        topics = [(topic, [one.number for one in numbers]) for topic, numbers in _by_topic(partitions)]
        answer = coordinator.ask(self._config, group, RemoveOffsets(group, topics))
        _check(answer.error_code, group)
        _check_results(answer, group)


def _by_topic(partitions: Iterable[Partition]) -> Iterable[tuple[str, list[Partition]]]:
    for topic, each in groupby(sorted(partitions), key=lambda one: one.topic):
        yield topic, list(each)


def _fields(commit: Commit) -> tuple[int, int, str | None]:
    return commit.position, _NO_EPOCH if commit.leader_epoch is None else commit.leader_epoch, commit.metadata


def _check_results(answer: Any, group: str) -> None:
    for topic, partitions in answer.topics:
        for number, code in partitions:
            _check(code, group, Partition(topic, number))


def _check(code: int, group: str, partition: Partition | None = None) -> None:
    """Raise what a broker's error code means for a replay."""
    if code == _NO_ERROR:
        return
    if code in _IN_USE:
        raise ReplayRefused(f"{group} has members: stop them first")
    if code == _UNSTABLE_OFFSET_COMMIT:
        raise ReplayRefused(f"a transaction is about to change the offsets of {group}: wait for its end")
    where = group if partition is None else f"{group} at {partition}"
    error = Unavailable if for_code(code).retriable else StackError
    raise error(f"Kafka refuses the offsets of {where}: {for_code(code).__name__}")

"""What the cluster says of groups and logs.

Called by `streams.ops.lag` and `streams.ops.replay`; works for any group of any cluster. Brokers answer partition by
partition: what one of them does not say is absent from the answer; only when nobody answers is it `Unavailable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from streams.config import Settings
from streams.core.groups import Cluster, Group, Log, Member, Partition
from streams.core.offsets import Position
from streams.errors import Unavailable

_SECONDS_MAX = 4.0  # a request; a broker that is down costs this once, since the first request finds out
# Kafka's own spelling, where the client's differs.
_STATES = {
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
}

Key = TypeVar("Key")
Value = TypeVar("Value")


class GroupsAdmin:
    """One admin connection, made anew after one on which nobody answered; safe for threads."""

    def __init__(self, config: Settings, seconds_max: float = _SECONDS_MAX) -> None:
        self._servers = config.bootstrap_servers
        self._seconds_max = seconds_max
        self._options = {**config.kafka_client(), "log_level": 0}
        self._admin = AdminClient(self._options)

    def cluster(self) -> Cluster:
        """The cluster as its metadata says. Raises Unavailable."""
        try:
            metadata = self._admin.list_topics(timeout=self._seconds_max)
        except KafkaException as error:
            raise self._unavailable(error) from error
        return Cluster(
            metadata.cluster_id or "", {name: len(topic.partitions) for name, topic in metadata.topics.items()}
        )

    def names(self) -> list[str]:
        """The names of all consumer groups, sorted. Raises Unavailable."""
        answer = self._admin.list_consumer_groups(request_timeout=self._seconds_max)
        listed = self._done(answer)
        if listed.errors and not listed.valid:
            raise self._unavailable(listed.errors[0])
        return sorted(group.group_id for group in listed.valid)

    def describe(self, names: Iterable[str]) -> dict[str, Group]:
        """The groups' states, members and what these are assigned; a group that does not exist is `Dead`."""
        wanted = list(names)
        if not wanted:
            return {}
        answers = self._admin.describe_consumer_groups(wanted, request_timeout=self._seconds_max)
        return {name: _group(name, said) for name, said in self._answered(answers).items()}

    def committed(self, names: Iterable[str]) -> dict[str, dict[Partition, Position]]:
        """The offsets that each group has committed, without their metadata: see `streams.kafka.exact_offsets`."""
        answers: dict[str, Future[Any]] = {}
        for name in names:  # the client takes one group a call; the calls run side by side
            request = [ConsumerGroupTopicPartitions(name)]
            answers |= self._admin.list_consumer_group_offsets(request, request_timeout=self._seconds_max)
        return {
            name: _commits(said.topic_partitions)
            for name, said in self._answered(answers).items()
            if all(one.error is None for one in said.topic_partitions)
        }

    def logs(self, partitions: Iterable[Partition]) -> dict[Partition, Log]:
        """The bounds of each partition that exists and has a leader, the end never below the start."""
        wanted = list(partitions)
        start = self._list_offsets(wanted, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
        end = self._list_offsets(wanted, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
        high = self._list_offsets(wanted, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        starts, ends, highs = (self._positions(answers) for answers in (start, end, high))
        return {
            partition: Log(starts[partition], ends[partition], max(ends[partition], highs[partition]))
            for partition in starts.keys() & ends.keys() & highs.keys()
        }

    def delete(self, name: str) -> bool:
        """Forget a group with its commits; whether it is gone, which it cannot be while it has members."""
        (answer,) = self._admin.delete_consumer_groups([name], request_timeout=self._seconds_max).values()
        try:
            answer.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.NON_EMPTY_GROUP:
                return False
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise self._unavailable(error) from error
        return True

    def first_since(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, Position | None]:
        """The first record stamped at or after the time, inside a compressed batch too; None where there is none."""
        answers = self._list_offsets(
            list(partitions), OffsetSpec.for_timestamp(timestamp_ms), IsolationLevel.READ_COMMITTED
        )
        return {
            partition: position if position >= 0 else None for partition, position in self._positions(answers).items()
        }

    def _list_offsets(
        self, partitions: list[Partition], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[TopicPartition, Future[Any]]:
        if not partitions:
            return {}
        request = {TopicPartition(*partition): spec for partition in partitions}
        return self._admin.list_offsets(request, isolation_level=isolation, request_timeout=self._seconds_max)

    def _positions(self, answers: Mapping[TopicPartition, Future[Any]]) -> dict[Partition, Position]:
        return {
            Partition(one.topic, one.partition): Position(said.offset) for one, said in self._answered(answers).items()
        }

    def _answered(self, answers: Mapping[Key, Future[Value]]) -> dict[Key, Value]:
        """Those that were answered. Raises Unavailable when none was, for lack of a broker."""
        said: dict[Key, Value] = {}
        silent: KafkaError | None = None
        for key, answer in answers.items():
            try:
                said[key] = answer.result()
            except KafkaException as error:
                silent = silent or (error.args[0] if _nobody_there(error.args[0]) else None)
        if silent and not said:
            raise self._unavailable(silent)
        return said

    def _done(self, answer: Future[Any]) -> Any:
        try:
            return answer.result()
        except KafkaException as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: KafkaException | KafkaError) -> Unavailable:
        self._admin = AdminClient(self._options)  # see streams.kafka.brokers
        said = error.args[0] if isinstance(error, KafkaException) else error
        return Unavailable(f"Kafka at {self._servers} does not answer: {said.str()}")


def _nobody_there(error: KafkaError) -> bool:
    """A failure of the way to the broker, not a broker's answer about one group or partition."""
    return error.retriable() or error.code() in (
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._AUTHENTICATION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
    )


def _group(name: str, said: Any) -> Group:
    members = [Member(one.client_id, one.host.removeprefix("/"), one.member_id) for one in said.members]
    owners = {
        Partition(one.topic, one.partition): member
        for member, described in zip(members, said.members, strict=True)
        for one in described.assignment.topic_partitions
    }
    return Group(name, _STATES.get(said.state, said.state.name.capitalize()), tuple(members), owners)


def _commits(said: Iterable[TopicPartition]) -> dict[Partition, Position]:
    return {Partition(one.topic, one.partition): Position(one.offset) for one in said if one.offset >= 0}

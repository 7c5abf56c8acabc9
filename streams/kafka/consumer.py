"""A consumer group's member on confluent-kafka: the runtime's `Log`.

Classic protocol with cooperative-sticky assignment and a stable instance id: with workers killed every 0.3 s
that finishes where dynamic members and KIP-848 starve; KIP-848 by STREAMS_GROUP_PROTOCOL. Offsets are committed only
by name. Made after a fork, never before.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from streams.config import Settings
from streams.core.offsets import Position
from streams.errors import ConfigError, StreamsError, Unavailable
from streams.kafka.brokers import Brokers
from streams.runtime.ports import Checkpoint, Committed, Listener, Message, Partition
from streams.topics import MESSAGE_BYTES_MAX

log = logging.getLogger(__name__)
# The client's own words, but for its failed connections: error_cb tells of them too.
_client_log = logging.getLogger(f"{__name__}.client")
_client_log.addFilter(lambda record: not record.getMessage().startswith("FAIL "))

NOTE_SECONDS = 10.0  # a broker that is down fails us several times a second: each kind of error is said this often
_ANSWER_SECONDS_MAX = 10.0
# A member is given up after this; its heartbeats go out three times as often.
SESSION_TIMEOUT_MS = 6_000


def _options(config: Settings, group: str, instance: str | None) -> dict[str, Any]:
    return {
        **config.kafka_client(),
        "group.id": group,
        "client.id": instance or group,
        **_membership(config, instance),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "fetch.message.max.bytes": MESSAGE_BYTES_MAX,
        "fetch.max.bytes": 4 * MESSAGE_BYTES_MAX,
        "queued.max.messages.kbytes": 32 * 1024,  # a partition; the default of 64 MiB is too much for twelve
        "fetch.queue.backoff.ms": 10,  # a full queue empties in a fifth of a second, and is then refilled after this
        "fetch.error.backoff.ms": 100,
        "reconnect.backoff.ms": 500,  # the client does not back off further from its bootstrap server
        "topic.metadata.refresh.interval.ms": 30_000,  # new partitions are picked up within a minute
        "allow.auto.create.topics": False,
    }


def _membership(config: Settings, instance: str | None) -> dict[str, Any]:
    if config.group_protocol == "consumer":
        # The broker assigns and says how often to be heard of. No instance id: a killed one's is refused for 46 s.
        return {"group.protocol": "consumer"}
    return {
        **({"group.instance.id": instance} if instance else {}),
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 3,
    }


class KafkaLog:
    """One member of one group, reading one topic."""

    def __init__(self, config: Settings, topic: str, group: str, instance: str | None) -> None:
        self._topic = topic
        self._listener: Listener | None = None
        self._brokers = Brokers()
        callbacks = {"error_cb": self._note, "on_commit": self._note_commit}
        options = _options(config, group, instance) | self._brokers.options | callbacks
        self._consumer = Consumer(options, logger=_client_log)
        self._noted_at: dict[int, float] = {}  # by error code
        self._fatal: KafkaError | None = None
        self._refused: set[Partition] = set()
        self._in_hand: list[Message] = []
        self._paused: set[Partition] = set()

    def subscribe(self, listener: Listener) -> None:
        self._listener = listener
        self._consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def poll(self, records_max: int, seconds: float) -> Sequence[Message]:
        # poll() answers as soon as one record is there; consume() alone would wait for a full batch. The group may
        # speak in the second call, while the first record is in hand and not yet the loop's: see `position`.
        first = self._consumer.poll(seconds)
        if first is None:
            return self._checked([])
        self._in_hand = self._records([first])
        rest = self._records(self._consumer.consume(records_max - 1, 0)) if records_max > 1 else []
        given, self._in_hand = [*self._in_hand, *rest], []
        return self._checked(given)

    def _checked(self, given: list[Message]) -> list[Message]:
        if self._fatal is not None:
            raise _given_up(self._fatal)
        self._brokers.check()
        return given

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, Committed]:
        wanted = [TopicPartition(*partition) for partition in partitions]
        try:
            answer = self._consumer.committed(wanted, timeout=_ANSWER_SECONDS_MAX)
        except KafkaException as error:
            raise Unavailable(f"Kafka did not say what is committed: {error}") from error
        for one in answer:
            if one.error is not None:
                raise Unavailable(f"Kafka did not say what is committed of {one.topic}:{one.partition}: {one.error}")
        return {
            Partition(one.topic, one.partition): Committed(
                Position(one.offset) if one.offset >= 0 else None, _metadata(one)
            )
            for one in answer
        }

    def position(self, partition: Partition) -> Position | None:
        for message in self._in_hand:
            if (message.topic(), message.partition()) == partition:
                return Position(message.offset())
        (answer,) = self._consumer.position([TopicPartition(*partition)])
        return Position(answer.offset) if answer.offset >= 0 else None

    def commit(self, checkpoints: Mapping[Partition, Checkpoint], *, wait: bool) -> None:
        offsets = [
            TopicPartition(
                partition.topic,
                partition.number,
                point.position,
                metadata=point.metadata,
                **({} if point.leader_epoch is None else {"leader_epoch": point.leader_epoch}),
            )
            for partition, point in checkpoints.items()
        ]
        try:
            if not wait:
                self._consumer.commit(offsets=offsets, asynchronous=True)
                return
            answer = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise Unavailable(f"the commit failed: {error}") from error
        failed = [one for one in answer if one.error is not None]
        if failed:
            raise Unavailable(f"the commit of {failed[0].topic}:{failed[0].partition} failed: {failed[0].error}")

    def refused(self) -> frozenset[Partition]:
        refused, self._refused = frozenset(self._refused), set()
        return refused

    def partitions(self) -> int:
        try:
            found = self._consumer.list_topics(self._topic, timeout=_ANSWER_SECONDS_MAX).topics[self._topic]
        except KafkaException as error:
            raise Unavailable(f"Kafka did not say how many partitions {self._topic} has: {error}") from error
        if not found.partitions:
            raise Unavailable(f"Kafka did not say how many partitions {self._topic} has: {found.error}")
        return len(found.partitions)

    def pause(self, partitions: Iterable[Partition]) -> None:
        pausing = set(partitions)
        self._paused |= pausing
        self._consumer.pause([TopicPartition(*partition) for partition in pausing])

    def resume(self, partitions: Iterable[Partition]) -> None:
        resuming = set(partitions)
        self._paused -= resuming
        self._consumer.resume([TopicPartition(*partition) for partition in resuming])

    def seek(self, partition: Partition, position: Position | None) -> None:
        try:
            self._consumer.seek(TopicPartition(*partition, OFFSET_BEGINNING if position is None else position))
        except KafkaException as error:
            raise Unavailable(f"{partition.topic}:{partition.number} cannot be read again yet: {error}") from error

    def close(self) -> None:
        self._consumer.close()

    # ------------------------------------------------------------------------------------------ callbacks

    def _on_assign(self, consumer: Consumer, assigned: list[TopicPartition]) -> None:
        self._tell("assigned", assigned)
        consumer.incremental_assign(assigned)
        # The client keeps a pause from the partition's former assignment; resuming one that flows would cost a second.
        self.resume(self._paused.intersection(_partitions(assigned)))

    def _on_revoke(self, consumer: Consumer, revoked: list[TopicPartition]) -> None:
        self._tell("revoked", revoked)
        consumer.incremental_unassign(revoked)

    def _on_lost(self, consumer: Consumer, lost: list[TopicPartition]) -> None:
        self._tell("lost", lost)
        consumer.incremental_unassign(lost)

    def _tell(self, what: str, given: list[TopicPartition]) -> None:
        """Tell the loop; then a record of these partitions that is still in hand belongs to a former assignment."""
        partitions = _partitions(given)
        getattr(self._listener, what)(partitions)
        self._in_hand = [one for one in self._in_hand if Partition(one.topic(), one.partition()) not in partitions]

    def _note(self, error: KafkaError) -> None:
        """Runs inside poll: it must not raise. librdkafka mends all but the fatal ones itself."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._fatal = error
        now = time.monotonic()
        if now - self._noted_at.get(error.code(), -math.inf) >= NOTE_SECONDS:
            self._noted_at[error.code()] = now
            log.warning("kafka: %s", error.str())

    def _note_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Runs inside poll: it must not raise. A refused commit is followed by another, or by the loss."""
        failed = [one for one in partitions if error is not None or one.error is not None]
        self._refused.update(_partitions(failed))
        if failed:
            log.warning("kafka: commit refused: %s", error or failed[0].error)

    def _records(self, events: Iterable[confluent_kafka.Message[bytes, bytes]]) -> list[Message]:
        """Those that are records; the rest are errors, which librdkafka mends but for the fatal ones."""
        records = []
        for event in events:
            error = event.error()
            if error is None:
                records.append(cast(Message, event))
            else:
                self._note(error)
        return records


def _given_up(error: KafkaError) -> StreamsError:
    """A fatal error in our words: no restart mends a broker that lacks the protocol."""
    if "ConsumerGroupHeartbeat" in error.str():
        return ConfigError(
            "the broker does not know the group protocol that STREAMS_GROUP_PROTOCOL=consumer asks for (KIP-848): "
            "set it to classic"
        )
    return Unavailable(f"the Kafka client gave up: {error.str()}")


def _partitions(given: list[TopicPartition]) -> list[Partition]:
    return [Partition(one.topic, one.partition) for one in given]


def _metadata(committed: TopicPartition) -> str:
    """Another client's may be no text: without a NUL at its end the client reads on, into whatever lies behind it."""
    try:
        return committed.metadata or ""
    except UnicodeDecodeError:
        return ""

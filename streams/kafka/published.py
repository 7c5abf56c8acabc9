"""Which events are in the log: asked of the log itself, by the event id and the time that every record carries.

Called by the outbox's operations, to tell what is unpublished, and by the doctor's canary; reads committed records only
and belongs to no group.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from streams.config import Settings
from streams.errors import Unavailable
from streams.kafka.brokers import Asker
from streams.topics import MESSAGE_BYTES_MAX

EVENT_ID_HEADER = "id"
_SECONDS_MAX = 30.0  # for one answer, with patience: a command waits for it, not a request
_BATCH = 1_000

Published = tuple[str, int]  # an event's id, and its record's time in milliseconds since the epoch


class PublishedEvents:
    """A reader of event ids; one thread at a time. Use it in a `with`."""

    def __init__(self, config: Settings, seconds_max: float = _SECONDS_MAX) -> None:
        self._servers = config.bootstrap_servers
        self._seconds_max = seconds_max
        self._options = {**config.kafka_client(), "log_level": 0}
        self._admin = AdminClient(self._options)
        self._asker = Asker(
            {
                **self._options,
                "group.id": "streams-published",  # the client wants one; nothing is ever committed
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.message.max.bytes": MESSAGE_BYTES_MAX,
                "fetch.wait.max.ms": 20,
            }
        )

    def __enter__(self) -> PublishedEvents:
        return self

    def __exit__(self, *_: object) -> None:
        self._asker.close()

    def since(self, starts: Mapping[str, datetime]) -> set[Published]:
        """All that is in the topics from each topic's time on (in UTC).

        A record's time is its event's, so no later record is missed, however the times are mixed in the log; and an
        event that was emitted again has another.
        """
        specs = {topic: OffsetSpec.for_timestamp(milliseconds(start)) for topic, start in starts.items()}
        return {(_event_id(message), message.timestamp()[1]) for message in self._read(self._positions(specs))}

    def follow(self, topic: str) -> None:
        """Stand at the end of the topic, to `wait_for` what comes next."""
        self._asker.consumer.assign(self._positions({topic: OffsetSpec.latest()}))

    def wait_for(self, event_id: str, seconds_max: float) -> bool:
        """Whether the event comes within the time, after `follow`, which this ends."""
        deadline = time.monotonic() + seconds_max
        while (left := deadline - time.monotonic()) > 0:
            message = self._asker.consumer.poll(left)
            if message is not None and message.error() is None and _event_id(message) == event_id:
                self._asker.consumer.unassign()
                return True
        self._asker.renew()
        return False

    def _positions(self, starts: Mapping[str, OffsetSpec]) -> list[TopicPartition]:
        """Where each partition's reading begins; left out are absent topics and partitions with nothing that new."""
        wanted = {
            TopicPartition(topic, number): spec for topic, spec in starts.items() for number in self._numbers(topic)
        }
        try:
            answers = self._admin.list_offsets(
                wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._seconds_max
            )
            found = {partition: answer.result().offset for partition, answer in answers.items()}
        except KafkaException as error:
            raise self._unavailable(error.args[0]) from error
        return [TopicPartition(p.topic, p.partition, offset) for p, offset in found.items() if offset >= 0]

    def _numbers(self, topic: str) -> Iterable[int]:
        """The topic's partitions; none if there is no such topic."""
        try:
            return self._admin.list_topics(topic, timeout=self._seconds_max).topics[topic].partitions
        except KafkaException as error:
            raise self._unavailable(error.args[0]) from error

    def _read(self, positions: list[TopicPartition]) -> Iterator[Message]:
        """Every record from the positions to the end of each partition."""
        self._asker.consumer.assign(positions)
        open_partitions = {(position.topic, position.partition) for position in positions}
        try:
            while open_partitions:
                for message in self._some():
                    error = message.error()
                    if error is None:
                        yield message
                    elif error.code() == KafkaError._PARTITION_EOF:
                        open_partitions.discard((message.topic(), message.partition()))
                    elif error.fatal() or not error.retriable():
                        raise self._unavailable(error)
        finally:
            self._asker.consumer.unassign()  # else it would go on to ask the broker fifty times a second

    def _some(self) -> list[Message]:
        if found := self._asker.some(_BATCH, self._seconds_max):
            return found
        self._asker.renew()
        raise Unavailable(f"Kafka at {self._servers} gave no record for {self._seconds_max:.0f} s")

    def _unavailable(self, error: KafkaError) -> Unavailable:
        self._admin = AdminClient(self._options)  # see streams.kafka.brokers
        return Unavailable(f"Kafka at {self._servers} cannot be used: {error.str()}")


def _event_id(message: Message) -> str:
    """The record's event id; empty if it has none."""
    headers: list[tuple[str, Any]] = list(message.headers() or ())  # type: ignore[arg-type]
    ids = [value for name, value in headers if name == EVENT_ID_HEADER]
    return ids[0].decode("utf-8", "replace") if ids and ids[0] is not None else ""


def milliseconds(moment: datetime) -> int:
    """A time in UTC without zone as a record has it: since the epoch."""
    return (moment - datetime(1970, 1, 1)) // timedelta(milliseconds=1)

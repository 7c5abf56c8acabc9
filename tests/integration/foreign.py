"""A foreign application on the test's broker, and an oracle of its lag: plain clients, none of our own tools."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from streams.config import Settings
from tests.support import eventually

# The group protocols of the broker under test: Redpanda, and the profile that imitates it, have the classic one only.
PROTOCOLS = ["classic"] if Settings().broker_profile == "parity" else ["classic", "consumer"]


@dataclass(frozen=True)
class Committed:
    """A commit as aiokafka reads it, which neither adds nor hides a byte of the metadata."""

    offset: int
    metadata: str


class Foreign:
    """Topics and groups with names of their own."""

    def __init__(self, config: Settings) -> None:
        self.client = {**config.kafka_client(), "log_level": 0}
        self.admin = AdminClient(self.client)

    def topic(self, partitions: int = 1) -> str:
        name = f"foreign-{uuid.uuid4().hex[:8]}"
        made = NewTopic(name, partitions, 1, config={"retention.ms": "-1", "message.timestamp.type": "CreateTime"})
        self.admin.create_topics([made])[name].result()
        self._await_partitions(name, partitions)
        return name

    def group(self) -> str:
        return f"foreign-{uuid.uuid4().hex[:8]}"

    def add_partitions(self, topic: str, total: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, total)])[topic].result()
        self._await_partitions(topic, total)

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result()
        eventually(lambda: topic not in self.admin.list_topics(timeout=10).topics)

    def produce(self, topic: str, partition: int, times_ms: list[int], **options: object) -> None:
        """One record a time, in this order."""
        producer = Producer({**self.client, "partitioner": "murmur2_random", **options})
        self._write(producer, topic, partition, times_ms)

    def transactions(self, topic: str, partition: int, *ends: tuple[str, list[int]]) -> None:
        """One transaction after the other, each committed or aborted as its name says."""
        producer = self._transactional()
        for end, times_ms in ends:
            producer.begin_transaction()
            self._write(producer, topic, partition, times_ms)
            producer.commit_transaction(20) if end == "commit" else producer.abort_transaction(20)

    @contextmanager
    def open_transaction(self, topic: str, partition: int, times_ms: list[int]) -> Iterator[Producer]:
        """Records that nobody may read yet; aborted at the end if still open."""
        producer = self._transactional()
        producer.begin_transaction()
        self._write(producer, topic, partition, times_ms)
        yield producer
        producer.abort_transaction(20)

    def truncate(self, topic: str, partition: int, before: int) -> None:
        """Take all records below an offset, as retention does; -1 takes all."""
        at = TopicPartition(topic, partition, before)
        next(iter(self.admin.delete_records([at]).values())).result()

    def commit(self, group: str, *commits: TopicPartition) -> None:
        """Commit as an application does that assigns itself its partitions."""
        with self.assigned(group, *commits) as consumer:
            assert all(one.error is None for one in consumer.commit(offsets=list(commits), asynchronous=False))

    def committed(self, group: str) -> dict[tuple[str, int], Committed]:
        """All commits of the group."""
        return asyncio.run(self._committed(group))

    async def _committed(self, group: str) -> dict[tuple[str, int], Committed]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.client["bootstrap.servers"])
        await admin.start()
        try:
            found = await admin.list_consumer_group_offsets(group)
        finally:
            await admin.close()
        return {(one.topic, one.partition): Committed(said.offset, said.metadata) for one, said in found.items()}

    def leader_epochs(self, group: str) -> dict[tuple[str, int], int | None]:
        """The leader epochs of all commits."""
        answer = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
        return {(one.topic, one.partition): one.leader_epoch for one in answer.topic_partitions}

    def commit_exactly(self, group: str, topic: str, offset: int, metadata: str) -> None:
        """Commit for partition 0 with a client that adds no byte to the metadata."""
        asyncio.run(self._commit_exactly(group, topic, offset, metadata))

    async def _commit_exactly(self, group: str, topic: str, offset: int, metadata: str) -> None:
        servers = self.client["bootstrap.servers"]
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False)
        await consumer.start()
        try:
            consumer.assign([AioPartition(topic, 0)])
            await consumer.commit({AioPartition(topic, 0): OffsetAndMetadata(offset, metadata)})
        finally:
            await consumer.stop()

    @contextmanager
    def assigned(self, group: str, *partitions: TopicPartition) -> Iterator[Consumer]:
        """A reader that assigns itself partitions, and so is no member; it goes on where its group has committed."""
        consumer = self._consumer(group)
        try:
            consumer.assign([TopicPartition(one.topic, one.partition) for one in partitions])
            yield consumer
        finally:
            consumer.close()

    @contextmanager
    def member(self, group: str, topic: str, **options: object) -> Iterator[Consumer]:
        """A live member that is assigned partitions and commits nothing by itself."""
        consumer = self._consumer(group, **options)
        try:
            consumer.subscribe([topic])
            eventually(lambda: consumer.poll(0.1) is not None or consumer.assignment(), seconds=30)
            yield consumer
        finally:
            consumer.close()

    def oracle(self, group: str, topic: str, reset: str = "earliest") -> dict[int, Expected]:
        """What the lag must be, by reading the whole topic as a read_committed reader does."""
        commits = self.committed(group)
        consumer = self._consumer("oracle", **{"isolation.level": "read_committed", "enable.partition.eof": True})
        try:
            partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
            return {
                number: _expected(consumer, topic, number, commits.get((topic, number)), reset) for number in partitions
            }
        finally:
            consumer.close()

    def _consumer(self, group: str, **options: object) -> Consumer:
        fixed = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        return Consumer({**self.client, **fixed, **options})

    def _transactional(self) -> Producer:
        producer = Producer({**self.client, "partitioner": "murmur2_random", "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(30)
        return producer

    def _write(self, producer: Producer, topic: str, partition: int, times_ms: list[int]) -> None:
        failed: list[KafkaError] = []
        for time_ms in times_ms:
            producer.produce(
                topic,
                value=b"x" * 100,
                partition=partition,
                timestamp=time_ms,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert producer.flush(30) == 0
        assert not failed, failed

    def _await_partitions(self, topic: str, count: int) -> None:
        def there() -> bool:
            topics = self.admin.list_topics(timeout=10).topics
            return topic in topics and len(topics[topic].partitions) == count

        eventually(there, seconds=20)


@dataclass(frozen=True)
class Expected:
    """What the oracle expects of a partition; `oldest_ms` is the time of the record that waits, None when none does."""

    committed: int | None
    log_start: int
    log_end: int
    lag_records: int
    lost_records: int | None
    oldest_ms: int | None


def _expected(consumer: Consumer, topic: str, number: int, commit: Committed | None, reset: str) -> Expected:
    start, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)
    first = {"earliest": start, "latest": end}[reset] if commit is None else max(commit.offset, start)
    waiting = [record for record in _readable(consumer, topic, number, start) if record[0] >= first]
    return Expected(
        committed=None if commit is None else commit.offset,
        log_start=start,
        log_end=end,
        lag_records=end - first if waiting else 0,
        lost_records=None if commit is None else max(0, start - commit.offset),
        oldest_ms=waiting[0][1] if waiting else None,
    )


def _readable(consumer: Consumer, topic: str, number: int, start: int) -> list[tuple[int, int]]:
    """Offset and time of every record that a read_committed reader gets, from the log's start to its end."""
    consumer.assign([TopicPartition(topic, number, start)])
    found = []
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error() is None:
            found.append((message.offset(), message.timestamp()[1]))
        elif message.error().code() == KafkaError._PARTITION_EOF:
            return found
    raise AssertionError(f"{topic}:{number} was not read to its end")

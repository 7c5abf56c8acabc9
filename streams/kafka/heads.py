"""The first record at given positions of many partitions: what tells an age.

Called by `streams.ops.lag` and `streams.ops.replay`. It assigns itself the partitions, belongs to no group and commits
nothing.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Literal

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, Message, TopicPartition

from streams.config import Settings
from streams.core.groups import Head, Partition
from streams.core.offsets import Offset, Position
from streams.kafka.brokers import Asker

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

Place = tuple[Partition, Position]

# Twenty groups at different places of 200 partitions took one consumer 1.5 s, two of them 1.2 s, three no less.
_CONSUMERS = 2

_OPTIONS = {
    "group.id": "streams-heads",  # the client wants one; it is never joined
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # a position that the log has lost meanwhile is unknown, not another one
    "allow.auto.create.topics": False,
    # One record a partition is wanted, but the broker gives whole batches. 128 KiB holds nearly every batch, and with
    # 4 MB an answer a larger one costs only its own way: 200 partitions took 0.05 s with small batches, 1 s with 1 MB
    # ones; with the client's defaults (1 MiB, 50 MiB) 0.2 to 0.6 s and 2 s.
    "max.partition.fetch.bytes": 128 * 1024,
    "fetch.max.bytes": 4_000_000,
    "queued.min.messages": 1,
    "fetch.queue.backoff.ms": 0,
    "fetch.error.backoff.ms": 0,
    "fetch.wait.max.ms": 10,  # an end of partition is told only after this wait
}


class Heads:
    """A few consumers under one isolation level, for one caller at a time. Use it in a `with`."""

    def __init__(self, config: Settings, isolation: Literal["read_committed", "read_uncommitted"]) -> None:
        options = {**config.kafka_client(), **_OPTIONS, "isolation.level": isolation, "log_level": 0}
        self._askers = [Asker(options) for _ in range(_CONSUMERS)]

    def __enter__(self) -> Heads:
        return self

    def __exit__(self, *_: object) -> None:
        for asker in self._askers:
            asker.close()

    def read(self, places: Iterable[Place], seconds_max: float) -> dict[Place, Head | None]:
        """The first record at or after each place; None where only control records are left.

        A place that gave no answer in time, or an error, is absent.
        """
        deadline = time.monotonic() + seconds_max
        rounds = iter(list(_rounds(places)))  # taken by whichever consumer is free
        with ThreadPoolExecutor(_CONSUMERS) as pool:
            parts = pool.map(lambda asker: _read_rounds(asker, rounds, deadline), self._askers)
            return dict(chain.from_iterable(parts))


def _read_rounds(
    asker: Asker, rounds: Iterator[dict[Partition, Position]], deadline: float
) -> list[tuple[Place, Head | None]]:
    found: list[tuple[Place, Head | None]] = []
    for positions in rounds:
        if time.monotonic() >= deadline:
            break
        found += _read_round(asker, positions, deadline)
    return found


def _read_round(
    asker: Asker, positions: dict[Partition, Position], deadline: float
) -> Iterator[tuple[Place, Head | None]]:
    waiting, consumer = dict(positions), asker.consumer
    consumer.assign([TopicPartition(*partition, position) for partition, position in waiting.items()])
    while waiting and (left := deadline - time.monotonic()) > 0:
        message = consumer.poll(left)
        partition = None if message is None else _partition(message)
        if message is None or partition not in waiting:
            continue  # a later record of a partition that has answered, or the client's own news
        place = (partition, waiting.pop(partition))
        consumer.incremental_unassign([TopicPartition(*partition)])
        error = message.error()
        if error is None:
            yield place, _head(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            yield place, None
    consumer.unassign()
    if waiting:
        asker.renew()


def _rounds(places: Iterable[Place]) -> Iterator[dict[Partition, Position]]:
    """A consumer stands at one position a partition: the n-th round holds the n-th position of each."""
    by_partition: defaultdict[Partition, list[Position]] = defaultdict(list)
    for partition, position in sorted(set(places)):
        by_partition[partition].append(position)
    for number in range(max(map(len, by_partition.values()), default=0)):
        yield {partition: positions[number] for partition, positions in by_partition.items() if number < len(positions)}


def _partition(message: Message) -> Partition | None:
    topic, number = message.topic(), message.partition()
    return None if topic is None or number is None else Partition(topic, number)


def _head(message: Message) -> Head | None:
    offset = message.offset()
    kind, milliseconds = message.timestamp()
    return (
        Head(Offset(offset), None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds) if offset is not None else None
    )

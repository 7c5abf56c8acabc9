"""How many records lie in a few offsets: read and counted, for what control records and compaction leave out.

Called by `streams.ops.lag_series`, which turns the counts into records per offset (`streams.core.density`). It reads as
a read_committed consumer does, belongs to no group and commits nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, Message, TopicPartition

from streams.config import Settings
from streams.core.density import Reading, Span
from streams.core.groups import Partition
from streams.kafka.brokers import Asker

# A reading ends before its span does when the records are large: by then the ratio is known well enough.
_BYTES_MAX = 1024 * 1024
_RECORDS_MIN = 8
_BATCH = 500
_OPTIONS = {
    "group.id": "streams-record-counts",  # the client wants one; it is never joined
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",  # a start that the log has lost meanwhile is unknown
    "allow.auto.create.topics": False,
    "max.partition.fetch.bytes": 128 * 1024,
    "fetch.max.bytes": 4_000_000,
    "fetch.queue.backoff.ms": 0,
    "fetch.error.backoff.ms": 0,
    "fetch.wait.max.ms": 10,  # an end of partition is told only after this wait
}


class RecordCounts:
    """One consumer, for one caller at a time. Use it in a `with`."""

    def __init__(self, config: Settings) -> None:
        self._asker = Asker({**config.kafka_client(), **_OPTIONS, "log_level": 0})

    def __enter__(self) -> RecordCounts:
        return self

    def __exit__(self, *_: object) -> None:
        self._asker.close()

    def read(self, spans: Mapping[Partition, Span], seconds_max: float) -> dict[Partition, Reading]:
        """One span of each partition; what gave no answer in time, or an error, is absent."""
        deadline, consumer = time.monotonic() + seconds_max, self._asker.consumer
        waiting = {partition: _Count(span) for partition, span in spans.items()}
        consumer.assign([TopicPartition(*partition, span.start) for partition, span in spans.items()])
        found: dict[Partition, Reading] = {}
        while waiting and (left := deadline - time.monotonic()) > 0:
            for message in self._asker.some(_BATCH, left):
                partition = Partition(str(message.topic()), int(message.partition() or 0))
                count = waiting.get(partition)
                if count is None or not count.takes(message):
                    continue  # a later record of a partition that is counted, or not counted yet
                del waiting[partition]
                consumer.incremental_unassign([TopicPartition(*partition)])
                if count.reading is not None:
                    found[partition] = count.reading
        consumer.unassign()
        if waiting:
            self._asker.renew()
        return found


class _Count:
    """The records of one span so far."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._offsets: list[int] = []  # as they come, which is the log's order
        self._bytes = 0
        self.reading: Reading | None = None  # once it is whole

    def takes(self, message: Message) -> bool:
        """Count a message; whether the reading ends with it, well or by an error."""
        error, offset = message.error(), message.offset()
        if error is not None or offset is None:
            return (
                self._end(self._span.end) if error is not None and error.code() == KafkaError._PARTITION_EOF else True
            )
        if offset >= self._span.end:
            return self._end(self._span.end)
        self._offsets.append(offset)
        self._bytes += len(message.value() or b"")
        if offset + 1 == self._span.end or (len(self._offsets) >= _RECORDS_MIN and self._bytes >= _BYTES_MAX):
            return self._end(offset + 1)
        return False

    def _end(self, end: int) -> bool:
        self.reading = Reading(Span(self._span.start, end), self._offsets)
        return True

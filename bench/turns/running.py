"""What turns stand on: loops on the log without a sink that costs anything, topics filled for them, processes.

Called by bench/runtime.py and the turns beside this file.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import uuid4

from confluent_kafka import Producer

from streams.config import Settings
from streams.contract import DocumentSaved, Reader
from streams.core.suspicion import Trace
from streams.kafka.consumer import KafkaLog
from streams.kafka.topics_admin import TopicsAdmin
from streams.ops.worker import spare_the_collector
from streams.runtime.admission import Decode
from streams.runtime.clock import Clock
from streams.runtime.isolation import isolating
from streams.runtime.loop import Loop
from streams.runtime.ports import Claimed, Message, ParkedRow, Partition, Progress, Result, Sink
from streams.topics import Topic

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TURN_SECONDS_MAX = 900.0
Record = tuple[str, bytes]  # key, value


def turn(module: str, *arguments: object, python: str = sys.executable) -> float:
    """Run `python -m module arguments`; the number in its last line. Ends the bench with what it said if it fails."""
    command = [python, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TURN_SECONDS_MAX, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[1:])} failed:\n{done.stderr}")
    return float(done.stdout.split()[-1])


@contextmanager
def filled(config: Settings, records: Iterable[Record], partitions: int = 1) -> Iterator[str]:
    """A topic with these records, for the time of the block; gives its name."""
    admin, name = TopicsAdmin(config), f"bench-{uuid4().hex[:8]}"
    admin.create(Topic(name, partitions))
    try:
        _fill(config, name, records)
        yield name
    finally:
        admin.delete(name)


def _fill(config: Settings, topic: str, records: Iterable[Record]) -> None:
    producer = Producer({**config.kafka_client(), "partitioner": "murmur2_random", "linger.ms": 20})
    for key, value in records:
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60):
        raise SystemExit(f"the broker did not take all records of {topic}")


class TimedLog(KafkaLog):
    """Notes when its first record came."""

    began = 0.0

    def poll(self, records_max: int, seconds: float) -> Sequence[Message]:
        given = super().poll(records_max, seconds)
        if given and not self.began:
            self.began = time.perf_counter()
        return given


class Discard:
    """A sink that takes everything and keeps nothing."""

    def claim(self, partitions: Iterable[Partition]) -> dict[Partition, Claimed]:
        return dict.fromkeys(partitions, Claimed(1, Trace()))

    def leave(self, traces: Mapping[Partition, Claimed]) -> None: ...

    def new_pass(self) -> int:
        return 1

    def lookup(self, document_ids: Iterable[str]) -> dict[str, Progress]:
        return {}

    def parked_lanes(self, lanes: Iterable[str]) -> set[str]:
        return set()

    def heads(
        self, numbers: Iterable[int], partitions: int, until: datetime, active: Iterable[str], rows_max: int
    ) -> list[ParkedRow]:
        return []

    def begin(self, begun: Sequence[Result]) -> None: ...

    def write(self, epochs: Mapping[Partition, int], results: Sequence[Result]) -> None: ...


class Counting:
    """Another sink, and the moment at which it had written all records: then the loop is stopped."""

    def __init__(self, sink: Sink, records: int) -> None:
        self._sink = sink
        self._missing = records
        self.stop: Callable[[], None] = lambda: None
        self.ended = 0.0
        self.claim = sink.claim
        self.leave = sink.leave
        self.new_pass = sink.new_pass
        self.lookup = sink.lookup
        self.parked_lanes = sink.parked_lanes
        self.heads = sink.heads
        self.begin = sink.begin

    def write(self, epochs: Mapping[Partition, int], results: Sequence[Result]) -> None:
        self._sink.write(epochs, results)
        self._missing -= len(results)
        if self._missing <= 0:
            self.ended = time.perf_counter()
            self.stop()


def read_all(config: Settings, reader: Reader, topic: str, records: int, decode: Decode, sink: Sink) -> float:
    """Seconds from the first record's arrival until the sink has the last one."""
    spare_the_collector()
    log, counting = TimedLog(config, topic, reader.group, None), Counting(sink, records)
    loop = Loop(reader, log, counting, decode, isolating(reader), Clock())
    counting.stop = loop.stop
    loop.run()
    return counting.ended - log.began


def document(document_id: str, body: str = "") -> DocumentSaved:
    """A first version."""
    return DocumentSaved(document_id, "bench", 1, "a title", body, NOW)


def unique(name: str) -> str:
    """A group of its own."""
    return f"bench-{name}-{uuid4().hex[:8]}"

"""A producer and consumers of known rates on the test's broker, and what they really did: plain clients, on threads."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from statistics import median
from threading import Event, Thread

from confluent_kafka import Consumer, Producer

from streams.config import Settings

_TICK_SECONDS = 0.1
_MADE_UP_SECONDS_MAX = 1.0


class Counted:
    """Does some records at each tick, as many as a rate says, and remembers when it had done how many."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.total = 0
        self._times: list[float] = [time.time()]
        self._totals: list[int] = [0]
        self._ended = Event()
        self._error: list[BaseException] = []

    def since(self, at: float) -> float:
        """The true rate from then until now, however often the machine held us up: the median over all spans of it."""
        known = [point for point in zip(self._times, self._totals, strict=False) if point[0] >= at]
        some = known[:: 1 + len(known) // 50]
        return median((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(some, 2))

    @contextmanager
    def running(self, tick: Callable[[int], int]) -> Iterator[None]:
        """`tick` takes how many may be done now, and gives how many were."""
        thread = Thread(target=self._run, args=(tick,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(30)
        assert not self._error, self._error

    def _run(self, tick: Callable[[int], int]) -> None:
        """What a busy machine delays by a moment is made up for; what there was nothing to do for is not."""
        before, left = time.monotonic(), 0.0
        try:
            while not self._ended.wait(_TICK_SECONDS):
                now = time.monotonic()
                left = min(left, 1.0) + self.rate * min(now - before, _MADE_UP_SECONDS_MAX)
                before = now
                done = tick(int(left))
                left -= done
                self.total += done
                self._times.append(time.time())
                self._totals.append(self.total)
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self._error.append(error)


class Feed(Counted):
    """Produces in transactions, each of which leaves a marker in every partition that it wrote to."""

    def __init__(self, config: Settings, topic: str, partitions: int, rate: float) -> None:
        super().__init__(rate)
        self._topic, self._partitions = topic, partitions
        options = {"partitioner": "murmur2_random", "transactional.id": uuid.uuid4().hex, "log_level": 0}
        self._producer = Producer({**config.kafka_client(), **options})
        self._producer.init_transactions(30)
        self._next = 0
        self._burst = 0

    def burst(self, records: int) -> None:
        """So many more at once, with the next transaction."""
        self._burst = records

    @contextmanager
    def feeding(self) -> Iterator[Feed]:
        with self.running(self._produce):
            yield self

    def _produce(self, records: int) -> int:
        burst, self._burst = self._burst, 0
        self._producer.begin_transaction()
        for _ in range(records + burst):
            self._next += 1
            self._producer.produce(self._topic, value=b"x" * 100, partition=self._next % self._partitions)
        self._producer.commit_transaction(30)
        self.total += burst
        return records


class Work(Counted):
    """A member of a group that reads at a rate and commits what it has read at every tick."""

    def __init__(self, config: Settings, group: str, topic: str, rate: float) -> None:
        super().__init__(rate)
        options = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
        fast = {"session.timeout.ms": 6000, "isolation.level": "read_committed"}
        self._consumer = Consumer({**config.kafka_client(), **options, **fast})
        self._consumer.subscribe([topic])

    @contextmanager
    def working(self) -> Iterator[Work]:
        try:
            with self.running(self._consume):
                yield self
        finally:
            self._consumer.close()

    def _consume(self, records: int) -> int:
        found = [one for one in self._consumer.consume(records, 0.01) if one.error() is None] if records else []
        if found:
            self._consumer.commit(asynchronous=False)
        return len(found)

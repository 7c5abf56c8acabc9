"""Whether a client still knows a broker: librdkafka from 2.10 on can forget all of them, and then finds none again.

It drops each broker that an answer to a metadata request leaves out. One that was frozen past its session leaves out
itself for a moment after it wakes, and the step back to the bootstrap servers, which would mend it, can be missed for
good (confluentinc/librdkafka#5301). Nothing tells of it but the statistics: such a client waits, without an error. A
new one mends it: who reads or writes all the time looks at the statistics, who only asks renews what did not answer.
Called by the clients of `streams.kafka`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, Message

from streams.errors import Unavailable

_STATISTICS_MS = 3_000
_REAL = ("configured", "learned")  # the others stand for one of these, as the group's coordinator does
_LOOKS = 2  # the client is without a broker for an instant when it does step back


class Brokers:
    """What one client's statistics say of its brokers; `options` are for that client, which must be polled."""

    def __init__(self) -> None:
        self._without = 0  # statistics in a row that name none
        self.options: dict[str, Any] = {"statistics.interval.ms": _STATISTICS_MS, "stats_cb": self._look}

    def check(self) -> None:
        """Raises Unavailable once the client is of no more use."""
        if self._without >= _LOOKS:
            raise Unavailable("the Kafka client has lost all its brokers, which only a new one finds again")

    def _look(self, statistics: str) -> None:
        """Runs inside poll: it must not raise."""
        known = any(broker["source"] in _REAL for broker in json.loads(statistics)["brokers"].values())
        self._without = 0 if known else self._without + 1


class Asker:
    """A consumer without a group or a place of its own, that is asked now and then; `options` are its."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self.consumer = Consumer(self._options)

    def some(self, records_max: int, seconds_max: float) -> list[Message]:
        """What has come, waiting for the first alone: consume() would wait for all of them."""
        first = self.consumer.poll(seconds_max)
        return [] if first is None else [first, *self.consumer.consume(records_max - 1, 0)]

    def renew(self) -> None:
        """Have another for the next question, after one that was not answered in time."""
        self.close()
        self.consumer = Consumer(self._options)

    def close(self) -> None:
        """Let it go."""
        self.consumer.close()

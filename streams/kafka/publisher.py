"""A producer that keeps a document's order whatever fails: for the polling relay, the one writer of ours to the log.

A record is known to be there once the broker has acknowledged it; none is given up after a time. One that the broker
refuses stops all that would come after it. Called by `streams.ops.polling`; calls the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams.config import Settings
from streams.errors import RowRefused
from streams.kafka.brokers import Brokers
from streams.topics import MESSAGE_BYTES_MAX

_POLL_SECONDS = 0.1

_OPTIONS = {
    "enable.idempotence": True,
    "acks": "all",
    "enable.gapless.guarantee": True,  # what is refused takes along all that was to come after it
    "message.timeout.ms": 0,  # one that was given up would be overtaken by the next
    "partitioner": "murmur2_random",  # Java's, as Kafka Connect has it
    "message.max.bytes": MESSAGE_BYTES_MAX,
    "linger.ms": 2,
    "topic.metadata.propagation.max.ms": 5_000,  # for so long may a topic that was just made be unknown
    "log_level": 0,
}


class Row(NamedTuple):
    """A row of the outbox as a record needs it; `timestamp_ms` since the epoch."""

    seq: int
    topic: str
    message_key: str
    payload: bytes
    event_id: str
    event_type: str
    traceparent: str | None
    timestamp_ms: int

    @property
    def headers(self) -> list[tuple[str, str | bytes | None]]:
        """As Debezium's router writes them."""
        named = {"id": self.event_id, "type": self.event_type, "traceparent": self.traceparent}
        return [(name, None if value is None else value.encode()) for name, value in named.items()]


class Publisher:
    """One producer, for one thread. Use it in a `with`; what is not acknowledged at the end may be in the log or not.

    `singly` sends each record in a request of its own: a refusal is then that record's, not its batch's.
    """

    def __init__(self, config: Settings, singly: bool = False) -> None:
        batching = {"batch.num.messages": 1} if singly else {}
        self._brokers = Brokers()
        self._producer = Producer({**config.kafka_client(), **_OPTIONS, **batching, **self._brokers.options})
        self._acknowledged: list[int] = []
        self._refusal: RowRefused | None = None

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.purge()
        self._poll(0)

    def publish(self, rows: Iterable[Row], gives_up: Callable[[], bool]) -> Sequence[int]:
        """Send the rows in this order and wait; gives the seqs of those that the broker has acknowledged.

        All of them, unless the waiting `gives_up`. Raises RowRefused: what comes before that row in its partition is in
        the log, of other partitions the log must be asked; and Unavailable when the client has lost its brokers. After
        either the publisher is of no more use.
        """
        for row in rows:
            self._send(row)
            if self._refusal:
                break
        self._poll(0)  # without a row too: the client's statistics wait to be taken
        while len(self._producer) and not self._refusal and not gives_up():
            self._brokers.check()
            self._poll(_POLL_SECONDS)
        if self._refusal:
            raise self._refusal
        done, self._acknowledged = self._acknowledged, []
        return done

    def _send(self, row: Row) -> None:
        if row.timestamp_ms <= 0:  # the client would take 0 for now
            self._refuse(row.seq, "it is dated before 1970")
            return
        try:
            self._producer.produce(
                row.topic,
                row.payload,
                row.message_key.encode(),
                timestamp=row.timestamp_ms,
                headers=row.headers,
                on_delivery=partial(self._answered, row.seq),
            )
            self._poll(0)
        except KafkaException as error:
            self._refuse(row.seq, error.args[0].str())

    def _poll(self, seconds: float) -> None:
        """Take the answers. That a refusal ends the producer is raised here too; the answers say which row it was."""
        with suppress(KafkaException):
            self._producer.poll(seconds)

    def _answered(self, seq: int, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._acknowledged.append(seq)
        else:
            self._refuse(seq, error.str())

    def _refuse(self, seq: int, reason: Any) -> None:
        """The first counts: with it, the client drops all that comes after."""
        if self._refusal is None:
            self._refusal = RowRefused(seq, str(reason))

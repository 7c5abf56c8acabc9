"""A handler that does nothing, 200,000 times: `python -m bench.turns.noop plain|runtime TOPIC RECORDS`.

`plain` is a consume() loop that calls it once a record; `runtime` the whole runtime, in order by key, with a sink that
discards. Both get bytes and decode nothing. Prints the seconds from the first record to the last.
"""

from __future__ import annotations

import sys
import time
from itertools import count
from typing import cast

from confluent_kafka import Consumer

from bench.turns.running import Discard, read_all, unique
from streams.config import Settings, settings
from streams.contract import DocumentSaved, reader

BATCH_RECORDS = 1_000
ID_BYTES = 8
_calls = count()


class Raw:
    """A record's bytes, with as much of a document as its order asks for."""

    __slots__ = ("document_id", "value")
    version = 1
    type = "saved"

    def __init__(self, value: bytes) -> None:
        self.document_id = value[:ID_BYTES].decode()
        self.value = value


def nothing(_given: object) -> None:
    """The handler; it counts its calls, so that none can be left out."""
    next(_calls)


def plain(config: Settings, topic: str, records: int) -> float:
    group = {"group.id": unique("plain"), "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**config.kafka_client(), **group})
    consumer.subscribe([topic])
    got, began = 0, 0.0
    while got < records:
        batch = consumer.consume(BATCH_RECORDS, 0.1)
        if batch and not began:
            began = time.perf_counter()
        for message in batch:
            if message.error() is None:
                nothing(message.value())
                got += 1
    ended = time.perf_counter()
    consumer.close()
    return ended - began


def runtime(config: Settings, topic: str, records: int) -> float:
    quiet = reader(group=unique("noop"), concurrency=16)(nothing)
    return read_all(config, quiet, topic, records, lambda value: cast(DocumentSaved, Raw(value or b"")), Discard())


def main() -> None:
    kind, topic, records = sys.argv[1:]
    seconds = {"plain": plain, "runtime": runtime}[kind](settings(), topic, int(records))
    if next(_calls) != int(records):
        raise SystemExit("the handler was not called once a record")
    print(seconds)


if __name__ == "__main__":
    main()

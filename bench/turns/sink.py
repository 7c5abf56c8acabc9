"""Documents into Postgres, one row each: `python -m bench.turns.sink runtime|bare DOCUMENTS [TOPIC]`.

`runtime` is a whole reader, from the log to committed transactions; `bare` runs the sink's own guard and upsert with
executemany, 500 a transaction, without a reader. Prints the seconds. The rows are left, under a group `bench-sink-…`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import streams.sinks
from bench.turns.running import Record, document, read_all, unique
from streams.config import settings
from streams.contract import OUTPUT, DocumentSaved, Upsert, reader
from streams.database import connect, queries
from streams.kafka.codec import Codec
from streams.kafka.registry import Registry
from streams.ops.worker import decoder
from streams.sinks.effects import Statement, statements
from streams.sinks.postgres import PostgresSink
from streams.topics import DOCUMENTS_SAVED

DOCUMENTS = 60_000
BATCH_RECORDS = 500
BODY = "x" * 1_000
GROUP = "bench-sink"


def trivial(doc: DocumentSaved) -> Upsert:
    return Upsert(doc.document_id, {"characters": len(doc.body)})


def records(codec: Codec, documents: int) -> Iterator[Record]:
    """Events as the relay brings them."""
    for number in range(documents):
        one = document(f"document-{number}", BODY)
        event = {name: getattr(one, name) for name in one.__slots__}
        yield one.document_id, codec.encode(DOCUMENTS_SAVED, event)


def runtime(documents: int, topic: str) -> float:
    config, group = settings(), unique("sink")
    made = reader(group=group)(trivial)
    sink = PostgresSink(config, made, group, lambda _letter: b"")
    try:
        return read_all(config, made, topic, documents, decoder(Codec(Registry(config))), sink)
    finally:
        sink.close()


def bare(documents: int) -> float:
    group = unique("sink")
    guard = queries(Path(streams.sinks.__file__).parent / "sql" / "progress.sql").guard.sql
    batches = [
        [_parameters(group, number) for number in range(start, min(start + BATCH_RECORDS, documents))]
        for start in range(0, documents, BATCH_RECORDS)
    ]
    upsert = batches[0][0][1].text
    with connect(settings(), autocommit=True) as connection:
        began = time.perf_counter()
        for batch in batches:
            with connection.transaction(), connection.cursor() as cursor:
                cursor.executemany(guard, [progress for progress, _ in batch], returning=True)
                assert all(found.fetchone() for found in cursor.results())
                cursor.executemany(upsert, [statement.values for _, statement in batch])
        return time.perf_counter() - began


def _parameters(group: str, number: int) -> tuple[dict[str, Any], Statement]:
    one = document(f"document-{number}", BODY)
    progress = {"reader": group, "document_id": one.document_id, "version": 1, "state": "done", "done": True}
    rest = {"pass": 1, "attempts": 0, "error": None, "event_id": None, "next_attempt_at": None}
    (statement,) = statements(group, OUTPUT, one, trivial(one))
    return progress | rest, statement


def main() -> None:
    kind, documents, *topic = sys.argv[1:]
    print(runtime(int(documents), *topic) if kind == "runtime" else bare(int(documents)))


if __name__ == "__main__":
    main()

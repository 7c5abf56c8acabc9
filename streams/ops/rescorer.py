"""The re-scorer: a reader of chunks instead of documents, on the same runtime, run by `streams run rescorer`.

A chunk stands in the place of a document: its name is the id under which progress is kept, and how often it was sent
is its version. So chunks are retried, parked and given up as documents are. Found by streams/ops/runnable.py; calls the
scorers of streams/readers; what it returns is written by streams/sinks/rescored.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from streams.config import Settings, settings
from streams.contract import DocumentSaved, Key, Reject, Retry, RetryLater, Row, reader
from streams.database import Connection, connect, queries
from streams.errors import ReaderError
from streams.kafka.codec import Codec
from streams.ops.worker import Wiring
from streams.readers._saved_queries import SavedQueries
from streams.readers._scorer import scorer_named
from streams.readers.ranker import Ranker, Scorer
from streams.runtime.handling import describe
from streams.sinks.rescored import Rescored, RescoreSink
from streams.topics import RESCORE, RESCORER

PAGE = 20  # documents in memory at once, of up to 4 MiB each
ROWS_MAX = 50_000  # scores a transaction, which may take ten seconds: 100,000 took up to nine on two busy cores

Scores = dict[Key, Row] | str  # of one document; or why it has none

_SQL = queries(Path(__file__).parent / "sql" / "rescore.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk(DocumentSaved):
    """The documents after `after_id` up to `last_id`, as they were at `saved_at`, to be scored with `model`."""

    run_id: int
    chunk: int
    model: str
    model_version: str
    after_id: str
    last_id: str


def decoder(codec: Codec) -> Callable[[bytes | None], Chunk]:
    """From a record's value to the chunk. What it gives raises as streams/kafka/events.py says."""

    def decode(value: bytes | None) -> Chunk:
        event = codec.decode(RESCORE, value)
        name, sent, as_of = f"{event['run_id']}/{event['chunk']}", event.pop("sent"), event.pop("as_of")
        return Chunk(document_id=name, owner_id="", version=sent, title="", body="", saved_at=as_of, **event)

    return decode


class Scorers:
    """What a worker scores with, made when the first chunk asks for it."""

    def __init__(self, config: Settings) -> None:
        self.config = config
        self._queries_of = SavedQueries(config)
        self._named: Callable[[str], Scorer] = cache(partial(scorer_named, named_by="the re-score"))

    def ranker(self, chunk: Chunk) -> Ranker:
        """The chunk's scorer, with each owner's queries read once. Raises ReaderError if it is not at hand."""
        scorer = self._named(chunk.model)
        if scorer.model_version != chunk.model_version:
            raise ReaderError(
                f"the re-score wants {chunk.model} as {chunk.model_version}, and here it is {scorer.model_version}"
            )
        return Ranker(cache(self._queries_of), scorer)


def make_scorers() -> Scorers:
    """Of the process's settings."""
    return Scorers(settings())


# One chunk at a time: a worker is what Little's law counts. Patience for a quarter of an hour of outage.
@reader(group=RESCORER, setup=make_scorers, concurrency=1, retry=Retry(20, 1.0, 60.0))
def rescore(chunk: Chunk, scorers: Scorers) -> Rescored | None:
    """All scores of a chunk; nothing for one that is done or whose run was cancelled.

    RetryLater while Postgres or the scorer cannot answer, ReaderError without the scorer.
    """
    began = time.monotonic()
    with connect(scorers.config, autocommit=True, default_transaction_read_only="on") as connection:
        if not _SQL.is_wanted(connection, run_id=chunk.run_id, chunk=chunk.chunk):
            return None
        ranker = scorers.ranker(chunk)
        scored = [(one.document_id, one.version, _scores(ranker, one)) for one in _documents(connection, chunk)]
    return _result(chunk, scored, time.monotonic() - began)


def _result(chunk: Chunk, scored: list[tuple[str, int, Scores]], seconds: float) -> Rescored:
    """What the sink is to write. Raises Reject if that is too much for a transaction."""
    rows = {key: row for _, _, given in scored if isinstance(given, dict) for key, row in given.items()}
    if len(rows) > ROWS_MAX:
        raise Reject(f"over {ROWS_MAX:,} scores in a chunk: cancel the run, and start one with a smaller --chunk")
    return Rescored(
        rows=rows,
        run_id=chunk.run_id,
        chunk=chunk.chunk,
        model_version=chunk.model_version,
        versions={document_id: version for document_id, version, _ in scored},
        errors={document_id: given for document_id, _, given in scored if isinstance(given, str)},
        seconds=seconds,
    )


def _documents(connection: Connection, chunk: Chunk) -> Iterator[DocumentSaved]:
    """Page by page, so that no transaction stays open while they are scored."""
    after_id = chunk.after_id
    while True:
        page = [
            DocumentSaved(*row)
            for row in _SQL.documents(
                connection, after_id=after_id, last_id=chunk.last_id, as_of=chunk.saved_at, rows_max=PAGE
            )
        ]
        yield from page
        if len(page) < PAGE:
            return
        after_id = page[-1].document_id


def _scores(ranker: Ranker, document: DocumentSaved) -> Scores:
    """The document's rows, or what is wrong with it. Raises RetryLater."""
    try:
        rows = ranker.scores(document)
        if wrong := [row["score"] for row in rows.values() if not math.isfinite(row["score"])]:
            raise ValueError(f"the scorer gave {wrong[0]}, which is no score")
    except RetryLater:
        raise
    except Exception as error:  # noqa: BLE001 - a scorer of others may raise anything
        failure = describe(error)
        return f"{failure.error_class}: {failure.message}"
    return rows


def _prepare(_config: Settings, _group: str) -> None:
    """Nothing: its topics are made by setup, and jobs do not wait for it as they do for a reader of documents."""


WIRING = Wiring(RESCORE.name, decoder, RescoreSink, _prepare)

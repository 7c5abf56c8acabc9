"""The sink on Postgres: one transaction a batch, guarded by ownership and by progress.

    epochs still ours? → progress of each record → effects that the guard let through → parked rows → dead letters

Called by the runtime's delivery and admission through `ports.Sink`, from one thread. It keeps one connection and
makes a new one after any trouble.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from streams.config import Settings
from streams.contract import Increment, Reader
from streams.core.outcomes import Dead, Done, Expired, Retrying
from streams.core.suspicion import Trace
from streams.database import connect, queries
from streams.errors import Unavailable
from streams.runtime.ports import (
    Claimed,
    ParkedRow,
    Partition,
    PartitionsLost,
    Progress,
    Result,
    RowRefused,
    SinkBroken,
    SinkBusy,
)
from streams.sinks import parked
from streams.sinks.effects import SCHEMA, Statement, statements
from streams.sinks.letters import Encode, Letters

log = logging.getLogger(__name__)

_SQL = queries(Path(__file__).parent / "sql")
_GUARD = _SQL.guard.sql
_STATES = {Done: "done", Expired: "expired", Retrying: "retrying", Dead: "dead"}

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresSink:
    """Progress, effects and dead letters of one worker of one reader.

    `encode` frames a dead letter's event; None: none is sent.
    """

    # A worker frozen in the middle of a batch blocks its successor's claim no longer than this.
    session: ClassVar[Mapping[str, str]] = {"transaction_timeout": "10s", "application_name": "distributary-reader"}

    def __init__(self, config: Settings, reader: Reader, worker: str, encode: Encode | None) -> None:
        self._config = config
        self._reader = reader
        self._worker = worker
        self._letters = Letters(reader.group, worker, encode)
        self._writes_as, self._schema = reader.group, SCHEMA  # the reader and the place of its results
        self._connection: Connection | None = None

    def claim(self, partitions: Iterable[Partition]) -> dict[Partition, Claimed]:
        with self._session() as connection, connection.transaction():
            rows = _SQL.claim(connection, reader=self._reader.group, worker=self._worker, **_columns(partitions))
            return {Partition(topic, number): Claimed(epoch, Trace(*left)) for topic, number, epoch, *left in rows}

    def leave(self, traces: Mapping[Partition, Claimed]) -> None:
        with self._session() as connection:
            given = list(traces.values())
            _SQL.leave(
                connection,
                reader=self._reader.group,
                **_columns(traces),
                epochs=[one.epoch for one in given],
                **{name: [getattr(one.left, name) for one in given] for name in Trace._fields},
            )

    def new_pass(self) -> int:
        with self._session() as connection:
            return int(_SQL.new_pass(connection))

    def lookup(self, document_ids: Iterable[str]) -> dict[str, Progress]:
        with self._session() as connection:
            rows = _SQL.lookup(connection, reader=self._reader.group, document_ids=list(document_ids))
            return {document_id: Progress(*progress) for document_id, *progress in rows}

    def parked_lanes(self, lanes: Iterable[str]) -> set[str]:
        with self._session() as connection:
            return parked.lanes(connection, self._reader.group, lanes)

    def heads(
        self, numbers: Iterable[int], partitions: int, until: datetime, active: Iterable[str], rows_max: int
    ) -> list[ParkedRow]:
        with self._session() as connection:
            return parked.heads(connection, self._reader.group, numbers, partitions, until, active, rows_max)

    def begin(self, begun: Sequence[Result]) -> None:
        with self._session() as connection:
            parked.begin(connection, self._reader.group, begun)

    def write(self, epochs: Mapping[Partition, int], results: Sequence[Result]) -> None:
        with self._session() as connection, connection.transaction():
            self._check_owned(connection, epochs)
            applied = self._guard(connection, [one for one in results if _has_progress(one)])
            _run(connection, self._effects(applied))
            _run(connection, (each for one in results for each in parked.statements(self._reader.group, one)))
            self._letters.keep(connection, results)

    def close(self) -> None:
        """Let the connection go."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ------------------------------------------------------------------------------------ the connection

    @contextmanager
    def _session(self) -> Iterator[Connection]:
        """The connection, with what goes wrong on it in the runtime's words."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = connect(self._config, autocommit=True, **self.session)
            yield self._connection
        except (psycopg.Error, Unavailable) as error:
            raise self._translated(error) from error
        # The handler's values are what no statement can be made of (UnicodeError is a ValueError).
        except (TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            raise RowRefused(f"{type(error).__name__}: {error}") from error

    def _translated(self, error: psycopg.Error | Unavailable) -> Exception:
        """Permanent for the row: SQLSTATE 22, 23, 54 and the client's own refusals. 42 is the reader's fault."""
        state = getattr(error, "sqlstate", None)
        reason = str(error).strip().split("\n")[0]
        if (state or "")[:2] in ("22", "23", "54"):
            return RowRefused(f"{state}: {reason}")
        if state is None and isinstance(error, (psycopg.DataError, psycopg.ProgrammingError)):
            return RowRefused(reason)
        if (state or "")[:2] == "42":
            return SinkBroken(f"Postgres does not know what the reader writes: {reason}")
        with suppress(psycopg.Error):
            self.close()
        return SinkBusy(reason or type(error).__name__)

    # ------------------------------------------------------------------------------------ one transaction

    def _check_owned(self, connection: Connection, epochs: Mapping[Partition, int]) -> None:
        rows = _SQL.owned(connection, reader=self._reader.group, **_columns(epochs))
        found = {Partition(topic, number): epoch for topic, number, epoch in rows}
        lost = frozenset(partition for partition, epoch in epochs.items() if found.get(partition) != epoch)
        if lost:
            raise PartitionsLost(lost)

    def _guard(self, connection: Connection, results: list[Result]) -> list[tuple[Result, bool]]:
        """Record progress; the done ones whose effects apply, each with whether it is the first time."""
        return self._guarded(connection, results, self._reader.group)

    def _guarded(self, connection: Connection, results: list[Result], reader: str) -> list[tuple[Result, bool]]:
        if not results:
            return []
        with connection.cursor() as cursor:
            cursor.executemany(_GUARD, [_progress(one, reader) for one in results], returning=True)
            rows = [found.fetchone() for found in cursor.results()]
        return [
            (one, bool(row[0]))
            for one, row in zip(results, rows, strict=True)
            if row is not None and isinstance(one.outcome, Done)
        ]

    def _effects(self, applied: list[tuple[Result, bool]]) -> list[Statement]:
        """The first statement of each document, then the second of each, and so on.

        Record order holds within a document, and documents do not touch each other's rows. So all deletions of five
        hundred `Replace` become one call, and all their rows another, instead of a thousand calls in turns.
        """
        so_far: Counter[str] = Counter()
        numbered: list[tuple[int, Statement]] = []
        for one, first_time in applied:
            assert one.document is not None
            for statement in self._statements(one, first_time):
                so_far[one.document.document_id] += 1
                numbered.append((so_far[one.document.document_id], statement))
        return [statement for _, statement in sorted(numbered, key=lambda each: (each[0], each[1].text))]

    def _statements(self, one: Result, first_time: bool) -> Iterator[Statement]:
        assert isinstance(one.outcome, Done)
        assert one.document is not None
        for effect in one.outcome.effects:
            if first_time or not isinstance(effect, Increment):
                yield from statements(self._writes_as, self._reader.table, one.document, effect, self._schema)


def _progress(one: Result, reader: str) -> dict[str, Any]:
    assert one.document is not None
    outcome = one.outcome
    failed = outcome if isinstance(outcome, (Retrying, Dead)) else None
    return {
        "reader": reader,
        "document_id": one.document.document_id,
        "version": one.document.version,
        "state": _STATES[type(outcome)],
        "done": isinstance(outcome, Done),
        "pass": one.pass_number,
        "attempts": failed.attempts if failed else 0,
        "error": f"{failed.failure.error_class}: {failed.failure.message}" if failed else None,
        "event_id": one.event_id,
        "next_attempt_at": outcome.next_attempt_at if isinstance(outcome, Retrying) else None,
    }


def _run(connection: Connection, wanted: Iterable[Statement]) -> None:
    """Run statements in order, neighbours of the same text together."""
    for text, group in groupby(wanted, key=lambda statement: statement.text):
        same = list(group)
        with connection.cursor() as cursor:
            cursor.executemany(text, [statement.values for statement in same])
            if same[0].rows is not None and cursor.rowcount != len(same):
                raise RowRefused("a key belongs to another document, or to a counter")


def _has_progress(one: Result) -> bool:
    """Only what was read and tried: a record behind another says nothing of its document yet."""
    return one.document is not None and type(one.outcome) in _STATES


def _columns(partitions: Iterable[Partition]) -> dict[str, list[Any]]:
    listed = list(partitions)
    return {"topics": [one.topic for one in listed], "partitions": [one.number for one in listed]}

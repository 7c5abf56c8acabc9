"""The sink on Postgres: one transaction a batch, guarded by ownership and by progress.

    epochs still ours? → progress of each record → effects of those that the guard let through → dead letters

Called by the runtime's delivery and admission through `ports.Sink`, from one thread. It keeps one connection and
makes a new one after any trouble.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import psycopg

from streams.config import Settings
from streams.contract import Increment, Reader
from streams.core.outcomes import Dead, Done, Expired, Retrying
from streams.database import connect, queries
from streams.errors import Unavailable
from streams.runtime.ports import (
    Origin,
    Partition,
    PartitionsLost,
    Progress,
    Result,
    RowRefused,
    SinkBroken,
    SinkBusy,
)
from streams.sinks.effects import Statement, statements
from streams.topics import OUTBOX_BYTES_MAX, dead_letters

log = logging.getLogger(__name__)

# A worker frozen in the middle of a batch blocks its successor's claim no longer than this.
_SESSION = {"transaction_timeout": "10s", "application_name": "distributary-reader"}
_SQL = queries(Path(__file__).parent / "sql")
_GUARD = _SQL.guard.sql
_STATES = {Done: "done", Expired: "expired", Retrying: "retrying", Dead: "dead"}

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresSink:
    """Progress, effects and dead letters of one worker of one reader. `encode` frames a dead letter's event."""

    def __init__(
        self, config: Settings, reader: Reader, worker: str, encode: Callable[[Mapping[str, Any]], bytes]
    ) -> None:
        self._config = config
        self._reader = reader
        self._worker = worker
        self._encode = encode
        self._connection: Connection | None = None

    def claim(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        with self._session() as connection, connection.transaction():
            rows = _SQL.claim(connection, reader=self._reader.group, worker=self._worker, **_columns(partitions))
            return {Partition(topic, number): epoch for topic, number, epoch in rows}

    def new_pass(self) -> int:
        with self._session() as connection:
            return int(_SQL.new_pass(connection))

    def lookup(self, document_ids: Iterable[str]) -> dict[str, Progress]:
        with self._session() as connection:
            rows = _SQL.lookup(connection, reader=self._reader.group, document_ids=list(document_ids))
            return {document_id: Progress(*progress) for document_id, *progress in rows}

    def write(self, epochs: Mapping[Partition, int], results: Sequence[Result]) -> None:
        with self._session() as connection, connection.transaction():
            self._check_owned(connection, epochs)
            applied = self._guard(connection, [one for one in results if one.document is not None])
            self._apply(connection, applied)
            self._resolve(connection, results)
            for one in results:
                if isinstance(one.outcome, Dead):
                    self._bury(connection, one, one.outcome)

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
                self._connection = connect(
                    self._config,
                    autocommit=True,
                    **_SESSION,
                )
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
        if not results:
            return []
        with connection.cursor() as cursor:
            cursor.executemany(_GUARD, [self._progress(one) for one in results], returning=True)
            rows = [found.fetchone() for found in cursor.results()]
        return [
            (one, bool(row[0]))
            for one, row in zip(results, rows, strict=True)
            if row is not None and isinstance(one.outcome, Done)
        ]

    def _progress(self, one: Result) -> dict[str, Any]:
        assert one.document is not None
        outcome = one.outcome
        failed = outcome if isinstance(outcome, (Retrying, Dead)) else None
        return {
            "reader": self._reader.group,
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

    def _apply(self, connection: Connection, applied: list[tuple[Result, bool]]) -> None:
        """Run the effects, neighbours of the same statement together."""
        for text, group in groupby(self._in_rounds(applied), key=lambda statement: statement.text):
            same = list(group)
            with connection.cursor() as cursor:
                cursor.executemany(text, [statement.values for statement in same])
                if same[0].rows is not None and cursor.rowcount != len(same):
                    raise RowRefused("a key belongs to another document, or to a counter")

    def _in_rounds(self, applied: list[tuple[Result, bool]]) -> list[Statement]:
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
                yield from statements(self._reader.group, self._reader.table, one.document, effect)

    def _resolve(self, connection: Connection, results: Sequence[Result]) -> None:
        done = [one.event_id for one in results if isinstance(one.outcome, Done) and one.event_id]
        if done:
            _SQL.resolve(connection, reader=self._reader.group, event_ids=done)

    def _bury(self, connection: Connection, one: Result, dead: Dead) -> None:
        """Keep a dead letter and, if it is new, send it to the reader's dead-letter topic."""
        origin, died_at = one.origin(), datetime.now(UTC)
        letter = self._letter(origin, dead, died_at)
        kept = _SQL.bury(
            connection,
            **{name: value for name, value in letter.items() if name != "headers"},
            header_names=[name for name, _ in origin.headers],
            header_values=[value for _, value in origin.headers],
            event_id=one.event_id,
            document_id=one.document.document_id if one.document else None,
            version=one.document.version if one.document else None,
        )
        if kept is not None:
            _SQL.emit(
                connection,
                topic=dead_letters(self._reader.group).name,
                message_key=(origin.key or b"").decode("utf-8", "backslashreplace").replace("\0", "\\0"),
                payload=self._frame(letter),
            )

    def _frame(self, letter: Mapping[str, Any]) -> bytes:
        """The event; without a value that the outbox would not take: the table keeps it."""
        frame = self._encode(letter)
        return frame if len(frame) <= OUTBOX_BYTES_MAX else self._encode({**letter, "value": None})

    def _letter(self, origin: Origin, dead: Dead, died_at: datetime) -> dict[str, Any]:
        """The dead letter, in the shape of schemas/dead-letter.avsc."""
        return {
            "reader": self._reader.group,
            "topic": origin.partition.topic,
            "partition": origin.partition.number,
            "offset": origin.offset,
            "timestamp": origin.timestamp,
            "key": origin.key,
            "value": origin.value,
            "headers": [{"name": name, "value": value} for name, value in origin.headers],
            "error_class": dead.failure.error_class,
            "error_message": dead.failure.message,
            "traceback": dead.failure.traceback,
            "attempts": dead.attempts,
            "worker": self._worker,
            "first_failed_at": dead.first_failed_at,
            "died_at": died_at,
        }


def _columns(partitions: Iterable[Partition]) -> dict[str, list[Any]]:
    listed = list(partitions)
    return {"topics": [one.topic for one in listed], "partitions": [one.number for one in listed]}

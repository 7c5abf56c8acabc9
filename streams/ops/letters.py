"""Dead letters: find, show, redrive, discard. Called by `streams dlq`; one transaction a chunk.

A redriven letter is a parked record again, so it keeps the order of its key and blocks no other; what becomes of it
shows as the letter's state: resolved, superseded, or open once more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import psycopg

from streams.database import queries
from streams.errors import NotFound

_SQL = queries(Path(__file__).parent / "sql" / "letters.sql")
CHUNK = 100  # letters a transaction: a kill in the middle leaves each moved, or not

State = Literal["open", "redriven", "resolved", "discarded", "superseded"]
Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Filters:
    """Which letters: all that are given must hold. `error` is a part of class or message.

    `live`: none of replays (reader@run), which cannot be redriven: nobody reads for them any more.
    """

    reader: str | None = None
    state: State | None = "open"
    error: str | None = None
    key: str | None = None
    since: datetime | None = None
    ids: list[int] | None = None
    live: bool = False


@dataclass(frozen=True, slots=True)
class Letter:
    """One line of the list."""

    dead_letter_id: int
    reader: str
    topic: str
    partition: int
    offset: int
    document_id: str | None
    version: int | None
    state: State
    error_class: str
    error_message: str
    attempts: int
    died_at: datetime


def find(connection: Connection, filters: Filters, rows_max: int | None = None) -> tuple[list[Letter], int]:
    """The letters, oldest first, at most `rows_max`; and how many there are in all."""
    rows = list(_SQL.letters(connection, **asdict(filters), rows_max=rows_max))
    return [Letter(*row[1:]) for row in rows], rows[0][0] if rows else 0


def show(connection: Connection, letter_id: int) -> dict[str, Any]:
    """All that is kept of one letter, by column. Raises NotFound."""
    with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        row = cursor.execute(_SQL.letter.sql, {"id": letter_id}).fetchone()
    if row is None:
        raise NotFound(f"there is no dead letter {letter_id}")
    return row


def redrive(
    connection: Connection,
    filters: Filters,
    rows_max: int | None,
    rate_per_second: float | None,
    progress: Callable[[int], None],
) -> int:
    """Give open letters to their readers again; how many this call moved. A letter redriven by another counts there.

    Those of replays stay, and do not count towards `rows_max`.
    """
    return _in_chunks(connection, _SQL.redrive, replace(filters, live=True), rows_max, rate_per_second, progress)


def discard(connection: Connection, filters: Filters, rows_max: int | None, progress: Callable[[int], None]) -> int:
    """Give open letters up for good; how many this call closed. The rows stay, for the record."""
    return _in_chunks(connection, _SQL.discard, filters, rows_max, None, progress)


def _in_chunks(
    connection: Connection,
    change: Callable[..., int],
    filters: Filters,
    rows_max: int | None,
    rate_per_second: float | None,
    progress: Callable[[int], None],
) -> int:
    found, _total = find(connection, filters, rows_max)
    chosen = [letter.dead_letter_id for letter in found]
    changed = 0
    for chunk in _paced(chosen, rate_per_second):
        with connection.transaction():
            changed += change(connection, ids=chunk)
        progress(len(chunk))
    return changed


def _paced(ids: list[int], rate_per_second: float | None) -> Iterator[list[int]]:
    """Chunks, no faster than the rate: below one chunk a second the chunks get smaller."""
    size = CHUNK if rate_per_second is None else max(1, min(CHUNK, int(rate_per_second)))
    started = time.monotonic()
    for number, chunk in enumerate(_chunks(ids, size)):
        if rate_per_second is not None:
            time.sleep(max(0.0, started + number * size / rate_per_second - time.monotonic()))
        yield chunk


def _chunks(ids: list[int], size: int) -> Iterator[list[int]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))

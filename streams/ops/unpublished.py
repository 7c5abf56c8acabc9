"""Which rows of the outbox are not in the log.

The log itself decides: a row is published if its topic has a record of its event id and its time. Called by the
outbox's upkeep, its repair, the doctor and the relay's row of `streams lag`; asks Postgres and the log.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import streams.outbox
from streams.cdc.slot import Connection
from streams.database import queries
from streams.kafka.published import Published, PublishedEvents, milliseconds

sql = queries(Path(streams.outbox.__file__).parent / "sql" / "relay.sql")

WINDOW_ROWS = 10_000


class OutboxRow(NamedTuple):
    """A row of the outbox; `bytes` is the record's size but for its frame, `created_at` in UTC without zone."""

    seq: int
    event_id: str
    topic: str
    bytes: int
    created_at: datetime

    @property
    def record(self) -> Published:
        """By what its record is known."""
        return self.event_id, milliseconds(self.created_at)

    @property
    def age_seconds(self) -> float:
        return max(0.0, (datetime.now(UTC) - self.created_at.replace(tzinfo=UTC)).total_seconds())


def unpublished(connection: Connection, published: PublishedEvents, rows_max: int = WINDOW_ROWS) -> list[OutboxRow]:
    """The rows that are not in the log, by seq.

    Looks at the newest `rows_max`, and at ten times more while the older half of those still has unpublished ones:
    rows are published in the order of their commits, which is nearly that of seq.
    """
    while True:
        rows = [OutboxRow(*row) for row in sql.newest_rows(connection, rows_max=rows_max)]
        waiting = missing(rows, published)
        if len(rows) < rows_max or not waiting or waiting[0].seq >= rows[len(rows) // 2].seq:
            return waiting
        rows_max *= 10


def missing(rows: list[OutboxRow], published: PublishedEvents) -> list[OutboxRow]:
    """Those of the rows that are not in the log."""
    starts: dict[str, datetime] = {}
    for row in rows:
        starts[row.topic] = min(row.created_at, starts.get(row.topic, row.created_at))
    there = published.since(starts)
    return [row for row in rows if row.record not in there]

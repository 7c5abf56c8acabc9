"""The table of parked records: what a result changes in it, and reading it back.

Called by the Postgres sink. What changes depends on ownership, which the transaction has checked, and never on what
the guard lets through.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg

from streams.core.offsets import Offset
from streams.core.outcomes import Behind, Retrying
from streams.database import queries
from streams.runtime.ports import Origin, ParkedRow, Partition, Result
from streams.sinks.effects import Statement

_SQL = queries(Path(__file__).parent / "sql" / "parking.sql")


def statements(reader: str, one: Result) -> Iterator[Statement]:
    """What a result does to the table, in order: nothing for most records."""
    outcome = one.outcome
    if isinstance(outcome, (Retrying, Behind)):
        yield _waits(reader, one, outcome)
    elif one.parked:
        yield Statement(_SQL.unpark.sql, _place(reader, one), None)
        yield Statement(_SQL.promote.sql, {"reader": reader, "lane": one.lane}, None)


def _waits(reader: str, one: Result, outcome: Retrying | Behind) -> Statement:
    failed = outcome if isinstance(outcome, Retrying) else None
    attempt = {
        "attempts": failed.attempts if failed else 0,
        "error": f"{failed.failure.error_class}: {failed.failure.message}" if failed else None,
        "first_failed_at": one.first_failed_at,
        "next_attempt_at": failed.next_attempt_at if failed else None,
    }
    if one.parked:
        return Statement(_SQL.postpone.sql, _place(reader, one) | attempt, None)
    return Statement(_SQL.park.sql, _place(reader, one) | _row(one) | attempt, None)


def _place(reader: str, one: Result) -> dict[str, Any]:
    topic, partition, offset = one.at
    return {"reader": reader, "topic": topic, "partition": partition, "offset": offset}


def _row(one: Result) -> dict[str, Any]:
    origin = one.origin()
    return {
        "lane": one.lane,
        "lane_hash": one.lane_hash(),
        "version": one.lane_version,
        "timestamp": origin.timestamp,
        "key": origin.key,
        "value": origin.value,
        "header_names": [name for name, _ in origin.headers],
        "header_values": [value for _, value in origin.headers],
        "event_id": one.event_id,
    }


def lanes(connection: psycopg.Connection[Any], reader: str, names: Iterable[str]) -> set[str]:
    """Those of the lanes that have parked records."""
    return {lane for (lane,) in _SQL.parked_lanes(connection, reader=reader, lanes=list(names))}


def heads(
    connection: psycopg.Connection[Any],
    reader: str,
    numbers: Iterable[int],
    partitions: int,
    until: datetime,
    active: Iterable[str],
    rows_max: int,
) -> list[ParkedRow]:
    """The first record of each lane that is due; see `ports.Sink.heads`."""
    rows = _SQL.heads(
        connection,
        reader=reader,
        numbers=list(numbers),
        partitions=partitions,
        until=until,
        active=list(active),
        rows_max=rows_max,
    )
    return [_parked(*row) for row in rows]


def begin(connection: psycopg.Connection[Any], reader: str, begun: Sequence[Result]) -> None:
    """Note one run more of each of these."""
    _SQL.begin(
        connection,
        reader=reader,
        topics=[one.at[0] for one in begun],
        partitions=[one.at[1] for one in begun],
        offsets=[one.at[2] for one in begun],
        runs=[one.runs + 1 for one in begun],
    )


def _parked(  # one argument a column of the query
    lane: str,
    lane_hash: int,
    topic: str,
    partition: int,
    offset: int,
    timestamp: datetime,
    key: bytes | None,
    value: bytes | None,
    names: list[str],
    values: list[bytes | None],
    attempts: int,
    first_failed_at: datetime | None,
    next_attempt_at: datetime | None,
    runs: int,
) -> ParkedRow:
    headers = list(zip(names, values, strict=True))
    origin = Origin(Partition(topic, partition), Offset(offset), timestamp, key, value, headers)
    return ParkedRow(lane, lane_hash, origin, attempts, first_failed_at, next_attempt_at, runs)

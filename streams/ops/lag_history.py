"""Lag as it was, in Postgres: samples that one recorder writes, and marks of what was done to the readers.

Called by the recorder, `streams.ops.lag_postgres`, and whoever does something that a chart of lag should show (`mark`);
calls Postgres. Old samples get fewer: see sql/lag.sql.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

import streams.ops
from streams.config import Settings
from streams.core.groups import Partition
from streams.core.outlook import Outlook
from streams.core.series import Place, Sample
from streams.database import Connection, connect, queries
from streams.errors import Unavailable
from streams.ops.unpublished import sql as outbox_sql

log = logging.getLogger(__name__)
sql = queries(Path(streams.ops.__file__).parent / "sql" / "lag.sql")

# What a group could do with how many workers is asked of the last hour: who writes to what changes over days.
CAPACITY_SECONDS = 3600.0


class Mark(NamedTuple):
    """Something that was done at a time (seconds since the epoch); without a group it concerns all."""

    at: float
    kind: str
    group: str | None
    text: str


class Chart(NamedTuple):
    """By group, its lag in offsets at times in seconds since the epoch; and what was done meanwhile."""

    curves: Mapping[str, Sequence[tuple[float, int]]]
    marks: Sequence[Mark] = ()


def recent(connection: Connection, seconds: float, groups: Sequence[str] | None = None) -> dict[str, list[Sample]]:
    """The samples of the last `seconds` by group, oldest first; of all groups if none are named."""
    return _by_group(sql.recent_samples(connection, seconds=seconds, groups=list(groups or ()) or None))


def last(connection: Connection, groups: Sequence[str]) -> dict[str, list[Sample]]:
    """The last sample of each group, however old."""
    return _by_group(sql.last_samples(connection, groups=list(groups)))


def readers(connection: Connection) -> list[str]:
    """The readers of ours, whether they run or not."""
    return [reader for (reader,) in outbox_sql.reader_names(connection)]


def capacities(connection: Connection) -> dict[str, dict[int, float]]:
    """By group and number of members, what it did per second while work waited."""
    found: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for group, members, per_second in sql.capacities(connection, seconds=CAPACITY_SECONDS):
        found[group][members] = per_second
    return dict(found)


def write(connection: Connection, seen: Outlook, sample: Sample) -> None:
    """Keep a sample with what was made of it."""
    lag, flow, places = seen.lag, seen.flow, sorted(sample.places.items())
    sql.add_sample(
        connection,
        group=lag.group,
        at=sample.at,
        members=sample.members,
        lag_records=lag.lag_records,
        age_seconds=lag.age_seconds,
        backlog_records=flow and flow.backlog_records,
        rate_in_per_second=flow and flow.rate_in_per_second,
        rate_out_per_second=flow and flow.rate_out_per_second,
        capacity_per_second=flow and flow.capacity_per_second,
        drain_seconds=seen.drain_seconds,
        shape=seen.shape,
        health=seen.health,
        topics=[partition.topic for partition, _ in places],
        partitions=[partition.number for partition, _ in places],
        committed=[place.committed for _, place in places],
        log_ends=[place.end for _, place in places],
        lags=[place.lag for _, place in places],
        arrived=[place.arrived for _, place in places],
        done=[place.done for _, place in places],
        backlogs=[place.backlog for _, place in places],
    )


def thin(connection: Connection) -> None:
    """Remove what is too old to be kept."""
    sql.thin(connection)
    sql.forget_marks(connection)


def chart(config: Settings, groups: Sequence[str], seconds: float) -> Chart:
    """The last `seconds` of these groups, or of all that were recorded; empty where there is no Postgres of ours."""
    try:
        with connect(config, autocommit=True, statement_timeout="10s") as connection:
            return _chart(connection, list(groups) or None, seconds)
    except (Unavailable, psycopg.Error) as error:
        log.debug("no history of lag: %s", error)
        return Chart({})


def _chart(connection: Connection, groups: list[str] | None, seconds: float) -> Chart:
    curves: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for group, at, lag in sql.lag_since(connection, groups=groups, seconds=seconds):
        curves[group].append((at, lag))
    return Chart(curves, marks(connection, seconds, groups))


def marks(connection: Connection, seconds: float, groups: Sequence[str] | None = None) -> list[Mark]:
    """What was done in the last `seconds`, to these groups or to all."""
    return [Mark(*row) for row in sql.marks_since(connection, groups=groups, seconds=seconds)]


def mark(config: Settings, kind: str, group: str | None, text: str) -> None:
    """Note on the charts that something is done now: a replay, a redrive, chaos.

    Never in the way of what is done: where there is no Postgres of ours, nothing is noted.
    """
    try:
        with connect(config, autocommit=True, statement_timeout="2s") as connection:
            sql.add_mark(connection, kind=kind, group=group, text=text)
    except (Unavailable, psycopg.Error) as error:
        log.debug("no mark of %s: %s", kind, error)


def _by_group(rows: Iterable[Sequence[Any]]) -> dict[str, list[Sample]]:
    found: defaultdict[str, list[Sample]] = defaultdict(list)
    for group, at, members, topics, partitions, *places in rows:
        names = map(Partition, topics, partitions)
        found[group].append(Sample(at, members, dict(zip(names, map(Place, *places), strict=True))))
    return dict(found)

"""Prometheus metrics of `streams run`: made from the workers' statuses at each scrape, and from Postgres.

Called by `streams run`, served by prometheus_client on a thread of its own. docs/metrics.md says what each means.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import NamedTuple

import psycopg
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streams.config import Settings
from streams.database import Connection, connect, queries
from streams.errors import StackError, Unavailable
from streams.ops.fleet import Row, total
from streams.runtime.status import PAUSE_REASONS, Status

ANSWER_SECONDS_MAX = 2.0  # of Postgres, in a scrape that may take ten in all
OPEN_WORK_SECONDS = 5.0  # how old its answer may be: several servers may scrape

_sql = queries(Path(__file__).parent / "sql" / "metrics.sql")
Look = Callable[[], Sequence[Row]]


class OpenWork(NamedTuple):
    """What a reader still has to do, or somebody for it."""

    parked_records: int
    dead_letters: int


@contextmanager
def serving(config: Settings, port: int, look: Look) -> Iterator[None]:
    """Serve /metrics while the block runs. Raises StackError if the port cannot be had."""
    registry = CollectorRegistry()
    registry.register(Fleet(look, Tables(config)))
    try:
        server, thread = start_http_server(port, config.metrics_host, registry)
    except OSError as error:
        where, why = f"{config.metrics_host}:{port}", os.strerror(error.errno or 0)
        raise StackError(f"the metrics cannot be served at {where}: {why}; give another --metrics-port") from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Tables:
    """Open work by reader, as Postgres has it."""

    def __init__(self, config: Settings) -> None:
        self._config = config
        self._lock = Lock()
        self._known: Mapping[str, OpenWork] | None = None
        self._until = 0.0  # monotonic seconds

    def __call__(self, readers: Sequence[str]) -> Mapping[str, OpenWork] | None:
        """None if it does not answer: then nobody knows, which is not 0."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._known = self._ask(readers)
                self._until = time.monotonic() + OPEN_WORK_SECONDS
            return self._known

    def _ask(self, readers: Sequence[str]) -> Mapping[str, OpenWork] | None:
        """On a thread, which is left to itself when it takes too long: a frozen server keeps no timeout."""
        answer: SimpleQueue[Mapping[str, OpenWork] | None] = SimpleQueue()
        Thread(target=lambda: answer.put(self._query(readers)), name="metrics-query", daemon=True).start()
        try:
            return answer.get(timeout=ANSWER_SECONDS_MAX)
        except Empty:
            return None

    def _query(self, readers: Sequence[str]) -> Mapping[str, OpenWork] | None:
        try:
            with connect(self._config, autocommit=True, statement_timeout=f"{ANSWER_SECONDS_MAX:.0f}s") as connection:
                return open_work(connection, readers)
        except (Unavailable, psycopg.Error):
            return None


class Fleet(Collector):
    """All metrics of the workers, by reader."""

    def __init__(self, look: Look, tables: Callable[[Sequence[str]], Mapping[str, OpenWork] | None]) -> None:
        self._look = look
        self._tables = tables

    def describe(self) -> list[Metric]:
        """Nothing: else the registry would ask Postgres for the names when it starts."""
        return []

    def collect(self) -> Iterator[Metric]:
        """One family after the other; those of Postgres only if it answers."""
        rows = sorted(self._look(), key=lambda row: row.reader)
        by_reader = {reader: list(group) for reader, group in groupby(rows, key=lambda row: row.reader)}
        yield _records(by_reader)
        yield from _gauges(by_reader)
        yield _paused(by_reader)
        restarts = CounterMetricFamily("streams_reader_worker_restarts", "Workers started again.", labels=["reader"])
        for reader, mine in by_reader.items():
            restarts.add_metric([reader], sum(row.restarts for row in mine))
        yield restarts
        if (found := self._tables(list(by_reader))) is not None:
            yield from open_work_metrics(found)


def _records(by_reader: Mapping[str, list[Row]]) -> Metric:
    family = CounterMetricFamily(
        "streams_reader_records", "Records by what became of them.", labels=["reader", "outcome"]
    )
    for reader, rows in by_reader.items():
        for outcome, count in total(rows).items():
            family.add_metric([reader, outcome], count)
    return family


def _gauges(by_reader: Mapping[str, list[Row]]) -> Iterator[Metric]:
    """One number a reader."""
    sums: dict[str, tuple[str, Callable[[Status], int]]] = {
        "in_flight_records": ("Records read and not ended.", lambda status: status.in_flight_records),
        "in_flight_bytes": ("Their keys and values.", lambda status: status.in_flight_bytes),
        "running_handlers": ("Handlers at work.", lambda status: status.running_handlers),
    }
    for name, (meaning, value) in sums.items():
        yield _gauge(name, meaning, {reader: sum(map(value, _statuses(rows))) for reader, rows in by_reader.items()})
    yield _gauge(
        "blocked_seconds",
        "Age of the oldest record in flight.",
        {reader: max(row.blocked_seconds for row in rows) for reader, rows in by_reader.items()},
    )
    yield _gauge(
        "workers",
        "Worker processes that run.",
        {reader: sum(row.life == "runs" for row in rows) for reader, rows in by_reader.items()},
    )


def _gauge(name: str, meaning: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"streams_reader_{name}", meaning, labels=["reader"])
    for reader, value in values.items():
        family.add_metric([reader], value)
    return family


def _paused(by_reader: Mapping[str, list[Row]]) -> Metric:
    family = GaugeMetricFamily(
        "streams_reader_paused", "Workers that take nothing in, by reason.", labels=["reader", "reason"]
    )
    for reader, rows in by_reader.items():
        reasons = Counter(status.paused.reason for status in _statuses(rows) if status.paused)
        for reason in PAUSE_REASONS:
            family.add_metric([reader, reason], reasons[reason])
    return family


def open_work(connection: Connection, readers: Sequence[str]) -> dict[str, OpenWork]:
    """What each of the readers has left. Raises psycopg.Error."""
    return {reader: OpenWork(*counts) for reader, *counts in _sql.open_work(connection, readers=list(readers))}


def open_work_metrics(found: Mapping[str, OpenWork]) -> Iterator[Metric]:
    """The same as metrics, of `streams run` as of `streams api`."""
    parked = {reader: work.parked_records for reader, work in found.items()}
    yield _gauge("parked_records", "Records that wait to be tried again.", parked)
    dead = {reader: work.dead_letters for reader, work in found.items()}
    yield _gauge("dead_letters_open", "Dead letters that nobody dealt with.", dead)


def _statuses(rows: Sequence[Row]) -> list[Status]:
    return [row.tally.status for row in rows if row.tally.status is not None]

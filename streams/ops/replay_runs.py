"""Bounded replays: plan one, begin it, list them, cancel one. What each is to do stands in `ops.replays`.

Called by `streams replay`; asks the broker through `streams.kafka.admin`, lets `streams.core.bounded` decide.
`streams.ops.replay_worker` runs what was begun.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

import psycopg
from psycopg import sql as ident
from psycopg.rows import class_row

import streams.ops
from streams.config import Settings
from streams.contract import Reader
from streams.core.bounded import Bound, Window, is_whole, window
from streams.core.density import Span
from streams.core.groups import Log, Partition, nearest
from streams.core.offsets import Position
from streams.core.replay import Target, parse_target
from streams.database import Connection, connect, queries
from streams.errors import NotFound, ReplayRefused, Unavailable
from streams.kafka.admin import GroupsAdmin
from streams.kafka.record_counts import RecordCounts
from streams.ops.lag_history import capacities, mark
from streams.ops.replay import check_all
from streams.sinks.replayed import group_of, shadow_of
from streams.topics import DOCUMENTS_SAVED

sql = queries(Path(streams.ops.__file__).parent / "sql" / "replays.sql")

SILENT_SECONDS = 10.0  # a worker notes each second that it lives
_SAMPLE_SECONDS_MAX = 3.0
_DRAIN_SECONDS_MAX = 20.0  # a worker that is told to end has ten for its handlers
_AGAIN_SECONDS = 0.2

Goal = Literal["live", "shadow"]


class Asked(NamedTuple):
    """What somebody wants replayed: a time, `earliest`, `latest` or `offset:N` at each end, and into what."""

    since: str
    until: str = "latest"
    target: Goal = "live"
    rate_per_second: int | None = None
    external: bool = False
    topic: str = DOCUMENTS_SAVED.name


class Planned(NamedTuple):
    """What a replay would do. `seconds` is None where nothing tells; `at_most` where the reader was not busy."""

    window: Window
    whole: bool
    records_about: int
    seconds: float | None
    at_most: bool


@dataclass(frozen=True, slots=True)
class Run:
    """One replay as it stands. `seconds_silent` is None before its worker began."""

    run: int
    reader: str
    topic: str
    target: Goal
    asked_from: str
    asked_to: str
    since_ms: int | None
    until_ms: int | None
    whole: bool
    rate_per_second: int | None
    external: bool
    state: Literal["open", "done", "promoted", "cancelled"]
    records_about: int
    records_read: int
    begun_at: datetime
    ended_at: datetime | None
    seconds_silent: float | None
    offsets: int
    offsets_read: int

    @property
    def group(self) -> str:
        """Its consumer group, and its reader in the tables."""
        return group_of(self.reader, self.run)

    @property
    def shown_state(self) -> str:
        """The state; of an open one, whether anybody works at it."""
        if self.state != "open":
            return self.state
        return "running" if self.seconds_silent is not None and self.seconds_silent < SILENT_SECONDS else "stopped"


class ReplayRuns:
    """The replays of one stack."""

    def __init__(self, config: Settings) -> None:
        self._config = config
        self._admin = GroupsAdmin(config)

    def plan(self, reader: Reader, asked: Asked) -> Planned:
        """What the replay would read and how long it would take. Raises ConfigError, ReplayRefused, Unavailable."""
        now = datetime.now(UTC)
        since = parse_target(asked.since, now, "--from", has_commits=False)
        until = parse_target(asked.until, now, has_commits=False)
        logs = self._logs(asked.topic)
        made = window(since, until, logs, self._first(since, logs))
        about = self._about(made, self._first(until, logs))
        pace, is_capacity = self._pace(reader.group)
        paces = [each for each in (pace, asked.rate_per_second) if each]
        seconds = about / min(paces) if paces else None
        return Planned(made, is_whole(since, until, logs), about, seconds, pace is not None and not is_capacity)

    def begin(self, reader: Reader, asked: Asked, planned: Planned) -> Run:
        """Fix the bounds, as rows; `replay_worker.work` does the rest."""
        bounds = planned.window.bounds
        with connect(self._config, autocommit=True) as connection, connection.transaction():
            (run,) = sql.add(
                connection,
                reader=reader.group,
                topic=asked.topic,
                target=asked.target,
                asked_from=asked.since,
                asked_to=asked.until,
                since_ms=planned.window.since_ms,
                until_ms=planned.window.until_ms,
                whole=planned.whole,
                rate_per_second=asked.rate_per_second,
                external=asked.external,
                records_about=planned.records_about,
            )
            sql.add_partitions(
                connection,
                run=run,
                partitions=[one.number for one in bounds],
                starts=[bound.start for bound in bounds.values()],
                ends=[bound.end for bound in bounds.values()],
            )
        mark(self._config, "replay", reader.group, f"run {run} begins, into {asked.target}")
        return self.get(run)

    def get(self, run: int) -> Run:
        """One replay. Raises NotFound with those that there are."""
        found = self.listed(run)
        if not found:
            known = nearest(str(run), (str(one.run) for one in self.listed()))
            raise NotFound(f"there is no replay {run}; {known}")
        return found[0]

    def listed(self, run: int | None = None) -> list[Run]:
        """All replays, the newest first."""
        with connect(self._config) as connection, connection.cursor(row_factory=class_row(Run)) as cursor:
            return cursor.execute(sql.runs.sql, {"run": run}).fetchall()

    def set_rate(self, run: Run, rate_per_second: int) -> Run:
        """Go on at another rate."""
        with connect(self._config, autocommit=True) as connection:
            sql.set_rate(connection, run=run.run, rate_per_second=rate_per_second)
        return self.get(run.run)

    def catch_up(self, run: Run) -> Run:
        """Let a shadow go on to the end of the log as it is now. Raises ReplayRefused where it ends elsewhere."""
        if run.state not in ("open", "done"):
            raise ReplayRefused(f"replay {run.run} is {run.state}: begin another")
        if run.target != "shadow" or run.asked_to != "latest":
            raise ReplayRefused(f"replay {run.run} is no shadow that ends at the latest, so it has nothing to catch up")
        bounds, logs = self.window(run).bounds, self._logs(run.topic)
        with held(self._config, run), connect(self._config, autocommit=True) as connection:
            sql.extend(
                connection,
                run=run.run,
                partitions=[one.number for one in bounds],
                ends=[logs[one].end for one in bounds],
                more=sum(max(0, logs[one].end - bound.end) for one, bound in bounds.items()),
            )
        return self.get(run.run)

    def window(self, run: Run) -> Window:
        """What it reads."""
        with connect(self._config) as connection:
            rows = list(sql.partitions(connection, run=run.run))
        bounds = {
            Partition(run.topic, number): Bound(Position(start), Position(end)) for number, start, end, *_ in rows
        }
        return Window(bounds, run.since_ms, run.until_ms)

    def positions(self, run: Run) -> dict[Partition, Position]:
        """How far it is: the next position to read."""
        with connect(self._config) as connection:
            rows = list(sql.partitions(connection, run=run.run))
        return {Partition(run.topic, number): Position(position) for number, _, _, position, _ in rows}

    def recount(self, run: Run, window: Window, places: Mapping[Partition, Position]) -> Run:
        """Count what lies before the places where it goes on: a worker that was killed had noted less, or more."""
        read = {one: Bound(bound.start, max(bound.start, places[one])) for one, bound in window.bounds.items()}
        with connect(self._config, autocommit=True) as connection:
            sql.note(
                connection,
                run=run.run,
                records_read=self._about(replace(window, bounds=read), {}),
                partitions=[one.number for one in places],
                positions=list(places.values()),
            )
        return self.get(run.run)

    def cancel(self, run: Run) -> None:
        """Give it up: its worker drains and ends; its shadow and all that it left are dropped, but not what is live.

        Raises ReplayRefused if its worker does not end.
        """
        with connect(self._config, autocommit=True) as connection:
            sql.end(connection, run=run.run, state="cancelled")
        with held(self._config, run, _DRAIN_SECONDS_MAX):
            self.forget(run, keep=False)
        mark(self._config, "replay", run.reader, f"run {run.run} cancelled")

    def forget(self, run: Run, *, keep: bool) -> None:
        """Drop what only a replay that goes on needs, or all; the caller holds it."""
        with connect(self._config, autocommit=True) as connection, connection.transaction():
            sql.forget(connection, group=run.group, keep=keep, target=run.target)
            if not keep:
                schema = ident.Identifier(shadow_of(run.run))
                connection.execute(ident.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(schema))
        self._admin.delete(run.group)  # if it has members yet, it is forgotten by Kafka itself, days later

    def _logs(self, topic: str) -> dict[Partition, Log]:
        partitions = set(self._admin.cluster().partitions(topic))
        if not partitions:
            raise ReplayRefused(f"there is no topic {topic}: run `streams setup`")
        logs = self._admin.logs(partitions)
        check_all(partitions, logs, "where it starts and ends")
        return logs

    def _first(self, target: Target, logs: Mapping[Partition, Log]) -> dict[Partition, Position | None]:
        if target.kind != "time":
            return {}
        found = self._admin.first_since(logs, target.value)
        check_all(set(logs), found, "which record is the first since then")
        return found

    def _about(self, made: Window, until: Mapping[Partition, Position | None]) -> int:
        """How many records, by reading some of each partition; as if the times in the log were in order."""
        spans = {}
        for one, bound in made.bounds.items():
            first_late = until.get(one)
            end = bound.end if first_late is None else min(bound.end, max(bound.start, first_late))
            if end > bound.start:
                spans[one] = Span(bound.start, end)
        with RecordCounts(self._config) as counts:
            found = counts.read(spans, _SAMPLE_SECONDS_MAX)
        share = {one: len(said.records) / (said.span.end - said.span.start) for one, said in found.items()}
        return round(sum((span.end - span.start) * share.get(one, 1.0) for one, span in spans.items()))

    def _pace(self, reader: str) -> tuple[float | None, bool]:
        """Records a second of one worker, and whether it is a capacity: measured while work waited."""
        with connect(self._config) as connection:
            by_members = capacities(connection).get(reader)
            if by_members:
                members = min(by_members)
                return by_members[members] / members, True
            return sql.pace(connection, reader=reader), False


@contextmanager
def held(config: Settings, run: Run, seconds_max: float = 0.0) -> Iterator[None]:
    """Be the only one who changes a replay. Raises ReplayRefused if another is, for longer than `seconds_max`."""
    deadline = time.monotonic() + seconds_max
    session = connect(config, autocommit=True, application_name="distributary-replay")
    try:
        while not sql.try_lock(session, name=f"replay {run.run}"):
            if time.monotonic() > deadline:
                raise ReplayRefused(f"another process is at replay {run.run}; stop it first, or try again")
            time.sleep(_AGAIN_SECONDS)
        yield
    finally:
        session.close()


def unparked(connection: Connection, run: Run) -> bool:
    """Whether nothing of it waits for another attempt."""
    return not sql.parked_count(connection, group=run.group)


def letters(config: Settings, run: Run) -> int:
    """How many records it gave up. Raises Unavailable."""
    try:
        with connect(config) as connection:
            return int(sql.letters_count(connection, group=run.group))
    except psycopg.OperationalError as error:
        raise Unavailable(f"Postgres does not answer: {error}") from error

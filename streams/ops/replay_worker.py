"""One worker of a bounded replay: the reader's loop on a bounded log and a sink of its own, until all is read.

Called by `streams replay run`, in its own process, and again by `--resume` after any end: what was done stands in the
tables, what was read in the group's commits, what is to be read in `ops.replay_partitions`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event, Thread

import psycopg

from streams.config import Settings
from streams.contract import Reader
from streams.core.bounded import Window, eta_seconds
from streams.core.groups import Commit, Log, Partition
from streams.core.offsets import Position
from streams.database import connect
from streams.errors import ReaderError, ReplayRefused, StreamsError
from streams.kafka.admin import GroupsAdmin
from streams.kafka.codec import Codec
from streams.kafka.consumer import KafkaLog
from streams.kafka.events import decoder
from streams.kafka.exact_offsets import ExactOffsets
from streams.kafka.registry import Registry
from streams.ops.lag_history import mark
from streams.ops.replay import check_all
from streams.ops.replay_runs import ReplayRuns, Run, held, letters, sql, unparked
from streams.runtime.bounded import Bounded
from streams.runtime.clock import Clock
from streams.runtime.isolation import isolating
from streams.runtime.loop import Loop
from streams.runtime.ports import SinkBroken
from streams.sinks.replayed import IntoLive, IntoShadow

log = logging.getLogger(__name__)

NOTE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Seen:
    """How far a replay is. `eta_seconds` is None while nothing tells."""

    records_read: int
    records_about: int
    per_second: float
    eta_seconds: float | None


@dataclass(frozen=True, slots=True)
class Result:
    """How a worker ended: is the replay done, or was it told to stop; `dead` records were given up in all."""

    run: Run
    dead: int


def work(
    config: Settings,
    reader: Reader,
    run: Run,
    show: Callable[[Seen], None],
    begun: Callable[[Callable[[], None]], None],
) -> Result:
    """Read until the replay is through, cancelled, or told to stop by what is given to `begun`.

    Raises ReplayRefused if another process is at it or it has ended, ReaderError, Unavailable.
    """
    runs = ReplayRuns(config)
    with held(config, run):
        run = runs.get(run.run)
        if run.state != "open":
            raise ReplayRefused(f"replay {run.run} is {run.state}: begin another")
        window = runs.window(run)
        run = runs.recount(run, window, _set_out(config, run, window, runs.positions(run)))
        _read(config, reader, run, window, show, begun)
        run = runs.get(run.run)
        dead = letters(config, run)
        if run.state == "done":
            runs.forget(run, keep=True)
            mark(config, "replay", run.reader, f"run {run.run} is done")
    return Result(run, dead)


def _set_out(
    config: Settings, run: Run, window: Window, noted: Mapping[Partition, Position]
) -> dict[Partition, Position]:
    """Where it goes on, with a commit where the group has none, or where retention took what it is at.

    It has none at the start, when it was done before and goes on, and when Kafka has forgotten them after a week.
    """
    offsets = ExactOffsets(config)
    have = offsets.read(run.group)
    logs = GroupsAdmin(config).logs(window.bounds)
    check_all(set(window.bounds), logs, "where it starts and ends")
    at = {one: have[one].position if one in have else noted[one] for one in window.bounds}
    places = {one: max(at[one], _kept(bound.end, logs[one])) for one, bound in window.bounds.items()}
    wanted = {one: Commit(place, "") for one, place in places.items() if one not in have or place != at[one]}
    if wanted:
        offsets.write(run.group, wanted)
    return places


def _kept(end: Position, log: Log) -> Position:
    """The first position that the log still has, or the end of what is to be read."""
    return min(end, log.start)


def _read(
    config: Settings,
    reader: Reader,
    run: Run,
    window: Window,
    show: Callable[[Seen], None],
    begun: Callable[[Callable[[], None]], None],
) -> None:
    clock = Clock()
    records = Bounded(KafkaLog(config, run.topic, run.group, None), window, run.rate_per_second, clock)
    into = IntoLive if run.target == "live" else IntoShadow
    sink = into(config, reader, run.run)
    decode = decoder(Codec(Registry(config)))
    # The executor has the reader as it was declared: its processes find it by name, and an idempotency key is the same.
    loop = Loop(sink.reader, records, sink, decode, isolating(reader), clock, run.group, replaying=not run.external)
    begun(loop.stop)
    watch = _Watch(config, run, records, loop.stop, show)
    try:
        with watch:
            loop.run()
    except SinkBroken as error:
        raise ReaderError(f"replay {run.run} of {reader.group!r} stopped: {error}") from error
    finally:
        sink.close()


class _Watch:
    """Notes each half second how far the worker is, and stops it when that is far enough or nobody wants it."""

    def __init__(
        self, config: Settings, run: Run, records: Bounded, stop: Callable[[], None], show: Callable[[Seen], None]
    ) -> None:
        self._config = config
        self._run = run
        self._records = records
        self._stop = stop
        self._show = show
        self._began_at = time.monotonic()
        self._ended = Event()
        self._thread = Thread(target=self._follow, name="replay-watch", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        if error == (None, None, None):
            self._look()  # the last word, with what the drain has committed

    def _follow(self) -> None:
        while not self._ended.wait(NOTE_SECONDS):
            try:
                self._look()
            except (psycopg.Error, StreamsError) as error:  # Postgres is away: what is noted can wait
                log.warning("replay %s cannot be noted: %s", self._run.run, error)

    def _look(self) -> None:
        reached = dict(self._records.reached)
        is_through = self._records.is_through
        with connect(self._config, autocommit=True, statement_timeout="5s") as connection:
            state = sql.note(
                connection,
                run=self._run.run,
                records_read=self._run.records_read + self._records.read,
                partitions=[one.number for one in reached],
                positions=list(reached.values()),
            )
            if state == "open" and is_through and unparked(connection, self._run):
                sql.end(connection, run=self._run.run, state="done")
                state = "done"
        if state != "open":
            self._stop()
        self._show(self._seen())

    def _seen(self) -> Seen:
        read, seconds = self._records.read, time.monotonic() - self._began_at
        so_far = self._run.records_read + read
        about = max(so_far, self._run.records_about)
        left = eta_seconds(about - self._run.records_read, read, seconds, self._run.rate_per_second)
        return Seen(so_far, about, read / seconds if seconds else 0.0, left)

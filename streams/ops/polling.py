"""The polling relay: from the outbox to the log without Kafka Connect, where none may run.

One at a time, under a lock that its session in Postgres holds; others wait. A row counts as published once the broker
has acknowledged it, so it goes at least once, and twice only if this ended between the two. At its start it asks the
log which rows are there: so nothing is lost between the relays, nor after any end. docs/decisions/polling-relay.md has
the reasons. Called by `streams outbox relay`; calls Postgres, the log, and Connect to see that it stands still.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import NamedTuple

import psycopg

import streams.outbox
from streams.cdc import connector, slot
from streams.cdc.connect import Connect
from streams.cdc.slot import Connection
from streams.config import Settings
from streams.database import connect, queries
from streams.errors import RelayError, RowRefused, Unavailable
from streams.kafka.published import PublishedEvents
from streams.kafka.publisher import Publisher, Row
from streams.ops.unpublished import OutboxRow, missing

log = logging.getLogger(__name__)

BATCH_BYTES_MAX = 32 * 1024 * 1024  # of payloads in one round, which are in memory at once
SETTLE_SECONDS = 5.0  # how often gaps are closed, and the slot is moved
FLUSH_SECONDS_MAX = 3.0  # after the end is asked for, until what was sent is acknowledged
RETRY_SECONDS = 5.0  # after a server was away, or a row was refused
STANDBY_SECONDS = 1.0  # between two looks whether the lock is free
_ANSWER_SECONDS_MAX = 5.0
_SILENCE_SECONDS = 10.0  # without an acknowledgement, after which it is said
# A relay whose machine is gone holds the lock until its connection is known to be dead: half a minute.
_SESSION_OPTIONS = {
    "application_name": "distributary-relay",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
}

_sql = queries(Path(streams.outbox.__file__).parent / "sql" / "polling.sql")


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the outbox is looked at while nothing waits, and how many rows go at once."""

    interval_seconds: float = 0.2
    rows_max: int = 500


class _Horizon(NamedTuple):
    """All rows up to `seq`, committed before `lsn`, are there once these writers have ended."""

    seq: int
    lsn: str
    writers: frozenset[str]


def relay(config: Settings, pace: Pace, ended: Event, take_over: bool = False) -> None:
    """Publish until told to end; `take_over` stops Debezium's connector before.

    Raises RelayError if that relay runs or is to, and at the start Unavailable; later what is away is waited for.
    """
    if take_over:
        _stop_connector(config)
    _refuse_two_relays(config)
    while not ended.is_set():
        try:
            with _turn(config, ended) as connection:
                if connection is not None:
                    _Relay(config, pace, ended, connection).run()
        except (Unavailable, psycopg.Error) as error:
            log.warning("nothing is relayed: %s", str(error).partition("\n")[0])
            ended.wait(RETRY_SECONDS)


def _stop_connector(config: Settings) -> None:
    with Connect(config) as worker:
        if worker.state(connector.NAME) is not None:
            worker.stop(connector.NAME)
            connector.wait_until_stopped(worker)


def _refuse_two_relays(config: Settings) -> None:
    """Raises RelayError if Debezium reads the outbox, or will as soon as it can; Unavailable if that is not known."""
    with connect(config, autocommit=True) as connection:
        is_read = bool(slot.read_state(connection).active)
    state = None
    with suppress(Unavailable), Connect(config, _ANSWER_SECONDS_MAX) as worker:
        state = connector.decided_state(worker)
    if not is_read and state is not None and state.undecided:
        raise Unavailable("Kafka Connect has not yet said whether Debezium is to relay this outbox")
    if is_read or (state is not None and state.connector != "STOPPED"):
        raise RelayError(
            f"Debezium relays this outbox ({state or f'the slot {slot.NAME} is being read'}), and with two relays each "
            "event goes twice: --take-over stops the connector first"
        )


@contextmanager
def _turn(config: Settings, ended: Event) -> Iterator[Connection | None]:
    """The session that holds the lock, once it is our turn; None when the end is asked for before."""
    with connect(config, autocommit=True, **_SESSION_OPTIONS) as connection:
        waits = False
        while not _sql.try_lock(connection, lock=slot.POLLING_LOCK):
            if not waits:
                log.info("another relay works: this one waits, and takes over when that one ends")
            waits = True
            if ended.wait(STANDBY_SECONDS):
                yield None
                return
        with slot.maintenance(config):  # a repair that runs hands the outbox to Debezium
            _refuse_two_relays(config)
        yield connection


class _Relay:
    """What the holder of the lock does."""

    def __init__(self, config: Settings, pace: Pace, ended: Event, connection: Connection) -> None:
        self._config = config
        self._pace = pace
        self._ended = ended
        self._connection = connection
        self._singly = False
        self._horizon: _Horizon | None = None
        self._settle_at = 0.0

    def run(self) -> None:
        """Publish until told to end. Raises RelayError if Debezium begins to, and psycopg.Error."""
        while not self._ended.is_set():
            try:
                self._run()
            except RowRefused as error:
                if self._singly:
                    log.error("%s; see `streams doctor`", error)
                    self._ended.wait(RETRY_SECONDS)
                self._singly = True  # to know which row of the batch it is
            except Unavailable as error:
                log.warning("nothing is relayed: %s", error)
                self._ended.wait(RETRY_SECONDS)

    def _run(self) -> None:
        """With one publisher, which is of no more use once a row was refused."""
        _sql.choose(self._connection)
        self._recover()
        with Publisher(self._config, self._singly) as publisher:
            while not self._ended.is_set():
                rows = self._round(publisher)
                if self._singly and rows:
                    self._singly = False  # all is taken again, and quicker together
                    return
                if len(rows) < self._pace.rows_max:
                    self._ended.wait(self._pace.interval_seconds)

    def _recover(self) -> None:
        """Ask the log which of the rows that wait are there already."""
        rows = [OutboxRow(*row) for row in _sql.waiting_rows(self._connection)]
        with PublishedEvents(self._config, _ANSWER_SECONDS_MAX) as published:
            waiting = {row.seq for row in (missing(rows, published) if rows else ())}
        _sql.note(self._connection, seqs=[row.seq for row in rows if row.seq not in waiting])
        log.info("this relay works; %d rows wait", len(waiting))

    def _round(self, publisher: Publisher) -> list[Row]:
        """Publish what waits, at most one batch of it; then see whether gaps can be closed."""
        settled = self._settled()  # before the rows are read, so that they are all there are up to it
        found = _sql.batch(self._connection, rows_max=self._pace.rows_max, bytes_max=BATCH_BYTES_MAX)
        rows = [Row(*row) for row in found]
        done = publisher.publish(rows, _Patience(self._ended, len(rows)).is_over)
        if rows:
            _sql.note(self._connection, seqs=list(done))
            if len(done) < len(rows):
                return rows
        if settled and (not rows or rows[-1].seq > settled.seq):
            self._settle(settled)
        return rows

    def _settled(self) -> _Horizon | None:
        """The horizon, if no row up to it can still come; once in a while."""
        if time.monotonic() < self._settle_at:
            return None
        self._settle_at = time.monotonic() + SETTLE_SECONDS
        if self._horizon is None:
            seq, lsn = _sql.horizon(self._connection)
            self._horizon = _Horizon(seq, lsn, self._writers())
        return None if self._horizon.writers & self._writers() else self._horizon

    def _writers(self) -> frozenset[str]:
        return frozenset(writer for (writer,) in _sql.writers(self._connection))

    def _settle(self, horizon: _Horizon) -> None:
        """Close the gaps up to there, and let Postgres remove the log of changes."""
        if slot.read_state(self._connection).active:
            raise RelayError(f"Debezium reads the slot {slot.NAME} too: this relay ends, or each event would go twice")
        _sql.settle(self._connection, seq=horizon.seq)
        _sql.advance_slot(self._connection, slot=slot.NAME, lsn=horizon.lsn)
        self._horizon = None


class _Patience:
    """How long acknowledgements are waited for: without end, until the relay is to end."""

    def __init__(self, ended: Event, rows: int) -> None:
        self._ended = ended
        self._rows = rows
        self._say_at = time.monotonic() + _SILENCE_SECONDS
        self._ended_at: float | None = None

    def is_over(self) -> bool:
        """Whether to wait no longer; says once that it takes long."""
        now = time.monotonic()
        if now > self._say_at:
            log.warning("the broker acknowledges nothing: %d rows wait for it", self._rows)
            self._say_at = float("inf")
        if self._ended.is_set() and self._ended_at is None:
            self._ended_at = now
        return self._ended_at is not None and now > self._ended_at + FLUSH_SECONDS_MAX

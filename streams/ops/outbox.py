"""The outbox's upkeep: its status, pruning, emitting again.

Called by `streams outbox`, the doctor and `repair`; calls Postgres, the log and Connect.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import psycopg

from streams.cdc import connector, slot
from streams.cdc.connect import Connect, ConnectorState
from streams.cdc.slot import Connection, SlotState
from streams.config import Settings
from streams.database import connect as connect_database
from streams.errors import RelayError, Unavailable
from streams.kafka.published import PublishedEvents
from streams.ops.unpublished import OutboxRow, sql, unpublished

PRUNE_BATCH_ROWS = 1_000
# The relay confirms its position with each heartbeat (10 s), and at once while it has work.
CONFIRM_SECONDS_MAX = 25.0
# For so long may a save, waiting behind our lock, be held up by another that is still open.
LOCK_MILLISECONDS_MAX = 200
_LOCK_TRIES = 50
_ANSWER_SECONDS_MAX = 10.0  # of the log, when a person waits to see how things are
_PAUSE_SECONDS = 0.2

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """What `streams outbox status` shows; None is unknown, because that server does not answer."""

    rows: int
    slot: SlotState
    unpublished: list[OutboxRow] | None
    connector: ConnectorState | None


@dataclass(frozen=True, slots=True)
class Pruned:
    """`kept_rows` are older than asked for and stay, for the relay has not confirmed them; `why` says what is known."""

    deleted_rows: int
    kept_rows: int
    why: str


def status(config: Settings) -> OutboxStatus:
    """The outbox and its relay as they are now. Raises Unavailable if Postgres does not answer."""
    with connect_database(config, autocommit=True) as connection:
        return OutboxStatus(
            rows=sql.outbox_count(connection),
            slot=slot.read_state(connection),
            unpublished=_unless_down(lambda: _unpublished_now(config, connection)),
            connector=_unless_down(lambda: _connector_now(config)),
        )


def _unpublished_now(config: Settings, connection: Connection) -> list[OutboxRow]:
    with PublishedEvents(config, _ANSWER_SECONDS_MAX) as published:
        return unpublished(connection, published)


def _connector_now(config: Settings) -> ConnectorState:
    with Connect(config) as connect:
        return connect.state(connector.NAME) or ConnectorState("MISSING")


def _unless_down(ask: Callable[[], Found]) -> Found | None:
    try:
        return ask()
    except Unavailable:
        return None


def re_emit(config: Settings, since: int | datetime, until: int | datetime | None = None) -> int:
    """Emit the events of a range of seq or of time (UTC) once more, in their order; gives how many.

    Same event ids; each gets a new row at the end, so it comes after all that was saved before. Readers are idempotent.
    """
    with slot.maintenance(config) as connection, connection.transaction():
        lock_outbox(connection)
        seqs = [seq for (seq,) in sql.seqs_between(connection, **_bounds("since", since), **_bounds("until", until))]
        return int(sql.emit_again(connection, seqs=seqs, fresh=True))


def _bounds(side: str, bound: int | datetime | None) -> dict[str, object]:
    by_seq = bound if isinstance(bound, int) else None
    by_time = bound.astimezone(UTC).replace(tzinfo=None) if isinstance(bound, datetime) else None
    return {f"{side}_seq": by_seq, side: by_time}


def lock_outbox(connection: Connection) -> None:
    """Within a transaction: no insert until it ends. Never holds new saves up behind an old open one for long.

    Raises RelayError when a save stays open all the while.
    """
    connection.execute(f"SET LOCAL lock_timeout = {LOCK_MILLISECONDS_MAX}")
    for _ in range(_LOCK_TRIES):
        try:
            with connection.transaction():
                sql.lock_outbox(connection)
                return
        except psycopg.errors.LockNotAvailable:
            time.sleep(_PAUSE_SECONDS)
    raise RelayError(
        "the outbox could not be locked: a transaction that saves has been open all the while; "
        "end it (see pg_stat_activity) and try again"
    )


def prune(config: Settings, older_than: timedelta) -> Pruned:
    """Delete the rows older than that, in small batches, as far as a relay has confirmed that they are in the log."""
    with slot.maintenance(config) as connection:
        with connection.transaction():
            lock_outbox(connection)
            sql.mark(connection)
        upto = _confirmed(connection)
        deleted = sum(_batches(connection, upto, older_than)) if upto is not None else 0
        if upto is not None:
            sql.forget_marks_before(connection, seq=upto)
        kept = sql.old_count(connection, older_than=older_than)
        return Pruned(deleted, kept, _why_kept(slot.read_state(connection), upto) if kept else "")


def _confirmed(connection: Connection) -> int | None:
    """The last seq up to which all is confirmed to be in the log, after giving the relay time for the newest."""
    deadline = time.monotonic() + CONFIRM_SECONDS_MAX
    newest = sql.newest_mark(connection)
    while True:
        upto: int | None = sql.confirmed_mark(connection, slot=slot.NAME)
        if newest is None or (upto or 0) >= newest or time.monotonic() > deadline:
            return upto
        time.sleep(_PAUSE_SECONDS)


def _batches(connection: Connection, upto: int, older_than: timedelta) -> Iterator[int]:
    while deleted := sql.prune_some(connection, seq=upto, older_than=older_than, rows_max=PRUNE_BATCH_ROWS):
        yield deleted


def _why_kept(state: SlotState, upto: int | None) -> str:
    if state.polled:
        return f"the polling relay has confirmed the rows up to {upto or 0}"
    if not state.usable:
        return f"the publication or the slot {slot.NAME} is broken: run `streams doctor`"
    seen = f"the slot has confirmed the rows up to {upto}" if upto is not None else "the slot has confirmed no row yet"
    return f"{seen}, and is {state.lag_bytes} bytes behind"

"""The relay as a row of `streams lag`: the outbox is its topic, a row's seq its offset, the slot its commit.

Called by `streams.ops.lag_postgres`; asks Postgres for the outbox and the slot, and the log for what is
in it (`streams.ops.unpublished`).
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from threading import Lock

import streams.ops
from streams.cdc import slot
from streams.cdc.slot import Connection, SlotState
from streams.config import Settings
from streams.core.lag import GroupLag, PartitionLag
from streams.database import queries
from streams.kafka.published import PublishedEvents
from streams.ops.lag_facts import OUTBOX, RELAY, RelayState
from streams.ops.unpublished import OutboxRow, unpublished

# Enough to see that nothing waits; when something does, more are looked at. A look at ten thousand rows reads as many
# records.
_ROWS = 100
_ANSWER_SECONDS_MAX = 2.0
_CLOSE_SECONDS_MAX = 0.2
_sql = queries(Path(streams.ops.__file__).parent / "sql" / "lag.sql")


class RelayLag:
    """Looks at the relay, over one connection to the log that opens when it is first needed. Use it in a `with`.

    Safe for threads, one of which looks at a time.
    """

    def __init__(self, config: Settings) -> None:
        self._config = config
        self._resources = ExitStack()
        self._published: PublishedEvents | None = None
        self._lock = Lock()

    def __enter__(self) -> RelayLag:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock.acquire(timeout=_CLOSE_SECONDS_MAX):  # a log that does not answer is not waited for
            self._resources.close()

    def look(self, connection: Connection) -> RelayState | None:
        """The relay now; None while another look has not come to its end. Raises Unavailable."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._look(connection)
        finally:
            self._lock.release()

    def _look(self, connection: Connection) -> RelayState:
        if self._published is None:
            self._published = self._resources.enter_context(PublishedEvents(self._config, _ANSWER_SECONDS_MAX))
        state = slot.read_state(connection)
        newest: int = _sql.newest_seq(connection)
        waiting = unpublished(connection, self._published, _ROWS)
        members = int(bool(state.active or state.polled))
        row = _row(newest, waiting)
        return RelayState(
            GroupLag(RELAY, _name(state), row.lag_records, row.age_seconds, (row,), members), state.lag_bytes
        )


def _name(state: SlotState) -> str:
    if state.polled:
        return "polled"
    return "missing" if not state.slot_exists else "lost" if state.lost else "read" if state.active else "not read"


def _row(newest: int, waiting: list[OutboxRow]) -> PartitionLag:
    """Rows that were saved since `newest` was asked for count as saved now."""
    end = max(newest, *(row.seq for row in waiting)) if waiting else newest
    return PartitionLag(
        topic=OUTBOX,
        partition=0,
        committed=end - len(waiting),
        log_start=None,
        log_end=end,
        lag_records=len(waiting),
        lost_records=None,
        age_seconds=round(max((row.age_seconds for row in waiting), default=0.0), 3),
    )

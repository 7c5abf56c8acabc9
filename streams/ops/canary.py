"""An event of ours that goes all the way: outbox, relay, log, and back by a consumer at its topic's end.

Called by the doctor and the prober; calls Postgres and the log. See docs/decisions/canary.md.
"""

from __future__ import annotations

import time
from uuid import uuid4

from streams.cdc import slot
from streams.cdc.slot import Connection
from streams.kafka.published import PublishedEvents
from streams.ops.unpublished import sql
from streams.topics import CANARY

# For the session: a repair locks the outbox, and is not to be waited for.
SESSION_OPTIONS = {"lock_timeout": "3s", "statement_timeout": "5s"}


def fly(connection: Connection, published: PublishedEvents, seconds_max: float) -> float | None:
    """The seconds from commit to consumer; None if it did not come in time. Raises Unavailable and psycopg.Error."""
    event_id = uuid4()
    polled = slot.read_state(connection).polled
    published.follow(CANARY.name)
    with connection.transaction():
        seq = sql.emit_canary(connection, event_id=event_id, topic=CANARY.name)
        if not polled:
            sql.remove_canary(connection, seq=seq)
    sent = time.monotonic()
    try:
        came = published.wait_for(str(event_id), seconds_max)
    finally:
        if polled:  # that relay sees rows, so this one stood until it had come
            sql.remove_canary(connection, seq=seq)
    return time.monotonic() - sent if came else None

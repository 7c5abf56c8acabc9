"""Dead letters: kept in their table, and sent on their way through the outbox, in the batch's own transaction.

Called by the Postgres sink.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from streams.core.outcomes import Dead, Done, Superseded
from streams.database import queries
from streams.runtime.ports import Origin, Result
from streams.topics import OUTBOX_BYTES_MAX, dead_letters

_SQL = queries(Path(__file__).parent / "sql" / "letters.sql")

Encode = Callable[[Mapping[str, Any]], bytes]


class Letters:
    """The dead letters of one worker of one reader. `encode` frames a letter's event; None: none is sent."""

    def __init__(self, reader: str, worker: str, encode: Encode | None) -> None:
        self._reader = reader
        self._worker = worker
        self._encode = encode

    def keep(self, connection: psycopg.Connection[Any], results: Sequence[Result]) -> None:
        """Keep what died, and close the letters of what did not die this time."""
        by_event = [one.event_id for one in results if isinstance(one.outcome, Done) and one.event_id]
        by_place = [one for one in results if _ends_a_letter(one) and (one.parked or not one.event_id)]
        if by_event:
            _SQL.resolve(connection, reader=self._reader, event_ids=by_event)
        if by_place:
            self._close(connection, by_place)
        for one in results:
            if isinstance(one.outcome, Dead):
                self._bury(connection, one, one.outcome)

    def _close(self, connection: psycopg.Connection[Any], ended: Sequence[Result]) -> None:
        _SQL.close_letters(
            connection,
            reader=self._reader,
            topics=[one.at[0] for one in ended],
            partitions=[one.at[1] for one in ended],
            offsets=[one.at[2] for one in ended],
            states=["superseded" if _is_superseded(one) else "resolved" for one in ended],
        )

    def _bury(self, connection: psycopg.Connection[Any], one: Result, dead: Dead) -> None:
        """One letter, sent only where it is new, or died again after a redrive."""
        origin = one.origin()
        letter = self._letter(origin, dead, datetime.now(UTC))
        kept = _SQL.bury(
            connection,
            **{name: value for name, value in letter.items() if name != "headers"},
            header_names=[name for name, _ in origin.headers],
            header_values=[value for _, value in origin.headers],
            event_id=one.event_id,
            lane=one.lane,
            lane_hash=one.lane_hash(),
            document_id=one.document.document_id if one.document else None,
            version=one.document.version if one.document else None,
        )
        if kept is not None and self._encode is not None:
            _SQL.emit(
                connection,
                topic=dead_letters(self._reader).name,
                message_key=(origin.key or b"").decode("utf-8", "backslashreplace").replace("\0", "\\0"),
                payload=_frame(letter, self._encode),
            )

    def _letter(self, origin: Origin, dead: Dead, died_at: datetime) -> dict[str, Any]:
        """The dead letter, in the shape of schemas/dead-letter.avsc."""
        return {
            "reader": self._reader,
            "topic": origin.partition.topic,
            "partition": origin.partition.number,
            "offset": origin.offset,
            "timestamp": origin.timestamp,
            "key": origin.key,
            "value": origin.value,
            "headers": [{"name": name, "value": value} for name, value in origin.headers],
            "error_class": dead.failure.error_class,
            "error_message": dead.failure.message,
            "traceback": dead.failure.traceback,
            "attempts": dead.attempts,
            "worker": self._worker,
            "first_failed_at": dead.first_failed_at,
            "died_at": died_at,
        }


def _frame(letter: Mapping[str, Any], encode: Encode) -> bytes:
    """The event; without a value that the outbox would not take: the table keeps it."""
    frame = encode(letter)
    return frame if len(frame) <= OUTBOX_BYTES_MAX else encode({**letter, "value": None})


def _is_superseded(one: Result) -> bool:
    return isinstance(one.outcome, Superseded)


def _ends_a_letter(one: Result) -> bool:
    """Whether the record, if it was a dead letter, is one no more."""
    return isinstance(one.outcome, Done) or _is_superseded(one)

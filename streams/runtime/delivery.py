"""From outcomes to the sink: in order, in batches, each batch one transaction; then the records are finished.

Rule 7: a batch that the sink refuses for one of its rows is written record by record, in order, stopping at the
first that may pass later; so a bad row cannot fail its neighbours. Called by the loop, on its thread.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import groupby
from operator import attrgetter

from streams.core.outcomes import Behind, Dead, Done, Expired, Retrying, Superseded
from streams.runtime.clock import Clock
from streams.runtime.handling import describe
from streams.runtime.ports import Partition, RowRefused, Sink, SinkBroken, SinkBusy
from streams.runtime.records import Assignment, Record
from streams.runtime.status import Pause, trouble

log = logging.getLogger(__name__)

BATCH_RECORDS_MAX = 1_000
BACKOFF_SECONDS = 0.1
BACKOFF_SECONDS_MAX = 5.0
_ASSIGNMENT, _OUTCOME = attrgetter("assignment"), attrgetter("outcome")
_COUNTED_AS = {Done: "done", Dead: "dead", Expired: "expired", Superseded: "superseded", Retrying: "failed"}


class Delivery:
    """The one writer. What it holds is in the order in which it must be written."""

    def __init__(self, sink: Sink, clock: Clock) -> None:
        self._sink = sink
        self._clock = clock
        self._records: list[Record] = []
        self._parked: list[Record] = []
        self._failures = 0
        self._not_before = 0.0
        self._batch_records_max = BATCH_RECORDS_MAX
        self.counted: Counter[str] = Counter()  # by outcome, what was written
        self.trouble: Pause | None = None  # what the sink said last, while it refuses to write

    @property
    def pending(self) -> bool:
        """Whether anything is still to be written."""
        return bool(self._records)

    @property
    def is_due(self) -> bool:
        """Whether `deliver` would try something now."""
        return bool(self._records) and self._clock.monotonic() >= self._not_before

    def add(self, records: Iterable[Record]) -> None:
        """Take records with their outcomes over, in order."""
        self._records += records

    def drop(self, assignment: Assignment) -> None:
        """Write nothing more of an assignment that is gone."""
        self._records = [record for record in self._records if record.assignment is not assignment]

    def unwritten(self) -> list[Record]:
        """What is held, in order; another thread may ask."""
        return list(self._records)

    def take_parked(self) -> list[Record]:
        """What was written since the last call and came from, or went to, the table of parked records."""
        parked, self._parked = self._parked, []
        return parked

    def deliver(self, assignments: Mapping[Partition, Assignment]) -> None:
        """Write what is held. Raises PartitionsLost, after which the caller drops them, and SinkBroken."""
        epochs = {partition: one.epoch for partition, one in assignments.items() if one.epoch is not None}
        while self.is_due:
            try:
                self._write(self._records[: self._batch_records_max], epochs)
            except SinkBusy as error:
                self._back_off(error)
            else:
                self._failures, self.trouble = 0, None
                self._batch_records_max = min(BATCH_RECORDS_MAX, self._batch_records_max * 9 // 8 + 1)

    def _write(self, batch: list[Record], epochs: Mapping[Partition, int]) -> None:
        """All in one transaction; where a row is refused, one by one."""
        try:
            self._sink.write(_owned(batch, epochs), batch)
        except RowRefused:
            for record in batch:
                self._write_one(record, _owned([record], epochs))
                self._finish([record])
        else:
            self._finish(batch)

    def _finish(self, written: list[Record]) -> None:
        """Let go of the first records: the log owes nothing more to them, be they done or parked."""
        del self._records[: len(written)]
        self._parked += [record for record in written if record.parked or record.parks is not None]
        self._count(written)
        for assignment, records in groupby(written, _ASSIGNMENT):
            assignment.finish(list(records))

    def _count(self, written: list[Record]) -> None:
        outcomes = Counter(map(type, map(_OUTCOME, written)))
        parked = outcomes[Retrying] + outcomes[Behind]
        if parked:
            again = sum(record.parked and isinstance(record.outcome, (Retrying, Behind)) for record in written)
            self.counted["parked"] += parked - again
        for kind, name in _COUNTED_AS.items():
            self.counted[name] += outcomes[kind]

    def _write_one(self, record: Record, epochs: Mapping[Partition, int]) -> None:
        """One record, or, if it is refused, its dead letter, or, if that is refused too, the least of one."""
        try:
            self._sink.write(epochs, [record])
        except RowRefused as error:
            log.warning("%s refused: %s; a dead letter", record.offset, error)
            if not isinstance(record.outcome, Dead):  # else the reason of its death stays what it was
                record.outcome = _dead(record, error, self._clock.now())
            self._write_dead(record, epochs)

    def _write_dead(self, record: Record, epochs: Mapping[Partition, int]) -> None:
        try:
            self._sink.write(epochs, [record])
        except RowRefused:
            record.strip()
            try:
                self._sink.write(epochs, [record])
            except RowRefused as error:
                raise SinkBroken(f"not even the least dead letter can be written: {error}") from error

    def _back_off(self, error: SinkBusy) -> None:
        """Wait, then try half of it: a batch that takes longer than a transaction may would never pass whole."""
        self._batch_records_max = max(1, self._batch_records_max // 2)
        wait = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS * 2**self._failures)
        self._failures = min(self._failures + 1, 10)
        self._not_before = self._clock.monotonic() + wait
        self.trouble = trouble(error)
        log.warning("writing waits %.1f s: %s", wait, error)


def _owned(batch: list[Record], epochs: Mapping[Partition, int]) -> dict[Partition, int]:
    """The epochs that a batch's transaction must find."""
    return {assignment.partition: epochs[assignment.partition] for assignment in set(map(_ASSIGNMENT, batch))}


def _dead(record: Record, error: RowRefused, now: datetime) -> Dead:
    failure = describe(error.__cause__ or error, permanent=True)
    return Dead(failure, attempts=record.attempts + 1, first_failed_at=record.first_failed_at or now)

"""From outcomes to the sink: in order, in batches, each batch one transaction; then the records are finished.

Rule 7: a batch that the sink refuses for one of its rows is written record by record, in order, stopping at the
first that may pass later; so a bad row cannot fail its neighbours. Called by the loop, on its thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from streams.core.outcomes import FINAL, Dead, Outcome
from streams.runtime.clock import Clock
from streams.runtime.handling import describe
from streams.runtime.ports import Partition, Result, RowRefused, Sink, SinkBroken, SinkBusy
from streams.runtime.records import Assignment, Record

log = logging.getLogger(__name__)

BATCH_RECORDS_MAX = 1_000
BACKOFF_SECONDS = 0.1
BACKOFF_SECONDS_MAX = 5.0


@dataclass(slots=True)
class Item:
    """A record and what became of it."""

    record: Record
    outcome: Outcome


class Delivery:
    """The one writer. What it holds is in the order in which it must be written."""

    def __init__(self, sink: Sink, clock: Clock) -> None:
        self._sink = sink
        self._clock = clock
        self._items: deque[Item] = deque()
        self._failures = 0
        self._not_before = 0.0
        self._batch_records_max = BATCH_RECORDS_MAX

    @property
    def pending(self) -> bool:
        """Whether anything is still to be written."""
        return bool(self._items)

    @property
    def is_due(self) -> bool:
        """Whether `deliver` would try something now."""
        return bool(self._items) and self._clock.monotonic() >= self._not_before

    def add(self, items: Iterable[Item]) -> None:
        """Take results over, in order."""
        self._items.extend(items)

    def deliver(self, assignments: Mapping[Partition, Assignment]) -> None:
        """Write what is held. Raises PartitionsLost, after which the caller drops them, and SinkBroken."""
        self._items = deque(item for item in self._items if item.record.assignment.alive)
        epochs = {partition: one.epoch for partition, one in assignments.items() if one.epoch is not None}
        while self.is_due:
            try:
                self._write(list(islice(self._items, self._batch_records_max)), epochs)
            except SinkBusy as error:
                self._back_off(error)
            else:
                self._failures = 0
                self._batch_records_max = min(BATCH_RECORDS_MAX, self._batch_records_max * 9 // 8 + 1)

    def _write(self, batch: list[Item], epochs: Mapping[Partition, int]) -> None:
        """All in one transaction; where a row is refused, one by one."""
        try:
            self._sink.write(_owned(batch, epochs), [_result(item) for item in batch])
        except RowRefused:
            for item in batch:
                self._write_one(item, _owned([item], epochs))
                self._finish([item])
        else:
            self._finish(batch)

    def _finish(self, written: list[Item]) -> None:
        """Let go of the first items; nothing more is owed to their records, but for those to be tried again."""
        by_assignment: dict[Assignment, list[Record]] = {}
        for item in written:
            self._items.popleft()
            if isinstance(item.outcome, FINAL):
                by_assignment.setdefault(item.record.assignment, []).append(item.record)
        for assignment, records in by_assignment.items():
            assignment.finish(records)

    def _write_one(self, item: Item, epochs: Mapping[Partition, int]) -> None:
        """One record, or, if it is refused, its dead letter, or, if that is refused too, the least of one."""
        try:
            self._sink.write(epochs, [_result(item)])
        except RowRefused as error:
            log.warning("%s refused: %s; a dead letter", item.record.offset, error)
            if not isinstance(item.outcome, Dead):  # else the reason of its death stays what it was
                item.outcome = _dead(item.record, error, self._clock.now())
            self._write_dead(item, epochs)

    def _write_dead(self, item: Item, epochs: Mapping[Partition, int]) -> None:
        whole = _result(item)
        try:
            self._sink.write(epochs, [whole])
        except RowRefused:
            bare = replace(item.record.origin(), value=None, headers=[])
            try:
                self._sink.write(epochs, [replace(whole, origin=lambda: bare, document=None)])
            except RowRefused as error:
                raise SinkBroken(f"not even the least dead letter can be written: {error}") from error

    def _back_off(self, error: SinkBusy) -> None:
        """Wait, then try half of it: a batch that takes longer than a transaction may would never pass whole."""
        self._batch_records_max = max(1, self._batch_records_max // 2)
        wait = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS * 2**self._failures)
        self._failures = min(self._failures + 1, 10)
        self._not_before = self._clock.monotonic() + wait
        log.warning("writing waits %.1f s: %s", wait, error)


def _owned(batch: list[Item], epochs: Mapping[Partition, int]) -> dict[Partition, int]:
    """The epochs that a batch's transaction must find."""
    return {item.record.assignment.partition: epochs[item.record.assignment.partition] for item in batch}


def _result(item: Item) -> Result:
    return item.record.result(item.outcome)


def _dead(record: Record, error: RowRefused, now: datetime) -> Dead:
    failure = describe(error.__cause__ or error, permanent=True)
    return Dead(failure, attempts=record.attempts + 1, first_failed_at=record.first_failed_at or now)

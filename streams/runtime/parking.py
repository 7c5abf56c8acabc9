"""Parked records come back: the first of each lane, when its time has come, before anything newer of its lane.

A lane falls to the worker that owns partition (hash modulo the topic's partitions), so it survives repartitioning.
Called by the loop, never while results are unwritten: the table would still show what they are about to change.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from streams.contract import Reader
from streams.core.outcomes import Dead, Superseded
from streams.errors import StackError, StreamsError
from streams.runtime.admission import Decode
from streams.runtime.clock import Clock
from streams.runtime.handling import describe
from streams.runtime.ports import Log, ParkedRow, Partition, Sink, SinkBusy
from streams.runtime.records import Assignment, ParkedMessage, Record
from streams.runtime.status import Pause, trouble

log = logging.getLogger(__name__)

# Rows that others park for us (a redrive, a reader of the partition from before a repartitioning) wait this long.
POLL_SECONDS = 2.0
HEADS_MAX = 500  # in memory at once; a head holds a whole record
RUNS_SUSPECT = 2  # of which none came to its end: as with records from the log, two deaths in a row
PARTITIONS_SECONDS = 30.0  # how old our knowledge of the topic's partitions may be


@dataclass(slots=True)
class Loaded:
    """Records to run, each with its wait in seconds, and those that need no handler."""

    retries: list[tuple[Record, float]] = field(default_factory=list)
    settled: list[Record] = field(default_factory=list)


class Parking:
    """The way back from readers.parked."""

    def __init__(
        self, reader: Reader, records: Log, sink: Sink, decode: Decode, clock: Clock, replaying: bool | None = None
    ) -> None:
        self._reader = reader
        self._log = records
        self._sink = sink
        self._decode = decode
        self._clock = clock
        self._replaying = replaying
        self._next_at = 0.0
        self._partitions = 0
        self._partitions_until = 0.0
        self.trouble: Pause | None = None  # what the sink or the log said last, while parked records wait for it

    def ask(self) -> None:
        """Look at the next round: something changed."""
        self._next_at = 0.0

    def load(self, assignments: Mapping[Partition, Assignment]) -> Loaded:
        """The heads that are due before the next look; none while the sink or the log does not answer."""
        now = self._clock.monotonic()
        if now < self._next_at or not any(one.epoch is not None for one in assignments.values()):
            return Loaded()
        self._next_at = now + POLL_SECONDS
        try:
            loaded = self._load(assignments)
        except (SinkBusy, StackError) as error:
            log.warning("%s: parked records wait: %s", self._reader.group, error)
            self.trouble = trouble(error)
            return Loaded()
        self.trouble = None
        return loaded

    def _load(self, assignments: Mapping[Partition, Assignment]) -> Loaded:
        count = self._partition_count()
        owned = {one.partition.number: one for one in assignments.values() if one.epoch is not None}
        active = [lane for one in assignments.values() for lane in one.lanes]
        until = self._clock.now() + timedelta(seconds=POLL_SECONDS)
        rows = self._sink.heads(owned, count, until, active, HEADS_MAX)
        ready = [row for row in rows if not self._is_ahead(row, assignments)]
        read = [self._read(owned[row.lane_hash % count], row) for row in ready]
        ids = {record.document.document_id for record in read if record.document is not None}
        applied = {key: progress.applied_version for key, progress in self._sink.lookup(ids).items()}
        loaded = Loaded()
        for row, record in zip(ready, read, strict=True):
            document = record.document
            if document is None:
                loaded.settled.append(record)
            elif document.version < applied.get(document.document_id, 0):
                record.outcome = Superseded()
                loaded.settled.append(record)
            else:
                again = document.version == applied.get(document.document_id, 0)
                record.is_replay = again if self._replaying is None else self._replaying
                loaded.retries.append((record, self._wait_seconds(row)))
        return loaded

    def _is_ahead(self, row: ParkedRow, assignments: Mapping[Partition, Assignment]) -> bool:
        """Whether records before it in the log, perhaps of its lane, are still to come in: after a crash, a seek."""
        source = assignments.get(row.origin.partition)
        return source is not None and row.origin.offset >= source.admitted_to

    def _read(self, owner: Assignment, row: ParkedRow) -> Record:
        """As at the way in; a redriven record may still be unreadable, and then has its outcome."""
        message = ParkedMessage(row)
        try:
            record = Record(owner, message, self._decode(row.origin.value), row.lane, row.lane_hash, parked=True)
        except StackError:
            raise
        except (StreamsError, UnicodeError) as error:
            record = Record(owner, message, None, row.lane, row.lane_hash, parked=True)
            record.outcome = Dead(describe(error, permanent=True), 1, self._clock.now())
            return record
        record.attempts, record.first_failed_at = row.attempts, row.first_failed_at
        record.runs, record.suspect = row.runs, row.runs >= RUNS_SUSPECT
        return record

    def _wait_seconds(self, row: ParkedRow) -> float:
        if row.next_attempt_at is None:
            return 0.0
        return max(0.0, (row.next_attempt_at - self._clock.now()).total_seconds())

    def _partition_count(self) -> int:
        now = self._clock.monotonic()
        if now >= self._partitions_until:
            self._partitions, self._partitions_until = self._log.partitions(), now + PARTITIONS_SECONDS
        return self._partitions

"""From received records to lanes: decode, look up progress, leave out what is settled.

Rule 3: a record older than what was applied ends as superseded; one made final in this same pass is skipped. So a
crash repeats next to nothing, while a deliberate seek (a new pass) really computes again. Called by the loop.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice

from streams.contract import DocumentSaved, Reader
from streams.core.offsets import Position, after
from streams.core.outcomes import Dead
from streams.errors import StackError, StreamsError
from streams.runtime.clock import Clock
from streams.runtime.handling import describe
from streams.runtime.ports import Claimed, Message, Progress, Sink, SinkBusy
from streams.runtime.records import Assignment, Record, lane_of
from streams.runtime.status import Pause, trouble

log = logging.getLogger(__name__)

RECORDS_MAX = 1_000  # a look-up
RETRY_SECONDS = 0.5  # after the sink or the registry did not answer
Decode = Callable[[bytes | None], DocumentSaved]
_FINAL = ("done", "dead", "expired")


@dataclass(slots=True)
class Admitted:
    """What came of one round: records for the lanes, the lanes that are parked, and what could not be read."""

    records: list[Record] = field(default_factory=list)
    parked: set[str] = field(default_factory=set)
    unreadable: list[Record] = field(default_factory=list)


class Admission:
    """The way in. It leaves records held while the sink or the registry does not answer."""

    def __init__(self, reader: Reader, sink: Sink, decode: Decode, clock: Clock, replaying: bool | None = None) -> None:
        self._clock = clock
        self._reader = reader
        self._sink = sink
        self._decode = decode
        self._not_before = 0.0
        self._notes_replays = reader.takes_context  # nobody else can tell
        self._replaying = replaying
        self.counted: Counter[str] = Counter()  # by outcome, what ended here
        self.trouble: Pause | None = None  # what the sink or the registry said last, while reading waits for it

    def admit(self, assignments: Iterable[Assignment]) -> Admitted:
        """Take up to RECORDS_MAX held records of claimed partitions."""
        admitted = Admitted()
        if self._clock.monotonic() < self._not_before:
            return admitted
        for assignment in assignments:
            if assignment.held and assignment.epoch is not None:
                try:
                    self._admit(assignment, admitted)
                    self.trouble = None
                except (SinkBusy, StackError) as error:
                    log.warning("%s: reading waits: %s", self._reader.group, error)
                    self._not_before = self._clock.monotonic() + RETRY_SECONDS
                    self.trouble = trouble(error)
                    break
        return admitted

    def _admit(self, assignment: Assignment, admitted: Admitted) -> None:
        """All or nothing of one partition's chunk: what raises leaves it held."""
        chunk = list(islice(assignment.held, RECORDS_MAX))
        read = [self._read(assignment, message) for message in chunk]
        records = [record for record in read if record.document is not None]
        known = self._sink.lookup({record.document.document_id for record in records if record.document is not None})
        parked = self._sink.parked_lanes({record.lane for record in records})
        self._leave_trace(assignment, after(chunk[-1].offset()))
        for _ in chunk:
            assignment.held.popleft()
        assignment.admitted_to = after(chunk[-1].offset())
        admitted.parked |= parked
        admitted.unreadable += [record for record in read if record.document is None]
        admitted.records += self._fresh(assignment, records, known) if known or self._replaying else records

    def _fresh(self, assignment: Assignment, records: list[Record], known: dict[str, Progress]) -> list[Record]:
        """Those with something left to do; the others are finished."""
        settled = [record for record in records if self._is_settled(record, known)]
        assignment.finish(settled)
        self.counted.update("superseded" if _is_superseded(record, known) else "skipped" for record in settled)
        left_out = set(map(id, settled))
        fresh = [record for record in records if id(record) not in left_out]
        if self._notes_replays:
            for record in fresh:
                record.is_replay = _is_replay(record, known) if self._replaying is None else self._replaying
        return fresh

    def _leave_trace(self, assignment: Assignment, received_to: Position) -> None:
        """Before any handler sees them: should one of these records kill us, our successor must know the range."""
        assert assignment.epoch is not None
        assignment.trace = assignment.trace._replace(received_to=received_to)
        self._sink.leave({assignment.partition: Claimed(assignment.epoch, assignment.trace)})

    def _read(self, assignment: Assignment, message: Message) -> Record:
        """A record to run, or one whose bytes are at fault: a dead letter.

        Raises StackError if the registry does not answer.
        """
        try:
            (message.key() or b"").decode("utf-8")
            document = self._decode(message.value())
            return Record(assignment, message, document, *lane_of(self._reader.order, message, document))
        except StackError:
            raise
        except (StreamsError, UnicodeError) as error:
            record = Record(assignment, message, None, *lane_of(self._reader.order, message, None))
            failure = describe(error, permanent=True)
            where = f"{assignment.partition.number}:{record.offset}"
            log.warning("%s: %s cannot be read: %s; a dead letter", self._reader.group, where, failure.message)
            record.outcome = Dead(failure, attempts=1, first_failed_at=self._clock.now())
            return record

    def _is_settled(self, record: Record, known: dict[str, Progress]) -> bool:
        """Whether nothing is left to do for it."""
        document = record.document
        assert document is not None
        progress = known.get(document.document_id)
        if progress is None:
            return False
        if _is_superseded(record, known):
            return True
        if progress.state not in _FINAL or progress.pass_number != record.assignment.pass_number:
            return False
        if self._reader.order == "none":  # the end of a version says nothing of those before it
            return document.version == progress.version
        return document.version <= progress.version


def _is_replay(record: Record, known: dict[str, Progress]) -> bool:
    """Whether the reader has completed this version: what is not settled is then computed again on purpose."""
    assert record.document is not None
    progress = known.get(record.document.document_id)
    return progress is not None and progress.applied_version == record.document.version


def _is_superseded(record: Record, known: dict[str, Progress]) -> bool:
    """Whether a later version of its document was applied."""
    assert record.document is not None
    return record.document.version < known[record.document.document_id].applied_version

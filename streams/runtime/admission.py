"""From received records to lanes: decode, look up progress, leave out what is settled.

Rule 3: a record older than what was applied ends as superseded; one made final in this same pass is skipped. So a
crash repeats next to nothing, while a deliberate seek (a new pass) really computes again. Called by the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice

from streams.contract import DocumentSaved, Reader
from streams.core.outcomes import Dead
from streams.errors import StackError, StreamsError
from streams.runtime.clock import Clock
from streams.runtime.delivery import Item
from streams.runtime.handling import describe
from streams.runtime.ports import Message, Progress, Sink, SinkBusy
from streams.runtime.records import Assignment, Record

log = logging.getLogger(__name__)

RECORDS_MAX = 1_000  # a look-up
RETRY_SECONDS = 0.5  # after the sink or the registry did not answer
Decode = Callable[[bytes | None], DocumentSaved]
_FINAL = ("done", "dead", "expired")


@dataclass(slots=True)
class Admitted:
    """What came of one round: records for the lanes, and those that could not be read."""

    records: list[Record] = field(default_factory=list)
    unreadable: list[Item] = field(default_factory=list)


class Admission:
    """The way in. It leaves records held while the sink or the registry does not answer."""

    def __init__(self, reader: Reader, sink: Sink, decode: Decode, clock: Clock) -> None:
        self._clock = clock
        self._reader = reader
        self._sink = sink
        self._decode = decode
        self._not_before = 0.0

    def admit(self, assignments: Iterable[Assignment]) -> Admitted:
        """Take up to RECORDS_MAX held records of claimed partitions."""
        admitted = Admitted()
        if self._clock.monotonic() < self._not_before:
            return admitted
        for assignment in assignments:
            if assignment.held and assignment.epoch is not None:
                try:
                    self._admit(assignment, admitted)
                except (SinkBusy, StackError) as error:
                    log.warning("%s: reading waits: %s", self._reader.group, error)
                    self._not_before = self._clock.monotonic() + RETRY_SECONDS
                    break
        return admitted

    def _admit(self, assignment: Assignment, admitted: Admitted) -> None:
        """All or nothing of one partition's chunk: what raises leaves it held."""
        chunk = list(islice(assignment.held, RECORDS_MAX))
        read = [self._read(assignment, message) for message in chunk]
        records = [one for one in read if isinstance(one, Record)]
        known = self._sink.lookup({r.document.document_id for r in records if r.document is not None})
        for _ in chunk:
            assignment.held.popleft()
        admitted.unreadable += [one for one in read if isinstance(one, Item)]
        fresh = [record for record in records if not self._is_settled(record, known)]
        admitted.records += fresh
        if len(fresh) < len(records):
            kept = set(map(id, fresh))
            assignment.finish([record for record in records if id(record) not in kept])

    def _read(self, assignment: Assignment, message: Message) -> Record | Item:
        """A record to run, or one whose bytes are at fault. Raises StackError if the registry does not answer."""
        try:
            (message.key() or b"").decode("utf-8")
            return Record(assignment, message, self._decode(message.value()))
        except StackError:
            raise
        except (StreamsError, UnicodeError) as error:
            record = Record(assignment, message, None)
            failure = describe(error, permanent=True)
            where = f"{assignment.partition.number}:{record.offset}"
            log.warning("%s: %s cannot be read: %s; a dead letter", self._reader.group, where, failure.message)
            return Item(record, Dead(failure, attempts=1, first_failed_at=self._clock.now()))

    def _is_settled(self, record: Record, known: dict[str, Progress]) -> bool:
        """Whether nothing is left to do for it. Carries attempts over that were made before a restart."""
        document = record.document
        assert document is not None
        progress = known.get(document.document_id)
        if progress is None:
            return False
        same_pass = progress.pass_number == record.assignment.pass_number
        if document.version < progress.applied_version:
            return True
        if same_pass and progress.state == "retrying" and progress.version == document.version:
            record.attempts = progress.attempts
        return same_pass and progress.state in _FINAL and document.version <= progress.version

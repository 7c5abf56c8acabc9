"""A record in flight, its lane, and the assignment that it belongs to. State only; no decisions.

A lane is what runs one at a time and in order: a key, a partition, or a single record, as the reader's `order` says.
The loop's thread appends to a lane, one handler thread takes from it; both ends of a deque are atomic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from contextlib import suppress
from datetime import UTC, datetime
from uuid import UUID

from streams.contract import DocumentSaved
from streams.core.offsets import Offset, Position, Tracker
from streams.core.outcomes import Outcome
from streams.runtime.ports import Message, Origin, Partition, Result


class Assignment:
    """One partition from its assignment to its revocation: one epoch. A returning partition is a new assignment."""

    __slots__ = (
        "alive",
        "bytes_in_flight",
        "claim_after",
        "committed",
        "epoch",
        "held",
        "lanes",
        "leader_epoch",
        "partition",
        "pass_number",
        "reread",
        "running",
        "tracker",
    )

    def __init__(self, partition: Partition, *, claim_after: float = 0.0, reread: bool = False) -> None:
        self.partition = partition
        self.claim_after = claim_after  # monotonic seconds
        self.reread = reread  # what comes before the claim is dropped: the claim seeks back to the commit
        self.epoch: int | None = None  # None until claimed
        self.pass_number = 0
        self.tracker = Tracker()
        self.lanes: dict[Hashable, Lane] = {}
        self.held: deque[Message] = deque()  # received, not yet looked up
        self.running: set[Lane] = set()  # with a handler at work
        self.committed: Position | None = None
        self.leader_epoch: int | None = None
        self.bytes_in_flight = 0
        self.alive = True

    def receive(self, messages: list[Message]) -> None:
        """Take records in, in log order."""
        self.tracker.receive([Offset(message.offset()) for message in messages])
        self.bytes_in_flight += sum(map(len_of, messages))
        self.leader_epoch = messages[-1].leader_epoch()
        self.held.extend(messages)

    def finish(self, records: list[Record]) -> None:
        """Note that nothing more is owed to these records."""
        self.tracker.finish([record.offset for record in records])
        self.bytes_in_flight -= sum(len_of(record.message) for record in records)

    def forget_unstarted(self) -> None:
        """Drop what no handler has begun; it stays unfinished, so a commit stays before it."""
        self.held.clear()
        for lane in self.lanes.values():
            lane.records.clear()


class Lane:
    """Records that run one at a time, in order."""

    __slots__ = ("assignment", "key", "records", "waiting")

    def __init__(self, assignment: Assignment, key: Hashable) -> None:
        self.assignment = assignment
        self.key = key
        self.records: deque[Record] = deque()
        self.waiting = False  # for the time of its head's next attempt


class Record:
    """One record in flight."""

    __slots__ = ("assignment", "attempts", "document", "event_id", "first_failed_at", "message", "offset")

    def __init__(self, assignment: Assignment, message: Message, document: DocumentSaved | None) -> None:
        self.assignment = assignment
        self.message = message
        self.offset = Offset(message.offset())
        self.document = document  # None where it could not be decoded: then no handler sees the record
        self.event_id = _event_id(message)
        self.attempts = 0
        self.first_failed_at: datetime | None = None

    def origin(self) -> Origin:
        """Where it stands in the log, with its bytes."""
        message = self.message
        milliseconds = max(0, message.timestamp()[1])
        return Origin(
            partition=self.assignment.partition,
            offset=self.offset,
            timestamp=datetime.fromtimestamp(milliseconds / 1000, UTC),
            key=message.key(),
            value=message.value(),
            headers=message.headers() or [],
        )

    def result(self, outcome: Outcome) -> Result:
        """The outcome as the sink takes it."""
        return Result(
            origin=self.origin,
            partition=self.assignment.partition,
            document=self.document,
            event_id=self.event_id,
            pass_number=self.assignment.pass_number,
            outcome=outcome,
        )


def len_of(message: Message) -> int:
    """The bytes of a record's key and value."""
    return len(message.key() or b"") + len(message.value() or b"")


def _event_id(message: Message) -> str | None:
    for name, value in message.headers() or ():
        if name == "id" and value is not None:
            with suppress(ValueError):
                return str(UUID(value.decode("ascii")))
    return None

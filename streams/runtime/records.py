"""A record in flight, its lane, and the assignment that it belongs to. State only; no decisions.

A lane is what runs one at a time and in order: a key, a partition, or a single record, as the reader's `order` says.
Most keys have one record in flight at a time: it stands for its lane, and a `Lane` is made only when another comes, or
when it fails. The loop's thread appends to a lane, one handler thread takes from it; both ends of a deque are atomic.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from streams.contract import Context, DocumentSaved, Order, idempotency_key
from streams.core.offsets import Offset, Position, Tracker
from streams.core.outcomes import Outcome
from streams.core.partitioning import key_hash
from streams.core.suspicion import Trace
from streams.runtime.ports import Message, Origin, ParkedRow, Partition


class Assignment:
    """One partition from its assignment to its revocation: one epoch. A returning partition is a new assignment."""

    __slots__ = (
        "admitted_to",
        "alive",
        "bytes_in_flight",
        "claim_after",
        "committed",
        "epoch",
        "held",
        "lanes",
        "leader_epoch",
        "leaving",
        "marks",
        "partition",
        "pass_is_noted",
        "pass_number",
        "reread",
        "suspect_to",
        "trace",
        "tracker",
    )

    def __init__(self, partition: Partition, *, claim_after: float = 0.0, reread: bool = False) -> None:
        self.partition = partition
        self.claim_after = claim_after  # monotonic seconds
        self.reread = reread  # what comes before the claim is dropped: the claim seeks back to the commit
        self.epoch: int | None = None  # None until claimed
        self.pass_number = 0
        self.pass_is_noted = False  # whether a commit names it
        self.trace = Trace()  # what is left for the next owner
        self.suspect_to = Position(0)  # records before it may have killed a worker: they run in a child
        self.tracker = Tracker()
        self.admitted_to = Position(0)  # every record before it went to its lane, or ended
        self.lanes: dict[str, Run] = {}
        self.held: deque[Message] = deque()  # received, not yet looked up
        self.leaving = False  # no handler is to begin any more
        self.committed: Position | None = None
        self.leader_epoch: int | None = None
        self.bytes_in_flight = 0
        self.marks: deque[tuple[Offset, float]] = deque()  # first offset and monotonic seconds of what was received
        self.alive = True

    @property
    def is_running(self) -> bool:
        """Whether an executor has any of it."""
        return any(isinstance(run, Record) or run.running for run in self.lanes.values())

    def receive(self, messages: list[Message], now: float) -> None:
        """Take records in, in log order, at `now` in monotonic seconds."""
        self.tracker.receive([message.offset() for message in messages])
        self._mark(messages[0].offset(), now)
        self.bytes_in_flight += sum(map(len, messages))
        self.leader_epoch = messages[-1].leader_epoch()
        self.held.extend(messages)

    def _mark(self, first: Offset, now: float) -> None:
        """Remember when it came, for as long as it may be the oldest."""
        self.marks.append((first, now))
        oldest = self.tracker.oldest()
        while len(self.marks) > 1 and oldest is not None and self.marks[1][0] <= oldest:
            self.marks.popleft()

    def finish(self, records: list[Record]) -> None:
        """Note that nothing more is owed to these records; what was parked was never in flight."""
        own = [record for record in records if not record.parked]
        self.tracker.finish([record.offset for record in own])
        self.bytes_in_flight -= sum([len(record.message) for record in own])

    def forget_unstarted(self) -> None:
        """Drop what no handler has begun; it stays unfinished, so a commit stays before it."""
        self.leaving = True
        self.held.clear()
        for run in self.lanes.values():
            if isinstance(run, Lane):
                run.records.clear()


class Lane:
    """Records that run one at a time, in order."""

    __slots__ = (
        "assignment",
        "began_at",
        "current",
        "current_since",
        "key",
        "parking",
        "records",
        "running",
        "unwritten",
        "waiting",
    )

    def __init__(self, assignment: Assignment, key: str) -> None:
        self.assignment = assignment
        self.key = key
        self.records: deque[Record] = deque()
        self.running = False  # whether an executor has it, or the record that stood for it
        self.waiting = False  # for the time of its head's next attempt
        self.parking = False  # whether new arrivals go behind parked ones
        self.unwritten = 0  # parked records of which the sink does not know yet
        self.began_at = 0.0  # monotonic seconds of the present run
        self.current: Record | None = None  # the last that its handler began, for the status
        self.current_since = 0.0  # monotonic seconds

    @property
    def suspect(self) -> bool:
        """Whether its next record is; those behind it go the same way, since suspects come first in the log."""
        return self.records[0].suspect

    def take(self, now: float) -> Record | None:
        """The next record, whose handler begins `now`; the loop empties the lane to take it back."""
        try:
            self.current, self.current_since = self.records.popleft(), now
        except IndexError:
            self.current = None
        return self.current


def lane_of(order: Order, message: Message, document: DocumentSaved | None) -> tuple[str, bytes | int]:
    """The name of a record's lane, and what says who tries its parked records again: a key, or a partition's number.

    Where it could not be decoded it runs by itself: no order holds it.
    """
    if order == "key" and document is not None:
        key = message.key()
        return document.document_id, message.partition() if key is None else key
    if order == "partition":
        return f"partition {message.partition()}", message.partition()
    return f"record {message.partition()}:{message.offset()}", message.partition()


class ParkedMessage:
    """A parked row in the shape of a message."""

    __slots__ = ("_row",)

    def __init__(self, row: ParkedRow) -> None:
        self._row = row

    def topic(self) -> str:
        return self._row.origin.partition.topic

    def partition(self) -> int:
        return self._row.origin.partition.number

    def offset(self) -> Offset:
        return self._row.origin.offset

    def key(self) -> bytes | None:
        return self._row.origin.key

    def value(self) -> bytes | None:
        return self._row.origin.value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return list(self._row.origin.headers)

    def timestamp(self) -> tuple[int, int]:
        return (1, round(self._row.origin.timestamp.timestamp() * 1000))

    def leader_epoch(self) -> int | None:
        return None

    def __len__(self) -> int:
        return len(self._row.origin.value or b"")


class BareMessage:
    """A message without its content: the least that a dead letter can keep."""

    __slots__ = ("_message",)

    def __init__(self, message: Message) -> None:
        self._message = message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    def __len__(self) -> int:
        return len(self._message)

    def value(self) -> None:
        return None

    def headers(self) -> list[tuple[str, bytes | None]]:
        return []


class Record:
    """One record in flight, from the log or from readers.parked; with its outcome it is what the sink writes."""

    __slots__ = (
        "assignment",
        "attempts",
        "current_since",
        "document",
        "first_failed_at",
        "is_replay",
        "lane",
        "lane_key",
        "message",
        "offset",
        "outcome",
        "parked",
        "parks",
        "runs",
        "runs_noted",
        "suspect",
    )
    outcome: Outcome  # once it is decided

    def __init__(
        self,
        assignment: Assignment,
        message: Message,
        document: DocumentSaved | None,
        lane: str,
        lane_key: bytes | int,
        parked: bool = False,
    ) -> None:
        self.assignment = assignment
        self.message = message
        self.document = document  # None where it could not be decoded: then no handler sees the record
        self.lane = lane
        self.lane_key = lane_key
        self.parked = parked
        self.offset = message.offset()
        self.attempts = 0
        self.first_failed_at: datetime | None = None
        self.suspect = self.offset < assignment.suspect_to and not parked
        self.is_replay = False  # noted only for a handler that takes a context
        self.runs = 0  # of a parked one: begun before, and never ended
        self.runs_noted = False  # whether the sink knows that this one begins
        self.parks: Lane | None = None  # the lane that waits for this to be written
        self.current_since: float | None = None  # monotonic seconds, since it was taken as its lane's only record

    # --------------------------------------------------------------- as a lane, of which it is the only record

    @property
    def current(self) -> Record | None:
        """Itself, once its handler began."""
        return None if self.current_since is None else self

    @property
    def records(self) -> tuple[Record, ...]:
        """Itself, until its handler begins."""
        return (self,) if self.current_since is None else ()

    def take(self, now: float) -> Record | None:
        """Itself, once, whose handler begins `now`; None too when the loop has taken it back."""
        if self.current_since is not None or self.assignment.leaving:
            return None
        self.current_since = now
        return self

    # ---------------------------------------------------------------------------------------- as a result

    def context(self, group: str) -> Context:
        """What a handler may know of its next attempt, but for the deadline, which begins with that."""
        assert self.document is not None
        key = idempotency_key(group, self.document)
        return Context(idempotency_key=key, attempt=self.attempts + 1, is_replay=self.is_replay)

    def origin(self) -> Origin:
        """Where it stands in the log, with its bytes."""
        message = self.message
        milliseconds = max(0, message.timestamp()[1])
        return Origin(
            partition=Partition(*self.at[:2]),
            offset=self.offset,
            timestamp=datetime.fromtimestamp(milliseconds / 1000, UTC),
            key=message.key(),
            value=message.value(),
            headers=message.headers() or [],
        )

    @property
    def at(self) -> tuple[str, int, int]:
        """Topic, partition and offset: a parked record's own, not those of the partition that it falls to."""
        return (self.message.topic(), self.message.partition(), self.offset)

    @property
    def owner(self) -> Partition:
        """The partition whose epoch must be ours."""
        return self.assignment.partition

    @property
    def pass_number(self) -> int:
        return self.assignment.pass_number

    @property
    def event_id(self) -> str | None:
        """The event's id, from the headers; None where there is none."""
        for name, value in self.message.headers() or ():
            if name == "id" and value is not None:
                with suppress(ValueError):
                    return str(UUID(value.decode("ascii")))
        return None

    def lane_hash(self) -> int:
        """The key's hash, as the partitioner has it; or the number of the partition that is in order as a whole."""
        return self.lane_key if isinstance(self.lane_key, int) else key_hash(self.lane_key)

    @property
    def lane_version(self) -> int:
        """By what parked records of its lane run before their place in the log; versions compare within a document."""
        document = self.document
        return document.version if document is not None and document.document_id == self.lane else 0

    def strip(self) -> None:
        """Leave no content that a sink could refuse."""
        self.message, self.document = BareMessage(self.message), None


Run = Lane | Record  # what an executor runs: a lane, or the record that stands for one

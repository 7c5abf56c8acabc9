"""What the runtime needs of the outside world, as protocols: a log to read and a sink to write.

Implemented by streams/kafka/consumer.py and streams/sinks/postgres.py; wired by streams/ops/worker.py; imitated in
memory by the property tests. The runtime imports neither Kafka nor Postgres.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from streams.contract import DocumentSaved
from streams.core.offsets import Offset, Position
from streams.core.outcomes import Outcome
from streams.core.suspicion import Trace


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int


class Message(Protocol):
    """One record as the log gives it."""

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> Offset: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...
    def timestamp(self) -> tuple[int, int]:
        """(kind, milliseconds since the epoch)."""
        ...

    def leader_epoch(self) -> int | None: ...
    def __len__(self) -> int:
        """The bytes of its value."""
        ...


class Committed(NamedTuple):
    """What the group has committed for a partition: None where it has nothing."""

    position: Position | None
    metadata: str


class Claimed(NamedTuple):
    """A partition's epoch, and what its former owner left."""

    epoch: int
    left: Trace


class Checkpoint(NamedTuple):
    """What is to be committed for a partition."""

    position: Position
    leader_epoch: int | None
    metadata: str


class Listener(Protocol):
    """Told of assignments, inside `Log.poll`. None of these may raise: the client would lose dequeued records."""

    def assigned(self, partitions: Sequence[Partition]) -> None: ...
    def revoked(self, partitions: Sequence[Partition]) -> None: ...
    def lost(self, partitions: Sequence[Partition]) -> None: ...


class Log(Protocol):
    """A consumer group's member. All calls come from one thread."""

    def subscribe(self, listener: Listener) -> None: ...

    def poll(self, records_max: int, seconds: float) -> Sequence[Message]:
        """Up to `records_max` records; waits `seconds` at most for the first.

        Raises Unavailable when no more will come, ConfigError if the broker lacks the group's protocol.
        """
        ...

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, Committed]:
        """Raises Unavailable."""
        ...

    def position(self, partition: Partition) -> Position | None:
        """The next offset to be delivered, past control records; None before the first fetch."""
        ...

    def commit(self, checkpoints: Mapping[Partition, Checkpoint], *, wait: bool) -> None:
        """Raises Unavailable if `wait` and it failed; otherwise a failure is only logged: a later one follows."""
        ...

    def refused(self) -> frozenset[Partition]:
        """Partitions of which an asynchronous commit was refused since the last call: commit them again."""
        ...

    def pause(self, partitions: Iterable[Partition]) -> None: ...
    def resume(self, partitions: Iterable[Partition]) -> None: ...
    def partitions(self) -> int:
        """How many partitions the topic has now. Raises Unavailable."""
        ...

    def seek(self, partition: Partition, position: Position | None) -> None:
        """Read again from a position; None: from where the group's policy begins."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a reader has come with one document."""

    version: int
    state: str  # done, retrying, dead, expired
    applied_version: int  # 0: none yet
    pass_number: int


@dataclass(frozen=True, slots=True)
class Origin:
    """A record's place and bytes in the log: what a dead letter keeps."""

    partition: Partition
    offset: Offset
    timestamp: datetime
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Result(Protocol):
    """A record with its outcome, to be written. `document` is None where it could not be decoded."""

    document: DocumentSaved | None
    outcome: Outcome
    lane: str
    parked: bool  # whether it came from readers.parked
    runs: int  # of a parked one: begun before, and never ended
    first_failed_at: datetime | None

    @property
    def owner(self) -> Partition:
        """Whose epoch must be ours: the record's own partition, or a parked one's by its hash."""
        ...

    @property
    def at(self) -> tuple[str, int, int]:
        """Topic, partition and offset: a parked record's own, not those of the partition that it falls to."""
        ...

    @property
    def event_id(self) -> str | None: ...
    @property
    def pass_number(self) -> int: ...
    @property
    def lane_version(self) -> int: ...
    def lane_hash(self) -> int: ...
    def origin(self) -> Origin:
        """Only what parks or dies needs the bytes."""
        ...


@dataclass(frozen=True, slots=True)
class ParkedRow:
    """The first parked record of a lane; `next_attempt_at` None: at once."""

    lane: str
    lane_hash: int
    origin: Origin
    attempts: int
    first_failed_at: datetime | None
    next_attempt_at: datetime | None
    runs: int  # begun before, and never ended: a worker died


class RowRefused(Exception):
    """The sink will never take what this result would write: it becomes a dead letter."""


class SinkBusy(Exception):
    """The sink cannot take the batch now: try it again, unchanged."""


class SinkBroken(Exception):
    """The sink's tables and the reader do not fit: stop the reader, write nothing."""


class PartitionsLost(Exception):
    """Others own these partitions now: drop all that was read of them; nothing was written."""

    def __init__(self, partitions: frozenset[Partition]) -> None:
        super().__init__(f"lost to another worker: {', '.join(f'{p.topic}:{p.number}' for p in sorted(partitions))}")
        self.partitions = partitions


class Sink(Protocol):
    """Where effects and progress go. All calls come from one thread. Every call may raise SinkBusy."""

    def claim(self, partitions: Iterable[Partition]) -> dict[Partition, Claimed]:
        """Raise the epochs of partitions to make them ours; returns the new epochs and what was left with the old."""
        ...

    def leave(self, traces: Mapping[Partition, Claimed]) -> None:
        """Leave a trace for the next owner, where the epoch is still ours; durable against our death alone."""
        ...

    def new_pass(self) -> int:
        """A number for a new reading of the log."""
        ...

    def lookup(self, document_ids: Iterable[str]) -> dict[str, Progress]:
        """The progress of the documents that have one."""
        ...

    def parked_lanes(self, lanes: Iterable[str]) -> set[str]:
        """Those of the lanes that have parked records, whoever tries them again."""
        ...

    def heads(
        self, numbers: Iterable[int], partitions: int, until: datetime, active: Iterable[str], rows_max: int
    ) -> list[ParkedRow]:
        """The first record of each lane that is due by `until` and falls to one of the partitions `numbers`.

        A lane falls to its hash modulo `partitions`, the topic's number of them now. Without the `active` lanes.
        """
        ...

    def begin(self, begun: Sequence[Result]) -> None:
        """Note that the handlers of these parked records begin; durable against our death."""
        ...

    def write(self, epochs: Mapping[Partition, int], results: Sequence[Result]) -> None:
        """Write all, in order, in one transaction, or nothing.

        Raises PartitionsLost, SinkBroken, and RowRefused if a row is at fault: then the caller tries them singly.
        """
        ...

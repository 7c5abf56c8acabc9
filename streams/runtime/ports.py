"""What the runtime needs of the outside world, as protocols: a log to read and a sink to write.

Implemented by streams/kafka/consumer.py and streams/sinks/postgres.py; wired by streams/ops/worker.py; imitated in
memory by the property tests. The runtime imports neither Kafka nor Postgres.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from streams.contract import DocumentSaved
from streams.core.offsets import Offset, Position
from streams.core.outcomes import Outcome


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int


class Message(Protocol):
    """One record as the log gives it."""

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...
    def timestamp(self) -> tuple[int, int]:
        """(kind, milliseconds since the epoch)."""
        ...

    def leader_epoch(self) -> int | None: ...


class Committed(NamedTuple):
    """What the group has committed for a partition: None where it has nothing."""

    position: Position | None
    metadata: str


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
        """Up to `records_max` records; waits `seconds` at most for the first. Raises Unavailable when fatal."""
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
    attempts: int


@dataclass(frozen=True, slots=True)
class Origin:
    """A record's place and bytes in the log: what a dead letter keeps."""

    partition: Partition
    offset: Offset
    timestamp: datetime
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Result:
    """One record's outcome, to be written. `document` is None where the record could not be decoded."""

    origin: Callable[[], Origin]  # only a dead letter needs it, and it copies bytes
    partition: Partition
    document: DocumentSaved | None
    event_id: str | None
    pass_number: int
    outcome: Outcome


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

    def claim(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Raise the epochs of partitions to make them ours; returns the new epochs."""
        ...

    def new_pass(self) -> int:
        """A number for a new reading of the log."""
        ...

    def lookup(self, document_ids: Iterable[str]) -> dict[str, Progress]:
        """The progress of the documents that have one."""
        ...

    def write(self, epochs: Mapping[Partition, int], results: Sequence[Result]) -> None:
        """Write all, in order, in one transaction, or nothing.

        Raises PartitionsLost, SinkBroken, and RowRefused if a row is at fault: then the caller tries them singly.
        """
        ...

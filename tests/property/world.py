"""A world in memory for the runtime: a log, a group, a sink and a clock, all of which a test moves by hand.

The fakes keep what the real ones promise and nothing more: the group fences commits of a member that lost a
partition, the sink keeps epochs and the guard, a poll gives records of assigned partitions only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from streams.contract import DocumentSaved, Increment, Reader, Retry
from streams.core.offsets import Offset, Position, after
from streams.core.outcomes import Behind, Dead, Done, Expired, Failure, Retrying
from streams.core.suspicion import Trace
from streams.errors import Unavailable
from streams.runtime.handling import effects_of
from streams.runtime.loop import Loop
from streams.runtime.ports import (
    Checkpoint,
    Claimed,
    Committed,
    Listener,
    ParkedRow,
    Partition,
    PartitionsLost,
    Progress,
    Result,
    RowRefused,
    SinkBusy,
)
from streams.runtime.records import Run

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class FakeMessage:
    at: Partition
    number: int
    document: DocumentSaved

    def topic(self) -> str:
        return self.at.topic

    def partition(self) -> int:
        return self.at.number

    def offset(self) -> int:
        return self.number

    def key(self) -> bytes:
        return self.document.document_id.encode()

    def value(self) -> bytes:
        return f"{self.at.number}:{self.number}".encode()

    def headers(self) -> list[tuple[str, bytes | None]]:
        return []

    def timestamp(self) -> tuple[int, int]:
        return (1, 0)

    def leader_epoch(self) -> int | None:
        return 1

    def __len__(self) -> int:
        return len(self.value())


class FakeClock:
    """Time that moves only by `sleep`; a sleeping loop lets handlers at work go on."""

    def __init__(self, work) -> None:
        self.seconds = 0.0
        self._work = work

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self._work()

    def chance(self) -> float:
        return 0.5


class HandExecutor:
    """Runs a lane's next record only when the test says so, and with the end that the test says."""

    def __init__(self) -> None:
        self.results: deque = deque()
        self.lanes: list[Run] = []
        self.runs: list[tuple[str, int]] = []

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def submit(self, lanes: Iterable[Run]) -> None:
        for lane in lanes:
            assert lane not in self.lanes, "a lane runs twice at once"
            self.lanes.append(lane)

    def advance(self, index: int, failure: Failure | None = None) -> None:
        """One record of one running lane; an empty lane ends."""
        if not self.lanes:
            return None
        lane = self.lanes[index % len(self.lanes)]
        record = lane.take(0.0)
        if record is None:
            return self._end(lane)
        document = record.document
        self.runs.append((document.document_id, document.version))
        if failure is None:
            self.results.append((record, Done(effects_of(Increment(document.document_id, {"n": 1})))))
        else:
            self.results.append((record, failure))
        if record is lane:
            self.lanes.remove(lane)
        elif failure is not None:
            self._end(lane)
        return None

    def _end(self, lane: Run) -> None:
        self.lanes.remove(lane)
        self.results.append((lane, None))


@dataclass
class Row:
    version: int
    state: str
    applied: int = 0
    completed: set[int] = field(default_factory=set)
    pass_number: int = 0


@dataclass
class Parked:
    version: int
    row: ParkedRow
    attempts: int
    next_attempt_at: datetime | None


class FakeSink:
    """The guard and the epochs of section "tables", over dictionaries; a write is all or nothing."""

    def __init__(self) -> None:
        self.busy = False
        self.refuses: set[tuple[str, int]] = set()  # (document, version) that no table takes
        self.epochs: dict[Partition, int] = {}
        self.traces: dict[Partition, Trace] = {}
        self.rows: dict[str, Row] = {}
        self.counters: dict[str, int] = {}
        self.dead: set[tuple[str, int, int]] = set()
        self.parked: dict[tuple[str, int, int], Parked] = {}
        self.applied: list[tuple[str, int]] = []
        self.passes = 0
        self.writes = 0
        self.ended: list[tuple[str, int, int]] = []  # places of the records that came to their end, in order
        self.settled: dict[str, int] = {}  # document → the number of the write that settled it last

    def claim(self, partitions: Iterable[Partition]) -> dict[Partition, Claimed]:
        self._answer()
        claimed = list(partitions)
        for partition in claimed:
            self.epochs[partition] = self.epochs.get(partition, 0) + 1
        return {
            partition: Claimed(self.epochs[partition], self.traces.get(partition, Trace())) for partition in claimed
        }

    def leave(self, traces: Mapping[Partition, Claimed]) -> None:
        self._answer()
        self.traces |= {where: one.left for where, one in traces.items() if self.epochs.get(where) == one.epoch}

    def new_pass(self) -> int:
        self._answer()
        self.passes += 1
        return self.passes

    def lookup(self, document_ids: Iterable[str]) -> dict[str, Progress]:
        self._answer()
        rows = {one: self.rows[one] for one in document_ids if one in self.rows}
        return {k: Progress(r.version, r.state, r.applied, r.pass_number) for k, r in rows.items()}

    def parked_lanes(self, lanes: Iterable[str]) -> set[str]:
        self._answer()
        return {one.row.lane for one in self.parked.values()} & set(lanes)

    def heads(
        self, numbers: Iterable[int], partitions: int, until: datetime, active: Iterable[str], rows_max: int
    ) -> list[ParkedRow]:
        self._answer()
        mine, busy = set(numbers), set(active)
        due = {
            one.row.lane
            for one in self.parked.values()
            if one.next_attempt_at is not None and one.next_attempt_at <= until
        }
        heads = [self._lane(lane)[0] for lane in sorted(due - busy)]
        return [
            replace(one.row, attempts=one.attempts, next_attempt_at=one.next_attempt_at)
            for one in heads
            if one.row.lane_hash % partitions in mine
        ][:rows_max]

    def _lane(self, lane: str) -> list[Parked]:
        found = [one for one in self.parked.values() if one.row.lane == lane]
        return sorted(found, key=lambda one: (one.version, one.row.origin.partition, one.row.origin.offset))

    def begin(self, begun: Sequence[Result]) -> None:
        self._answer()
        for one in begun:
            if one.at in self.parked:
                self.parked[one.at].row = replace(self.parked[one.at].row, runs=one.runs + 1)

    def write(self, epochs: Mapping[Partition, int], results: Sequence[Result]) -> None:
        self._answer()
        lost = frozenset(one for one, epoch in epochs.items() if self.epochs.get(one) != epoch)
        if lost:
            raise PartitionsLost(lost)
        assert {one.owner for one in results} <= epochs.keys()
        if any(self._is_refused(one) for one in results):
            raise RowRefused("a row is bad")
        for one in results:
            self._write(one)

    def _is_refused(self, one: Result) -> bool:
        return isinstance(one.outcome, Done) and (one.document.document_id, one.document.version) in self.refuses

    def _write(self, one: Result) -> None:
        self._park(one)
        state = {Done: "done", Dead: "dead", Expired: "expired", Retrying: "retrying"}.get(type(one.outcome))
        if isinstance(one.outcome, Dead):
            self.dead.add(one.at)
        if state is not None:
            self.writes += 1
            if state != "retrying":
                self.ended.append(one.at)
                self.settled[one.document.document_id] = self.writes
            self._progress(one, state)

    def _progress(self, one: Result, state: str) -> None:
        document = one.document
        row = self.rows.get(document.document_id)
        if row is None:
            row = self.rows[document.document_id] = Row(0, "")
        elif state == "done":
            if document.version < row.applied:
                return
        elif not (document.version > row.version or (document.version == row.version and row.state != "done")):
            return
        if document.version >= row.version:
            row.version, row.state, row.pass_number = document.version, state, one.pass_number
        if state == "done":
            if row.applied < document.version:
                self.counters[document.document_id] = self.counters.get(document.document_id, 0) + 1
            row.applied = document.version
            row.completed.add(document.version)
            self.applied.append((document.document_id, document.version))

    def _park(self, one: Result) -> None:
        """The table of parked records, as sinks/sql/parking.sql has it."""
        outcome = one.outcome
        if isinstance(outcome, (Retrying, Behind)):
            attempts = outcome.attempts if isinstance(outcome, Retrying) else 0
            at = outcome.next_attempt_at if isinstance(outcome, Retrying) else None
            if one.at in self.parked:
                if attempts:
                    kept = self.parked[one.at]
                    kept.attempts, kept.next_attempt_at, kept.row = attempts, at, replace(kept.row, runs=0)
            elif not one.parked:
                if not attempts and not self._lane(one.lane):
                    at = START
                row = ParkedRow(one.lane, one.lane_hash(), one.origin(), attempts, one.first_failed_at, at, 0)
                self.parked[one.at] = Parked(one.lane_version, row, attempts, at)
        elif one.parked:
            self.parked.pop(one.at, None)
            for first in self._lane(one.lane)[:1]:
                first.next_attempt_at = first.next_attempt_at or START

    def _answer(self) -> None:
        if self.busy:
            raise SinkBusy("down")


class Group:
    """The log and the broker's view of the group: who owns what, and what is committed."""

    def __init__(self, partitions: int) -> None:
        self.partitions = [Partition("t", number) for number in range(partitions)]
        self.log: dict[Partition, list[FakeMessage]] = {one: [] for one in self.partitions}
        self.end: dict[Partition, int] = dict.fromkeys(self.partitions, 0)
        self.committed: dict[Partition, Committed] = {}
        self.owner: dict[Partition, FakeLog] = {}
        self.refuse_commits = False

    def append(self, partition: Partition, document: DocumentSaved, gap: int) -> None:
        """A record, after `gap` offsets that no reader ever sees."""
        self.log[partition].append(FakeMessage(partition, self.end[partition] + gap, document))
        self.end[partition] += gap + 1


class FakeLog:
    """One member."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.positions: dict[Partition, Position] = {}
        self.fetched: set[Partition] = set()
        self.paused: set[Partition] = set()
        self.listener: Listener | None = None
        self._refused: set[Partition] = set()

    def subscribe(self, listener: Listener) -> None:
        self.listener = listener

    def assign(self, partition: Partition) -> None:
        self.listener.assigned([partition])
        at = self.group.committed.get(partition)
        self.positions[partition] = at.position if at else Position(0)
        self.fetched.discard(partition)
        self.paused.discard(partition)
        self.group.owner[partition] = self

    def unassign(self, partition: Partition) -> None:
        self.positions.pop(partition, None)
        self.paused.discard(partition)

    def poll(self, records_max: int, seconds: float) -> Sequence[FakeMessage]:
        given: list[FakeMessage] = []
        for partition, position in list(self.positions.items()):
            if partition in self.paused:
                continue
            self.fetched.add(partition)
            room = records_max - len(given)
            found = [one for one in self.group.log[partition] if one.number >= position][:room]
            given += found
            # Past the last record, the position moves on over control records to the end.
            rest = [one for one in self.group.log[partition] if found and one.number > found[-1].number]
            if found:
                self.positions[partition] = after(Offset(found[-1].number))
            if not rest and room > len(found):
                self.positions[partition] = Position(self.group.end[partition])
        return given

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, Committed]:
        return {one: self.group.committed.get(one, Committed(None, "")) for one in partitions}

    def position(self, partition: Partition) -> Position | None:
        return self.positions.get(partition) if partition in self.fetched else None

    def commit(self, checkpoints: Mapping[Partition, Checkpoint], *, wait: bool) -> None:
        for partition, point in checkpoints.items():
            fenced = self.group.owner.get(partition) is not self
            if wait and (fenced or self.group.refuse_commits):
                raise Unavailable("refused")
            if fenced:
                continue
            if self.group.refuse_commits:
                self._refused.add(partition)
                continue
            before = self.group.committed.get(partition)
            assert before is None or point.position >= before.position, "a commit went backwards"
            self.group.committed[partition] = Committed(point.position, point.metadata)

    def refused(self) -> frozenset[Partition]:
        refused, self._refused = frozenset(self._refused), set()
        return refused

    def partitions(self) -> int:
        return len(self.group.partitions)

    def pause(self, partitions: Iterable[Partition]) -> None:
        self.paused |= set(partitions)

    def resume(self, partitions: Iterable[Partition]) -> None:
        self.paused -= set(partitions)

    def seek(self, partition: Partition, position: Position | None) -> None:
        self.positions[partition] = position or Position(0)

    def close(self) -> None: ...


class Worker:
    """A loop with its member, its executor and its time."""

    def __init__(self, group: Group, sink: FakeSink, order: str = "key") -> None:
        self.executor = HandExecutor()
        self.clock = FakeClock(lambda: self.executor.advance(0))
        self.log = FakeLog(group)
        reader = Reader(group="g", handler=lambda document: None, retry=Retry(attempts_max=3), order=order)
        by_value = {}

        def decode(value: bytes) -> DocumentSaved:
            number = int(value.decode().split(":")[0])
            for message in group.log[Partition("t", number)]:
                by_value[message.value()] = message.document
            return by_value[value]

        self.loop = Loop(reader, self.log, sink, decode, self.executor, self.clock)
        self.log.subscribe(self.loop)

    def step(self, seconds: float = 0.01) -> None:
        self.clock.seconds += seconds
        self.loop.step()

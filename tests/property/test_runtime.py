"""Rules 1, 2, 3, 4, 6 and 7 of the runtime, over random interleavings of everything that can happen to it."""

from __future__ import annotations

from itertools import count
from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streams.contract import DocumentSaved
from streams.core.offsets import Position
from streams.core.outcomes import Failure
from streams.core.partitioning import key_hash
from streams.runtime import dispatch, loop
from streams.runtime.ports import Committed, Partition
from streams.runtime.records import Record, Run
from tests.property.world import START, FakeSink, Group, Worker

PARTITIONS, WORKERS, KEYS = 3, 2, 4
NARROW_RECORDS = 6
TRANSIENT = Failure("Timeout", "later", "")
PERMANENT = Failure("Reject", "never", "", permanent=True)

numbers = st.integers(0, 50)
SECONDS = st.sampled_from([0.01, 0.3, 5.0, 20.0])
ENDS = st.sampled_from([None, None, TRANSIENT, TRANSIENT, PERMANENT])


class Runtime(RuleBasedStateMachine):
    """Two workers, three partitions, four keys in each; every version must be settled exactly once."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.group, self.sink = Group(PARTITIONS), FakeSink()
        self.workers = [Worker(self.group, self.sink) for _ in range(WORKERS)]
        self.versions: dict[str, int] = {}
        self.replayed_after: dict[Partition, int] = {}
        for partition in self.group.partitions:
            self.workers[0].log.assign(partition)

    # ------------------------------------------------------------------------------------- what happens

    @rule(partition=numbers, keys=st.lists(numbers, min_size=1, max_size=6), gap=st.integers(0, 3), bad=st.booleans())
    def save(self, partition: int, keys: list[int], gap: int, bad: bool) -> None:
        where = self.group.partitions[partition % PARTITIONS]
        for key in keys:
            document_id = self.name_of_key(where.number, key % KEYS)
            version = self.versions[document_id] = self.versions.get(document_id, 0) + 1
            self.group.append(where, DocumentSaved(document_id, "o", version, "", "", START), gap)
            if bad and key % 3 == 0:
                self.sink.refuses.add((document_id, version))

    def name_of_key(self, partition: int, key: int) -> str:
        """Of a document of this partition.

        Where lanes are spilled it is the partition that the key's hash says: the owner of what is spilled then knows
        what comes before it in the log. Elsewhere the two differ, as after partitions were added.
        """
        if loop.RECORDS_IN_FLIGHT_MAX != NARROW_RECORDS:
            return f"{partition}-{key}"
        names = (f"{partition}-{key}-{number}" for number in count())
        return next(name for name in names if key_hash(name.encode()) % PARTITIONS == partition)

    @rule(partition=numbers, gap=st.integers(1, 3))
    def end_a_transaction(self, partition: int, gap: int) -> None:
        self.group.end[self.group.partitions[partition % PARTITIONS]] += gap

    @initialize(narrow=st.booleans(), keys=st.lists(st.tuples(numbers, numbers), min_size=12, max_size=24))
    def saves_that_wait(self, narrow: bool, keys: list[tuple[int, int]]) -> None:
        """Within wide bounds, or so narrow ones that lanes spill, reading stops, and partitions are paused."""
        if narrow:
            self.patch.setattr(loop, "RECORDS_IN_FLIGHT_MAX", NARROW_RECORDS)
            self.patch.setattr(loop, "POLL_RECORDS_MAX", 3)
            self.patch.setattr(loop, "PAUSE_AFTER_SECONDS", 0.25)
            self.patch.setattr(dispatch, "LANE_RECORDS_MAX", 1)
        else:
            self.patch.setattr(dispatch, "HEAD_SECONDS_MAX", inf)
        for partition, key in keys:
            self.save(partition, [key], 0, False)

    @rule(seconds=SECONDS, ends=st.lists(st.tuples(numbers, ENDS), min_size=4, max_size=12))
    def work(self, seconds: float, ends: list[tuple[int, Failure | None]]) -> None:
        """A round of every loop, some handlers end, and a round that sees it."""
        for worker in self.workers:
            worker.step(seconds)
            for lane, failure in ends:
                worker.executor.advance(lane, failure)
            worker.step()

    @rule(worker=numbers, seconds=SECONDS)
    def step(self, worker: int, seconds: float) -> None:
        self.workers[worker % WORKERS].step(seconds)

    @rule(worker=numbers, lane=numbers, failure=ENDS)
    def handler_ends(self, worker: int, lane: int, failure: Failure | None) -> None:
        self.workers[worker % WORKERS].executor.advance(lane, failure)

    @rule(partition=numbers, to=numbers)
    def rebalance(self, partition: int, to: int) -> None:
        where, new = self.group.partitions[partition % PARTITIONS], self.workers[to % WORKERS]
        old = self.group.owner.get(where)
        if old is not None:
            old.listener.revoked([where])
            old.unassign(where)
        new.log.assign(where)

    @rule(partition=numbers, to=numbers, told=st.booleans())
    def lose(self, partition: int, to: int, told: bool) -> None:
        """The group gives a silent member's partition away; it hears of it now, or goes on for a while."""
        where, new = self.group.partitions[partition % PARTITIONS], self.workers[to % WORKERS]
        old = self.group.owner.get(where)
        if old is new.log:
            return
        new.log.assign(where)
        if told and old is not None:
            old.listener.lost([where])
            old.unassign(where)

    @rule(worker=numbers)
    def sigterm(self, worker: int) -> None:
        """A worker drains and leaves, and another starts in its place."""
        old = self.workers[worker % WORKERS]
        owned = [one for one, owner in self.group.owner.items() if owner is old.log]
        current, began = list(old.loop._assignments.values()), old.clock.seconds
        old.loop.stop()
        old.loop.run()
        left = [lane for lane in old.executor.lanes if lane.assignment in current]
        assert not left or old.clock.seconds - began >= loop.DRAIN_SECONDS, "it did not wait for handlers at work"
        born = self.workers[worker % WORKERS] = Worker(self.group, self.sink)
        for where in owned:
            born.log.assign(where)

    @rule(worker=numbers)
    def crash(self, worker: int) -> None:
        dead = self.workers[worker % WORKERS]
        born = self.workers[worker % WORKERS] = Worker(self.group, self.sink)
        for where in [one for one, owner in self.group.owner.items() if owner is dead.log]:
            born.log.assign(where)

    @rule(busy=st.booleans())
    def sink_goes_or_comes(self, busy: bool) -> None:
        self.sink.busy = busy

    @rule(refuse=st.booleans())
    def commits_are_refused(self, refuse: bool) -> None:
        self.group.refuse_commits = refuse

    @rule(partition=numbers, metadata=st.sampled_from(["", "rpk", "pass:", "pass:99999999999999999999", "x" * 4096]))
    def another_tool_commits(self, partition: int, metadata: str) -> None:
        where = self.group.partitions[partition % PARTITIONS]
        if where in self.group.committed:
            self.group.committed[where] = Committed(self.group.committed[where].position, metadata)

    @rule(partition=numbers)
    def seek_to_the_start(self, partition: int) -> None:
        """A deliberate replay: the readers are down, another tool moves the offset, they come back."""
        where = self.group.partitions[partition % PARTITIONS]
        old = self.group.owner[where]
        old.listener.revoked([where])
        self.group.committed[where] = Committed(Position(0), "rpk")
        self.replayed_after[where] = self.sink.writes
        old.assign(where)

    # ------------------------------------------------------------------------------------- what holds

    @invariant()
    def never_commits_past_an_unfinished_record(self) -> None:
        for where, committed in self.group.committed.items():
            for message in self.group.log[where]:
                if message.number < committed.position:
                    kept = self._is_settled(where, message.number) or (*where, message.number) in self.sink.parked
                    assert kept, f"{where} {message.number} was committed, neither finished nor parked"

    @invariant()
    def effects_come_in_order_and_once(self) -> None:
        for document_id, times in self.sink.counters.items():
            versions = [version for one, version in self.sink.applied if one == document_id]
            assert versions == sorted(versions), f"{document_id} was applied as {versions}"
            assert times == len(set(versions)), f"{document_id} counted {times} of {versions}"

    @invariant()
    def a_key_runs_once_at_a_time(self) -> None:
        for worker in self.workers:
            running = [(id(lane.assignment), name_of(lane)) for lane in worker.executor.lanes]
            assert len(running) == len(set(running))

    @invariant()
    def what_is_in_flight_is_bounded(self) -> None:
        """A poll from below the bound takes it over; then one record a poll may come, until partitions are paused."""
        singles = 1 + int(loop.PAUSE_AFTER_SECONDS / loop.THROTTLED_SECONDS)
        for worker in self.workers:
            in_flight = sum(len(one.tracker) for one in worker.loop._assignments.values())
            assert in_flight < loop.RECORDS_IN_FLIGHT_MAX + loop.POLL_RECORDS_MAX + singles

    @invariant()
    def a_stall_is_named(self) -> None:
        """The blocking record is the oldest unfinished one of a partition, with the reason."""
        for worker in self.workers:
            assignments = worker.loop._assignments.values()
            oldest = {(one.partition.number, one.tracker.oldest()) for one in assignments if len(one.tracker)}
            blocked = worker.loop.status().blocked
            assert (blocked is None) == (not oldest)
            assert blocked is None or ((blocked.partition, blocked.offset) in oldest and blocked.why)

    def teardown(self) -> None:
        try:
            self.all_ends_well()
        finally:
            self.patch.undo()

    def all_ends_well(self) -> None:
        """With all well again, everything is settled, and committed to the very end."""
        self.sink.busy = self.group.refuse_commits = False
        for where in self.group.partitions:
            for worker in self.workers:
                if self.group.owner[where] is not worker.log and where in worker.log.positions:
                    worker.log.listener.lost([where])
                    worker.log.unassign(where)
        for _ in range(400):
            for worker in self.workers:
                worker.step(1.0)
                for lane in range(len(worker.executor.lanes)):
                    worker.executor.advance(lane)
        for where in self.group.partitions:
            for message in self.group.log[where]:
                assert self._is_settled(where, message.number), f"{where} {message.number} was skipped"
                settled = self.sink.settled[message.document.document_id]
                assert settled > self.replayed_after.get(where, 0), f"{where} was not computed again"
            if self.group.end[where]:
                assert self.group.committed[where].position == self.group.end[where]
        assert not self.sink.parked
        self.never_commits_past_an_unfinished_record()
        self.effects_come_in_order_and_once()

    def _is_settled(self, where: Partition, number: int) -> bool:
        """Done or given up. Never overtaken: the order of a document's versions holds across failures too."""
        (message,) = [one for one in self.group.log[where] if one.number == number]
        row = self.sink.rows.get(message.document.document_id)
        if row is None:
            return False
        return message.document.version in row.completed or (*where, number) in self.sink.dead


def name_of(lane: Run) -> str:
    return lane.lane if isinstance(lane, Record) else lane.key


TestRuntime = Runtime.TestCase
TestRuntime.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)

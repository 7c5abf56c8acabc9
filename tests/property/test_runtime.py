"""Rules 1, 2, 3, 4, 6 and 7 of the runtime, over random interleavings of everything that can happen to it."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streams.contract import DocumentSaved
from streams.core.offsets import Position
from streams.core.outcomes import Failure
from streams.runtime.ports import Committed, Partition
from tests.property.world import START, FakeSink, Group, Worker

PARTITIONS, WORKERS, KEYS = 3, 2, 4
TRANSIENT = Failure("Timeout", "later", "")
PERMANENT = Failure("Reject", "never", "", permanent=True)

numbers = st.integers(0, 50)
SECONDS = st.sampled_from([0.01, 0.3, 5.0, 20.0])
ENDS = st.sampled_from([None, None, None, TRANSIENT, PERMANENT])


class Runtime(RuleBasedStateMachine):
    """Two workers, three partitions, four keys in each; every version must be settled exactly once."""

    def __init__(self) -> None:
        super().__init__()
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
            document_id = f"{where.number}-{key % KEYS}"
            version = self.versions[document_id] = self.versions.get(document_id, 0) + 1
            self.group.append(where, DocumentSaved(document_id, "o", version, "", "", START), gap)
            if bad and key % 3 == 0:
                self.sink.refuses.add((document_id, version))

    @rule(partition=numbers, gap=st.integers(1, 3))
    def end_a_transaction(self, partition: int, gap: int) -> None:
        self.group.end[self.group.partitions[partition % PARTITIONS]] += gap

    @rule(worker=numbers, seconds=SECONDS, ends=st.lists(st.tuples(numbers, ENDS), max_size=12))
    def work(self, worker: int, seconds: float, ends: list[tuple[int, Failure | None]]) -> None:
        """A round of the loop, some handlers end, and a round that sees it."""
        one = self.workers[worker % WORKERS]
        one.step(seconds)
        for lane, failure in ends:
            one.executor.advance(lane, failure)
        one.step()

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
        self.replayed_after[where] = self.sink.passes
        old.assign(where)

    # ------------------------------------------------------------------------------------- what holds

    @invariant()
    def never_commits_past_an_unfinished_record(self) -> None:
        for where, committed in self.group.committed.items():
            for message in self.group.log[where]:
                if message.number < committed.position:
                    assert self._is_settled(where, message.number), f"{where} {message.number} was committed unfinished"

    @invariant()
    def effects_come_in_order_and_once(self) -> None:
        for document_id, count in self.sink.counters.items():
            versions = [version for one, version in self.sink.applied if one == document_id]
            assert versions == sorted(versions), f"{document_id} was applied as {versions}"
            assert count == len(set(versions)), f"{document_id} counted {count} of {versions}"

    @invariant()
    def a_key_runs_once_at_a_time(self) -> None:
        for worker in self.workers:
            running = [(id(lane.assignment), lane.key) for lane in worker.executor.lanes]
            assert len(running) == len(set(running))

    def teardown(self) -> None:
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
                row = self.sink.rows[message.document.document_id]
                assert row.pass_number > self.replayed_after.get(where, 0), f"{where} was not computed again"
            if self.group.end[where]:
                assert self.group.committed[where].position == self.group.end[where]
        self.never_commits_past_an_unfinished_record()
        self.effects_come_in_order_and_once()

    def _is_settled(self, where: Partition, number: int) -> bool:
        """Done, given up, or overtaken by a later version."""
        (message,) = [one for one in self.group.log[where] if one.number == number]
        row = self.sink.rows.get(message.document.document_id)
        if row is None:
            return False
        version = message.document.version
        return version in row.completed or (where, number) in self.sink.dead or version < row.applied


TestRuntime = Runtime.TestCase
TestRuntime.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)

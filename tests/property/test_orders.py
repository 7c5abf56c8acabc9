"""What runs in order and what does not wait: a key, a whole partition, nothing; over random failures and crashes."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from streams.contract import DocumentSaved
from streams.core.breaker import LANES_MIN
from streams.core.outcomes import Failure
from streams.runtime.ports import Partition
from streams.runtime.records import Record
from tests.property.world import START, FakeSink, Group, Worker

PARTITIONS, KEYS = 2, 3
LATER = Failure("Timeout", "later", "")
NEVER = Failure("Reject", "never", "", permanent=True)

SAVE = st.tuples(st.just("save"), st.integers(0, PARTITIONS - 1), st.integers(0, KEYS - 1))
END = st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from([None, LATER, LATER, NEVER]))
STEP = st.tuples(st.just("step"), st.sampled_from([0.01, 0.3, 5.0, 20.0]), st.none())
CRASHES = ("crash", None, None)
CRASH = st.just(CRASHES)
STORIES = st.lists(st.one_of(SAVE, SAVE, END, END, STEP, STEP, CRASH), min_size=10, max_size=50)


class Scene:
    """One worker of a reader with an order, which a story is told of; its successor after a crash."""

    def __init__(self, order: str) -> None:
        self.group, self.sink, self.order = Group(PARTITIONS), FakeSink(), order
        self.versions: dict[str, int] = {}
        self.crash()

    def crash(self) -> None:
        self.worker = Worker(self.group, self.sink, self.order)
        for partition in self.group.partitions:
            self.worker.log.assign(partition)

    def save(self, document_id: str, partition: int) -> None:
        version = self.versions[document_id] = self.versions.get(document_id, 0) + 1
        self.group.append(Partition("t", partition), DocumentSaved(document_id, "o", version, "", "", START), gap=0)

    def tell(self, story: list[tuple]) -> None:
        for what, one, other in [("step", 0.01, None), *story]:
            match what:
                case "save":
                    self.save(f"{one}-{other}", one)
                case "end":
                    self.worker.executor.advance(one, other)
                case "step":
                    self.worker.step(one)
                case "crash":
                    self.crash()
            self.check()

    def check(self) -> None:
        if self.order == "partition":
            at_work = [lane.assignment.partition for lane in self.worker.executor.lanes]
            assert len(at_work) == len(set(at_work)), "a partition runs two at once"

    def end_well(self) -> None:
        for _ in range(300):
            self.worker.step(1.0)
            while self.worker.executor.lanes:
                self.worker.executor.advance(0)
                self.check()

    def applied(self, document_id: str) -> int:
        row = self.sink.rows.get(document_id)
        return row.applied if row else 0

    def ended(self, partition: Partition) -> list[int]:
        """Offsets in the order in which their records first came to their end."""
        return list(dict.fromkeys(offset for *where, offset in self.sink.ended if tuple(where) == partition))


@settings(max_examples=100, deadline=None)
@given(story=STORIES)
def test_a_partition_in_order_as_a_whole(story: list[tuple]) -> None:
    scene = Scene("partition")
    scene.tell(story)
    scene.end_well()
    for partition, messages in scene.group.log.items():
        assert scene.ended(partition) == [message.number for message in messages]


# The third of three versions is given up, and the worker dies before it has run the others.
GIVEN_UP_FIRST = [("save", 0, 0)] * 3 + [("step", 0.01, None), ("end", 2, NEVER), ("step", 0.01, None), CRASHES]


@settings(max_examples=60, deadline=None)
@given(story=STORIES)
@example(story=GIVEN_UP_FIRST)
def test_without_an_order_every_record_comes_to_its_end_or_is_overtaken(story: list[tuple]) -> None:
    scene = Scene("none")
    scene.tell(story)
    scene.end_well()
    for partition, messages in scene.group.log.items():
        left = [one for one in messages if one.number not in scene.ended(partition)]
        assert all(one.document.version < scene.sink.rows[one.document.document_id].applied for one in left)
    assert not scene.sink.parked


@settings(max_examples=60, deadline=None)
@given(
    keys=st.lists(st.integers(0, 20), min_size=10, max_size=60),
    failing=st.sets(st.integers(0, 20), max_size=LANES_MIN - 1),
    seconds=st.sampled_from([0.01, 0.2]),
)
def test_no_key_waits_for_one_that_fails(keys: list[int], failing: set[int], seconds: float) -> None:
    """However often it is tried; too few to be taken for an outage."""
    scene = Scene("key")
    executor = scene.worker.executor

    def work() -> None:
        scene.worker.step(seconds)
        for number in reversed(range(len(executor.lanes))):
            lane = executor.lanes[number]
            name = lane.lane if isinstance(lane, Record) else lane.key
            executor.advance(number, LATER if int(name) in failing else None)

    scene.worker.step()
    for key in keys:
        scene.save(str(key), key % PARTITIONS)
        work()
    for _ in range(4):  # a lane's last record, the lane's end, what came meanwhile, and the round that hears of it
        work()
    waiting = {name for name, last in scene.versions.items() if scene.applied(name) < last}
    assert waiting <= {str(key) for key in failing}

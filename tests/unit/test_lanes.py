"""A lane is there while it is needed, and no longer: what came after a record that was given up still runs."""

from __future__ import annotations

from streams.contract import DocumentSaved
from streams.core.outcomes import Failure
from streams.runtime.ports import Partition
from streams.runtime.records import Lane, Record
from tests.property.world import START, FakeSink, Group, Worker

HERE = Partition("t", 0)
LATER = Failure("Timeout", "later", "")
KEYS = "abcde"  # enough that failures of all of them may be an outage's, too few to know it


class World:
    """A worker with one partition."""

    def __init__(self) -> None:
        self.group, self.sink = Group(1), FakeSink()
        self.worker = Worker(self.group, self.sink)
        self.worker.log.assign(HERE)

    @property
    def lanes(self) -> dict[str, Lane | Record]:
        return self.worker.loop._assignments[HERE].lanes

    def save(self, key: str, version: int) -> None:
        self.group.append(HERE, DocumentSaved(key, "o", version, "", "", START), gap=0)

    def work(self, failure: Failure | None) -> None:
        """Everything that is due runs, and ends so; then time goes on past every patience."""
        self.worker.step(60.0)
        for _ in range(2 * len(self.worker.executor.lanes)):
            self.worker.executor.advance(0, failure)
        self.worker.step()
        self.worker.step(10.0)

    def states(self) -> dict[str, str]:
        return {key: row.state for key, row in self.sink.rows.items()}


def test_a_record_that_is_given_up_while_an_outage_is_suspected_holds_up_nothing() -> None:
    world = World()
    for key in KEYS:
        world.save(key, 1)
    while set(world.states().values()) != {"dead"}:
        world.work(LATER)
    assert world.lanes == {}
    for key in KEYS:
        world.save(key, 2)
    world.work(None)
    assert world.states() == dict.fromkeys(KEYS, "done")


def test_one_record_of_a_key_has_no_lane_and_two_have_one() -> None:
    world = World()
    world.save("a", 1)
    world.save("b", 1)
    world.save("b", 2)
    world.worker.step()
    assert {name: type(lane) for name, lane in world.lanes.items()} == {"a": Record, "b": Lane}
    world.save("a", 2)
    world.worker.step()
    assert type(world.lanes["a"]) is Lane
    assert world.worker.executor.advance(0) is None  # what stood for the lane ends
    world.worker.step()
    assert [lane.key for lane in world.worker.executor.lanes if isinstance(lane, Lane)] == ["b", "a"]
    for _ in range(6):
        world.worker.executor.advance(0)
    world.worker.step()
    assert world.sink.applied == [("a", 1), ("b", 1), ("b", 2), ("a", 2)]
    assert world.lanes == {}

"""What a worker says of itself: what it has written, what is in flight, why it takes nothing in, what blocks."""

from __future__ import annotations

import pytest

from streams.contract import DocumentSaved
from streams.core.outcomes import Failure
from streams.runtime import loop as loop_module
from streams.runtime.dispatch import UNSUSPECTED_SECONDS
from streams.runtime.ports import Partition
from streams.runtime.status import Blocked, Pause, Status, ended
from tests.property.world import START, FakeSink, Group, Worker

HERE, THERE = Partition("t", 0), Partition("t", 1)
LATER = Failure("Timeout", "later", "")
NEVER = Failure("Reject", "never", "", permanent=True)


class World:
    """One worker of a group, at the time 0."""

    def __init__(self, partitions: int = 1) -> None:
        self.group, self.sink = Group(partitions), FakeSink()
        self.worker = Worker(self.group, self.sink)
        self.worker.loop._dispatch.start()

    def own(self, *partitions: Partition) -> World:
        for partition in partitions or (HERE,):
            self.worker.log.assign(partition)
        self.worker.step()
        return self

    def save(self, key: str, version: int = 1, where: Partition = HERE) -> None:
        self.group.append(where, DocumentSaved(key, "o", version, "", "", START), gap=0)

    def begin(self, seconds: float = 0.0) -> None:
        """The first submitted lane's handler begins, and runs for a while."""
        self.worker.executor.lanes[0].take(self.worker.clock.monotonic())
        self.worker.clock.seconds += seconds

    def end(self, failure: Failure | None = None) -> None:
        """The first submitted lane's next record and the lane itself come to an end, and the loop hears of it."""
        lane = self.worker.executor.lanes[0]
        self.worker.executor.advance(0, failure)
        if lane in self.worker.executor.lanes:
            self.worker.executor.advance(0)
        self.worker.step()

    def fail(self, failure: Failure = LATER) -> None:
        """The same, for now; then time goes on until that is taken for no outage, and written."""
        self.end(failure)
        self.worker.step(UNSUSPECTED_SECONDS)
        self.worker.step()

    def retry(self) -> None:
        """The time of the next attempt comes."""
        self.worker.step()
        self.worker.step(60.0)

    def status(self) -> Status:
        return self.worker.loop.status()


def counted(status: Status) -> dict[str, int]:
    return {outcome: count for outcome, count in status.records.items() if count}


def says(pause: Pause | None) -> tuple[str, str]:
    assert pause is not None
    return pause.reason, pause.says


def why(blocked: Blocked | None) -> str:
    assert blocked is not None
    return blocked.why


# ------------------------------------------------------------------------------------------------- counters


def test_records_are_counted_by_what_became_of_them() -> None:
    world = World().own()
    for key in ("done", "dead", "failing"):
        world.save(key)
    world.worker.step()
    world.end()
    world.end(NEVER)
    world.fail()
    assert counted(world.status()) == {"done": 1, "dead": 1, "failed": 1, "parked": 1}
    assert ended(world.status().records) == 2


def test_a_parked_record_is_parked_once_however_often_it_fails() -> None:
    world = World().own()
    world.save("failing")
    world.worker.step()
    world.fail()
    world.save("failing", 2)  # goes behind it
    for _ in range(2):
        world.retry()
        world.fail()
    world.worker.step(5.0)  # patience ends
    world.worker.step()
    assert counted(world.status()) == {"failed": 2, "dead": 1, "parked": 2}


def test_a_last_attempt_counts_when_another_record_shows_that_the_world_answers() -> None:
    world = World().own()
    world.save("failing")
    world.worker.step()
    world.fail()
    for _ in range(2):
        world.retry()
        world.fail()
    assert counted(world.status()) == {"failed": 2, "parked": 1}
    world.save("well")
    world.worker.step()
    world.end()
    world.worker.step()
    assert counted(world.status()) == {"done": 1, "failed": 2, "dead": 1, "parked": 1}


def test_what_is_parked_behind_a_last_attempt_goes_on_after_it() -> None:
    world = World().own()
    for version in (1, 2):
        world.save("failing", version)
    world.worker.step()
    world.fail()
    for _ in range(2):
        world.retry()
        world.fail()
    world.worker.step(5.0)  # patience ends
    world.worker.step()  # the dead letter is written
    world.worker.step()  # and the next one is brought back
    world.end()
    world.worker.step()
    assert counted(world.status()) == {"done": 1, "failed": 2, "dead": 1, "parked": 2}


def test_what_the_sink_does_not_take_is_not_counted_and_what_is_lost_never_is() -> None:
    world = World().own()
    world.save("a")
    world.worker.step()
    world.sink.busy = True
    world.end()
    assert counted(world.status()) == {}
    world.sink.busy = False
    world.sink.epochs[HERE] += 1  # another worker owns it now
    world.worker.step(10.0)
    assert counted(world.status()) == {}


def test_what_needs_no_handler_is_counted_when_it_is_looked_up() -> None:
    world = World().own()
    world.save("a", 1)
    world.save("a", 2)
    world.worker.step()
    world.worker.executor.advance(0)
    world.end()
    world.worker.log.seek(HERE, None)
    world.worker.step()
    assert counted(world.status()) == {"done": 2, "superseded": 1, "skipped": 1}
    assert world.status().in_flight_records == 0


# ------------------------------------------------------------------------------------------------ in flight


def test_what_is_in_flight_is_told_with_its_bytes_and_the_handlers_at_work() -> None:
    world = World(partitions=2).own(HERE, THERE)
    world.save("a")
    world.save("b", where=THERE)
    world.worker.step()
    assert (world.status().in_flight_records, world.status().running_handlers) == (2, 0)
    assert world.status().in_flight_bytes == 2 * len(b"0:0")
    assert world.status().partitions == (0, 1)
    world.begin()
    assert world.status().running_handlers == 1


def test_heads_of_parked_lanes_in_memory_are_told() -> None:
    world = World().own()
    world.save("failing")
    world.worker.step()
    world.fail(Failure("Timeout", "later", "", after_seconds=5.0))
    assert world.status().waiting_lanes == 0  # they are loaded when their time is near
    world.worker.step(3.0)
    assert world.status().waiting_lanes == 1
    assert world.status().in_flight_records == 0


# --------------------------------------------------------------------------------------------------- pauses


def test_a_worker_that_reads_is_not_paused() -> None:
    assert World().own().status().paused is None


def test_before_setup_is_through_and_before_a_partition_is_assigned() -> None:
    world = World()
    assert says(world.status().paused) == ("unassigned", "not yet assigned")
    world.worker.loop._dispatch.started = False
    assert says(world.status().paused) == ("setup", "its setup runs")


def test_full_is_told_with_how_much_until_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "RECORDS_IN_FLIGHT_MAX", 2)
    world = World().own()
    world.save("a")
    world.save("b")
    world.worker.step()
    world.worker.step(1.0)
    assert says(world.status().paused) == ("full", "full: 2 records, 0.0 MB in flight")
    world.end()
    world.worker.step()
    assert world.status().paused is None


def test_an_outage_is_told_with_its_beginning() -> None:
    world = World().own()
    for number in range(25):
        world.save(f"key {number}")
    world.worker.step()
    for _ in range(10):
        world.worker.executor.advance(0, LATER)
    world.worker.step()
    assert world.status().paused is None
    assert why(world.status().blocked) == "it failed; that it is no outage is not decided yet"
    for _ in range(10):
        world.worker.executor.advance(0, LATER)
    world.worker.step()
    assert says(world.status().paused) == ("outage", "outage: the breaker is open since 00:00:00 UTC, probes go on")
    assert why(world.status().blocked) == "waits for the end of an outage"


@pytest.mark.parametrize("when", ["claiming", "looking up", "writing"])
def test_a_sink_that_does_not_answer_is_told_until_it_does(when: str) -> None:
    world = World()
    if when != "claiming":
        world.own()
    if when == "writing":
        world.save("a")
        world.worker.step()
    world.sink.busy = True
    if when == "claiming":
        world.own()
    if when == "looking up":
        world.save("a")
        world.worker.step()
    if when == "writing":
        world.end()
        assert why(world.status().blocked) == "the sink does not answer: down"
    assert says(world.status().paused) == ("sink", "the sink does not answer: down")
    world.sink.busy = False
    world.worker.step(10.0)
    assert world.status().paused is None


def test_a_sink_that_is_silent_is_told_while_the_loop_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World().own()
    world.save("a")
    world.worker.step()
    seen: list[Status] = []

    def frozen(*_: object) -> None:
        for seconds in (1.0, 8.5):
            world.worker.clock.seconds += seconds
            seen.append(world.status())

    monkeypatch.setattr(world.sink, "write", frozen)
    world.end()
    soon, later = seen
    assert (soon.paused, why(soon.blocked)) == (None, "waits to be written")
    assert says(later.paused) == ("sink", "the sink has not answered for 9 s")
    assert why(later.blocked) == "the sink has not answered for 9 s"
    assert world.status().paused is None


# -------------------------------------------------------------------------------------------------- blocked


def test_nothing_in_flight_blocks_nothing() -> None:
    assert World().own().status().blocked is None


def test_the_oldest_record_is_told_with_the_time_of_its_handler() -> None:
    world = World().own()
    world.save("a", 3)
    world.save("b")
    world.worker.step()
    world.begin(seconds=42.0)
    assert world.status().blocked == Blocked(0, 0, "a", 3, 42.0, "its handler runs for 42 s")


def test_a_record_behind_another_says_whose_handler_it_waits_for() -> None:
    world = World().own()
    world.save("failing", 1)
    world.worker.step()
    world.fail()  # the record itself is parked: its offset is finished
    world.worker.step()  # and is at work again
    assert world.status().running_handlers == 0
    world.begin(seconds=7.0)
    lane = world.worker.executor.lanes[0]
    assert world.status().running_handlers == 1
    lane.parking = False
    world.sink.parked.clear()  # as if a redrive had brought it: a newer record joins the lane
    world.save("failing", 2)
    world.worker.step(1.5)
    assert why(world.status().blocked) == "waits behind version 1 of its lane, whose handler runs for 8 s"


def test_the_partition_that_waits_for_longest_is_named() -> None:
    world = World(partitions=2).own(HERE, THERE)
    world.save("b", where=THERE)
    world.worker.step()
    world.worker.step(5.0)
    world.save("a")
    world.worker.step()
    blocked = world.status().blocked
    assert blocked is not None
    assert (blocked.partition, blocked.key, blocked.seconds) == (1, "b", 5.0)


def test_the_age_is_that_of_the_oldest_and_not_of_those_that_ended_before_it() -> None:
    world = World().own()
    for version in (1, 2, 3):
        world.save("a", version)
        world.worker.step(10.0)
        blocked = world.status().blocked
        assert blocked is not None
        assert blocked.seconds == 0.0
        world.end()
    assert len(world.worker.loop._assignments[HERE].marks) == 1


def test_a_long_key_is_cut_and_bytes_that_are_no_text_are_shown() -> None:
    world = World().own()
    world.save("k" * 500)
    world.worker.step()
    blocked = world.status().blocked
    assert blocked is not None
    assert blocked.key == "k" * 199 + "…"

"""What is in flight is bounded: reading stops at the bound, partitions are paused only later, and resumed at half."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streams.contract import DocumentSaved
from streams.runtime import loop
from streams.runtime.loop import PAUSE_AFTER_SECONDS, THROTTLED_SECONDS
from streams.runtime.ports import Partition
from tests.property.world import START, FakeLog, FakeMessage, FakeSink, Group, Worker

HERE = Partition("t", 0)


class Watched(FakeLog):
    """Notes how many records each poll asked for."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.asked: list[int] = []

    def poll(self, records_max: int, seconds: float) -> Sequence[FakeMessage]:
        self.asked.append(records_max)
        return super().poll(records_max, seconds)


class World:
    """A worker of one partition with forty records, each of a document of its own."""

    def __init__(self) -> None:
        self.group, self.sink = Group(1), FakeSink()
        self.worker = Worker(self.group, self.sink)
        self.worker.clock._work = lambda: None  # handlers end only when a test says so
        self.log = self.worker.loop._log = self.worker.loop._checkpoints._log = Watched(self.group)
        self.log.subscribe(self.worker.loop)
        self.log.assign(HERE)
        for number in range(40):
            self.group.append(HERE, DocumentSaved(f"doc {number}", "o", 1, "", "", START), gap=0)

    @property
    def in_flight(self) -> int:
        return len(self.worker.loop._assignments[HERE].tracker)

    @property
    def is_paused(self) -> bool:
        return HERE in self.log.paused

    def finish(self, records: int) -> None:
        for _ in range(records):
            self.worker.executor.advance(0)
        self.worker.step()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Full: ten in flight, of ten; each poll takes five."""
    monkeypatch.setattr(loop, "RECORDS_IN_FLIGHT_MAX", 10)
    monkeypatch.setattr(loop, "POLL_RECORDS_MAX", 5)
    made = World()
    for _ in range(3):
        made.worker.step()
    assert made.in_flight == 10
    return made


def test_a_full_loop_polls_on_and_takes_no_more_than_a_poll_gives(world: World) -> None:
    world.log.asked.clear()
    for _ in range(15):
        world.worker.step(THROTTLED_SECONDS / 10)
    assert world.log.asked == [1] * len(world.log.asked)
    assert 1 <= len(world.log.asked) <= 3
    assert world.in_flight == 10 + len(world.log.asked)
    assert not world.is_paused


def test_it_pauses_after_two_seconds_and_resumes_at_half(world: World) -> None:
    world.worker.step(PAUSE_AFTER_SECONDS - 0.5)
    assert not world.is_paused
    world.worker.step(0.6)
    assert world.is_paused
    stopped_at = world.in_flight
    world.worker.step(1.0)
    assert world.in_flight == stopped_at  # the group is served, and gives nothing
    world.finish(stopped_at - 5)
    world.worker.step()
    assert (world.in_flight, world.is_paused) == (5, True)
    world.finish(1)
    world.worker.step()
    assert (world.in_flight, world.is_paused) == (4 + 5, False)


def test_bytes_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "BYTES_IN_FLIGHT_MAX", 12)
    monkeypatch.setattr(loop, "POLL_RECORDS_MAX", 2)
    world = World()
    for _ in range(6):
        world.worker.step()
    assert world.in_flight == 4  # of three bytes each


def test_reading_goes_on_to_the_end_once_handlers_do(world: World) -> None:
    for _ in range(200):
        world.worker.step(0.5)
        world.worker.executor.advance(0)
    assert len(world.sink.rows) == 40
    assert world.group.committed[HERE].position == 40

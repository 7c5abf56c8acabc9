"""What is revoked is let go, whatever goes wrong with it: an exception in the group's callback would lose records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streams.contract import DocumentSaved
from streams.core.outcomes import Done, Failure
from streams.runtime.loop import DRAIN_SECONDS
from streams.runtime.ports import Partition, SinkBroken
from tests.property.world import START, FakeSink, Group, Worker

HERE = Partition("t", 0)
LATER = Failure("Timeout", "later", "")


class World:
    """A worker with three records at work."""

    def __init__(self) -> None:
        self.group, self.sink = Group(1), FakeSink()
        self.worker = Worker(self.group, self.sink)
        self.worker.log.assign(HERE)
        for number in range(3):
            self.group.append(HERE, DocumentSaved(f"doc {number}", "o", 1, "", "", START), gap=0)
        self.worker.step()
        self.worker.step()
        assert len(self.worker.executor.lanes) == 3

    def revoke(self) -> None:
        self.worker.loop.revoked([HERE])
        self.worker.log.unassign(HERE)

    @property
    def committed(self) -> int:
        return self.group.committed[HERE].position


def broken(*_: object) -> None:
    raise SinkBroken("the reader's table is gone")


def a_bug(*_: object) -> None:
    raise ZeroDivisionError


def test_what_handlers_did_is_written_and_committed_before_it_returns_and_the_rest_left() -> None:
    world = World()
    world.worker.executor.advance(0)
    world.worker.executor.advance(0)
    world.revoke()
    assert world.sink.applied == [("doc 0", 1), ("doc 1", 1)]
    assert world.committed == 2


@pytest.mark.parametrize("fail", [broken, a_bug])
def test_what_goes_wrong_inside_does_not_come_out_and_nothing_is_passed_over(fail: Callable[..., None]) -> None:
    world = World()
    world.worker.executor.advance(0)
    world.sink.write = fail  # type: ignore[method-assign]
    world.revoke()
    assert world.committed == 0
    assert HERE not in world.worker.loop._assignments
    del world.sink.write  # type: ignore[method-assign]
    successor = Worker(world.group, world.sink)
    successor.log.assign(HERE)
    for _ in range(5):
        successor.step(1.0)
        while successor.executor.lanes:
            successor.executor.advance(0)
    assert world.committed == 3


def test_a_handler_that_does_not_end_is_left_behind_at_the_deadline() -> None:
    world = World()
    world.worker.clock._work = lambda: None
    record = world.worker.executor.lanes[0].take(0.0)
    began = world.worker.clock.seconds
    world.revoke()
    assert DRAIN_SECONDS <= world.worker.clock.seconds - began < DRAIN_SECONDS + 1
    assert world.committed == 0
    world.worker.executor.results.append((record, Done(())))  # it ends in the end, and nobody wants to know
    world.worker.step()
    assert world.sink.applied == []


def test_a_failure_of_a_moment_ago_is_counted_unless_it_may_be_an_outages() -> None:
    world = World()
    world.worker.executor.advance(0, LATER)
    world.worker.step()
    world.revoke()
    assert [(one.row.lane, one.attempts) for one in world.sink.parked.values()] == [("doc 0", 1)]
    assert world.committed == 1
    suspected = World()
    for number in range(3, 6):
        suspected.group.append(HERE, DocumentSaved(f"doc {number}", "o", 1, "", "", START), gap=0)
    suspected.worker.step()
    for _ in range(5):
        suspected.worker.executor.advance(0, LATER)
    suspected.worker.step()
    suspected.revoke()
    assert (suspected.sink.parked, suspected.committed) == ({}, 0)


def test_what_is_lost_is_dropped_without_a_commit() -> None:
    world = World()
    world.worker.executor.advance(0)
    world.worker.loop.lost([HERE])
    world.worker.log.unassign(HERE)
    world.worker.step(1.0)
    assert (world.sink.applied, world.committed) == ([], 0)

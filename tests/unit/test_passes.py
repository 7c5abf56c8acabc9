"""A pass, one reading of the log, is on record before anything of it is done."""

from __future__ import annotations

from streams.contract import DocumentSaved
from streams.core.offsets import Position
from streams.runtime.ports import Committed, Partition
from tests.property.world import START, FakeSink, Group, Worker

HERE = Partition("t", 0)


def begun(metadata: str) -> tuple[Group, Worker]:
    """A worker that got a partition with one document, of which this is committed, while commits are refused."""
    group = Group(1)
    group.append(HERE, DocumentSaved("a", "o", 1, "", "", START), gap=0)
    group.committed[HERE] = Committed(Position(0), metadata)
    group.refuse_commits = True
    worker = Worker(group, FakeSink())
    worker.log.assign(HERE)
    for _ in range(3):
        worker.step(1.0)
    return group, worker


def test_nothing_of_a_new_pass_runs_before_a_commit_names_it() -> None:
    group, worker = begun("rpk")
    assert not worker.executor.lanes
    group.refuse_commits = False
    worker.step(1.0)
    assert len(worker.executor.lanes) == 1
    assert group.committed[HERE] == Committed(Position(0), "pass:1")


def test_a_pass_that_is_on_record_goes_on_at_once() -> None:
    _, worker = begun("pass:7")
    assert len(worker.executor.lanes) == 1

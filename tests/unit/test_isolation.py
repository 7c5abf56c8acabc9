"""Records that may have killed a worker: which they are, and that they run in a process of their own or not at all."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection
from typing import Any

import pytest

from streams.contract import DocumentSaved, Upsert, reader
from streams.core.outcomes import Failure
from streams.errors import ReaderError
from streams.runtime.admission import RETRY_SECONDS
from streams.runtime.isolation import Isolating, isolating
from streams.runtime.parking import RUNS_SUSPECT
from streams.runtime.ports import Partition
from streams.runtime.records import Lane, Run
from tests.executing import children, document, lane, row, run
from tests.property.world import START, FakeSink, Group, Worker
from tests.readers_for_tests import kinds

HERE = Partition("t", 0)


def suspect(name: str) -> Lane:
    made = lane(document(name))
    made.records[0].suspect = True
    return made


class Refusing:
    """An executor whose start fails; notes how often it was asked."""

    def __init__(self, error: Exception) -> None:
        self.results: deque[Any] = deque()
        self.starts = 0
        self.submitted: list[Run] = []
        self._error = error

    def start(self) -> None:
        self.starts += 1
        raise self._error

    def submit(self, lanes: Collection[Run]) -> None:
        self.submitted += lanes

    def stop(self) -> None: ...


# ------------------------------------------------------------------------------------------------ where they run


def test_what_is_suspect_runs_in_a_process_and_the_rest_in_the_worker() -> None:
    executor = isolating(kinds.in_thread)
    executor.start()
    try:
        assert not children()  # they are started when they are needed
        found = {name: row(attempt)["pid"] for name, _, attempt in run(executor, suspect("a"), lane(document("b")))}
        again = {name: row(attempt)["pid"] for name, _, attempt in run(executor, suspect("c"))}
    finally:
        executor.stop()
    assert found["b"] == os.getpid()
    assert os.getpid() not in (found["a"], again["c"])
    assert not children()


@pytest.mark.parametrize("error", [ReaderError("it has no name"), ConnectionRefusedError("the model's host is down")])
def test_what_keeps_the_processes_from_starting_ends_the_worker(
    error: Exception,
) -> None:
    handlers, suspects = Refusing(error), Refusing(error)
    executor = Isolating(handlers, suspects)
    innocent = lane(document("b"))
    with pytest.raises(type(error), match=str(error)):
        executor.submit([suspect("a"), innocent])
    assert (suspects.starts, suspects.submitted, handlers.submitted) == (1, [], [])


def test_a_reader_that_a_process_cannot_import_says_so() -> None:
    @reader(group="local")
    def local(doc: DocumentSaved) -> Upsert:
        return Upsert("k", {})

    executor = isolating(local)
    executor.start()
    try:
        said = "records that may have killed a worker .* reader 'local': a process cannot import it as .*local"
        with pytest.raises(ReaderError, match=said):
            executor.submit([suspect("a")])
    finally:
        executor.stop()


# ----------------------------------------------------------------------------------- which parked records they are


class Parked:
    """A partition with one parked record, and workers that own it one after the other, each killed by the next."""

    def __init__(self, after_seconds: float = 0.0) -> None:
        self.group, self.sink = Group(1), FakeSink()
        self.group.append(HERE, DocumentSaved("doc", "o", 1, "", "", START), gap=0)
        self.worker = self.successor()
        self.worker.step()
        self.worker.executor.advance(0, Failure("Timeout", "later", "", after_seconds=after_seconds))
        for seconds in (0.0, 1.0, 1.0):
            self.worker.step(seconds)
        self.after_seconds = after_seconds

    def successor(self) -> Worker:
        worker = Worker(self.group, self.sink)
        worker.log.assign(HERE)
        return worker

    def next_worker(self, seconds: float) -> None:
        """kill -9 of the present one; the next has loaded the record, and gone on for a while."""
        seconds_before = self.worker.clock.seconds
        self.worker = self.successor()
        self.worker.clock.seconds = seconds_before
        for each in (0.0, seconds, 0.0):
            self.worker.step(each)

    @property
    def runs(self) -> int:
        (found,) = self.sink.parked.values()
        return found.row.runs

    @property
    def at_work(self) -> list[bool]:
        """Of what the executor has: whether it is suspect."""
        return [lane.suspect for lane in self.worker.executor.lanes]


def test_a_parked_record_whose_time_has_not_come_counts_no_run() -> None:
    world = Parked(after_seconds=3.8)
    for _ in range(RUNS_SUSPECT + 1):
        world.next_worker(seconds=0.0)
        assert world.worker.loop.status().waiting_lanes == 1  # it is loaded, and waits
    assert world.runs == 0
    world.next_worker(seconds=5.0)
    assert (world.runs, world.at_work) == (1, [False])


def test_a_parked_record_that_was_at_work_at_two_deaths_is_suspect() -> None:
    world = Parked()
    for death in range(RUNS_SUSPECT):
        world.next_worker(seconds=5.0)
        assert (world.runs, world.at_work) == (death + 1, [False])
    world.next_worker(seconds=5.0)
    assert world.at_work == [True]
    world.worker.executor.advance(0)
    world.worker.executor.advance(0)
    world.worker.step()
    assert not world.sink.parked


def test_a_parked_record_does_not_begin_while_that_cannot_be_noted() -> None:
    world = Parked(after_seconds=3.8)
    world.next_worker(seconds=0.0)
    world.sink.busy = True
    world.worker.step(5.0)
    assert (world.runs, world.at_work) == (0, [])
    world.sink.busy = False
    world.worker.step(RETRY_SECONDS)
    assert (world.runs, world.at_work) == (1, [False])

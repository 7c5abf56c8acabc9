"""The writer takes less at a time from a sink that is overwhelmed, and more again once it is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from streams.core.offsets import Offset
from streams.core.outcomes import Done
from streams.runtime.clock import Clock
from streams.runtime.delivery import BATCH_RECORDS_MAX, Delivery
from streams.runtime.ports import Partition, Result, SinkBusy
from streams.runtime.records import Assignment, Record

PARTITION = Partition("topic", 0)


@dataclass(frozen=True)
class FakeMessage:
    number: int

    def topic(self) -> str:
        return PARTITION.topic

    def partition(self) -> int:
        return PARTITION.number

    def offset(self) -> int:
        return self.number

    def __len__(self) -> int:
        return 0


class SlowSink:
    """Takes no more than so many results at a time, as a transaction with a time limit does."""

    def __init__(self, results_max: int) -> None:
        self.results_max = results_max
        self.taken: list[int] = []
        self.refused: list[int] = []

    def write(self, _epochs: Mapping[Partition, int], results: Sequence[Result]) -> None:
        if len(results) > self.results_max:
            self.refused.append(len(results))
            raise SinkBusy("terminating connection due to transaction timeout")
        self.taken += [result.at[2] for result in results]


class Fast(Clock):
    """A clock that is always late enough for the next attempt."""

    def __init__(self) -> None:
        self._ticks: Iterator[int] = iter(range(1_000_000))

    def monotonic(self) -> float:
        return 100.0 * next(self._ticks)


def deliver(sink: SlowSink, count: int) -> Assignment:
    assignment = Assignment(PARTITION)
    assignment.epoch = 1
    offsets = [Offset(number) for number in range(count)]
    assignment.tracker.receive(offsets)
    delivery = Delivery(cast(Any, sink), Fast())
    for offset in offsets:
        record = Record(assignment, cast(Any, FakeMessage(offset)), None, "a lane", 0)
        record.outcome = Done(())
        delivery.add([record])
    delivery.deliver({PARTITION: assignment})
    assert not delivery.pending
    return assignment


def test_a_batch_that_takes_too_long_is_written_in_parts_and_in_order() -> None:
    sink = SlowSink(results_max=100)
    assignment = deliver(sink, 5_000)
    assert sink.taken == list(range(5_000))
    assert assignment.tracker.oldest() is None
    # Down in four halvings; after that only now and then one step too far.
    assert sink.refused[:4] == [1000, 500, 250, 125]
    assert len(sink.refused) < 25


def test_a_sink_that_takes_one_record_at_a_time_gets_one_at_a_time() -> None:
    sink = SlowSink(results_max=1)
    deliver(sink, 20)
    assert sink.taken == list(range(20))


def test_a_willing_sink_gets_whole_batches() -> None:
    sink = SlowSink(results_max=BATCH_RECORDS_MAX)
    deliver(sink, 2_500)
    assert sink.refused == []
    assert len(sink.taken) == 2_500

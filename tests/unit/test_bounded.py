"""What a bounded replay reads: its window, its pace, and where it stops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from streams.core.bounded import Bound, Pace, Window, eta_seconds, is_whole, window
from streams.core.groups import Log, Partition
from streams.core.offsets import Position
from streams.core.replay import Target
from streams.errors import ConfigError, ReplayRefused
from streams.runtime import ports
from streams.runtime.bounded import Bounded
from streams.runtime.clock import Clock

ZERO, ONE = Partition("t", 0), Partition("t", 1)
LOGS = {ZERO: Log(Position(0), Position(100), Position(100)), ONE: Log(Position(20), Position(30), Position(35))}
EARLIEST, LATEST = Target("earliest"), Target("latest")


def bounds(since: Target, until: Target, first: dict[Partition, Position | None] | None = None) -> dict[int, tuple]:
    made = window(since, until, LOGS, first or {})
    return {one.number: (bound.start, bound.end) for one, bound in made.bounds.items()}


@pytest.mark.parametrize(
    ("since", "until", "first", "expected"),
    [
        (EARLIEST, LATEST, {}, {0: (0, 100), 1: (20, 30)}),
        (Target("offset", 25), LATEST, {}, {0: (25, 100), 1: (25, 30)}),
        (Target("offset", 5), Target("offset", 10), {}, {0: (5, 10), 1: (20, 20)}),
        (Target("time", 7), LATEST, {ZERO: Position(40), ONE: None}, {0: (40, 100), 1: (30, 30)}),
        (EARLIEST, Target("time", 7), {}, {0: (0, 100), 1: (20, 30)}),
        (Target("offset", 50), Target("offset", 10), {}, None),
        (LATEST, LATEST, {}, None),
        (LATEST, EARLIEST, {}, None),
    ],
    ids=["all", "from", "some", "since", "until-a-time-is-the-end", "backwards", "none", "inside-out"],
)
def test_a_window_is_fixed_by_offsets(since: Target, until: Target, first: Any, expected: Any) -> None:
    if expected is None:
        with pytest.raises(ReplayRefused, match="no record between"):
            bounds(since, until, first)
    else:
        assert bounds(since, until, first) == expected


def test_a_window_is_not_the_wrong_way_round_and_shifts_nothing() -> None:
    with pytest.raises(ConfigError, match="not before"):
        window(Target("time", 8), Target("time", 8), LOGS, {})
    with pytest.raises(ConfigError, match="no commit to shift"):
        window(Target("shift", -8), LATEST, LOGS, {})


def test_whole_means_that_retention_took_nothing() -> None:
    assert is_whole(EARLIEST, LATEST, {ZERO: LOGS[ZERO]})
    assert not is_whole(EARLIEST, LATEST, LOGS)
    assert not is_whole(Target("offset", 0), LATEST, {ZERO: LOGS[ZERO]})
    assert not is_whole(EARLIEST, Target("time", 1), {ZERO: LOGS[ZERO]})


def test_times_filter_whatever_their_order() -> None:
    made = Window({ZERO: Bound(Position(0), Position(10))}, since_ms=100, until_ms=200)
    times = {0: 150, 1: 99, 2: 100, 3: 200, 4: 199, 10: 150}
    assert [offset for offset, time in times.items() if made.holds(ZERO, offset, time)] == [0, 2, 4]
    assert not made.holds(ONE, 0, 150)


@pytest.mark.parametrize("rate", [1, 7, 500])
def test_a_pace_is_kept_however_often_it_is_asked(rate: int) -> None:
    for step_seconds in (0.001, 0.013, 0.05):
        pace, now, taken = Pace(rate, 0.0), 0.0, 0
        for _ in range(round(20 / step_seconds)):
            now += step_seconds
            allowed = pace.allowed(1_000, now)
            taken += allowed
            pace.took(allowed)
        assert 20 * rate * 0.97 - 1 <= taken <= 20 * rate + 1


def test_a_pace_saves_nothing_up_and_none_is_no_limit() -> None:
    pace = Pace(100, 0.0)
    assert pace.allowed(1_000, 60.0) == 11
    assert Pace(None, 0.0).allowed(1_000, 0.0) == 1_000


def test_the_rest_takes_what_the_slower_of_pace_and_rate_makes_it() -> None:
    assert eta_seconds(100, 50, 5.0, None) == 5.0
    assert eta_seconds(100, 50, 5.0, 1) == 50.0
    assert eta_seconds(100, 0, 5.0, None) is None


class Message:
    def __init__(self, number: int, offset: int) -> None:
        self._number, self._offset = number, offset

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._number

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


class Given:
    """A log that gives what it is told to, and notes what is asked of it."""

    def __init__(self, *polls: Sequence[Message]) -> None:
        self.polls = list(polls)
        self.paused: set[ports.Partition] = set()
        self.at = Position(7)

    def poll(self, records_max: int, seconds: float) -> Sequence[Message]:
        return self.polls.pop(0)[:records_max]

    def pause(self, partitions: Any) -> None:
        self.paused |= set(partitions)

    def resume(self, partitions: Any) -> None:
        self.paused -= set(partitions)

    def position(self, partition: ports.Partition) -> Position:
        return self.at

    def commit(self, checkpoints: Any, *, wait: bool) -> None:
        pass


def test_what_lies_behind_a_bound_is_neither_read_nor_fetched_nor_committed() -> None:
    zero = ports.Partition("t", 0)
    log = Given([Message(0, 4), Message(0, 5), Message(1, 0)])
    bounded = Bounded(log, Window({ZERO: Bound(Position(0), Position(5))}), None, Clock())  # type: ignore[arg-type]
    assert [(one.partition(), one.offset()) for one in bounded.poll(10, 0)] == [(0, 4)]
    assert bounded.read == 1
    assert log.paused == {zero, ports.Partition("t", 1)}, "1 was added to the topic later"
    bounded.resume([zero])
    assert zero in log.paused
    assert bounded.position(zero) == 5
    assert not bounded.is_through
    bounded.commit({zero: ports.Checkpoint(Position(5), None, "pass:1")}, wait=False)
    assert bounded.is_through

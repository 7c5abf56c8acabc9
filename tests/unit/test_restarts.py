"""When what has failed is started again: by a clock of the test's own."""

from __future__ import annotations

from itertools import pairwise

import pytest

from streams.core.restarts import FIRST_SECONDS, LAST_SECONDS, RAN_SECONDS, Restarts


def restart_times(restarts: Restarts, seconds: int) -> list[int]:
    """When it is restarted, if it is looked at each second and fails at once each time."""
    times = []
    for now in range(seconds):
        if restarts.is_due(now):
            restarts.restarted()
            times.append(now)
    return times


def test_each_wait_is_twice_the_one_before_up_to_the_last() -> None:
    times = restart_times(Restarts(), 3_000)
    waits = [after - before - 1 for before, after in pairwise(times)]  # seen failed a second later
    assert times[0] == FIRST_SECONDS
    assert waits[:6] == [10, 20, 40, 80, 160, 300]
    assert set(waits[6:]) == {LAST_SECONDS}


def test_a_failure_that_passes_by_itself_is_no_reason_to_restart() -> None:
    restarts = Restarts()
    for now in range(100):
        if now % 5 == 4:
            restarts.runs(now)
        else:
            assert not restarts.is_due(now)


@pytest.mark.parametrize(("ran_seconds", "wait_seconds"), [(RAN_SECONDS, 5), (RAN_SECONDS - 1, 40)])
def test_what_ran_for_long_is_restarted_soon_again(ran_seconds: float, wait_seconds: float) -> None:
    restarts = Restarts()
    restart_times(restarts, 50)
    assert restarts.count == 3
    restarts.runs(100)
    restarts.runs(100 + ran_seconds)
    assert not restarts.is_due(1_000)
    assert restarts.wait_seconds == wait_seconds
    assert not restarts.is_due(1_000 + wait_seconds - 1)
    assert restarts.is_due(1_000 + wait_seconds)


def test_a_failure_in_between_ends_the_run() -> None:
    restarts = Restarts(count=3)
    restarts.runs(0)
    restarts.is_due(RAN_SECONDS / 2)
    restarts.runs(RAN_SECONDS)
    assert restarts.count == 3


def test_ever_so_many_restarts_do_not_overflow() -> None:
    assert Restarts(count=10_000).wait_seconds == LAST_SECONDS

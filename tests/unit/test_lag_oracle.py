"""Rates, drain, shape and advice against a simulation whose true figures are known.

"Two windows in" is what a group may take to be judged after something changed: a window is a minute of samples.
"""

from __future__ import annotations

import pytest

from streams.core.flow import Shape
from streams.core.groups import Partition
from streams.core.health import Health
from streams.core.outlook import Outlook
from streams.core.sentences import rate, sentence
from streams.core.series import SECONDS
from tests.unit.lag_simulation import World, hottest

TWO_WINDOWS = 2 * SECONDS


def evenly(per_second: float, partitions: int = 12):
    return lambda _t, _partition: per_second / partitions


def near(value: float | None, share: float):
    return pytest.approx(value, rel=share)


# How many offsets a record takes, from one a transaction to hundreds: the rates must be the same.
@pytest.mark.parametrize("transaction_seconds", [0.2, 1.0, 10.0])
@pytest.mark.parametrize("per_second", [2.0, 20.0, 200.0])
def test_rates_are_of_records_however_many_markers_there_are(per_second: float, transaction_seconds: float):
    world = World(evenly(per_second), lambda _: per_second, transaction_seconds=transaction_seconds)
    seen = world.run(TWO_WINDOWS)
    assert seen.flow.rate_in_per_second == near(per_second, 0.05)
    assert seen.flow.rate_out_per_second == near(per_second, 0.05)
    assert (seen.shape, seen.drain_seconds) == (Shape.FLAT, 0)
    ends = [sum(place.end for place in sample.places.values()) for sample in world.samples]
    slope = (ends[-1] - ends[-31]) / (world.samples[-1].at - world.samples[-31].at)
    assert (slope > 1.3 * per_second) == (per_second * transaction_seconds / 12 < 3)  # markers did make a difference


@pytest.mark.parametrize("commit_seconds", [0.2, 5.0])
@pytest.mark.parametrize("capacity", [240.0, 300.0, 800.0])
def test_a_burst_decays_and_is_done_when_it_was_said(capacity: float, commit_seconds: float):
    world = World(
        evenly(200), lambda _: capacity / 4, commit_seconds=commit_seconds, bursts={60.0: int((capacity - 200) * 200)}
    )
    seen = world.run(60 + TWO_WINDOWS)
    assert seen.shape is Shape.SPIKE_DECAY
    assert seen.flow.capacity_per_second == near(capacity, 0.05)
    assert seen.flow.backlog_records == near(world.backlog, 0.15)
    assert "spike-decay" in sentence(seen)
    said = seen.drain_seconds
    assert said == near(world.seconds_until_done(), 0.15)


def test_what_is_left_of_a_burst_is_counted_in_records_though_its_offsets_are_denser():
    """The burst is one transaction, what comes after it has a marker for every record or two."""
    world = World(evenly(200, 40), lambda _: 60, bursts={60.0: 12_000}, partitions=40)
    seen = world.run(90)
    assert seen.flow.backlog_records == near(world.backlog, 0.1)
    assert seen.lag.lag_records > 1.3 * world.backlog


@pytest.mark.parametrize("commit_seconds", [0.2, 5.0])
@pytest.mark.parametrize(("comes", "capacity"), [(110.0, 100.0), (200.0, 150.0), (200.0, 20.0), (20.0, 18.0)])
def test_a_ramp_has_the_shortfall_as_its_slope(comes: float, capacity: float, commit_seconds: float):
    seen = World(evenly(comes), lambda _: capacity / 4, commit_seconds=commit_seconds).run(TWO_WINDOWS)
    assert seen.shape is Shape.RAMP
    assert seen.flow.shortfall_per_second == near(comes - capacity, 0.1)
    assert seen.drain_seconds is None
    assert sentence(seen).startswith(f"g: ramp, falls {rate(seen.flow.shortfall_per_second)} jobs/s short")


def test_the_advice_is_what_helps():
    """Ten workers at half a second a job do 20 jobs/s, and 30 come: five more are advised, and five more suffice."""
    world = World(evenly(30, 30), lambda _: 2, workers=lambda t: 10 if t < 200 else 15, partitions=30)
    seen = world.run(200 - 2)
    assert sentence(seen) == "g: ramp, falls 10 jobs/s short; 5 more workers at 0.5 s a job"
    assert world.run(TWO_WINDOWS).shape is Shape.FLAT


def test_more_workers_than_partitions_do_not_work():
    seen = World(evenly(200), lambda _: 10, workers=lambda _: 10).run(TWO_WINDOWS)
    assert sentence(seen) == (
        "g: ramp, falls 100 jobs/s short; 10 more workers at 0.1 s a job, but 12 partitions let only 2 more work: "
        "more partitions are needed"
    )


def test_a_hot_partition_is_named():
    seen = World(hottest(Partition("t", 3)), lambda _: 30).run(TWO_WINDOWS)
    assert seen.shape is Shape.RAMP
    assert seen.advice.hot.partition == Partition("t", 3)
    assert sentence(seen).endswith(
        "t:3 alone gets 50 jobs/s and a worker does 20: more workers cannot help, a key of it is too hot"
    )


def test_workers_that_wait_for_the_same_thing_are_found_out():
    """Four workers do together what two did: each takes twice as long."""
    world = World(evenly(200), lambda t: 50 if t < 200 else 25, workers=lambda t: 2 if t < 200 else 4)
    before = world.run(190)
    assert before.advice.shared is None
    seen = world.run(TWO_WINDOWS)
    assert sentence(seen).endswith(
        "2 workers did 100 jobs/s and 4 do 100: more workers cannot help, what they write to is the limit"
    )


def test_workers_that_do_more_when_they_are_more_are_not_held_up():
    world = World(evenly(300), lambda _: 50, workers=lambda t: 2 if t < 200 else 4)
    seen = world.run(200 + TWO_WINDOWS)
    assert seen.advice.shared is None
    assert sentence(seen) == "g: ramp, falls 100 jobs/s short; 2 more workers at 0.02 s a job"


def test_capacity_is_unknown_while_workers_have_nothing_to_wait_for():
    seen = World(evenly(100), lambda _: 75).run(TWO_WINDOWS)
    assert seen.flow.capacity_per_second is None
    assert seen.flow.rate_out_per_second == near(100, 0.02)


def test_stopped_workers_are_a_stop_when_they_leave_and_a_stall_when_they_stay():
    gone = World(evenly(100), lambda _: 75, workers=lambda t: 4 if t < 60 else 0).run(60 + TWO_WINDOWS)
    assert gone.health is Health.STOP
    assert (
        sentence(gone) == f"g: STOP, nobody reads; {round(gone.flow.backlog_records):,} jobs wait and 100 jobs/s come"
    )
    stuck = World(evenly(100), lambda t: 75 if t < 60 else 0).run(60 + TWO_WINDOWS)
    assert stuck.health is Health.STALL
    assert sentence(stuck).startswith("g: STALL, it has 4 workers and nothing gets done; ")
    for seen in (gone, stuck):
        assert (seen.shape, seen.drain_seconds) == (Shape.RAMP, None)
        assert seen.flow.shortfall_per_second == near(100, 0.05)


def test_a_worker_that_stops_halfway_through_a_burst_is_noticed():
    world = World(evenly(200), lambda t: 75 if t < 100 else 40, bursts={60.0: 9_000})
    assert world.run(98).shape is Shape.SPIKE_DECAY
    assert world.run(TWO_WINDOWS).shape is Shape.RAMP


def test_a_group_that_was_set_back_is_a_rewind_while_it_lags():
    world = World(evenly(100), lambda _: 20)
    world.run(120)
    for log in world.logs:
        log.go_to(log.position // 2)
    seen = world.run(20)
    assert seen.health is Health.REWIND
    assert sentence(seen).startswith("g: REWIND, it was set back; ")


def test_right_after_a_burst_nothing_is_claimed():
    seen = World(evenly(200), lambda _: 75, bursts={60.0: 9_000}).run(60)
    assert (seen.shape, seen.drain_seconds) == (None, None)
    assert sentence(seen).endswith("jobs wait, it is too early to say how it goes on")


@pytest.mark.parametrize("commit_seconds", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("sample_seconds", [1.0, 2.0, 5.0])
@pytest.mark.parametrize("ahead", [0, 10_000])
def test_a_steady_group_is_flat_at_every_sample(ahead: int, sample_seconds: float, commit_seconds: float):
    """Whether it keeps up, or carries a backlog that neither grows nor falls."""
    world = World(
        evenly(200),
        lambda _: 75 if not ahead else 50,
        commit_seconds=commit_seconds,
        sample_seconds=sample_seconds,
        bursts={0.2: ahead},
    )
    world.run(TWO_WINDOWS)
    for _ in range(20):
        seen: Outlook = world.run(sample_seconds)
        assert seen.shape is Shape.FLAT, (world.at, seen.flow)
        assert (seen.drain_seconds == 0) == (not ahead)

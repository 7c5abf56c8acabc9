"""Records per offset, rates, shapes, health and sizing as pure functions: each row says why it is so."""

from __future__ import annotations

import pytest

from streams.core.density import POINTS_MAX, Density, Point, Reading, Span
from streams.core.flow import Flow, Level, Shape, flow, group_flow, partition_flow, slope
from streams.core.groups import Group, Partition
from streams.core.health import Commit, Health, evaluate, partition_health, worst
from streams.core.lag import Mark, PartitionLag, group_lag
from streams.core.outlook import drain_seconds, outlook
from streams.core.series import SAMPLES_MAX, Place, Sample, after, recent
from streams.core.sizing import Hot, Shared, advise, hot_partition, seconds_per_job, shared_limit, workers_for

P, Q = Partition("t", 0), Partition("t", 1)


# -------------------------------------------------------------------------------------------- records per offset


@pytest.mark.parametrize(
    ("points", "start", "end", "records", "why"),
    [
        ([], 5, 5, 0.0, "nothing lies between an offset and itself, whatever is known"),
        ([], 5, 6, None, "nothing was read: unknown, not a record an offset"),
        ([(100, 0.5)], 0, 50, 25.0, "one place speaks for all"),
        ([(100, 0.5)], 50, 0, -25.0, "backwards is negative: a group was set back"),
        ([(0, 1.0), (100, 0.5)], 0, 100, 75.0, "in between it changes evenly: the mean of both ends"),
        ([(0, 1.0), (100, 0.5)], 100, 300, 100.0, "beyond the last place it stays"),
        ([(100, 1.0), (200, 0.5)], 0, 100, 100.0, "before the first too"),
        ([(0, 1.0), (100, 0.5)], 50, 100, 31.25, "a part of the way: from 0.75 to 0.5"),
        ([(0, 0.0)], 0, 1_000, 0.0, "all was aborted"),
    ],
)
def test_records_between_offsets(points, start, end, records, why):
    density = Density(tuple(Point(*point) for point in points))
    assert density.records_between(start, end) == records, why


UNKNOWN = [
    # read until, points, position, log start, log end, spans, why
    (0, [], 0, 0, 0, [], "an empty log has nothing to read"),
    (0, [], 100, 0, 100, [(0, 100)], "a short log is read whole"),
    (0, [], 5_000, 0, 5_000, [(4_744, 5_000)], "caught up: the end says all"),
    (5_000, [(4_872, 0.5)], 5_000, 0, 5_000, [], "it is known"),
    (5_000, [(4_872, 0.5)], 5_063, 0, 5_063, [], "a few offsets further it is taken to be the same"),
    (5_000, [(4_872, 0.5)], 5_064, 0, 5_064, [(5_000, 5_064)], "then what came is read"),
    (5_000, [(4_872, 0.5)], 9_000, 0, 9_000, [(8_744, 9_000)], "or the end of it, if it was much"),
    (
        0,
        [],
        10_000,
        0,
        50_000,
        [(49_744, 50_000), (9_872, 10_128), (29_872, 30_128)],
        "behind: the end, the reader's place, and the middle of what waits",
    ),
    (
        50_000,
        [(10_000, 1.0), (30_000, 0.5), (49_872, 0.5)],
        10_000,
        0,
        50_000,
        [(19_872, 20_128)],
        "what waits is known in ever smaller parts",
    ),
    (
        50_000,
        [(n, 0.5) for n in range(10_000, 50_001, 5_000)],
        10_300,
        0,
        50_000,
        [(10_172, 10_428)],
        "where the reader is, it is known as exactly as at the end",
    ),
    (0, [], 4_900, 4_900, 5_000, [(4_900, 5_000)], "what retention has taken cannot be read"),
]


@pytest.mark.parametrize(("until", "points", "position", "start", "end", "spans", "why"), UNKNOWN)
def test_what_is_read_of_a_log(until, points, position, start, end, spans, why):
    density = Density(tuple(Point(*point) for point in points), until)
    assert density.unknown(position, start, end) == [Span(*span) for span in spans], why


COUNTED = [
    # span, records, points, why
    ((0, 128), [n for n in range(128) if n % 2], [(64, 0.5)], "a marker behind each record, all over"),
    (
        (0, 128),
        [*range(64), *range(65, 128, 2)],
        [(16, 1.0), (48, 1.0), (80, 0.5), (112, 0.5)],
        "a burst in one transaction, then a marker behind each record: its parts differ",
    ),
    ((1_000, 1_010), [], [(1_005, 0.0)], "nothing but markers"),
    ((1_000, 1_010), [1_000, 1_009], [(1_005, 0.2)], "a short one is one part"),
    ((0, 70), range(70), [(35, 1.0)], "what is left over belongs to the other parts"),
]


@pytest.mark.parametrize(("span", "records", "points", "why"), COUNTED)
def test_a_reading_is_kept_in_parts_if_they_differ(span, records, points, why):
    assert Reading(Span(*span), records).points == points, why


def test_points_that_become_too_many_are_thinned_but_for_the_ends():
    density = Density()
    for offset in range(1_000):
        density = density.with_reading(Reading(Span(offset, offset + 2), [offset]))
    offsets = [point.offset for point in density.points]
    assert len(offsets) <= POINTS_MAX
    assert (offsets[0], offsets[-1], density.read_until) == (1, 1_000, 1_001)


# --------------------------------------------------------------------------------------------------------- series


def _row(partition: Partition, committed: int | None, end: int | None, lag: int | None, *marks: Mark) -> PartitionLag:
    return PartitionLag(*partition, committed, 0, end, lag, 0, 0.0, marks)


def _after(previous: Sample | None, *rows: PartitionLag, at: float = 1.0, density: float | None = 0.5) -> Sample:
    known = Density() if density is None else Density((Point(0, density),))
    return after(previous, group_lag(Group("g", "Stable", ("m",)), rows), lambda _: known, at)


def test_a_sample_carries_the_counts_on_in_records():
    first = _after(None, _row(P, 100, 200, 100))
    assert first.places[P] == Place(100, 200, 100, arrived=50.0, done=0.0, backlog=50.0)
    second = _after(first, _row(P, 180, 260, 80))
    assert second.places[P] == Place(180, 260, 80, arrived=80.0, done=40.0, backlog=40.0)


@pytest.mark.parametrize(
    ("row", "density", "why"),
    [
        (_row(P, None, None, None, Mark.UNKNOWN), 0.5, "the broker gave no bounds"),
        (_row(P, 900, 200, None, Mark.PAST_THE_END), 0.5, "nobody knows where it reads on"),
        (_row(P, 100, 200, 100, Mark.DELETED), 0.5, "the topic is gone"),
        (_row(P, 100, 200, 100), None, "nothing was read: how many records 100 offsets are is unknown"),
    ],
)
def test_what_is_unknown_is_absent_and_not_zero(row, density, why):
    assert P not in _after(None, row, density=density).places, why


def test_a_log_that_was_made_anew_begins_a_new_series():
    first = _after(None, _row(P, 100, 200, 100))
    assert _after(first, _row(P, 0, 10, 10)).places[P] == Place(0, 10, 10, arrived=5.0, done=0.0, backlog=5.0)


def test_what_a_group_reads_again_is_taken_back():
    first = _after(None, _row(P, 100, 200, 100))
    assert _after(first, _row(P, 60, 200, 140)).places[P].done == -20.0


def test_the_last_minute_is_looked_at_evenly_with_both_ends():
    samples = [Sample(float(at), 1, {}) for at in range(300)]
    seen = [sample.at for sample in recent(samples)]
    assert (seen[0], seen[-1], len(seen)) == (239.0, 299.0, SAMPLES_MAX)
    assert recent([]) == []


# ---------------------------------------------------------------------------------------------------------- flow


def _levels(*waiting: float, comes: float = 10.0, every: float = 2.0) -> list[Level]:
    """Levels with these records waiting, while `comes` arrive a second."""
    times = [n * every for n in range(len(waiting))]
    return [Level(at, comes * at, comes * at - one) for at, one in zip(times, waiting, strict=True)]


FLOWS = [
    # what waits at each sample, shape, rate out, drain, why
    ([100, 100], None, None, None, "two samples are no rate"),
    ([0, 0, 0], Shape.FLAT, 10.0, 0.0, "nothing waits"),
    ([15, 15, 15], Shape.FLAT, 10.0, 0.0, "what waits is done in two seconds: it is always on its way"),
    ([500] * 6, Shape.FLAT, 10.0, None, "what waits does not get less: flat, and never drained"),
    ([500, 460, 420, 380, 340], Shape.SPIKE_DECAY, 30.0, 17.0, "340 records at 30 - 10 a second"),
    ([100, 112, 124, 136, 148], Shape.RAMP, 4.0, None, "six a second too few are done"),
    ([500, 500.2, 500.4, 500.6, 500.8], Shape.FLAT, 9.9, None, "a hundredth of what comes is no trend"),
    ([0, 0, 0, 900, 860, 820, 780], Shape.SPIKE_DECAY, 30.0, 39.0, "the burst counts for nothing once it decays"),
    ([0, 0, 0, 0, 0, 900], None, 10.0, None, "a burst just came: too early to tell"),
    ([0, 0, 0, 0, 900, 880], None, None, None, "two samples of decay may be chance"),
    ([0, 50, 100, 50, 0, 50, 100], Shape.FLAT, None, 0.0, "committed every now and then, and gone in between"),
    ([900, 950, 1000, 950, 900, 950, 1000, 950, 900], Shape.FLAT, None, None, "the same above a backlog"),
]


@pytest.mark.parametrize(("waiting", "shape", "rate_out", "drain", "why"), FLOWS)
def test_the_shape_of_a_lag(waiting, shape, rate_out, drain, why):
    seen = flow(_levels(*waiting), waiting[-1])
    if len(waiting) < 3:
        assert seen is None, why
        return
    assert (seen.shape, seen.drain_seconds) == (shape, pytest.approx(drain)), why
    assert seen.rate_in_per_second == 10
    if rate_out is not None:
        assert seen.rate_out_per_second == pytest.approx(rate_out, abs=0.5 if shape is Shape.FLAT else 1e-6), why


@pytest.mark.parametrize(
    ("waiting", "capacity", "why"),
    [
        ([500, 460, 420, 380, 340], 30.0, "work waited all the time"),
        ([0, 0, 0, 0, 0], None, "idle workers do not show what they can do"),
        ([0, 30, 60, 90, 120], None, "at first nothing waited"),
    ],
)
def test_capacity_is_measured_only_while_work_waits(waiting, capacity, why):
    assert flow(_levels(*waiting), waiting[-1]).capacity_per_second == capacity, why


def test_a_slope_does_not_follow_a_third_of_wrong_points():
    points = [(float(n), 3.0 * n) for n in range(10)]
    assert slope([*points[:3], (3.0, 900.0), (4.0, -900.0), *points[5:]]) == 3.0
    assert slope([(1.0, 5.0), (1.0, 9.0)]) == 0.0


def _sample(at: float, members: int | None = 1, **places: tuple[int, int]) -> Sample:
    """`t0=(committed, end)`: of one record an offset."""
    known = {
        Partition("t", int(name[1:])): Place(committed, end, end - committed, end, committed, end - committed)
        for name, (committed, end) in places.items()
    }
    return Sample(at, members, known)


def test_a_group_is_the_sum_of_its_partitions():
    samples = [_sample(n * 2.0, t0=(20 * n, 20 * n), t1=(0, 10 * n)) for n in range(10)]
    assert partition_flow(samples, P).shape is Shape.FLAT
    assert partition_flow(samples, Q).shape is Shape.RAMP
    total = group_flow(samples)
    assert (total.rate_in_per_second, total.rate_out_per_second, total.backlog_records) == (15, 10, 90)


def test_samples_that_lack_a_partition_are_not_added_up():
    """Else the partition that comes in the middle would look like a burst."""
    samples = [_sample(n * 2.0, t0=(20 * n, 20 * n)) for n in range(5)]
    samples += [_sample(n * 2.0, t0=(20 * n, 20 * n), t1=(9_000, 9_000)) for n in range(5, 9)]
    assert group_flow(samples).samples == 4
    assert group_flow(samples).rate_in_per_second == 10
    assert group_flow([]) is None
    assert partition_flow(samples, Partition("t", 9)) is None


def test_the_capacity_of_changing_workers_is_nobodys():
    steady = [_sample(n * 2.0, 2, t0=(40 * n, 900 + 20 * n)) for n in range(10)]
    changed = [*steady[:5], *(sample.__class__(sample.at, 4, sample.places) for sample in steady[5:])]
    assert group_flow(steady).capacity_per_second == 20
    assert group_flow(changed).capacity_per_second is None


def _flow(shape: Shape | None, rate_in: float = 10, rate_out: float = 10, drain: float | None = 0.0) -> Flow:
    return Flow(60, 13, rate_in, rate_out, 100, shape, rate_out, drain)


DRAINS = [
    # the group, its partitions, seconds, why
    (None, [], None, "no rates, no figure"),
    (_flow(Shape.FLAT), [_flow(Shape.FLAT)], 0.0, "it keeps up"),
    (
        _flow(Shape.SPIKE_DECAY, drain=30.0),
        [_flow(Shape.SPIKE_DECAY, drain=20.0), _flow(Shape.SPIKE_DECAY, drain=50.0)],
        50.0,
        "the slowest part counts",
    ),
    (
        _flow(Shape.SPIKE_DECAY, drain=30.0),
        [_flow(Shape.FLAT), _flow(Shape.RAMP, drain=None)],
        30.0,
        "also when it is the last one",
    ),
    (
        _flow(Shape.FLAT),
        [_flow(Shape.FLAT), _flow(Shape.RAMP, drain=None)],
        None,
        "the sum keeps up, but one part never gets through, so the group does not",
    ),
    (
        _flow(Shape.SPIKE_DECAY, drain=30.0),
        [_flow(Shape.SPIKE_DECAY, drain=20.0), _flow(Shape.RAMP, drain=None)],
        30.0,
        "a client reads one partition after the other, and this one's turn comes",
    ),
    (
        _flow(Shape.SPIKE_DECAY, drain=30.0),
        [_flow(Shape.SPIKE_DECAY, drain=20.0), _flow(Shape.FLAT, drain=None)],
        30.0,
        "what waits for its turn is through with the group",
    ),
    (_flow(Shape.FLAT, drain=None), [_flow(Shape.FLAT, drain=None)], None, "what waits does not get less"),
]


@pytest.mark.parametrize(("total", "parts", "seconds", "why"), DRAINS)
def test_a_group_is_drained_with_its_slowest_part(total, parts, seconds, why):
    assert drain_seconds(total, parts) == seconds, why


def test_a_worker_is_through_with_all_its_partitions_at_once_however_unevenly_it_reads_them():
    """100 a second of 1,000 and 1,000 waiting: of one partition far more than of the other, which looks like 90 s."""
    uneven, other = Partition("t", 0), Partition("t", 1)
    samples: list[Sample] = []
    for at in range(11):
        rows = [_row(uneven, 90 * at, 1_000, 1_000 - 90 * at), _row(other, 10 * at, 1_000, 1_000 - 10 * at)]
        samples.append(_after(samples[-1] if samples else None, *rows, at=at, density=1.0))
    for owners, seconds in (({uneven: "m", other: "m"}, 10.0), ({uneven: "a", other: "b"}, 90.0), ({}, 90.0)):
        lag = group_lag(Group("g", "Stable", tuple(set(owners.values())), owners), rows)
        assert outlook(lag, samples).drain_seconds == pytest.approx(seconds), owners


# -------------------------------------------------------------------------------------------------------- health

BURROW = [
    # commits as (time, offset, lag), lag now, now, health, why
    ([], 0, 100, Health.OK, "nothing waits"),
    ([], 5, 100, Health.STOP, "something waits, and nobody has committed within memory"),
    ([(0, 10, 5), (10, 12, 9), (20, 13, 30)], 0, 20, Health.OK, "rule 1: it is at the end now"),
    ([(0, 10, 5), (10, 12, 0), (20, 13, 30)], 30, 20, Health.OK, "rule 1: it was at the end in between"),
    ([(0, 10, 5), (10, 12, 0), (20, 5, 30)], 30, 20, Health.OK, "rule 1 comes before rule 2"),
    ([(0, 10, 5), (10, 12, 9), (20, 5, 30)], 30, 20, Health.REWIND, "rule 2: from 12 to 5"),
    ([(0, 10, 5), (10, 5, 9), (20, 5, 30)], 30, 90, Health.REWIND, "rule 2 comes before rule 3"),
    ([(0, 10, 5), (10, 12, 9), (20, 13, 30)], 30, 41, Health.STOP, "rule 3: silent for 21 s after 20 s of commits"),
    ([(0, 10, 5), (10, 12, 9), (20, 13, 9)], 30, 40, Health.WARN, "rule 3: silent for 20 s is not yet longer"),
    ([(0, 10, 5), (10, 10, 9), (20, 10, 30)], 30, 41, Health.STOP, "rule 3 comes before rule 4"),
    ([(0, 10, 5), (10, 10, 9), (20, 10, 30)], 30, 20, Health.STALL, "rule 4: the same offset each time"),
    ([(0, 10, 5), (10, 10, 9), (20, 11, 8)], 30, 20, Health.OK, "it moves, and the lag got smaller once"),
    ([(0, 10, 5), (10, 12, 9), (20, 13, 9)], 30, 20, Health.WARN, "rule 5: it moves, and the lag never got smaller"),
    ([(0, 10, 9), (10, 12, 7), (20, 13, 30)], 30, 20, Health.OK, "rule 5: it got smaller once"),
]


@pytest.mark.parametrize(("commits", "lag", "now", "health", "why"), BURROW)
def test_health_follows_burrows_rules_in_their_order(commits, lag, now, health, why):
    assert evaluate([Commit(*commit) for commit in commits], lag, now) is health, why


SAMPLED = [
    # members and committed offset at each sample, five seconds apart, with 1,000 records in the log; health, why
    ([(1, 10), (1, 20)], None, "five seconds say nothing"),
    ([(1, 10), (1, 20), (1, 30)], Health.OK, "it moves"),
    ([(1, 10), (1, 10), (1, 10)], Health.STALL, "it has a member, which commits the same again and again"),
    ([(0, 10), (0, 10), (0, 10)], Health.STOP, "without members nobody commits"),
    ([(0, 10), (0, 20), (0, 30)], Health.OK, "who assigns himself is no member, but his commits are seen"),
    ([(1, 10), (1, 20), (0, 20), (0, 20), (0, 20)], Health.STOP, "the member left 15 s ago, after 5 s of commits"),
    ([(1, 30), (1, 20), (1, 10)], Health.REWIND, "it goes back"),
    ([(1, 1_000), (1, 1_000), (1, 1_000)], Health.OK, "it is at the end"),
    (
        [(None, 10), (None, 20), (None, 30)],
        Health.OK,
        "the coordinator did not answer, the commits are seen all the same",
    ),
]


@pytest.mark.parametrize(("seen", "health", "why"), SAMPLED)
def test_a_sample_is_a_commit_if_somebody_could_have_made_it(seen, health, why):
    samples = [_sample(n * 5.0, members, t0=(committed, 1_000)) for n, (members, committed) in enumerate(seen)]
    assert partition_health(samples, P) is health, why


NOW = [
    # committed and lag now, while the samples of a reader without members stay at 10 of 1,000; health, why
    (10, 990, Health.STOP, "no news"),
    (None, 990, Health.STOP, "a commit that could not be read is no news"),
    (500, 500, Health.OK, "it was started after the last sample, and goes on"),
    (1_000, 0, Health.OK, "and is through"),
]


@pytest.mark.parametrize(("committed", "lag", "health", "why"), NOW)
def test_what_is_committed_after_the_last_sample_counts(committed, lag, health, why):
    samples = [_sample(n * 5.0, 0, t0=(10, 1_000)) for n in range(5)]
    now = PartitionLag("t", 0, committed, 0, 1_000, lag, 0, 1.0)
    assert partition_health(samples, P, now) is health, why


def test_who_goes_on_after_the_last_sample_stands_still_no_more():
    samples = [_sample(n * 5.0, 1, t0=(10, 1_000)) for n in range(5)]
    assert partition_health(samples, P) is Health.STALL
    assert partition_health(samples, P, PartitionLag("t", 0, 500, 0, 1_000, 500, 0, 1.0)) is Health.OK
    assert partition_health(samples, P, PartitionLag("t", 0, 5, 0, 1_000, 995, 0, 1.0)) is Health.STALL


def test_a_partition_that_is_not_seen_any_more_is_unknown():
    samples = [_sample(n * 5.0, t0=(n, 1_000)) for n in range(9)]
    assert partition_health([*samples, _sample(45.0, t1=(0, 0))], P) is None


def test_a_group_is_as_ill_as_its_worst_partition():
    assert worst([Health.OK, None, Health.STALL, Health.WARN]) is Health.STALL
    assert worst([None]) is None


# -------------------------------------------------------------------------------------------------------- sizing


@pytest.mark.parametrize(
    ("rate", "seconds", "workers", "why"),
    [
        (50, 0.5, 25, "L = 50 * 0.5"),
        (51, 0.5, 26, "half a worker is one"),
        (0.1, 30, 3, "three a half minute each"),
        (0, 1, 0, "no jobs, no workers"),
        (3, 0.1, 1, "0.3 of one, not more for the way that floats are"),
        (10, 0.1, 1, "exactly one"),
    ],
)
def test_littles_law(rate, seconds, workers, why):
    assert workers_for(rate, seconds) == workers, why


def test_the_time_of_a_job_is_known_of_busy_workers():
    assert seconds_per_job(10, 20.0) == 0.5
    assert seconds_per_job(None, 20.0) is None
    assert seconds_per_job(0, 20.0) is None
    assert seconds_per_job(10, None) is None


def _ramp(rate_in: float, rate_out: float, capacity: float | None = None) -> Flow:
    return Flow(60, 13, rate_in, rate_out, 1_000, Shape.RAMP, capacity, None)


def test_advice_closes_the_shortfall():
    partitions = {Partition("t", n): _ramp(2.5, 20 / 12) for n in range(12)}
    advice = advise(_ramp(30, 20, 20), partitions, 10, {})
    assert (advice.more_workers, advice.seconds_per_job, advice.workers, advice.workers_max) == (5, 0.5, 10, 12)
    assert advise(_ramp(30, 20, 20), partitions, 24, {}).seconds_per_job == 12 / 20  # twelve of them have a partition
    assert advise(_ramp(30, 20, 20), partitions, 10, {}, seconds_a_job=2.0).more_workers == 20  # the caller knows
    assert advise(_ramp(30, 20), partitions, 10, {}).more_workers is None
    assert advise(_flow(Shape.FLAT), partitions, 10, {}).more_workers == 0


FLAT = _flow(Shape.FLAT, 5, 5)
HOT = [
    # partitions, workers, worker's capacity if it is hot, why
    ([_ramp(50, 20), FLAT, FLAT], 3, 20.0, "one is behind, gets 50 a second, and its worker does 20"),
    ([_ramp(50, 20), _ramp(50, 20), FLAT], 3, None, "two are behind: there are too few workers"),
    ([_ramp(50, 20), FLAT, FLAT], 0, None, "nobody works: that is no hot key"),
    ([_ramp(50, 20)], 1, None, "the only partition: more partitions may help"),
    ([_flow(Shape.SPIKE_DECAY, 20, 50, 9.0), FLAT], 2, None, "it is behind, but gets through"),
    ([_ramp(12, 8), FLAT, FLAT, FLAT], 1, None, "its worker does 23 a second in all: with another one it keeps up"),
]


@pytest.mark.parametrize(("partitions", "workers", "capacity", "why"), HOT)
def test_a_partition_is_hot_if_it_alone_gets_more_than_a_worker_does(partitions, workers, capacity, why):
    known = {Partition("t", n): one for n, one in enumerate(partitions)}
    total = _ramp(sum(one.rate_in_per_second for one in partitions), sum(one.rate_out_per_second for one in partitions))
    hot = hot_partition(total, known, workers)
    assert hot == (None if capacity is None else Hot(P, partitions[0].rate_in_per_second, capacity)), why


@pytest.mark.parametrize(
    ("capacities", "found", "why"),
    [
        ({}, None, "nothing was seen"),
        ({2: 100.0}, None, "one number of workers shows nothing"),
        ({2: 100.0, 4: 104.0}, Shared(2, 100.0, 4, 104.0), "twice the workers did hardly more"),
        ({2: 100.0, 4: 90.0}, Shared(2, 100.0, 4, 90.0), "or less"),
        ({2: 100.0, 4: 180.0}, None, "nearly twice as much"),
        ({2: 100.0, 4: 130.0}, None, "a third of what it should be: they do help"),
        ({9: 100.0, 10: 100.0}, None, "one more of ten is too little to tell"),
        ({0: 0.0, 4: 100.0}, None, "nobody is no worker"),
    ],
)
def test_workers_that_share_a_limit(capacities, found, why):
    assert shared_limit(capacities) == found, why

"""What holds for all series of samples, whatever a broker says and whenever."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import given as _given
from hypothesis import strategies as st

from streams.core.density import Density, Point
from streams.core.explain import explanation
from streams.core.flow import Level, Shape, flow
from streams.core.groups import Group, Partition
from streams.core.health import Commit, Health, evaluate
from streams.core.lag import GroupLag, PartitionLag, group_lag
from streams.core.outlook import Outlook, outlook
from streams.core.sentences import sentence
from streams.core.series import SAMPLES_MAX, Sample, after, recent
from streams.core.sizing import workers_for


def given(*strategies):
    """Hypothesis's, on a machine that other tests keep busy."""
    return lambda test: settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])(_given(*strategies)(test))


offsets = st.integers(0, 2**40)
# Whole eighths of a second and whole records: floats add them up exactly, also after a shift.
times = st.lists(st.integers(1, 400), min_size=2, max_size=20).map(
    lambda steps: [sum(steps[:n]) / 8 for n in range(1, len(steps) + 1)]
)
points = st.lists(st.builds(Point, offsets, st.integers(0, 8).map(lambda eighths: eighths / 8)), max_size=6).map(sorted)


@st.composite
def levels(draw: st.DrawFn) -> list[Level]:
    """Levels of a log that only grows and a group that never is ahead of it, or set back."""
    arrived, done, found = 0, 0, []
    for at in draw(times):
        arrived += draw(st.integers(0, 5_000))
        done += draw(st.integers(0, arrived - done))
        found.append(Level(at, arrived, done))
    return found


@st.composite
def series(draw: st.DrawFn) -> tuple[GroupLag, list[Sample]]:
    """Samples of a group of up to three partitions, some of which are unknown at some times, with any commits."""
    densities = {n: Density(tuple(draw(points))) for n in range(draw(st.integers(1, 3)))}
    ends, samples, lag = dict.fromkeys(densities, 0), [], group_lag(Group("g", "Unknown"), [])
    for at in draw(times):
        rows = []
        for n in densities:
            ends[n] += draw(st.integers(0, 10_000))
            rows.append(draw(_rows(n, ends[n])))
        members = ("m",) * draw(st.integers(0, 3))
        lag = group_lag(Group("g", draw(st.sampled_from(["Stable", "Empty", "Unknown"])), members), rows)
        samples.append(after(samples[-1] if samples else None, lag, lambda one: densities[one.number], at))
    return lag, samples


@st.composite
def _rows(draw: st.DrawFn, number: int, end: int) -> PartitionLag:
    committed = draw(st.none() | st.integers(0, end))
    lag = None if draw(st.integers(0, 9)) == 0 else end - (committed or 0)
    return PartitionLag("t", number, committed, 0, end, lag, 0, None)


def _figures(seen: Outlook) -> list[float | None]:
    flows = [seen.flow, *(part.flow for part in seen.partitions.values())]
    known = [flow for flow in flows if flow is not None]
    advice = [seen.advice.more_workers, seen.advice.seconds_per_job] if seen.advice else []
    return [
        seen.drain_seconds,
        *advice,
        *(figure for one in known for figure in (one.rate_in_per_second, one.rate_out_per_second, one.backlog_records)),
        *(figure for one in known for figure in (one.capacity_per_second, one.drain_seconds, one.shortfall_per_second)),
    ]


@given(series())
def test_no_figure_is_negative_or_no_number_and_something_can_always_be_said(given_series):
    lag, samples = given_series
    seen = outlook(lag, samples)
    assert all(figure is None or (figure >= 0 and math.isfinite(figure)) for figure in _figures(seen))
    assert sentence(seen).startswith("g: ")
    assert len(explanation(seen)) >= 3


@given(levels())
def test_the_drain_is_what_the_rates_say(given_levels):
    backlog = given_levels[-1].arrived - given_levels[-1].done
    seen = flow(given_levels, backlog)
    if seen is None:
        assert len(given_levels) < 3
        return
    net = seen.rate_out_per_second - seen.rate_in_per_second
    if seen.drain_seconds:
        assert seen.shape is Shape.SPIKE_DECAY
        assert math.isclose(seen.drain_seconds * net, backlog, rel_tol=1e-9)
    if seen.shape is Shape.RAMP:
        assert net < 0
        assert seen.drain_seconds is None
        assert seen.shortfall_per_second == -net
    if seen.shape is Shape.SPIKE_DECAY:
        assert net > 0
    if backlog == 0:
        assert (seen.shape, seen.drain_seconds) == (Shape.FLAT, 0)


@given(levels(), st.integers(-10_000, 10_000), st.integers(-10_000, 10_000))
def test_it_does_not_matter_when_it_was_or_where_the_counts_began(given_levels, seconds, records):
    backlog = given_levels[-1].arrived - given_levels[-1].done
    moved = [Level(at + seconds, arrived + records, done + records) for at, arrived, done in given_levels]
    assert flow(moved, backlog) == flow(given_levels, backlog)


@given(levels(), st.sampled_from([2, 4, 16]))
def test_twice_as_fast_is_the_same_shape_at_twice_the_rates(given_levels, factor):
    """A tenfold load in a tenth of the time is no other picture, but for what two seconds and two records mean."""
    backlog = given_levels[-1].arrived - given_levels[-1].done
    whole = flow(given_levels, backlog)
    more = flow([Level(at, arrived * factor, done * factor) for at, arrived, done in given_levels], backlog * factor)
    if whole is None or more is None or min(backlog, 1) == 0:
        return
    assert more.rate_in_per_second == whole.rate_in_per_second * factor or more.samples != whole.samples
    if whole.shape in (Shape.RAMP, Shape.SPIKE_DECAY):  # what is a trend stays one
        assert more.shape is whole.shape


@given(st.integers(0, 10**6), st.integers(1, 10**4), st.integers(0, 10**6), st.integers(3, 20))
def test_a_steady_line_gives_its_own_rates(rate_in, rate_out, start, count):
    """Whatever the rates: the log begins with `start` records, and is read no faster than it has some."""
    given_levels = []
    for at in range(count):
        arrived = start + rate_in * at
        given_levels.append(Level(float(at), arrived, min(rate_out * at, arrived)))
    if any(level.done != rate_out * level.at for level in given_levels):
        return  # it came to the end of the log
    seen = flow(given_levels, given_levels[-1].arrived - given_levels[-1].done)
    assert (seen.rate_in_per_second, seen.rate_out_per_second) == (rate_in, rate_out)


@given(points, offsets, offsets, offsets)
def test_records_add_up_and_are_no_more_than_offsets(given_points, a, b, c):
    density = Density(tuple(given_points))
    parts = [density.records_between(a, b), density.records_between(b, c), density.records_between(a, c)]
    if not given_points:
        assert [part in (None, 0.0) for part in parts] == [True] * 3
        return
    assert math.isclose(parts[0] + parts[1], parts[2], rel_tol=1e-9, abs_tol=1e-3)
    assert 0 <= density.records_between(min(a, b), max(a, b)) <= abs(a - b) + 1e-3


@given(points, st.lists(offsets, min_size=3, max_size=3).map(sorted))
def test_what_is_read_lies_in_the_log(given_points, three):
    start, position, end = three
    for span in Density(tuple(given_points)).unknown(position, start, end):
        assert start <= span.start < span.end <= end


@given(st.lists(st.tuples(st.integers(0, 100), offsets, st.integers(0, 50))), st.integers(0, 50), st.integers(0, 500))
def test_health_is_ok_at_the_end_and_never_rewind_forwards(commits, lag, silent):
    ordered = [Commit(*one) for one in sorted(commits)]
    now = (ordered[-1].at if ordered else 0) + silent
    health = evaluate(ordered, lag, now)
    if lag == 0 or any(one.lag == 0 for one in ordered):
        assert health is Health.OK
    forwards = [replace_committed(one, n) for n, one in enumerate(ordered)]
    assert evaluate(forwards, lag, now) is not Health.REWIND
    later = [Commit(at + 1_000, committed + 5, one_lag) for at, committed, one_lag in ordered]
    assert evaluate(later, lag, now + 1_000) is health


def replace_committed(commit: Commit, committed: int) -> Commit:
    return commit._replace(committed=committed)


@given(series())
def test_the_last_samples_are_few_and_have_both_ends(given_series):
    _, samples = given_series
    many = [replace(samples[0], at=samples[0].at + n / 8) for n in range(200)]
    for one in (samples, many):
        seen = recent(one)
        assert len(seen) <= SAMPLES_MAX
        assert seen[-1] is one[-1]
        assert all(sample.at >= one[-1].at - 60 for sample in seen)


@given(st.floats(0, 1e6), st.floats(0, 1e4))
def test_workers_are_enough_and_not_one_too_many(rate, seconds):
    workers = workers_for(rate, seconds)
    assert workers >= rate * seconds - 1e-6
    assert workers < rate * seconds + 1 + 1e-6


def test_a_partition_of_another_topic_has_its_own_row():
    """The same number in two topics is two partitions."""
    rows = [PartitionLag(topic, 0, 0, 0, 10, 10, 0, None) for topic in ("a", "b")]
    sample = after(None, group_lag(Group("g", "Empty"), rows), lambda _: Density((Point(0, 1.0),)), 0.0)
    assert sample.places.keys() == {Partition("a", 0), Partition("b", 0)}

"""What holds for all lags and plans, whatever a broker says."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from streams.core import replay as core
from streams.core.groups import Commit, Group, Head, Log, Partition
from streams.core.lag import group_lag, partition_lag, question, standing
from streams.core.replay import Move, Target

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
P = Partition("t", 0)

offsets = st.integers(0, 2**40)
commits = st.none() | st.builds(Commit, offsets, st.none() | st.text(max_size=20))
logs = st.lists(offsets, min_size=3, max_size=3).map(lambda three: Log(*sorted(three)))
heads = st.none() | st.builds(Head, offsets, st.none() | st.integers(0, 2**42))
targets = st.one_of(
    st.sampled_from([Target("earliest"), Target("latest")]),
    st.builds(Target, st.just("time"), st.integers(1, 2**42)),
    st.builds(Target, st.just("shift"), st.integers(-(2**41), 2**41)),
)
partitions = st.builds(Partition, st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 999))


@given(commits, st.none() | logs, st.sampled_from(["earliest", "latest"]), st.lists(heads, max_size=2))
def test_no_figure_is_negative_and_no_unknown_one_is_zero(commit, log, reset, found):
    at = standing(P, commit and commit.position, log, reset)
    answers = {}
    for head in found:
        if asked := question(at, answers):
            answers[asked] = head
    row = partition_lag(at, answers, NOW)
    figures = [row.lag_records, row.lost_records, row.age_seconds]
    assert all(figure is None or figure >= 0 for figure in figures)
    if log is None:
        assert figures == [None, None, None]
    if row.age_seconds == 0 and log is not None and row.lag_records:
        assert any(
            head is not None and head.timestamp_ms / 1000 >= NOW.timestamp() - 0.001 for head in answers.values()
        )


@given(commits, logs, st.sampled_from(["earliest", "latest"]))
def test_lag_and_lost_are_the_written_formulas_where_nothing_was_read(commit, log, reset):
    row = partition_lag(standing(P, commit and commit.position, log, reset), {}, NOW)
    if commit is None:
        assert row.lag_records == (log.end - log.start if reset == "earliest" else 0)
    elif commit.position <= log.high:
        assert row.lag_records == max(0, log.end - max(commit.position, log.start))
        assert row.lost_records == max(0, log.start - commit.position)


@given(commits, logs, st.integers(0, 2**30))
def test_lag_never_grows_when_the_group_reads_on(commit, log, further):
    if commit is None or commit.position + further > log.high:
        return
    both = (commit.position, commit.position + further)
    lags = [partition_lag(standing(P, one, log, "earliest"), {}, NOW).lag_records for one in both]
    assert lags[1] <= lags[0]


@given(st.lists(st.tuples(commits, st.none() | logs), max_size=5))
def test_a_group_is_never_less_behind_than_one_of_its_partitions(given_rows):
    rows = [
        partition_lag(standing(Partition("t", n), commit and commit.position, log, "earliest"), {}, NOW)
        for n, (commit, log) in enumerate(given_rows)
    ]
    total = group_lag(Group("g", "Empty"), rows).lag_records
    if total is None:
        assert not rows or any(row.lag_records is None for row in rows)
    else:
        assert total >= max(row.lag_records for row in rows)


@given(targets, commits, logs, st.floats(0, 1))
def test_earliest_latest_times_and_shifts_back_stay_in_the_log(target, commit, log, share):
    first = log.start + int((log.end - log.start) * share)
    since = first if first < log.end else None
    for move in core.resolve(target, [P], {} if commit is None else {P: commit}, {P: log}, {P: since}):
        assert move.to >= log.start
        assert move.span == max(0, log.end - move.to)
        assert move.taken >= 0
        if target.kind != "shift":
            assert not core.out_of_bounds({P: move.to}, {P: log})


@given(st.dictionaries(partitions, offsets, min_size=1, max_size=20))
def test_a_plan_survives_its_file(positions):
    text = core.to_csv(Move(partition, None, to, 0) for partition, to in positions.items())
    assert core.from_csv(text, "g") == positions

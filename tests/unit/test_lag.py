"""Lag as a pure function: each row says why it is so."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from streams.cli import _lag_show as show
from streams.cli._columns import columns
from streams.core.groups import Cluster, Group, Head, Log, Member, Partition, nearest
from streams.core.lag import GroupLag, Mark, PartitionLag, Question, group_lag, partition_lag, question, standing
from streams.core.outlook import Outlook
from streams.core.times import duration

P = Partition("t", 0)
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
LOG = Log(10, 20, 20)
OPEN = Log(10, 20, 25)


def head(offset: int, age_seconds: float = 60) -> Head:
    return Head(offset, NOW_MS - int(age_seconds * 1000))


def row(
    commit: int | None,
    log: Log | None,
    committed: Head | str | None = "unanswered",
    uncommitted: Head | str | None = "unanswered",
    reset: str = "earliest",
    exists: bool = True,
) -> PartitionLag:
    """The row, when the reads under each isolation answer so, wherever they are asked."""
    at = standing(P, commit, log, reset, exists)
    answers: dict[Question, Head | None] = {}
    given = {"read_committed": committed, "read_uncommitted": uncommitted}
    while (asked := question(at, answers)) and given[asked.isolation] != "unanswered":
        answers[asked] = given[asked.isolation]
    return partition_lag(at, answers, NOW)


BEHIND = [
    # committed, log, first readable record, lag, lost, age, why
    (15, LOG, head(15), 5, 0, 60.0, "the plain case: end - committed, aged as the record at the commit"),
    (20, LOG, "unanswered", 0, 0, 0.0, "at the end: nothing waits and nothing is read"),
    (4, LOG, head(10), 10, 6, 60.0, "retention took 4..9: they are lost, and not counted as lag"),
    (4, Log(20, 20, 20), "unanswered", 0, 16, 0.0, "retention took all: nothing waits, all is lost"),
    (0, Log(0, 0, 0), "unanswered", 0, 0, 0.0, "an empty log: caught up"),
    (19, LOG, None, 0, 0, 0.0, "only a transaction's marker is left: it must not show as lag for ever"),
    (15, LOG, head(22), 0, 0, 0.0, "all up to the end was aborted; what came after the sample does not count"),
    (15, LOG, head(18), 5, 0, 60.0, "a gap before the next record: lag is in offsets"),
    (15, LOG, "unanswered", 5, 0, None, "the read took too long: the age is unknown, never 0"),
    (15, LOG, Head(15, None), 5, 0, None, "the record has no timestamp"),
    (15, LOG, head(15, -30), 5, 0, 0.0, "the producer's clock is ahead: no negative age"),
    (21, LOG, "unanswered", None, 0, None, "committed past the end: a reader starts over by its policy, so unknown"),
    (15, None, "unanswered", None, None, None, "the broker gave no bounds"),
]


@pytest.mark.parametrize(("commit", "log", "read", "lag", "lost", "age", "why"), BEHIND)
def test_a_partition_with_a_commit(commit, log, read, lag, lost, age, why):
    seen = row(commit, log, read)
    assert (seen.lag_records, seen.lost_records, seen.age_seconds) == (lag, lost, age), why


NO_COMMIT = [
    ("earliest", LOG, head(10), 10, 60.0, "a reader would begin at the log's start"),
    ("latest", LOG, "unanswered", 0, 0.0, "a reader would begin at the end"),
    ("earliest", Log(0, 0, 0), "unanswered", 0, 0.0, "an empty log"),
    ("earliest", None, "unanswered", None, None, "no bounds, no figure"),
]


@pytest.mark.parametrize(("reset", "log", "read", "lag", "age", "why"), NO_COMMIT)
def test_a_partition_without_a_commit_follows_the_reset_policy_and_is_marked(reset, log, read, lag, age, why):
    seen = row(None, log, read, reset=reset)
    assert (seen.committed, seen.lag_records, seen.lost_records, seen.age_seconds) == (None, lag, None, age), why
    assert Mark.NO_COMMIT in seen.marks


OPEN_TRANSACTION = [
    # committed, read_committed, read_uncommitted, lag, age, why
    (20, "unanswered", head(20, 7), 0, 7.0, "nothing is readable, but the open transaction's first record waits"),
    (20, "unanswered", "unanswered", 0, None, "its age could not be read: not 0, for it is not caught up"),
    (15, head(15), "unanswered", 5, 60.0, "readable records wait before it"),
    (19, None, head(20, 7), 0, 7.0, "a marker, then the open transaction"),
    (23, "unanswered", head(23, 7), 0, 7.0, "a read_uncommitted reader stands inside the transaction"),
    (25, "unanswered", "unanswered", 0, 0.0, "a read_uncommitted reader has read it all"),
]


@pytest.mark.parametrize(("commit", "read", "beyond", "lag", "age", "why"), OPEN_TRANSACTION)
def test_an_open_transaction_is_marked_and_not_caught_up(commit, read, beyond, lag, age, why):
    seen = row(commit, OPEN, read, beyond)
    assert (seen.lag_records, seen.age_seconds) == (lag, age), why
    assert seen.marks == (Mark.OPEN_TRANSACTION,)


@pytest.mark.parametrize(
    ("commit", "log", "exists", "marks"),
    [
        (15, LOG, True, ()),
        (21, LOG, True, (Mark.PAST_THE_END,)),
        (15, None, True, (Mark.UNKNOWN,)),
        (15, None, False, (Mark.DELETED,)),
        (None, OPEN, True, (Mark.NO_COMMIT, Mark.OPEN_TRANSACTION)),
    ],
)
def test_marks_say_what_the_figures_do_not(commit, log, exists, marks):
    assert row(commit, log, exists=exists).marks == marks


def test_a_read_is_asked_for_once_and_at_the_place_where_a_reader_goes_on():
    at = standing(P, 4, LOG, "earliest")
    asked = question(at, {})
    assert asked == Question(P, 10, "read_committed")
    assert question(at, {asked: head(10)}) is None


def _partition(number: int, lag: int | None, age: float | None, *marks: Mark) -> PartitionLag:
    return PartitionLag("t", number, 1, 0, 9, lag, 0, age, marks)


@pytest.mark.parametrize(
    ("rows", "lag", "age", "why"),
    [
        ([_partition(0, 3, 5.0), _partition(1, 4, 9.0)], 7, 9.0, "the sum, and the oldest"),
        ([_partition(0, 3, 5.0), _partition(1, None, None)], None, None, "one is unknown, so the sum is"),
        ([_partition(0, 3, None), _partition(1, 4, 9.0)], 7, None, "the oldest may be the one that was not read"),
        (
            [_partition(0, 3, 5.0), _partition(1, None, None, Mark.DELETED)],
            3,
            5.0,
            "a deleted topic is gone, not unknown",
        ),
        ([], None, None, "nothing is known of what it reads: not 0"),
    ],
)
def test_a_group_sums_up_what_is_known(rows, lag, age, why):
    seen = group_lag(Group("g", "Empty"), rows)
    assert (seen.lag_records, seen.age_seconds) == (lag, age), why


def test_partitions_stand_in_order():
    seen = group_lag(Group("g", "Empty"), [_partition(10, 1, 1.0), _partition(2, 1, 1.0)])
    assert [one.partition for one in seen.partitions] == [2, 10]


@pytest.mark.parametrize(("state", "members"), [("Stable", 1), ("Empty", 0), ("Unknown", None)])
def test_a_group_has_as_many_members_as_its_coordinator_says_if_it_says(state, members):
    assert group_lag(Group("g", state, ("m",) * (members or 0)), []).members == members


def test_a_group_reads_all_partitions_of_the_topics_that_it_commits_or_is_assigned():
    cluster = Cluster("c", {"a": 2, "b": 1, "other": 1})
    group = Group("g", "Stable", ("m",), {Partition("b", 0): "m"})
    assert cluster.read_by([Partition("a", 1), Partition("gone", 0)], group) == {
        Partition("a", 0),
        Partition("a", 1),
        Partition("b", 0),
    }


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("sumarizer", ["ranker", "summarizer"], "the nearest names are summarizer"),
        ("zzz", ["a", "b"], "there are a, b"),
        ("zzz", list("abcdefg"), "there are a, b, c, d, e and more"),
        ("zzz", [], "there is none"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name, known, said):
    assert nearest(name, known) == said


UNKNOWN = {
    "health": None,
    "shape": None,
    "rate_in_per_second": None,
    "rate_out_per_second": None,
    "backlog_records": None,
    "drain_seconds": None,
    "parked_records": None,
    "oldest_parked_seconds": None,
}


def test_json_has_the_named_fields_and_null_for_unknown():
    group = GroupLag("g", "Empty", None, None, (PartitionLag("t", 0, None, 1, 2, 1, None, None, (Mark.NO_COMMIT,)),))
    assert json.loads(json.dumps(show.as_json([Outlook(group)]))) == [
        {
            "group": "g",
            "state": "Empty",
            "lag_records": None,
            "age_seconds": None,
            "members": None,
            **UNKNOWN,
            "sentence": "g: lag ?, the oldest waits ?",
            "partitions": [
                {
                    "topic": "t",
                    "partition": 0,
                    "committed": None,
                    "log_start": 1,
                    "log_end": 2,
                    "lag_records": 1,
                    "lost_records": None,
                    "age_seconds": None,
                    **UNKNOWN,
                    "member": None,
                }
            ],
        }
    ]


def test_who_reads_a_partition_is_named():
    rows = (_partition(0, 1, 1.0), _partition(1, 1, 1.0))
    seen = [Outlook(GroupLag("g", "Stable", 2, 1.0, rows, 1, {Partition("t", 1): Member("g-0", "10.0.0.7", "g-0-1f")}))]
    heads, nobodys, read = (line.split() for line in show.table(seen).splitlines())
    assert heads[-2:] == ["MEMBER", "STATE"]
    assert (nobodys[-1], read[-2:]) == ("Stable", ["g-0@10.0.0.7", "Stable"])
    assert "g-0@10.0.0.7" not in nobodys
    assert [row["member"] for row in show.as_json(seen)[0]["partitions"]] == [None, "g-0@10.0.0.7"]


def test_the_table_says_unknown_with_a_question_mark_and_drops_an_empty_lost_column():
    rows = (_partition(0, None, None), PartitionLag("t", 1, None, 1, 2, 1, None, 65.0, (Mark.NO_COMMIT,)))
    table = show.table([Outlook(GroupLag("g", "Empty", None, None, rows))]).splitlines()
    assert table[0].split() == [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "AGE",
        "STATE",
        "NOTE",
    ]
    assert table[1].split() == ["g", "t", "0", "1", "9", "?", "?", "Empty"]
    assert table[2].split() == ["g", "t", "1", "-", "2", "1", "1", "min", "5", "s", "Empty", "no", "commit"]


@pytest.mark.parametrize(
    ("lag", "age", "said"),
    [
        (None, None, "g: lag ?, the oldest waits ?"),
        (7, 61.0, "g: lag 7, the oldest waits 1 min 1 s"),
        (0, 0.0, "g: caught up"),
        (0, 61.0, "g: lag 0, the oldest waits 1 min 1 s"),
    ],
)
def test_a_group_ends_in_one_line(lag, age, said):
    assert show.sentences([Outlook(GroupLag("g", "Empty", lag, age, ()))]) == said


def test_a_cluster_without_groups_says_so():
    assert show.sentences([]) == "The cluster has no consumer groups."


def test_a_name_that_a_terminal_would_obey_is_escaped():
    assert columns(("NAME",), [("a\nb\x1b[31m\u202ec",)], frozenset()).splitlines()[1] == r"a\nb\x1b[31m\u202ec"


def test_columns_are_as_wide_as_their_widest_cell():
    assert columns(("NAME", "N"), [("a", "1"), ("long-name", "100")], frozenset({"NAME"})) == (
        "NAME         N\na            1\nlong-name  100"
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "?"),
        (0.0, "0 s"),
        (1.26, "1.3 s"),
        (9.99, "9 s"),
        (59.9, "59 s"),
        (61, "1 min 1 s"),
        (3_599, "59 min 59 s"),
        (3_600, "1 h 0 min"),
        (172_800 + 3_600, "2 d 1 h"),
    ],
)
def test_a_length_of_time_for_people(seconds, said):
    assert duration(seconds) == said
